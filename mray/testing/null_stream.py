"""Streams of pretended devices: work that is done later, in order, on threads of its own.

    any thread                                     a thread of the stream, while there is work
    Stream.launch(work), submit(step)  -- queue -> one after the other
    NullEvent.record(stream): number n  -- queue -> completed := n           words of the recording process
    NullEvent.wait(stream): which n?    -- queue -> until completed >= n     of this process or of another one

Nothing here makes the caller wait but `Stream.synchronize`. Work can be told to run late (`set_late`), so that who does not wait for an
event finds a wrong result, and a stream to run nothing for a while (`Hold`), which proves that nobody else waits for it.

The error of a piece of work stays: the device does nothing any more, and each `synchronize` raises it, as with CUDA. Events are
completed nonetheless, so that nobody waits for ever.

Work may be submitted by finalizers, which run between any two byte codes: `submit` takes no lock.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from _thread import allocate_lock, start_new_thread
from collections import deque
from collections.abc import Callable, Iterator

from mray._common import clock, settings
from mray._common.process_local import kernel_pid

#: Seconds that each piece of work is late, as this process was told; None: as the setting says.
_late: float | None = None


def set_late(seconds: float | None) -> None:
    """From now on each piece of work in this process runs so many seconds late; None: as MRAY_NULL_DEVICES says."""
    global _late
    _late = seconds


def lateness() -> float:
    """Seconds that work is late."""
    if _late is not None:
        return _late
    devices = settings.NULL_DEVICES.get()
    return 0.0 if devices is None else devices.late


class Fault:
    """The first error on a device, if there was one."""

    error: BaseException | None = None

    def set(self, error: BaseException) -> None:
        if self.error is None:
            # Without its frames, which keep arrays and this object.
            self.error = error.with_traceback(None)

    def check(self) -> None:
        """Raises RuntimeError if something went wrong."""
        if self.error is not None:
            raise RuntimeError(f"work on a device went wrong: {self.error}") from self.error


class Stream:
    """A queue of work of one device. Any thread."""

    __slots__ = ("_busy", "_fault", "_queue", "number")

    def __init__(self, fault: Fault, number: int) -> None:
        self.number = number
        self._fault = fault
        self._queue: deque[Callable[[], object]] = deque()
        #: Held by the thread that runs the queue, if there is one.
        self._busy = allocate_lock()

    def submit(self, step: Callable[[], object]) -> None:
        """Queue what orders others and does not touch memory: it is never late, and done even after something went wrong."""
        self._queue.append(step)
        self._start()

    def launch(self, work: Callable[[], object]) -> None:
        """Queue a piece of work of the device: a kernel, a copy."""
        self.submit(lambda: self._work(work))

    def _work(self, work: Callable[[], object]) -> None:
        late = lateness()
        if late:
            clock.sleep(late)
        if self._fault.error is None:
            work()

    def _start(self) -> None:
        if not self._busy.acquire(blocking=False):
            return  # who runs the queue looks once more after it has let go
        try:
            # Not of `threading`: its threads take a lock to start, which the frame that a finalizer interrupts may hold.
            start_new_thread(self._run, ())
        except RuntimeError:
            self._busy.release()  # the interpreter ends: nothing runs any more

    def _run(self) -> None:
        while True:
            try:
                step = self._queue.popleft()
            except IndexError:
                self._busy.release()
                # Somebody may have queued more, and left it to this thread.
                if not self._queue or not self._busy.acquire(blocking=False):
                    return
                continue
            try:
                step()
            except BaseException as error:
                self._fault.set(error)
            # The objects of the work must go before the next piece runs.
            del step

    def is_idle(self) -> bool:
        """Whether everything is done."""
        return not self._queue and not self._busy.locked()

    def synchronize(self) -> None:
        """Wait until all that is queued is done; raises what went wrong on the device."""
        done = allocate_lock()
        done.acquire()
        self.submit(done.release)
        done.acquire()
        self._fault.check()

    def follow(self, other: Stream) -> None:
        """Have this stream wait for the present end of another one of this process."""
        if other is self:
            return
        done = threading.Event()
        other.submit(done.set)
        self.submit(done.wait)


_numbers = itertools.count(1)


class _Current(threading.local):
    def __init__(self) -> None:
        self.number = 0


class Streams:
    """The streams of one device in this process. Number 0 is there from the beginning; others never repeat."""

    def __init__(self) -> None:
        self._fault = Fault()
        self._streams: dict[int, Stream] = {0: Stream(self._fault, 0)}
        self._current = _Current()

    def get(self, number: int) -> Stream:
        """The stream of that number. Raises ValueError when there is none."""
        try:
            return self._streams[number]
        except KeyError:
            raise ValueError(f"no stream {number} on this device") from None

    def create(self) -> int:
        """A new stream."""
        number = next(_numbers)
        self._streams[number] = Stream(self._fault, number)
        return number

    def destroy(self, number: int) -> None:
        """It gets no more work; what is queued is done."""
        if not number:
            raise ValueError("stream 0 cannot be destroyed")
        self.get(number)
        self._streams.pop(number, None)

    @property
    def current(self) -> Stream:
        """The calling thread's."""
        return self.get(self._current.number)

    @contextlib.contextmanager
    def on(self, number: int) -> Iterator[None]:
        """Make it the calling thread's."""
        self.get(number)
        before = self._current.number
        self._current.number = number
        try:
            yield
        finally:
            self._current.number = before


class Hold:
    """A stream that does nothing of what was queued after this was made, until it is released. A context manager."""

    def __init__(self, stream: Stream) -> None:
        self._gate = threading.Event()
        self._process = kernel_pid()
        stream.submit(self._gate.wait)

    def release(self) -> None:
        """Let it run. Idempotent."""
        self._gate.set()

    def __enter__(self) -> Hold:
        return self

    def __exit__(self, *_error: object) -> None:
        self.release()

    def __del__(self) -> None:
        if kernel_pid() == self._process:
            self.release()
