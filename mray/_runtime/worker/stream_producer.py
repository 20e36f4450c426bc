"""Producers: generators that run in a worker, and how their items reach the caller (`mray._runtime.client.streams`).

In the thread or event loop that runs the call. An item is sent immediately, unless it follows the previous departure so closely that
several can leave together: then with a later item, when user code waits, or with the background reader's tick.

A producer runs ahead of its reader as far as the memory of the reader's process allows, unless the caller asked for back-pressure; but
it waits while the kernel accepts no more bytes because the other end does not read.
"""

from __future__ import annotations

import contextlib
import pickle
import threading
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator
from functools import partial
from types import GeneratorType
from typing import TYPE_CHECKING, Any

from mray._api.ref_generator import StreamingGeneratorStats
from mray._common import messages as m
from mray._common.bridge import Cancel, called
from mray._common.clock import monotonic, perf_counter
from mray._common.ids import return_id
from mray._common.invocations import Result
from mray._common.log import logger
from mray._common.places import runs_users
from mray._ipc.connection import Connection
from mray._objects.serializer import PLAIN_TYPES
from mray._runtime.objects.owner import INLINE_BYTES
from mray._runtime.worker.packer import Collected, Packer
from mray._runtime.worker.running import RunningCall

if TYPE_CHECKING:
    from mray._runtime.client.client import Client

#: Items within this many seconds of a departure wait for further ones.
TOGETHER_SECONDS = 150e-6
#: ... until there are this many items or bytes.
TOGETHER_ITEMS = 128
TOGETHER_BYTES = 64 * 1024
#: Seconds between polls, in an event loop, whether the socket has room or has hung up.
LOOP_SECONDS = 0.02
#: Unsent bytes from which the producer waits for the reader's process to read.
MOST_UNSENT = 1 << 20


class Producer:
    """`add` and `pause` belong to the thread that runs the generator; any thread may call the other methods."""

    def __init__(self, producers: Producers, running: RunningCall) -> None:
        arrived, window, taken, dropped, per_yield, together = running.call.options["stream"]
        self._packer = producers.packer
        self._reactor = producers.reactor
        self._running = running
        self._connection = running.connection
        self._task_id = running.task_id
        #: Yielded items; the first `_skipped` have arrived in an earlier attempt.
        self._yielded = 0
        self._skipped = arrived
        #: Whether the caller knows that this attempt has begun.
        self._is_known = False
        self._window = window
        self._per_yield = per_yield
        #: The most unread items of all producers together.
        self.together = together
        self._producers = producers
        #: Items that the caller has taken, by its last message.
        self.taken: int = taken
        self.stopped = dropped
        self._lock = threading.Lock()
        #: Items that have not been posted. Only `add` appends, only the holder of `_lock` removes.
        self._held: deque[Result] = deque()
        self._held_bytes = 0
        #: The number of the first of `_held`. Only accessed under `_lock`.
        self._first = arrived
        self._departed = 0.0
        #: Called by the reading thread after a message of the caller.
        self.on_message: Callable[[], object] | None = None

    # ------------------------------------------------------------------------------------ items
    def add(self, value: Any) -> None:
        """Send a yielded value. Raises as `Packer.freeze`."""
        self._yielded = yielded = self._yielded + 1
        if yielded <= self._skipped:
            return
        if type(value) in PLAIN_TYPES and not self._running.awaited:
            payload = pickle.dumps(value, 5)
            if len(payload) <= INLINE_BYTES:
                self._hold((m.PICKLED, payload, None), len(payload))
                return
        name = return_id(self._task_id, yielded + 1)
        form, payload, refs = self._packer.freeze(self._running, name, name, value, None)
        self._packer.settle()
        self._hold((form, payload, refs), 0 if form == m.SEGMENT else len(payload))

    def put(self, value: Any) -> None:
        """Send a yielded item, or several. ValueError for a wrong number, else as `add`."""
        count = self._per_yield
        if count == 1:
            self.add(value)
            return
        if not isinstance(value, (tuple, list)):
            raise ValueError(f"Streaming generator tasks with _num_objects_per_yield={count} must yield a tuple or list of length {count}.")
        if len(value) != count:
            raise ValueError(f"Streaming generator task yielded {len(value)} objects, but _num_objects_per_yield={count}.")
        for item in value:
            self.add(item)

    def add_failure(self, payload: bytes) -> None:
        self._yielded += 1
        self._hold((m.FAILED, payload, None), len(payload))

    def _hold(self, item: Result, size: int) -> None:
        self._held.append(item)
        self._held_bytes += size
        reactor = self._reactor
        reactor.activity += 1
        if monotonic() - self._departed > TOGETHER_SECONDS or len(self._held) >= TOGETHER_ITEMS or self._held_bytes > TOGETHER_BYTES:
            self.flush()
        elif len(self._held) == 1:
            reactor.post_later(self)
            if reactor.asleep:
                reactor.keep_background_ticking()

    def flush(self) -> None:
        with self._lock:
            held = self._held
            items = [held.popleft() for _ in range(len(held))]
            self._held_bytes = 0
            if items:
                # POINT items due
                self._connection.post((m.STREAM_ITEMS, self._task_id, self._first, items))
                self._first += len(items)
                self._departed = monotonic()
        self._connection.flush()

    # ------------------------------------------------------------------------------------ holding up
    def may_go_on(self) -> bool:
        if self.stopped or self._connection.closed:
            return True
        if self._window and self.unread >= self._window:
            return False
        if self.together and self._producers.unread >= self.together:
            return False
        return self._connection.unsent <= MOST_UNSENT

    @property
    def unread(self) -> int:
        """The number of items that the caller has not taken."""
        return self._yielded - self.taken

    def is_unread(self) -> bool:
        """Whether the reader was dropped or its process has exited."""
        return self.stopped or self._connection.closed

    def pause(self) -> None:
        """Wait until the reader, or the connection, has caught up."""
        if not self.may_go_on():
            self._announce()
            self.flush()
            self._reactor.wait_until(self.may_go_on)

    def _announce(self) -> None:
        """Ask the caller to report the taken items, and whether the reader was dropped.

        The caller sends nothing to a producer that has not begun, and the state that came with the call may be outdated.
        """
        if self._yielded <= self._skipped and not self._is_known:
            self._is_known = True
            self._connection.post((m.STREAM_ITEMS, self._task_id, self._skipped, []))

    async def pause_in_loop(self) -> None:
        """As `pause`, in an event loop; lets other tasks of the loop run now and then."""
        import asyncio  # noqa: PLC0415  (only async actors have it loaded)

        if self._yielded % TOGETHER_ITEMS == 0:
            await asyncio.sleep(0)
        if not self.may_go_on():
            self._announce()
            self.flush()
            while not self.may_go_on():
                # No message arrives when the socket has room again, or has hung up.
                await called(self.then, LOOP_SECONDS)

    def then(self, callback: Callable[[], object]) -> Cancel:
        """Call back after a message of the caller, or when the producer may go on. For one coroutine."""
        self.on_message = callback
        if self.may_go_on():
            callback()
        return partial(setattr, self, "on_message", None)


class Producers:
    def __init__(self, client: Client, packer: Packer) -> None:
        self.reactor = client.reactor
        self.packer = packer
        self._running: dict[bytes, Producer] = {}
        client.from_peers.on({m.STREAM_TAKEN: self._on_taken, m.STREAM_STOP: self._on_stop})

    @property
    def unread(self) -> int:
        """Items of all running generators that callers have not taken."""
        return sum(producer.unread for producer in tuple(self._running.values()))

    def _on_taken(self, _connection: Connection, task_id: bytes, count: int) -> None:
        producer = self._running.get(task_id)
        if producer is not None:
            producer.taken = count
            for each in tuple(self._running.values()) if producer.together else (producer,):
                self._told(each)

    def _on_stop(self, _connection: Connection | None, task_id: bytes) -> None:
        # A generator that has not begun gets the message again with its first items.
        producer = self._running.get(task_id)
        if producer is not None:
            producer.stopped = True
            self._told(producer)

    @staticmethod
    def _told(producer: Producer) -> None:
        on_message = producer.on_message
        if on_message is not None:
            on_message()

    def stop(self, task_id: bytes) -> None:
        """Make a generator end at its next yield. Reading thread."""
        self._on_stop(None, task_id)

    def run(self, running: RunningCall, generator: Any) -> Any:
        """Run the generator that a call has returned. Returns the value to answer the call with.

        In a stream an error of the generator is its last item. An exception that ends more than the generator (a cancellation, the end
        of the worker, an attempt that is to be repeated) is raised.
        """
        if running.streams:
            self._stream(running, generator)
            return None
        name, task_id, num_returns = running.name, running.task_id, running.call.num_returns
        if num_returns == 0:
            return None
        values: Any = Collected()
        try:
            for value in generator:
                if len(values) == num_returns:
                    logger.error("%s yields more than its num_returns=%d values; it was stopped there", name, num_returns)
                    generator.close()
                    break
                if num_returns == 1:
                    values.append(value)
                else:
                    place = len(values)
                    pin, object_id = return_id(task_id, place), return_id(task_id, place + 1)
                    values.append(self.packer.freeze(running, pin, object_id, value, running.call.options))
            if len(values) < num_returns:
                raise ValueError(f"Task returned {len(values)} objects, but num_returns={num_returns}.")
        except BaseException as error:
            if len(values) == num_returns and isinstance(error, Exception):
                logger.exception("%s raised an error after it had yielded its num_returns=%d values", name, num_returns)
            elif num_returns == 1 or (failure := self.packer.item_failure(running, error)) is None:
                raise
            else:
                values.failure = failure
        return values[0] if num_returns == 1 else values

    async def run_in_loop(self, running: RunningCall, generator: Any) -> Any:
        """As `run`, in a task of an event loop, for generators of both kinds."""
        if not running.streams or not isinstance(generator, (Iterator, AsyncIterator)):
            return self.run(running, generator)
        with self._producer(running) as producer:
            if isinstance(generator, AsyncIterator):
                answered = generator if isinstance(generator, AsyncGenerator) else None
                stats = None
                while True:
                    try:
                        value = await (generator.__anext__() if answered is None or stats is None else answered.asend(stats))
                    except StopAsyncIteration:
                        break
                    begun = perf_counter()
                    producer.put(value)
                    stats = StreamingGeneratorStats(perf_counter() - begun)
                    await producer.pause_in_loop()
                    if producer.is_unread():
                        if answered is not None:
                            await answered.aclose()
                        break
            else:
                values = _Answered(generator)
                for value in values:
                    producer.put(value)
                    values.stored()
                    await producer.pause_in_loop()
                    if producer.is_unread():
                        _close(generator)
                        break
        return None

    def _stream(self, running: RunningCall, generator: Any) -> None:
        if not isinstance(generator, Iterator):
            raise ValueError(f"{running.name} is called as a generator and returned {type(generator)}; it has to return a generator.")
        with self._producer(running) as producer:
            self._drive(producer, generator)

    @contextlib.contextmanager
    def _producer(self, running: RunningCall) -> Iterator[Producer]:
        """A producer while it runs; an exception becomes the last item, or is raised."""
        task_id = running.task_id
        producer = self._running[task_id] = Producer(self, running)
        try:
            yield producer
        except BaseException as error:
            failure = self.packer.item_failure(running, error)
            if failure is None:
                raise
            producer.add_failure(failure)
        finally:
            del self._running[task_id]
            producer.flush()
            if producer.together:
                self.reactor.wake()  # other producers may wait for this one's items to be taken

    @runs_users
    def _drive(self, producer: Producer, generator: Iterator[Any]) -> None:
        values = _Answered(generator)
        for value in values:
            producer.put(value)
            values.stored()
            producer.pause()
            if producer.is_unread():
                _close(generator)
                return


class _Answered:
    """The values of an iterator; a generator gets a `StreamingGeneratorStats` for each value that it yields, once that is `stored`."""

    def __init__(self, values: Iterator[Any]) -> None:
        self._values = values
        self._generator = values if isinstance(values, GeneratorType) else None
        self._begun = 0.0
        self._stats: StreamingGeneratorStats | None = None

    def __iter__(self) -> _Answered:
        return self

    @runs_users
    def __next__(self) -> Any:
        stats, generator = self._stats, self._generator
        value = next(self._values) if stats is None or generator is None or not _takes(generator) else generator.send(stats)
        self._begun = perf_counter()
        return value

    def stored(self) -> None:
        self._stats = StreamingGeneratorStats(perf_counter() - self._begun)


def _takes(generator: Any) -> bool:
    """Whether a suspended generator accepts a value: one that delegates to a plain iterator does not."""
    while isinstance(generator, GeneratorType):
        generator = generator.gi_yieldfrom
    return generator is None or hasattr(generator, "send")


def _close(generator: Iterator[Any]) -> None:
    if isinstance(generator, Generator):
        generator.close()
