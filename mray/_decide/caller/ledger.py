"""`Ledger`: what this process has lent to others, until each has returned it or has exited.

::

    lend(thing, to, number) ──── a message with the number ────▶ the borrower
    returned(by, number)   ◀──── its message ──────────────────  has released it
    ended(process)         ◀──── the node's message ───────────  has exited: all that it had returns

========================================  ==========================  ==================================
lent                                      number                      returned by
========================================  ==========================  ==================================
objects, once for each time               the object's id             RELEASE
the refs inside a reply                   the pin's name              UNPIN, once the receiver has borrowed them
tensors that stay here, to their owner    the object's id             TENSORS_FREE
memory of devices, for calls              counted                     TENSORS_DONE, with the end of the receiver's work
========================================  ==========================  ==================================

A connection that breaks returns nothing, since its process lives.

Loans of a ring's writer are in no ledger, since they outlive both ends (`mray._ipc.ring_loans`).
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from mray._decide.caller.call_records import Link

Thing = TypeVar("Thing")


class Ledger(Generic[Thing]):
    """Invariant: `out` counts each loan once for each process that has it. No process that is known to have exited has an account."""

    __slots__ = ("accounts", "out")

    def __init__(self) -> None:
        #: Process -> number -> (thing, how often it is to be returned).
        self.accounts: dict[str, dict[Hashable, tuple[Thing, int]]] = {}
        self.out = 0

    def lend(self, thing: Thing, to: Link, number: Hashable) -> bool:
        """Lend a thing, once more if it is lent already. Returns False after the end of the connection, since no message would return
        it.
        """
        if to.closed:
            return False
        account = self.accounts.setdefault(to.process, {})
        times = account[number][1] if number in account else 0
        self.out += not times
        account[number] = thing, times + 1
        return True

    def returned(self, by: Link, number: Hashable) -> Thing | None:
        """Return the thing on the last return; None for a thing that was never lent because it had been released before the request
        arrived.
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
        account = self.accounts.pop(process, {})
        self.out -= len(account)
        return [thing for thing, _times in account.values()]

    def validate(self) -> None:
        assert self.out == sum(len(account) for account in self.accounts.values()), self.accounts
        assert all(times > 0 for account in self.accounts.values() for _thing, times in account.values()), self.accounts
