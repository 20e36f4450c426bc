"""Long lists of refs that a program waits for again and again: ``while refs: done, refs = wait(refs)``.

In any process, any thread. Mostly the next call gets the very refs that the last one has left::

    wait(refs) ──▶ done, rest ──▶ wait(rest) ──▶ done, rest ──▶ ...
                          │         ▲
                        (kept) ─────┘ known to be refs of this session, each another; those that have arrived, by their place

So the price of a call is that of the values that have come, and of the list that it makes. Each value is awaited once, from the second call
with a list on: to look at all of 8,000 refs 8,000 times, or to tell each of them so, takes seconds. A list with more refs at its end is
known too.

A list that is kept keeps values alive: it goes as soon as the program waits no more, and only long ones are kept. A call takes the list
that it goes on with for itself: two threads never share one, and nobody finds one that an exception has left half done.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Any

from mray._api.backend import LONG_LIST
from mray._api.object_ref import ObjectRef
from mray._objects.ownership import Entry

#: A list is kept for so many seconds after the last call, or for twice as many.
_LINGER = 0.05
#: So many lists are kept, of different threads.
_MOST_KEPT = 4
#: A call asks for one in so many of its refs at most: who asks for more looks through the list seldom.
_FEW = 16


class LongList:
    """The refs that a `wait` has left. For one thread at a time, but for `count`."""

    __slots__ = ("_arrived", "_entries", "_numbers", "asks", "entries", "is_fresh", "refs")

    def __init__(self, refs: list[ObjectRef]) -> None:
        self.refs = refs
        #: Of each ref, in order: its entry, and a number; these ascend. Empty until the list is watched.
        self._entries: list[Entry] = []
        self._numbers: list[int] = []
        #: By entry, its number.
        self.entries: dict[Entry, int] = {}
        #: A heap: the numbers of entries that had a value when they were looked at.
        self._arrived: list[int] = []
        #: Whether there are values of other owners that nobody has asked for.
        self.asks = False
        #: Whether it was used since somebody looked.
        self.is_fresh = True

    def known(self, refs: list[ObjectRef]) -> int:
        """How many of these refs are known, from the first on: 0, or all that there are here. Compares pointers, mostly."""
        own = self.refs
        size = len(own)
        if len(refs) == size:
            return size if refs == own else 0
        return size if size < len(refs) <= size + size // _FEW and refs[0] is own[0] and refs[:size] == own else 0

    @property
    def count(self) -> int:
        """How many have arrived. Any thread."""
        return len(self._arrived)

    def watch(self, more: Sequence[ObjectRef], own: type[Entry], lock: Any) -> bool:
        """Have arrivals counted, of `more` refs too; False, and nothing done, where not each is another one of this session."""
        added = [*more] if self.entries else [*self.refs, *more]
        new = [ref._entry for ref in added if ref.__class__ is ObjectRef]
        if len(new) != len(added) or {*map(type, new)} - {own} or len({*new}) != len(new) or not self.entries.keys().isdisjoint(new):
            return False
        first = self._numbers[-1] + 1 if self._numbers else 0
        numbers = range(first, first + len(new))
        self.refs += more
        self._numbers += numbers
        self._entries += new
        self.entries.update(zip(new, numbers, strict=True))
        self.asks = self.asks or any(entry.owner is not None for entry in new)
        came = self._came
        with lock:
            for entry in new:
                entry.then(came)
        return True

    def split(self, places: list[int]) -> tuple[list[ObjectRef], list[ObjectRef]]:
        """The refs at these places, which are not waited for any more, and the others."""
        refs, numbers, entries = self.refs, self._numbers, self._entries
        ready = [refs[place] for place in places]
        for place in reversed(places):
            del self.entries[entries[place]]
            del refs[place], numbers[place], entries[place]
        return ready, refs.copy()

    # ---------------------------------------------------------------------------------- client's lock held
    def take(self, number: int) -> list[int]:
        """The places of the first that are ready, so many at most. Those that have been lost since they came are awaited once more."""
        found: list[int] = []
        arrived, came = self._arrived, self._came
        while arrived and len(found) < number:
            place = bisect_left(self._numbers, heappop(arrived))
            if self._entries[place].form is None:
                self._entries[place].then(came)
            else:
                found.append(place)
        return found

    def put_back(self, places: list[int]) -> None:
        """Undo `take`."""
        for place in places:
            heappush(self._arrived, self._numbers[place])

    def end(self) -> None:
        """Nobody waits for these any more: leave nothing with those that are still pending."""
        came = self._came
        for entry in self.entries:
            if entry.form is None:
                entry.forget(came)

    def _came(self, entry: Entry) -> None:
        heappush(self._arrived, self.entries[entry])


class LongLists:
    """The long lists of one process."""

    def __init__(self, lock: Any, later: Callable[[float, Callable[[], None]], None]) -> None:
        self._lock = lock
        self.later = later
        self._kept: list[LongList] = []
        self._is_looking = False

    @staticmethod
    def is_long(refs: Sequence[ObjectRef], num_returns: int) -> bool:
        """Whether what a `wait` of these leaves is kept."""
        return len(refs) >= LONG_LIST and num_returns * _FEW <= len(refs)

    def has(self, refs: list[ObjectRef]) -> bool:
        """Whether a `wait` has left these very refs."""
        return any(kept.known(refs) == len(refs) for kept in self._kept)

    def find(self, refs: list[ObjectRef], own: type[Entry]) -> LongList | None:
        """The list of these refs, watched, which is the caller's now: it is to `keep` it, or to `end` it."""
        for kept in tuple(self._kept):
            known = kept.known(refs)
            if not known or not self._take(kept):
                continue
            if (kept.entries and known == len(refs)) or kept.watch(refs[known:], own, self._lock):
                return kept
            self.end(kept)
        return None

    def keep(self, listed: LongList) -> None:
        """Keep what a `wait` has left for the next one."""
        if not listed.refs:
            return
        listed.is_fresh = True
        self._kept.append(listed)
        for old in self._kept[:-_MOST_KEPT]:
            if self._take(old):
                self.end(old)
        if not self._is_looking:
            self._is_looking = True
            self.later(_LINGER, self._look)

    def end(self, listed: LongList) -> None:
        """Nobody goes on with it."""
        with self._lock:
            listed.end()

    def clear(self) -> None:
        """Keep nothing: the session has ended."""
        for kept in tuple(self._kept):
            if self._take(kept):
                self.end(kept)

    def _take(self, listed: LongList) -> bool:
        """Take a list out of what is kept; False where another thread has done so."""
        try:
            self._kept.remove(listed)
        except ValueError:
            return False
        return True

    def _look(self) -> None:
        """Drop the lists that nobody waits for any more. The thread that reads."""
        self._is_looking = False
        for kept in tuple(self._kept):
            if kept.is_fresh:
                kept.is_fresh = False
            elif self._take(kept):
                self.end(kept)
        if self._kept and not self._is_looking:
            self._is_looking = True
            self.later(_LINGER, self._look)
