"""Streams: the caller's endpoint of a remote generator; the other is `mray._runtime.worker.stream_producer`.

    worker: yield -> STREAM_ITEMS (several, when they come fast) ------> arrived: values, or entries -> taken: ObjectRef
                <------------------------ STREAM_TAKEN (back-pressure), STREAM_STOP (the reader was dropped)
            REPLY -----------------------------------------------------> `done`, the entry of the call

The caller owns items, like return values: their ids are those of the call's second, third, ... return value. The first is `done`: None
when the generator has run to its end, an error when its process died. An error that the generator raised is an item.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from mray._api.object_ref import ObjectRef
from mray._api.ref_generator import DynamicObjectRefGenerator, ObjectRefGenerator
from mray._common import messages as m
from mray._common.ids import FIRST, return_id
from mray._common.invocations import Result
from mray._decide.caller import caller_instructions as do
from mray._decide.caller.stream import TAKEN, Stream
from mray._ipc.connection import Connection, Message
from mray._objects.ownership import Entry, Guard
from mray._objects.remote_error import pickle_error
from mray._objects.serializer import serialize
from mray._runtime.client.calls import Call
from mray.exceptions import ObjectRefStreamEndOfStreamError

if TYPE_CHECKING:
    from mray._runtime.client.client import Client
    from mray._runtime.connections.endpoint import Endpoint

#: The first item is the second return value of its call.
_FIRST_ITEM = 2


class StreamCall(Call):
    def __init__(self, client: Client, task_id: bytes, method: Any, window: int, per_yield: int, together: int) -> None:
        entry = client.entry()
        stream = Stream(self, task_id, window, per_yield, together)
        self.stream = StreamReader(client, entry, task_id, stream)
        super().__init__(task_id, method, 1, entry)
        self.options = None
        entry.task = self

    @property
    def options(self) -> dict[str, Any]:
        """The call's options with the state of the stream at the time the call is sent."""
        return self._given

    @options.setter
    def options(self, given: dict[str, Any] | None) -> None:
        self._given = {**(given or {}), "stream": self.stream.stream.state}

    def send(self, client: Endpoint, connection: Connection, message: Message) -> bool:
        self.stream.stream.sent()
        return super().send(client, connection, message)


class StreamReader:
    """Carries out what a `Stream` decides."""

    __slots__ = ("_client", "_done", "_gathered", "_is_paced", "_items", "_state", "_task_id", "done", "new_entry", "stream")

    def __init__(self, client: Client, entry: Entry, task_id: bytes, stream: Stream) -> None:
        self._client = client
        self.new_entry = client.entry
        self._task_id = task_id
        self._done = entry
        self.done = ObjectRef(task_id + FIRST, entry)
        self.stream = stream
        self._state = stream.state
        #: Entries, and plain values, which become entries when they are taken.
        self._items = stream.items
        #: The producer may wait for an item to be taken.
        self._is_paced = stream.told_from > 0
        #: Gets all refs at the end, for num_returns="dynamic".
        self._gathered: Entry | None = None
        entry.then(self._ended)

    def _follow(self, instructions: do.Instructions) -> None:
        for instruction in instructions:
            _WAYS[type(instruction)](self, instruction)

    # ------------------------------------------------------------------------------------ events (client's lock held)
    def arrived(self, connection: Connection, first: int, items: list[Result]) -> None:
        # POINT items come
        if self.stream.stores_directly(connection, first):
            self.store(first, items)
        else:
            self._follow(self.stream.arrived(connection, first, items))

    def _ended(self, _done: Entry) -> None:
        self._follow(self.stream.ended())

    def drop(self) -> None:
        """The stream's generator was released. Called by the reactor; takes the lock."""
        with self._client.lock:
            instructions = self.stream.dropped()
            # POINT stream dropped
            self._follow(instructions)

    # ------------------------------------------------------------------------------------ instructions (client's lock held)
    def store(self, number: int, items: Sequence[Result]) -> None:
        stored: list[Result | Entry] = []
        for item in items:
            form, payload, refs = item
            if form == m.FAILED and (call := self.stream.link.calls.get(self._task_id)) is not None:
                call.failed(payload, self.stream.link.process)
            if form == m.SEGMENT or refs:
                entry = self.new_entry()
                self.fill(number, entry, item)
                stored.append(entry)
            else:
                stored.append(item)
            number += 1
        instructions = self.stream.stored(stored)
        if instructions:
            self._follow(instructions)

    def fill(self, number: int, entry: Entry, item: Result) -> None:
        self._client.replies.complete(self.stream.link, return_id(self._task_id, number + _FIRST_ITEM), entry, *item)

    def send(self, kind: int, *fields: int) -> None:
        self.stream.link.send((kind, self._task_id, *fields))

    def tell(self, tell: do.TellTaken) -> None:
        self.send(m.STREAM_TAKEN, tell.taken)
        self._client.count_alone(self.stream.link)

    def promise(self, promise: do.Promise) -> None:
        self.stream.promised([self.new_entry() for _ in range(promise.missing)])

    def fail_promised(self, fail: do.FailPromised) -> None:
        payload = self._error()
        for entry in fail.promises:
            entry.complete(m.FAILED, payload)

    def _error(self) -> Any:
        done = self._done
        if done.form == m.FAILED:
            return done.payload
        return pickle_error(ObjectRefStreamEndOfStreamError("The generator has no more items."))

    def gather_all(self, _gather: do.Gather) -> None:
        gathered, done = self._gathered, self._done
        assert gathered is not None
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
        try:
            item = self._items.popleft()
        except IndexError:
            return None
        state = self._state
        state[TAKEN] = taken = state[TAKEN] + 1
        if type(item) is tuple:
            entry = self.new_entry()
            form, entry.payload, _refs = item
            entry.form = form
            item = entry
        if self._is_paced:
            with self._client.lock:
                instructions = self.stream.taken()
                if instructions:
                    self._follow(instructions)
        return ObjectRef(return_id(self._task_id, taken + 1), item)

    def put_back(self, ref: ObjectRef) -> None:
        with self._client.lock:
            self.stream.put_back(ref._entry)

    def peek(self, count: int) -> list[ObjectRef]:
        client = self._client
        with client.lock:
            self._follow(self.stream.looked_ahead(count))
            items = self._items
            for place in range(min(count, len(items))):
                item = items[place]
                if type(item) is tuple:
                    items[place] = entry = self.new_entry()
                    entry.complete(*item[:2])
            entries = list(islice(chain(items, self.stream.promises), count))
            if len(entries) < count:
                payload = self._error()
                for _ in range(count - len(entries)):
                    entry = self.new_entry()
                    entry.complete(m.FAILED, payload)
                    entries.append(entry)
            first = self._state[TAKEN] + _FIRST_ITEM
            return [ObjectRef(return_id(self._task_id, first + place), entry) for place, entry in enumerate(entries)]

    def await_next(self, timeout: float | None) -> bool:
        items, done = self._items, self._done
        return self._client.objects.wait_as_user(lambda: bool(items) or done.form is not None, timeout, source=done)

    def is_over(self) -> bool:
        # In this order: items arrive before the end, so none can be missed.
        return self._done.form is not None and not self._items

    def has_failed(self) -> bool:
        return self._done.form == m.FAILED

    def gather(self, entry: Entry) -> None:
        """At the end, make this entry a `DynamicObjectRefGenerator` of all items."""
        self.stream.gathers = True
        self._gathered = entry


_WAYS: dict[type[Any], Callable[[StreamReader, Any], None]] = {
    do.Discard: lambda reader, discard: reader.fill(discard.number, reader.new_entry(), discard.item),
    do.Fill: lambda reader, fill: reader.fill(*fill),
    do.Store: lambda reader, store: reader.store(*store),
    do.Promise: StreamReader.promise,
    do.FailPromised: StreamReader.fail_promised,
    do.TellTaken: StreamReader.tell,
    do.Stop: lambda reader, _: reader.send(m.STREAM_STOP),
    do.Gather: StreamReader.gather_all,
}


def listener(client: Client) -> Callable[..., None]:
    """The handler of STREAM_ITEMS. Client's lock held."""

    def on_items(connection: Connection, task_id: bytes, first: int, items: list[Result]) -> None:
        call = connection.calls.get(task_id)
        if isinstance(call, StreamCall):
            call.stream.arrived(connection, first, items)
            return
        for number, item in enumerate(items, first + _FIRST_ITEM):
            client.replies.complete(connection, return_id(task_id, number), client.entry(), *item)  # frees its refs and memory

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
