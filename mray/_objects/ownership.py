"""Entries: what a process knows of one object, and when it is needed no more.

Every ref a process holds of an object points to the same `Entry`, and Python's reference counts do the counting: refs, calls in flight
that have it as an argument, zero-copy views of its value and borrowers' records all hold the entry. When nothing holds it, its guard
acts: the owner gives the memory back, a borrower tells the owner.

    owner's process                                borrower's process
    ObjectRef --+                                  ObjectRef --+
    call      --+--> Entry -> Guard                array ------+--> Entry -> Guard -- RELEASE --> owner
    borrowers --+

Rejected: counts in messages for each copy of a ref. Two processes would have to agree on a number; here each tells only whether it holds
the object at all, and the end of a process returns everything that it held.

Guards are finalizers: they take no locks and hand their work to the reactor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from mray._common.bridge import Cancel
from mray._common.messages import FAILED

if TYPE_CHECKING:
    from mray._api.object_ref import ObjectRef

Waiter = Callable[["Entry"], None]


class Entry:
    """An object as this process sees it.

    Invariant: `form` is ``None`` while the value is pending and is written last; a thread that sees it not ``None`` may read the rest.
    """

    # Class attributes rather than slots and a constructor: entries are made for every call, most fields stay as they are.

    #: Why refs are of no use whose entries are not of the class that their process's session has.
    ended = "it is of a session that has ended, or no session made it"
    #: The process that owns the object, or None for this one.
    owner: str | None = None
    form: int | None = None
    #: Of the class: how many entries of this process have failed.
    failures = 0
    payload: Any = None
    #: Refs and handles inside the value: alive as long as the bytes are.
    refs: list[Any] | None = None
    #: Called when the entry ends.
    guard: Any = None
    #: Called once with the entry when the value is there, in the reading thread, with the client's lock held: one, or a list of them.
    #: (Who waits for 100,000 values would otherwise make a list for each.)
    waiters: Waiter | list[Waiter] | None = None
    #: Weak reference to the reading of the value that there is in this process, if it lies in a segment; and its mapping, which the next
    #: reading finds with the pages that earlier ones have touched.
    mapping: Any = None
    kept: Any = None
    #: Borrowed: the object's id, and whether its value has been asked for.
    object_id = b""
    fetching = False
    #: The call that makes the value, while it is pending (for `cancel`).
    task: Any = None
    #: How a value is made again whose memory is gone (see `mray._runtime.client.reconstruction`), and what lay in vain where the owner
    #: said.
    recipe: Any = None
    missed = ""
    #: How the tensors of the value travel, if they stay with their maker; where `get` is to leave them; which actors
    #: have been sent the ref (True: enough was said about it).
    transport: Any = None
    target: Any = None
    sent: Any = None

    def ready(self) -> bool:
        """Whether the value is there."""
        return self.form is not None

    def complete(self, form: int, payload: Any, refs: list[Any] | None = None) -> None:
        """The value (or error) is there. A second completion is ignored."""
        if self.form is not None:
            return
        self.payload = payload
        self.refs = refs
        self.task = None
        self.form = form
        if form == FAILED:
            Entry.failures += 1
        waiters = self.waiters
        if waiters:
            self.waiters = None
            if type(waiters) is list:
                for waiter in waiters:
                    waiter(self)
            else:
                waiters(self)  # type: ignore[operator]

    def then(self, waiter: Waiter) -> Cancel:
        """Call `waiter` with this entry at completion, now if it is complete; returns `forget`. Client's lock held."""
        waiters = self.waiters
        if self.form is not None:
            waiter(self)
        elif waiters is None:
            self.waiters = waiter
        elif type(waiters) is list:
            waiters.append(waiter)
        else:
            self.waiters = [waiters, waiter]  # type: ignore[list-item]
        return lambda: self.forget(waiter)  # (quicker than a `partial`, and mostly dropped)

    def part(self) -> None:
        """The value's living reading keeps the memory that it has: others map the segment anew."""
        self.mapping = self.kept = None

    def forget(self, waiter: Waiter) -> bool:
        """Undo `then`; False, and nothing happens, if it has been undone or the waiter was called. Client's lock held."""
        waiters = self.waiters
        if type(waiters) is list and waiter in waiters:
            waiters.remove(waiter)
            return True
        if waiters == waiter:
            self.waiters = None
            return True
        return False


class ForeignEntry(Entry):
    """An object of another session."""

    ended = "it belongs to another session"


def why_unknown(ref: ObjectRef) -> str:
    """Why a ref is of no use whose entry is not of this session."""
    entry: Entry | None = ref._entry
    return Entry.ended if entry is None else entry.ended


class Guard:
    """Calls `action(*facts)` through `defer` when it dies."""

    __slots__ = ("_action", "_defer", "_facts")

    def __init__(self, defer: Callable[[Callable[[], None]], None], action: Callable[..., None], *facts: Any) -> None:
        self._defer = defer
        self._action = action
        self._facts = facts

    def __del__(self) -> None:
        action, facts = self._action, self._facts
        self._defer(lambda: action(*facts))


class Completion:
    """Tells when a `get` of entries can answer: all have a value, or one has failed. It is told nothing, and looks at a value once."""

    __slots__ = ("_entries", "_failures", "_place", "failed")

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._entries = entries
        #: Those before have a value or an error.
        self._place = 0
        #: Failures in this process when all entries were last looked at for one. Several threads write it without a lock: an older count
        #: has the entries looked at once more.
        self._failures = -1
        #: An entry that failed, as soon as there is one.
        self.failed: Entry | None = None

    def is_reached(self) -> bool:
        """Whether the `get` can answer. Any thread."""
        entries, place = self._entries, self._place
        most = len(entries)
        while place < most and (form := entries[place].form) is not None:
            if form == FAILED:
                self.failed = entries[place]
                return True
            place += 1
        self._place = place
        failures = Entry.failures
        if failures != self._failures:
            for entry in islice(entries, place, None):
                if entry.form == FAILED:
                    self.failed = entry
                    return True
            self._failures = failures
        return place == most or self.failed is not None


class Countdown:
    """Counts entries down to the moment a `wait` can answer. Client's lock held, except when reading."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = 0

    def to_watch(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        """Those of the entries that are to be watched."""
        return entries

    def watch(self, entry: Entry) -> None:
        """Count this entry, if it is still pending."""
        if entry.form is None:
            self.left += 1
            entry.then(self._done)

    def end(self, entries: Iterable[Entry]) -> None:
        """Nobody waits any more: leave nothing with those that are still pending, which may be waited for a thousand times."""
        if self.left:
            for entry in entries:
                if entry.form is None:
                    entry.forget(self._done)

    def _done(self, _entry: Entry) -> None:
        self.left -= 1


#: Entries that a `Survey` looks at, at most.
MOST_SURVEYED = 4096


class Survey:
    """A `Countdown` that looks at all entries each time it is asked, and is told nothing.

    For a wait that ends with the next value: who waits for one of a thousand refs, again and again, would spend its time on saying so to
    each of them, and on taking that back.
    """

    __slots__ = ("_entries",)

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._entries = entries

    @property
    def left(self) -> int:
        return [entry.form for entry in self._entries].count(None)

    def to_watch(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        """Those that others own have to be asked for."""
        return [entry for entry in entries if entry.owner is not None]

    def watch(self, entry: Entry) -> None:
        """Nothing to do."""

    def end(self, entries: Iterable[Entry]) -> None:
        """Nothing to undo."""


def split_ready(refs: Sequence[ObjectRef], num_returns: int) -> tuple[list[ObjectRef], list[ObjectRef]]:
    """The first refs whose value is there, `num_returns` at most, and the others. A ref costs some tens of nanoseconds, or less."""
    if num_returns == len(refs) and None not in [ref._entry.form for ref in refs]:
        return list(refs), []
    ready: list[ObjectRef] = []
    rest: list[ObjectRef] = []
    for index, ref in enumerate(refs):
        if ref._entry.form is None:
            rest.append(ref)
        else:
            ready.append(ref)
            if len(ready) == num_returns:
                rest += refs[index + 1 :]
                break
    return ready, rest
