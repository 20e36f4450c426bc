"""Entries: the state of an object in one process, and the moment when it is needed no more.

All refs of an object in a process point to the same `Entry`: refs, calls with the object as an argument, zero-copy views of its value
and borrowers' records hold it. When none is left, its guard, a finalizer, frees the memory in the owner, or notifies the owner.

    owner's process                                borrower's process
    ObjectRef --+                                  ObjectRef --+
    call      --+--> Entry -> Guard                array ------+--> Entry -> Guard -- RELEASE --> owner
    borrowers --+

Rejected: counts in messages for each copy of a ref. Two processes would have to agree on a number; here each reports only whether it
holds the object, and the end of a process returns everything that it held.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from mray._api.object_ref import NO_SESSION
from mray._common.bridge import Cancel
from mray._common.messages import FAILED

if TYPE_CHECKING:
    from mray._api.object_ref import ObjectRef

Waiter = Callable[["Entry"], None]


class Entry:
    """An object as this process sees it.

    Invariant: `form` is ``None`` while the value is pending and is written last; a thread that sees another value may read the rest.
    """

    # Class attributes, not slots: most fields keep their defaults.

    #: Why refs with entries of another session's class are unusable.
    ended = NO_SESSION
    #: The owner; None: this process.
    owner: str | None = None
    form: int | None = None
    #: Failures in this process; of the class.
    failures = 0
    payload: Any = None
    #: Refs and handles inside the value: alive as long as the bytes are.
    refs: list[Any] | None = None
    guard: Any = None
    #: Called once with the entry at completion, in the reading thread, with the client's lock held: one, or a list of them.
    waiters: Waiter | list[Waiter] | None = None
    #: Of a value in a segment: a weak reference to its living reading; and the mapping, which the next reading reuses.
    mapping: Any = None
    kept: Any = None
    #: Borrowed: the object's id, and whether its value has been requested.
    object_id = b""
    fetching = False
    #: The call that computes the pending value (for `cancel`).
    task: Any = None
    #: How to recompute a removed value; and the owner's last location, where it was not.
    recipe: Any = None
    missed = ""
    #: How the value's tensors travel, if they stay with their holder; where `get` places them; which actors have been sent the ref (True:
    #: no more warnings about it).
    transport: Any = None
    target: Any = None
    sent: Any = None

    def ready(self) -> bool:
        return self.form is not None

    def complete(self, form: int, payload: Any, refs: list[Any] | None = None) -> None:
        """Set the value (or error) and call the waiters. A second completion is ignored."""
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
        """Call `waiter` with this entry at completion or now; returns `forget`. Client's lock held."""
        waiters = self.waiters
        if self.form is not None:
            waiter(self)
        elif waiters is None:
            self.waiters = waiter
        elif type(waiters) is list:
            waiters.append(waiter)
        else:
            self.waiters = [waiters, waiter]  # type: ignore[list-item]
        return lambda: self.forget(waiter)  # (faster than a `partial`, and mostly dropped)

    def part(self) -> None:
        """Leave the mapping to the value's living reading: later readings map the segment anew."""
        self.mapping = self.kept = None

    def forget(self, waiter: Waiter) -> bool:
        """Undo `then`; False if that was undone or the waiter was called. Client's lock held."""
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
    """Why a ref is unusable whose entry is not of this session."""
    entry: Entry | None = ref._entry
    return Entry.ended if entry is None else entry.ended


class Guard:
    """Calls `action(*arguments)` through `defer` when it is collected."""

    __slots__ = ("_action", "_arguments", "_defer")

    def __init__(self, defer: Callable[[Callable[[], None]], None], action: Callable[..., None], *arguments: Any) -> None:
        self._defer = defer
        self._action = action
        self._arguments = arguments

    def __del__(self) -> None:
        action, arguments = self._action, self._arguments
        self._defer(lambda: action(*arguments))


class Completion:
    """Whether a `get` can answer: all entries have a value, or one has failed. It polls each entry once."""

    __slots__ = ("_entries", "_failures", "_place", "failed")

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._entries = entries
        #: Entries with lower indices are complete.
        self._place = 0
        #: Failures at the last check of all entries. Threads write it without a lock: an older count only causes one more check.
        self._failures = -1
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
    """Counts the pending entries until a `wait` can answer. Client's lock held, except for reading."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = 0

    def to_watch(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        return entries

    def watch(self, entry: Entry) -> None:
        if entry.form is None:
            self.left += 1
            entry.then(self._done)

    def end(self, entries: Iterable[Entry]) -> None:
        """Withdraw the callbacks from pending entries: a program may wait for them thousands of times."""
        if self.left:
            for entry in entries:
                if entry.form is None:
                    entry.forget(self._done)

    def _done(self, _entry: Entry) -> None:
        self.left -= 1


MOST_SURVEYED = 4096


class Survey:
    """A `Countdown` without callbacks, which checks all entries at each poll.

    For a wait that ends with the next value: callbacks at each wait for one of many refs would cost more.
    """

    __slots__ = ("_entries",)

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._entries = entries

    @property
    def left(self) -> int:
        return [entry.form for entry in self._entries].count(None)

    def to_watch(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        """Borrowed entries, which must be requested from their owners."""
        return [entry for entry in entries if entry.owner is not None]

    def watch(self, entry: Entry) -> None:
        """Do nothing."""

    def end(self, entries: Iterable[Entry]) -> None:
        """Do nothing."""


def split_ready(refs: Sequence[ObjectRef], num_returns: int) -> tuple[list[ObjectRef], list[ObjectRef]]:
    """At most `num_returns` ready refs, from the first on, and all others."""
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
