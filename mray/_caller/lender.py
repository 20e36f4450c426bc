"""The objects of one process that others hold: the owner's side of borrowing.

::

    a process that holds refs:  borrowed ──▶ counted, each object once for each BORROW ──▶ released
    a reply with refs inside:   pinned ────▶ until its receiver has borrowed them     ──▶ unpinned

    its connection breaks: it keeps what it holds             it has ended: everything is returned
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from mray._caller import caller_instructions as do
from mray._common.story import Story

if TYPE_CHECKING:
    from mray._caller.call_records import Link


class Account:
    """The objects that one process holds."""

    __slots__ = ("borrows", "pins")

    def __init__(self) -> None:
        #: Entry and count, by object id.
        self.borrows: dict[bytes, tuple[Any, int]] = {}
        #: Refs, by the task whose reply holds them.
        self.pins: dict[bytes, Any] = {}


class Lender:
    """The borrowers of this process's objects.

    Invariant: `lent` is the count of objects in all accounts, an object once for each account. No account is that of a process that has
    ended, as far as this one has heard.
    """

    def __init__(self, process: str) -> None:
        #: By process.
        self.accounts: defaultdict[str, Account] = defaultdict(Account)
        self.lent = 0
        self._story = Story("the objects that process", process, "has lent")

    # ------------------------------------------------------------------------------------ questions
    def is_idle(self) -> bool:
        """Whether no process holds anything. Any thread."""
        return not any(account.borrows or account.pins for account in tuple(self.accounts.values()))

    # ------------------------------------------------------------------------------------ events
    def borrowed(self, link: Link, number: int, found: Sequence[tuple[bytes, Any]]) -> do.Instructions:
        """The process at the other end holds refs of these objects, an id and an entry each, and waits for an answer if there is a number.

        A message from behind the end of its connection is not counted: nothing would return it.
        """
        if link.closed:
            self._story.note("borrows of a closed connection", len(found))
            return []
        for object_id, entry in found:
            borrows = self.accounts[link.process].borrows
            held = borrows.get(object_id)
            self.lent += held is None
            borrows[object_id] = (entry, 1 if held is None else held[1] + 1)
        return [do.Acknowledge(link, number)] if number else []

    def released(self, link: Link, object_ids: Iterable[bytes]) -> do.Instructions:
        """The process at the other end has let go of each of these once. It may never have been lent one that was gone when it came."""
        account = self.accounts.get(link.process)
        if account is None:
            return []
        for object_id in object_ids:
            entry, count = account.borrows.pop(object_id, (None, 0))
            if count > 1:
                account.borrows[object_id] = (entry, count - 1)
            self.lent -= count == 1
        return []

    def pinned(self, link: Link, task_id: bytes, refs: Any) -> do.Instructions:
        """A reply is about to be sent with these refs inside."""
        if not link.closed:
            self.accounts[link.process].pins[task_id] = refs
        return []

    def unpinned(self, link: Link, task_id: bytes) -> do.Instructions:
        """The receiver has borrowed the refs of a reply, or will never get it."""
        account = self.accounts.get(link.process)
        if account is not None:
            account.pins.pop(task_id, None)
        return []

    def died(self, process: str) -> do.Instructions:
        """A process has ended."""
        account = self.accounts.pop(process, None)
        if account is None or not account.borrows:
            return []
        self._story.note("died", process, len(account.borrows))
        self.lent -= len(account.borrows)
        return [do.Expose([entry for entry, _count in account.borrows.values()])]

    # ------------------------------------------------------------------------------------ for tests and errors
    def story(self) -> str:
        """The last events."""
        return str(self._story)

    def validate(self) -> None:
        """Assert every invariant, between two events."""
        assert self.lent == sum(len(account.borrows) for account in self.accounts.values()), self.story()
        assert all(count > 0 for account in self.accounts.values() for _entry, count in account.borrows.values()), self.story()
