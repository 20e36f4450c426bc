"""Long lists of refs that a program waits for repeatedly: ``while refs: done, refs = wait(refs)``.

Usually a call gets the very refs that the previous one has left::

    wait(refs) ──▶ done, rest ──▶ wait(rest) ──▶ done, rest ──▶ ...
                         │         ▲
                      (cached) ────┘ known to be distinct refs of this session; the arrived ones, by index

So a call costs as much as its arrived values and the list that it returns: from the second call with a list on, each value has one
callback.

A cached list keeps values alive, so it is dropped soon after the program's last wait, and only long ones are cached. A call removes the
list that it uses from the cache: threads never share one, and one that an exception has left inconsistent is never found.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Any

from mray._api.backend import LONG_LIST
from mray._api.object_ref import ObjectRef
from mray._objects.ownership import Entry

#: Seconds that a list is cached after the last call, up to twice as long.
_LINGER = 0.05
#: Cached lists, of different threads.
_MOST_KEPT = 4
#: A list is long if a call asks for at most one in this many of its refs.
_FEW = 16


class LongList:
    """For one thread at a time, except `count`."""

    __slots__ = ("_arrived", "_entries", "_numbers", "asks", "entries", "is_fresh", "refs")

    def __init__(self, refs: list[ObjectRef]) -> None:
        self.refs = refs
        #: Each ref's entry and number, in order, with ascending numbers. Empty until the list is watched.
        self._entries: list[Entry] = []
        self._numbers: list[int] = []
        #: Numbers by entry.
        self.entries: dict[Entry, int] = {}
        #: A heap: the numbers of entries whose values have arrived.
        self._arrived: list[int] = []
        #: Whether values of other owners have not been requested.
        self.asks = False
        #: Whether it was used since the last check.
        self.is_fresh = True

    def known(self, refs: list[ObjectRef]) -> int:
        """How many of these refs, from the first on, are this list's: 0 or all of its own. Mostly compares pointers."""
        own = self.refs
        size = len(own)
        if len(refs) == size:
            return size if refs == own else 0
        return size if size < len(refs) <= size + size // _FEW and refs[0] is own[0] and refs[:size] == own else 0

    @property
    def count(self) -> int:
        """Arrived values. Any thread."""
        return len(self._arrived)

    def watch(self, more: Sequence[ObjectRef], own: type[Entry], lock: Any) -> bool:
        """Count arrivals, of `more` refs too; False, without effect, unless all refs are distinct and of this session."""
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
        """Remove the refs at these indices; returns them and the others."""
        refs, numbers, entries = self.refs, self._numbers, self._entries
        ready = [refs[place] for place in places]
        for place in reversed(places):
            del self.entries[entries[place]]
            del refs[place], numbers[place], entries[place]
        return ready, refs.copy()

    # ---------------------------------------------------------------------------------- client's lock held
    def take(self, number: int) -> list[int]:
        """The indices of at most `number` ready refs. Values that were lost meanwhile are awaited again."""
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
        for place in places:
            heappush(self._arrived, self._numbers[place])

    def end(self) -> None:
        came = self._came
        for entry in self.entries:
            if entry.form is None:
                entry.forget(came)

    def _came(self, entry: Entry) -> None:
        heappush(self._arrived, self.entries[entry])


class LongLists:
    def __init__(self, lock: Any, later: Callable[[float, Callable[[], None]], None]) -> None:
        self._lock = lock
        self.later = later
        self._kept: list[LongList] = []
        self._is_looking = False

    @staticmethod
    def is_long(refs: Sequence[ObjectRef], num_returns: int) -> bool:
        return len(refs) >= LONG_LIST and num_returns * _FEW <= len(refs)

    def has(self, refs: list[ObjectRef]) -> bool:
        return any(kept.known(refs) == len(refs) for kept in self._kept)

    def find(self, refs: list[ObjectRef], own: type[Entry]) -> LongList | None:
        """The watched list of these refs, which the caller must `keep` or `end`; or None."""
        for kept in tuple(self._kept):
            known = kept.known(refs)
            if not known or not self._take(kept):
                continue
            if (kept.entries and known == len(refs)) or kept.watch(refs[known:], own, self._lock):
                return kept
            self.end(kept)
        return None

    def keep(self, listed: LongList) -> None:
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
        """Drop a list that the caller of `find` does not `keep`."""
        with self._lock:
            listed.end()

    def clear(self) -> None:
        for kept in tuple(self._kept):
            if self._take(kept):
                self.end(kept)

    def _take(self, listed: LongList) -> bool:
        try:
            self._kept.remove(listed)
        except ValueError:
            return False
        return True

    def _look(self) -> None:
        """Drop unused lists. In the reading thread."""
        self._is_looking = False
        for kept in tuple(self._kept):
            if kept.is_fresh:
                kept.is_fresh = False
            elif self._take(kept):
                self.end(kept)
        if self._kept and not self._is_looking:
            self._is_looking = True
            self.later(_LINGER, self._look)
