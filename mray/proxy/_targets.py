"""Targets: the objects of an interpreter, and their holders.

A target lives while it has a holder: the place of the step by which a client came to hold it, or the key of a token in transit. Dropped
objects are destroyed after the lock is released, since finalizers of users' objects may do anything.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from mray.proxy._errors import Failure
from mray.proxy._step import Place

#: a stream's number begins with its client's
STREAM_BITS = 24


def client_of(stream: int) -> int:
    return stream >> STREAM_BITS


class Target:
    __slots__ = ("failure", "holders", "value")

    def __init__(self, value: Any, failure: Failure | None, holders: set[Any]) -> None:
        self.value = value
        self.failure = failure
        self.holders = holders


class Targets:
    """The objects of an interpreter. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_place: dict[Place, Target] = {}
        #: holders of targets that do not exist yet
        self._early: dict[Place, set[Any]] = {}
        #: failures that no variable shows, by stream
        self._complaints: dict[int, list[Failure]] = {}
        self.get = self._by_place.get

    def __len__(self) -> int:
        return len(self._by_place)

    def add(self, place: Place, value: Any, failure: Failure | None) -> None:
        if failure is not None:
            failure.pending += 1
        self._by_place[place] = target = Target(value, failure, {place})
        # `hold` writes there before it reads here, and this does the opposite: one of the two sees the other.
        if self._early:
            with self._lock:
                target.holders |= self._early.pop(place, set())

    def hold(self, place: Place, holder: Any, will_come: Callable[[], bool]) -> bool:
        """Hold a target, or a future one. Returns False if it was released."""
        with self._lock:
            if place not in self._by_place:
                self._early.setdefault(place, set()).add(holder)
                coming = will_come()
                target = self._by_place.get(place)
                if target is not None or not coming:
                    del self._early[place]
                if target is None:
                    return coming
            self._by_place[place].holders.add(holder)
            return True

    def release(self, place: Place, holder: Any) -> None:
        with self._lock:
            target = self._by_place.get(place)
            if target is None:
                early = self._early.get(place)
                if early is not None:
                    early.discard(holder)
                    if not early:
                        del self._early[place]
                return
            target.holders.discard(holder)
            if target.holders:
                return
            del self._by_place[place]
            self._forgotten(place, target)

    def drop_client(self, client: int) -> None:
        ended = []
        with self._lock:
            for stream in [stream for stream in self._complaints if client_of(stream) == client]:
                del self._complaints[stream]
            for place, target in list(self._by_place.items()):
                target.holders = {
                    holder for holder in target.holders if not (isinstance(holder[0], int) and client_of(holder[0]) == client)
                }
                if not target.holders:
                    del self._by_place[place]
                    ended.append(target)
        del ended

    def clear(self) -> None:
        with self._lock:
            ended = list(self._by_place.values())
            self._by_place.clear()
        del ended

    def count_failed(self) -> int:
        return sum(target.failure is not None for target in list(self._by_place.values()))

    # ------------------------------------------------------------------------------------ failures
    def complain(self, stream: int, failure: Failure) -> None:
        """Report a failure that no variable shows with the stream's next answer."""
        if not failure.seen:
            failure.seen = True
            with self._lock:
                self._complaints.setdefault(stream, []).append(failure)

    def complaint_of(self, stream: int) -> Failure | None:
        if not self._complaints:
            return None
        with self._lock:
            left = self._complaints.get(stream)
            if not left:
                return None
            failure = left.pop(0)
            if not left:
                del self._complaints[stream]
            return failure

    def _forgotten(self, place: Place, target: Target) -> None:
        """Report an unseen failure to the stream when its last target goes. Lock held."""
        failure = target.failure
        if failure is not None:
            failure.pending -= 1
            if not failure.pending and not failure.seen and not failure.is_question:
                failure.seen = True
                self._complaints.setdefault(place[0], []).append(failure)
