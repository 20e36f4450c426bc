"""The items of one generator on their way from its producer to its reader.

::

    arrived ──┬── known, the reader has it: released
              ├── promised ──▶ filled ──┐
              └── new ───────▶ stored ──┴──▶ items ──▶ taken ──▶ reported, where the producer may wait for it

The producer numbers items from 0. A call that is sent again carries the count of items that have arrived; an item that arrives twice is
recognized by its number.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mray._common.event_log import EventLog
from mray._decide.caller import caller_instructions as do
from mray._decide.caller.call_records import CANCELLED

if TYPE_CHECKING:
    from mray._decide.caller.call_records import Link, PendingCall

#: Indices of the call option "stream" that the producer reads: items that have arrived and are not sent again; the limit of unread items, 0
#: for none; items taken; whether the reader has stopped; items that each ``yield`` makes; the limit of unread items of all streams of the
#: actor, 0 for none.
ARRIVED, WINDOW, TAKEN, DROPPED, PER_YIELD, TOGETHER = range(6)


class Stream:
    """Invariant: `promises` are those of the next items, in order. Unless the reader has stopped, an item that has arrived was taken or is
    in `items`.

    The reader's thread takes from the left of `items` and counts in ``state[TAKEN]``, without a lock.
    """

    __slots__ = ("call", "event_log", "gathers", "items", "link", "promises", "state", "told", "told_from")

    def __init__(self, call: PendingCall, task_id: bytes, window: int = 0, per_yield: int = 1, together: int = 0) -> None:
        #: None once it is answered or has failed.
        self.call: PendingCall | None = call
        #: The option "stream" of the call.
        self.state: list[Any] = [0, window, 0, False, per_yield, together]
        #: Unread items at which the producer may wait for one to be taken; 0: it never waits.
        self.told_from = 1 if together else window
        #: Arrived and not taken.
        self.items: deque[Any] = deque()
        #: Promises of items whose refs were returned before they arrived.
        self.promises: deque[Any] = deque()
        #: The items arrive over it; None from each time the call is sent to its first items, and at the end.
        self.link: Any = None
        #: The last count sent to this producer.
        self.told = 0
        #: Whether all items become one value at the end.
        self.gathers = False
        self.event_log = EventLog("the stream of task", task_id)

    # ------------------------------------------------------------------------------------ questions
    def stores_directly(self, link: Link, first: int) -> bool:
        return first == self.state[ARRIVED] and link is self.link and not self.promises and not self.state[DROPPED]

    # ------------------------------------------------------------------------------------ events of the producer
    def sent(self) -> None:
        """The call is sent, or sent again, with the current `state`.

        The new producer receives no message before it has begun, which it reports with its first items, or with none if it must wait
        first.
        """
        if self.state[ARRIVED]:
            self.event_log.note("sent again at", *self.state[:DROPPED])
        self.link = None
        self.told = 0

    def arrived(self, link: Link, first: int, items: Sequence[Any]) -> do.Instructions:
        state = self.state
        number = state[ARRIVED]
        if self.call is None or first > number:
            raise self.event_log.invalid(f"Item {first}", f"over after {number}" if self.call is None else f"at item {number}")
        if first < number:
            self.event_log.note("items", first, "to", first + len(items), "came at", number)
        self.link = link
        known = number - first
        out: do.Instructions = [do.Discard(place, item) for place, item in enumerate(items[:known], first)]
        items = items[known:]
        promised = items[: len(self.promises)]
        for item in promised:
            promise = self.promises.popleft()
            if not state[DROPPED]:
                self.items.append(promise)
            out.append(do.Fill(number, promise, item))
            number += 1
        state[ARRIVED] = number
        items = items[len(promised) :]
        if state[DROPPED]:
            state[ARRIVED] += len(items)
            out += (do.Discard(place, item) for place, item in enumerate(items, number))
            out.append(do.Stop())  # it may not have begun when the first Stop was sent
        elif items:
            out.append(do.Store(number, items))
        else:
            out += self.taken()
        return out

    def stored(self, items: Sequence[Any]) -> do.Instructions:
        self.items.extend(items)
        self.state[ARRIVED] += len(items)
        return self.taken() if self.told_from else []

    def ended(self) -> do.Instructions:
        """The call was answered, or has failed: no event follows."""
        if self.call is None:
            raise self.event_log.invalid("The end", f"over after {self.state[ARRIVED]}")
        self.call = self.link = None
        promises, self.promises = self.promises, deque()
        out: do.Instructions = [do.FailPromised(promises)] if promises else []
        if self.gathers:
            out.append(do.Gather())
        return out

    # ------------------------------------------------------------------------------------ events of the reader
    def taken(self) -> do.Instructions:
        """The producer is sent the count where it waits because of unread items, or will (`told_from`)."""
        state = self.state
        taken = state[TAKEN]
        if self.told_from and self.link is not None and taken > self.told and state[ARRIVED] - self.told >= self.told_from:
            self.told = taken
            return [do.TellTaken(taken)]
        return []

    def put_back(self, item: Any) -> None:
        """Undo the last take: the item was not delivered."""
        state = self.state
        if not state[DROPPED]:
            self.items.appendleft(item)
            state[TAKEN] -= 1
            self.told = min(self.told, state[TAKEN])

    def looked_ahead(self, count: int) -> do.Instructions:
        """The reader wants refs of the next items."""
        missing = count - len(self.items) - len(self.promises)
        return [do.Promise(missing)] if missing > 0 and self.call is not None else []

    def promised(self, promises: Sequence[Any]) -> None:
        """Refs of items that have not arrived were returned."""
        if self.call is None:
            raise self.event_log.invalid(f"A promise of {len(promises)} items", f"over after {self.state[ARRIVED]}")
        self.promises.extend(promises)

    def dropped(self) -> do.Instructions:
        """The reader has stopped: the call is not sent again, except to be cancelled."""
        if self.state[DROPPED]:
            raise self.event_log.invalid("The end of the reader", "dropped")
        self.event_log.note("dropped at", self.state[TAKEN], "of", self.state[ARRIVED])
        self.state[DROPPED] = True
        self.items.clear()
        if self.call is None:
            return []
        if self.call.retries != CANCELLED:
            self.call.retries = 0
        return [] if self.link is None else [do.Stop()]

    # ------------------------------------------------------------------------------------ for tests and errors
    def validate(self) -> None:
        state, event_log = self.state, self.event_log
        assert self.told <= state[TAKEN] <= state[ARRIVED], event_log
        assert self.told == 0 or self.told_from, event_log
        if state[DROPPED]:
            assert not self.items, event_log
            assert self.call is None or self.call.retries in (0, CANCELLED), event_log
        else:
            assert len(self.items) == state[ARRIVED] - state[TAKEN], event_log
        if self.call is None:
            assert not self.promises, event_log
            assert self.link is None, event_log
        if self.link is not None and self.told_from:
            waits = state[ARRIVED] - self.told >= self.told_from
            assert state[DROPPED] or not waits or self.told == state[TAKEN], event_log
