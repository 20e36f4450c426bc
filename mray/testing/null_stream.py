"""Streams of pretended devices: work that is done later, in order, on separate threads.

    any thread                                     a thread of a hardware queue, while there is work
    NullStream.launch(work)               -- queue -> started when it is at the head, and the stream has done its earlier work
    NullStream.order(step)                -- queue -> a 64-bit field of the host is set, or waited for, of this process or of another one

Only `NullStream.synchronize` and a full queue block the caller. Work can be delayed (`set_late`), and a stream stopped
(`StreamHold`).

*Hardware queues.* As with CUDA, the streams of a device share a few (CUDA_DEVICE_MAX_CONNECTIONS), each a FIFO. Work of two streams
of one queue may run concurrently; but while the head of a queue waits, for an event or for earlier work of its stream, entries of
other streams wait behind it. A call that finds `CAPACITY` entries not begun waits, and so does each call of another thread meanwhile.

Errors are sticky, as with CUDA: the devices of the process stop, each call raises the error, and events never complete; only this
module's bookkeeping (`NullStream.submit`) still runs.

Finalizers may submit work: nothing here holds a lock that they need.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import weakref
from _thread import allocate_lock, start_new_thread
from collections import deque
from collections.abc import Callable, Iterator

from mray._common import clock, settings
from mray._common.process_local import kernel_pid
from mray._device.device import DeviceFaultError

#: Entries of a queue that have not begun.
CAPACITY = 1024
#: Hardware queues of a device by default, and at most.
_CONNECTIONS, _MOST_CONNECTIONS = 8, 32
_PAUSE, _LOOK = 1e-3, 0.02

#: Seconds; None: as the setting says.
_late: float | None = None


def set_late(seconds: float | None) -> None:
    """Delay later work in this process by this many seconds; None: as MRAY_NULL_DEVICES says."""
    global _late
    _late = seconds


def lateness() -> float:
    """Seconds that work is delayed."""
    if _late is not None:
        return _late
    devices = settings.NULL_DEVICES.get()
    return 0.0 if devices is None else devices.late


def connections() -> int:
    """Hardware queues of each device of this process."""
    text = settings.of_library("CUDA_DEVICE_MAX_CONNECTIONS") or ""
    return max(1, min(int(text), _MOST_CONNECTIONS)) if text.isdecimal() else _CONNECTIONS


class NullFaultError(DeviceFaultError):
    """See `DeviceFaultError`."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.name = "CUDA_ERROR_ILLEGAL_ADDRESS" if text.startswith("illegal address") else "CUDA_ERROR_LAUNCH_FAILED"

    def __str__(self) -> str:
        return f"work on a device went wrong: {self.args[0]} ({self.name})"


class Fault:
    """The first error on the devices of a process."""

    error: BaseException | None = None

    def set(self, error: BaseException) -> None:
        if self.error is None:
            # Its frames reference arrays and this object.
            self.error = error.with_traceback(None)

    def check(self) -> None:
        """Raise NullFaultError after an error."""
        if self.error is not None:
            raise NullFaultError(str(self.error)) from self.error


class _Thread(threading.local):
    #: Whether this thread runs a queue: it must not wait for room.
    is_of_device = False


_thread = _Thread()


class HardwareQueue:
    """A FIFO of the work of several streams."""

    __slots__ = ("_busy", "_entries", "_waiting", "streams")

    def __init__(self) -> None:
        self._entries: deque[tuple[NullStream, Callable[[], object], bool, bool]] = deque()
        #: One item for each entry that takes room.
        self._waiting: deque[None] = deque()
        #: Held by the thread that begins entries, if any.
        self._busy = allocate_lock()
        self.streams = 0

    def is_full(self) -> bool:
        return len(self._waiting) >= CAPACITY

    def put(self, stream: NullStream, step: Callable[[], object], *, runs: bool, takes_room: bool) -> None:
        """Append an entry, without a lock. `runs`: concurrently with other streams; else the queue continues when it is done."""
        if takes_room:
            self._waiting.append(None)
        stream.unfinished.append(None)
        self._entries.append((stream, step, runs, takes_room))
        self._start()

    def _start(self) -> None:
        if not self._busy.acquire(blocking=False):
            return  # the thread that begins entries checks again after releasing the lock
        try:
            # `threading`'s threads take a lock to start, which the frame that a finalizer interrupts may hold.
            start_new_thread(self._run, ())
        except RuntimeError:
            self._busy.release()  # the interpreter exits

    def _run(self) -> None:
        _thread.is_of_device = True
        while True:
            try:
                stream, step, runs, takes_room = self._entries.popleft()
            except IndexError:
                self._busy.release()
                # Another thread may have left entries to this one.
                if not self._entries or not self._busy.acquire(blocking=False):
                    return
                continue
            stream.busy.acquire()
            if takes_room:
                self._waiting.popleft()
            if runs and self.streams > 1:
                # Another thread may begin the next ones.
                self._busy.release()
                if self._entries:
                    self._start()
                stream.do(step)
                # The work's objects must be released before the stream is idle, and before the next piece runs.
                del step
                stream.unfinished.popleft()
                stream.busy.release()
                if not self._entries or not self._busy.acquire(blocking=False):
                    return
            else:
                stream.do(step)
                del step
                stream.unfinished.popleft()
                stream.busy.release()


class NullStream:
    """Work of one device, in order. Any thread."""

    __slots__ = ("_context", "_queue", "busy", "number", "unfinished")

    def __init__(self, context: Streams, queue: HardwareQueue, number: int) -> None:
        self.number = number
        self._context = context
        self._queue = queue
        queue.streams += 1
        #: Held while a piece of its work is done.
        self.busy = allocate_lock()
        #: One item for each unfinished piece.
        self.unfinished: deque[None] = deque()

    def submit(self, step: Callable[[], object]) -> None:
        """Call this in the stream's order, also after an error; never waits."""
        self._queue.put(self, step, runs=False, takes_room=False)

    def order(self, step: Callable[[], object]) -> None:
        """A step that orders other work and touches no memory: never delayed."""
        self._put(step, runs=False)

    def launch(self, work: Callable[[], object], kernel: object = None) -> None:
        """Device work: a copy, or a kernel, of which the first launch may wait."""
        if kernel is not None:
            self._context.load(kernel)
        self._put(lambda: self._work(work), runs=True)

    def enter(self) -> None:
        """For each driver call that queues something here: raises an earlier error, and waits for room."""
        self._context.enter(self._queue)

    def _put(self, step: Callable[[], object], *, runs: bool) -> None:
        self.enter()
        fault = self._context.fault
        self._queue.put(self, lambda: fault.error is None and step(), runs=runs, takes_room=True)

    def _work(self, work: Callable[[], object]) -> None:
        late = lateness()
        if late:
            clock.sleep(late)
        if self._context.fault.error is None:
            work()

    def do(self, step: Callable[[], object]) -> None:
        """On a thread of the queue."""
        try:
            step()
        except BaseException as error:
            self._context.fault.set(error)

    def is_idle(self) -> bool:
        return not self.unfinished

    def synchronize(self) -> None:
        """Raises an error of the device."""
        context = self._context
        context.enter()
        if not self.is_idle():
            done = allocate_lock()
            done.acquire()
            self.submit(done.release)
            while not done.acquire(timeout=_LOOK):
                context.fault.check()
        context.fault.check()

    def follow(self, other: NullStream) -> None:
        """Wait for the present end of another stream of this process."""
        if other is self:
            return
        done, fault = threading.Event(), self._context.fault

        def wait() -> None:
            while not done.wait(_LOOK) and fault.error is None:
                pass

        other.order(done.set)
        self.order(wait)


_numbers = itertools.count(1)


class _Current(threading.local):
    number = 0


class Streams:
    """The streams of one device. Number 0 always exists; other numbers never repeat."""

    def __init__(self, fault: Fault, *, waits: bool = False) -> None:
        self.fault = fault
        self._waits = waits
        self.waits = 0
        self._loaded: set[object] = set()
        self._queues = [HardwareQueue() for _ in range(connections())]
        self._turns = itertools.cycle(self._queues)
        self._streams: dict[int, NullStream] = {0: self._new(0)}
        self._current = _Current()
        #: The one that a thread waits for within a call.
        self._full: HardwareQueue | None = None

    def _new(self, number: int) -> NullStream:
        return NullStream(self, next(self._turns), number)

    def enter(self, queue: HardwareQueue | None = None) -> None:
        """For each driver call: raises an earlier error, and waits while a thread waits for room. `queue`: where the call needs room."""
        self.fault.check()
        while not _thread.is_of_device:
            if not self.is_clogged():
                if queue is None or not queue.is_full():
                    return
                self._full = queue
            clock.sleep(_PAUSE)
            self.fault.check()

    def get(self, number: int) -> NullStream:
        """Raises ValueError for an unknown number."""
        try:
            return self._streams[number]
        except KeyError:
            raise ValueError(f"no stream {number} on this device") from None

    def wait_for(self, stream: NullStream) -> None:
        """Wait as a program does that needs its results."""
        self.waits += 1
        stream.synchronize()

    def create(self) -> int:
        self.enter()
        number = next(_numbers)
        self._streams[number] = self._new(number)
        return number

    def destroy(self, number: int) -> None:
        """Accept no more work; queued work is done."""
        if not number:
            raise ValueError("stream 0 cannot be destroyed")
        self.get(number)
        self._streams.pop(number, None)

    def settle(self) -> None:
        """As `enter`, for a call that may wait for the device, and does with ``waits=1``."""
        self.enter()
        if self._waits and not _thread.is_of_device:
            for stream in list(self._streams.values()):
                stream.synchronize()

    def load(self, kernel: object) -> None:
        """For each launch of a kernel: the first may wait for the device."""
        if self._waits and kernel not in self._loaded:
            self.settle()
            self._loaded.add(kernel)

    def is_clogged(self) -> bool:
        return self._full is not None and self._full.is_full()

    @property
    def current(self) -> NullStream:
        return self.get(self._current.number)

    @contextlib.contextmanager
    def on(self, number: int) -> Iterator[None]:
        self.get(number)
        before = self._current.number
        self._current.number = number
        try:
            yield
        finally:
            self._current.number = before


_gates: weakref.WeakSet[threading.Event] = weakref.WeakSet()


def release_all() -> None:
    """Release all held streams: the holder may be a failed test, whose traceback keeps the hold alive."""
    for gate in list(_gates):
        gate.set()


class StreamHold:
    """Stops a stream for work queued afterwards, until it is released. A context manager."""

    def __init__(self, stream: NullStream) -> None:
        self._gate = threading.Event()
        self._process = kernel_pid()
        _gates.add(self._gate)
        stream.order(self._gate.wait)

    def release(self) -> None:
        self._gate.set()

    def __enter__(self) -> StreamHold:
        return self

    def __exit__(self, *_error: object) -> None:
        self.release()

    def __del__(self) -> None:
        if kernel_pid() == self._process:
            self.release()
