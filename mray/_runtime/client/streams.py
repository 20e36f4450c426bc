"""Streams: the caller's end of a remote generator.

In the caller's process; the other end is `mray._runtime.worker.stream_producer`.

    worker: yield -> STREAM_ITEMS (several, when they come fast) ------> arrived: values, or entries -> taken: ObjectRef
                 <------------------------ STREAM_TAKEN (back-pressure), STREAM_STOP (the reader has gone)
            REPLY -----------------------------------------------------> `done`, the entry of the call

Items are owned by the caller, like return values: their ids are those of the call's second, third, ... return value. The first is `done`:
None when the generator has run to its end, an error when its process died. An error that the generator raised is an item.

A call that is sent again carries the count of items that have arrived; an item that comes twice all the same is known by its number.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mray._api.object_ref import ObjectRef
from mray._api.ref_generator import DynamicObjectRefGenerator, ObjectRefGenerator
from mray._caller.records import CANCELLED
from mray._common import messages as m
from mray._common.ids import FIRST, return_id
from mray._ipc.connection import Connection
from mray._objects.ownership import Entry, Guard
from mray._objects.remote_error import pickle_error
from mray._objects.serializer import serialize
from mray._runtime.client.calls import Call
from mray.exceptions import ObjectRefStreamEndOfStreamError

if TYPE_CHECKING:
    from mray._runtime.client.client import Client

#: Fields of the call's option "stream" for the producer, by place: the count of items that have arrived and are not sent again; the most
#: unread items, 0 for any number; the count of items that were taken; whether the reader has gone; how many items each ``yield`` makes; the
#: most unread items of all streams of the actor together, 0 for any number.
ARRIVED, WINDOW, TAKEN, DROPPED, PER_YIELD, TOGETHER = range(6)
#: The first item is the second return value of its call.
_FIRST_ITEM = 2


class StreamCall(Call):
    """The call of a generator."""

    __slots__ = ("_given", "stream")

    def __init__(self, client: Client, task_id: bytes, method: Any, window: int, per_yield: int, together: int) -> None:
        entry = client.entry()
        self.stream = Stream(client, self, entry, task_id, [0, window, 0, False, per_yield, together])
        super().__init__(task_id, method, 1, entry)
        entry.task = self

    @property
    def options(self) -> dict[str, Any]:
        """The call's options with the state of the stream at the time the call is sent."""
        return self._given

    @options.setter
    def options(self, given: dict[str, Any] | None) -> None:
        self._given = {**(given or {}), "stream": self.stream.state}


class Stream:
    """The items of one generator on their way to its reader.

    Invariant: `_promised` are the entries of the items that arrive next, in order; an item that arrives completes the first of them.
    """

    def __init__(self, client: Client, call: StreamCall, entry: Entry, task_id: bytes, state: list[Any]) -> None:
        self._client = client
        self._task_id = task_id
        self._call: StreamCall | None = call
        self._done = entry
        self.done = ObjectRef(task_id + FIRST, entry)
        self.state = state
        #: With so many items unread the producer may wait for one to be taken; 0: it never does.
        self._told_from = 1 if state[TOGETHER] else state[WINDOW]
        #: Items that have arrived and not been taken: entries, and plain values as they came, which become entries when they are taken.
        self._items: deque[Any] = deque()
        #: Entries of items that have not arrived and whose refs were given out.
        self._promised: deque[Entry] = deque()
        #: The connection that the items come over.
        self._producer: Connection | None = None
        #: The last count that was sent to the producer.
        self._told = 0
        #: The entry that gets all refs at the end, for num_returns="dynamic".
        self._gathered: Entry | None = None
        entry.add_waiter(self._ended)

    # ------------------------------------------------------------------------------------ arriving (client's lock held)
    def arrived(self, connection: Connection, first: int, items: list[tuple[int, Any, Any]]) -> None:
        """STREAM_ITEMS."""
        # POINT items come
        state = self.state
        behind = state[ARRIVED] - first
        if behind or self._promised or state[DROPPED]:
            for item in items[:behind] if behind else ():
                self._entry_of(connection, first, item)  # known: let go of its refs and memory
                first += 1
            items = items[behind:]
        for item in items:
            if self._promised:
                entry = self._promised.popleft()
                self._client.complete(connection, return_id(self._task_id, state[ARRIVED] + _FIRST_ITEM), entry, *item)
                self._items.append(entry)
            elif item[0] == m.SEGMENT or item[2]:
                self._items.append(self._entry_of(connection, state[ARRIVED], item))
            else:
                self._items.append(item)
            state[ARRIVED] += 1
        self._producer = connection
        if state[DROPPED]:
            self._items.clear()
            connection.send((m.STREAM_STOP, self._task_id))  # it had not begun when the first STREAM_STOP was sent
        elif self._told_from:
            self._tell(connection)

    def _entry_of(self, connection: Connection, number: int, item: tuple[int, Any, Any]) -> Entry:
        entry = self._client.entry()
        self._client.complete(connection, return_id(self._task_id, number + _FIRST_ITEM), entry, *item)
        return entry

    def _tell(self, connection: Connection) -> None:
        """Send the count of taken items to a producer that waits because of unread ones, or will."""
        state = self.state
        if state[TAKEN] > self._told and state[ARRIVED] - self._told >= self._told_from:
            self._told = state[TAKEN]
            connection.send((m.STREAM_TAKEN, self._task_id, self._told))

    def _ended(self, done: Entry) -> None:
        """End the stream: the reply has come, or will never come."""
        self._call = None
        if self._promised:
            failed = done.form == m.FAILED
            payload = done.payload if failed else pickle_error(ObjectRefStreamEndOfStreamError("The generator has no more items."))
            while self._promised:
                self._promised.popleft().complete(m.FAILED, payload)
        if self._gathered is not None:
            self._gather(self._gathered, done)

    def _gather(self, gathered: Entry, done: Entry) -> None:
        if done.form == m.FAILED:
            gathered.complete(m.FAILED, done.payload)
            return
        refs = []
        while self._items:
            refs.append(self.take_nowait())
        packed = serialize(DynamicObjectRefGenerator(ref for ref in refs if ref is not None))
        gathered.complete(packed.form, packed.to_bytes(), packed.refs)

    # ------------------------------------------------------------------------------------ reading (any thread, one at a time)
    def take_nowait(self) -> ObjectRef | None:
        """See `RefStream`."""
        try:
            item = self._items.popleft()
        except IndexError:
            return None
        state = self.state
        state[TAKEN] = taken = state[TAKEN] + 1
        if type(item) is tuple:
            entry = self._client.entry()
            entry.payload = item[1]
            entry.form = item[0]
            item = entry
        if self._told_from:
            with self._client.lock:
                if self._producer is not None:
                    self._tell(self._producer)
        return ObjectRef(return_id(self._task_id, taken + 1), item)

    def peek(self, count: int) -> list[ObjectRef]:
        """See `RefStream`."""
        client = self._client
        with client.lock:
            items = self._items
            for place in range(min(count, len(items))):
                item = items[place]
                if type(item) is tuple:
                    items[place] = entry = client.entry()
                    entry.complete(item[0], item[1])
            entries = [items[place] for place in range(min(count, len(items)))]
            missing = count - len(entries)
            if missing and self._call is None:
                if self._done.form == m.FAILED:
                    payload = self._done.payload
                else:
                    payload = pickle_error(ObjectRefStreamEndOfStreamError("The generator has no more items."))
                for _ in range(missing):
                    entry = client.entry()
                    entry.complete(m.FAILED, payload)
                    entries.append(entry)
            elif missing:
                while len(self._promised) < missing:
                    self._promised.append(client.entry())
                entries.extend(list(self._promised)[:missing])
            first = self.state[TAKEN] + _FIRST_ITEM
            return [ObjectRef(return_id(self._task_id, first + place), entry) for place, entry in enumerate(entries)]

    def await_next(self, timeout: float | None) -> bool:
        """See `RefStream`."""
        items, done = self._items, self._done
        return self._client.wait_as_user(lambda: bool(items) or done.form is not None, timeout)

    def is_over(self) -> bool:
        """See `RefStream`."""
        # In this order: items arrive before the end, so none can be missed.
        return self._done.form is not None and not self._items

    def has_failed(self) -> bool:
        """See `RefStream`."""
        return self._done.form == m.FAILED

    # ------------------------------------------------------------------------------------ ending
    def drop(self) -> None:
        """Stop the producer: the generator that read this is gone (called by the reactor)."""
        with self._client.lock:
            self.state[DROPPED] = True
            # POINT stream dropped
            self._items.clear()
            if self._call is not None:
                if self._call.retries != CANCELLED:
                    self._call.retries = 0
                if self._producer is not None:
                    self._producer.send((m.STREAM_STOP, self._task_id))

    def gather(self, entry: Entry) -> None:
        """Make this entry a `DynamicObjectRefGenerator` of all items at the end."""
        self._gathered = entry


def listener(client: Client) -> Callable[..., None]:
    """The handler of STREAM_ITEMS. Client's lock held."""

    def on_items(connection: Connection, task_id: bytes, first: int, items: list[tuple[int, Any, Any]]) -> None:
        call = connection.calls.get(task_id)
        if isinstance(call, StreamCall):
            call.stream.arrived(connection, first, items)
            return
        for number, item in enumerate(items, first + _FIRST_ITEM):
            client.complete(connection, return_id(task_id, number), client.entry(), *item)  # let go of its refs and memory

    return on_items


def new_stream(
    client: Client, task_id: bytes, method: Any, num_returns: str, options: dict[str, Any], of_actor: dict[str, Any]
) -> tuple[StreamCall, Any]:
    """The call of a generator, and its caller's result: an `ObjectRefGenerator`, or for "dynamic" the ref of a
    `DynamicObjectRefGenerator`.
    """
    per_yield = options.get("_num_objects_per_yield") or 1
    if num_returns == "dynamic":
        call = StreamCall(client, task_id, method, 0, per_yield, 0)
        entry = client.entry()
        entry.task = call
        call.stream.gather(entry)
        return call, ObjectRef(task_id + FIRST, entry)
    window = options.get("_generator_backpressure_num_objects") or 0
    together = of_actor.get("_actor_generator_backpressure_num_objects") or 0
    call = StreamCall(client, task_id, method, max(0, window), per_yield, max(0, together))
    return call, ObjectRefGenerator(call.stream, Guard(client.reactor.defer, call.stream.drop))
