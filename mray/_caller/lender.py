"""The objects of one process that others hold: the owner's side of borrowing.

::

    a process that holds refs:  borrowed ──▶ counted, each object once for each BORROW ──▶ released
    a reply with refs inside:   pinned ────▶ until its receiver has borrowed them     ──▶ unpinned

    its connection breaks: what it holds is kept for its next connection             it has ended: everything is returned
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from mray._caller import instructions as do
from mray._common.story import Story

if TYPE_CHECKING:
    from mray._caller.records import Link


class Account:
    """The objects that one process holds over one connection."""

    __slots__ = ("borrows", "pins")

    def __init__(self) -> None:
        #: Entry and count, by object id.
        self.borrows: dict[bytes, tuple[Any, int]] = {}
        #: Refs, by the task whose reply holds them.
        self.pins: dict[bytes, Any] = {}


class Lender:
    """The borrowers of this process's objects, by connection.

    Invariant: `lent` is the count of objects in all accounts, an object once for each account. Every account is that of a process
    that has not ended, as far as this one has heard.
    """

    def __init__(self, process: str) -> None:
        self.accounts: dict[Any, Account] = {}
        #: Accounts of processes that live although their connection has broken, by process.
        self.kept: dict[str, Account] = {}
        self.lent = 0
        self._story = Story("the objects that process", process, "has lent")

    # ------------------------------------------------------------------------------------ questions
    def is_idle(self) -> bool:
        """Whether no connected process holds anything. Any thread."""
        return not any(account.borrows or account.pins for account in tuple(self.accounts.values()))

    # ------------------------------------------------------------------------------------ events
    def borrowed(self, link: Link, number: int, found: Sequence[tuple[bytes, Any]]) -> do.Instructions:
        """The process at the other end holds refs of these objects, an id and an entry each, and waits for an answer if there is a number.

        A message from behind the end of its connection is not counted: nothing would return it.
        """
        if link.closed:
            self._story.note("borrows of a closed connection", len(found))
            return []
        borrows = self._account(link).borrows if found else {}
        new = 0
        for object_id, entry in found:
            held = borrows.get(object_id)
            new += held is None
            borrows[object_id] = (entry, 1 if held is None else held[1] + 1)
        self.lent += new
        return [do.Acknowledge(link, number)] if number else []

    def released(self, link: Link, object_ids: Iterable[bytes]) -> do.Instructions:
        """The process at the other end has let go of each of these once. It may never have been lent one that was gone when it came."""
        account = self.accounts.get(link)
        if account is None:
            return []
        borrows = account.borrows
        gone = 0
        for object_id in object_ids:
            held = borrows.get(object_id)
            if held is None:
                continue
            if held[1] > 1:
                borrows[object_id] = (held[0], held[1] - 1)
            else:
                del borrows[object_id]
                gone += 1
        self.lent -= gone
        return []

    def pinned(self, link: Link, task_id: bytes, refs: Any) -> do.Instructions:
        """A reply is about to be sent with these refs inside."""
        if not link.closed:
            self._account(link).pins[task_id] = refs
        return []

    def unpinned(self, link: Link, task_id: bytes) -> do.Instructions:
        """The receiver has borrowed the refs of a reply, or will never get it."""
        account = self.accounts.get(link)
        if account is not None:
            account.pins.pop(task_id, None)
        return []

    def broke(self, link: Link, process: str) -> do.Instructions:
        """A connection has ended although the process lives: it keeps what it holds."""
        account = self.accounts.pop(link, None)
        if account is None or not (account.borrows or account.pins):
            return []
        self._story.note("broke", process, len(account.borrows), len(account.pins))
        return self._merge(account, self.kept.setdefault(process, Account()))

    def met(self, link: Link, process: str) -> do.Instructions:
        """There is a connection to a process: what it holds is its from now on."""
        account = self.kept.pop(process, None)
        if account is None:
            return []
        self._story.note("met again", process, len(account.borrows), len(account.pins))
        return self._merge(account, self._account(link))

    def died(self, process: str) -> do.Instructions:
        """A process has ended, and all connections to it."""
        accounts = [self.accounts.pop(link) for link in tuple(self.accounts) if link.process == process]
        if process in self.kept:
            accounts.append(self.kept.pop(process))
        out: do.Instructions = []
        for account in accounts:
            if account.borrows:
                self._story.note("died", process, len(account.borrows))
                self.lent -= len(account.borrows)
                out.append(do.Expose([entry for entry, _count in account.borrows.values()]))
        return out

    # ------------------------------------------------------------------------------------ transitions
    def _account(self, link: Link) -> Account:
        account = self.accounts.get(link)
        if account is None:
            account = self.accounts[link] = Account()
        return account

    def _merge(self, account: Account, into: Account) -> do.Instructions:
        before = len(account.borrows) + len(into.borrows)
        for object_id, (entry, count) in account.borrows.items():
            held = into.borrows.get(object_id)
            into.borrows[object_id] = (entry, count if held is None else count + held[1])
        into.pins.update(account.pins)
        self.lent += len(into.borrows) - before
        return []

    # ------------------------------------------------------------------------------------ for tests and errors
    def story(self) -> str:
        """The last events."""
        return str(self._story)

    def validate(self) -> None:
        """Assert every invariant, between two events."""
        accounts = [*self.accounts.values(), *self.kept.values()]
        assert self.lent == sum(len(account.borrows) for account in accounts), self.story()
        assert all(count > 0 for account in accounts for _entry, count in account.borrows.values()), self.story()
        assert all(account.borrows or account.pins for account in self.kept.values()), self.story()
