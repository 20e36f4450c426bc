"""`Ledger`: the things that this process has lent to others, until each of them has returned them or has ended.

::

    lend(thing, to, number) ──── a message says the number ────▶ the borrower
    returned(by, number)   ◀──── its message ───────────────────  has let go of it
    ended(process)         ◀──── the node's word ───────────────  has died: everything that it had

========================================  ==========================  ==================================
what is lent                              its number                  how a return is told
========================================  ==========================  ==================================
objects, once for each time               the object's id             RELEASE
the refs inside a reply                   the pin's name              UNPIN, once the receiver has borrowed them
tensors that stay here, to their owner    the object's id             TENSORS_FREE
memory of devices, for calls              counted                     TENSORS_DONE, with the end of the receiver's work
========================================  ==========================  ==================================

A connection that breaks returns nothing: its process lives, and keeps what it has.

Loans of a ring's writer are in no ledger: each reader says in words of its own what it has let go of, which outlive both ends, and an
account beside them would be a second truth (`mray._ipc.ring_loans`).
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from mray._decide.caller.call_records import Link

Thing = TypeVar("Thing")


class Ledger(Generic[Thing]):
    """Things of one kind.

    Invariant: `out` is the count of things, once for each process that has one. No account is that of a process that has ended, as far as
    this one has heard.
    """

    __slots__ = ("accounts", "out")

    def __init__(self) -> None:
        #: Process -> number -> the thing, and how often it is to be returned.
        self.accounts: dict[str, dict[Hashable, tuple[Thing, int]]] = {}
        self.out = 0

    def lend(self, thing: Thing, to: Link, number: Hashable) -> bool:
        """Lend it (once more) to the process at the other end. False behind the end of the connection: nothing would return it."""
        if to.closed:
            return False
        account = self.accounts.setdefault(to.process, {})
        times = account[number][1] if number in account else 0
        self.out += not times
        account[number] = thing, times + 1
        return True

    def returned(self, by: Link, number: Hashable) -> Thing | None:
        """The process at the other end has let go of it once: the thing, if that was the last time.

        It may never have been lent one that was gone when it came.
        """
        account = self.accounts.get(by.process, {})
        if number not in account:
            return None
        thing, times = account.pop(number)
        if times > 1:
            account[number] = thing, times - 1
            return None
        self.out -= 1
        return thing

    def ended(self, process: str) -> list[Thing]:
        """A process has ended: the things that it had."""
        account = self.accounts.pop(process, {})
        self.out -= len(account)
        return [thing for thing, _times in account.values()]

    def validate(self) -> None:
        """Assert every invariant, between two events."""
        assert self.out == sum(len(account) for account in self.accounts.values()), self.accounts
        assert all(times > 0 for account in self.accounts.values() for _thing, times in account.values()), self.accounts
