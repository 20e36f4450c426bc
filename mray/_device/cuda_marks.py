"""When CUDA streams come to a place in their work, by the clock of the host.

CUDA tells the time between two events of one device, in milliseconds as a 32-bit float. So a *clock* of each device is an event whose
moment the host knows, because it waited for it, on a separate stream; a *mark* is an event whose distance from that one is asked for
when the stream has passed it. A clock is replaced after some seconds, since the float becomes too coarse, and the two clocks drift
apart.

Any thread. Events are lent again once their time is known.
"""

from __future__ import annotations

import ctypes
from collections import deque

from mray._common.clock import monotonic_ns
from mray._device import libcuda
from mray._device.cuda_context import CudaContext, unless_captured
from mray._device.device import Mark
from mray._device.libcuda import LibCuda

#: Nanoseconds of a clock's use: a float of this many milliseconds is exact to a microsecond.
LASTS = 10_000_000_000
#: Readings of a new clock; the quickest counts.
READINGS = 3


class _Clock:
    """An event that happened at `at` of the host's clock."""

    def __init__(self, marks: CudaMarks, event: ctypes.c_void_p, at: int) -> None:
        self._marks = marks
        self.event = event
        self.at = at

    def __del__(self) -> None:
        self._marks.give_back(self.event)


class CudaMarks:
    def __init__(self, cuda: LibCuda, context: CudaContext) -> None:
        self._cuda = cuda
        self._context = context
        self._idle: deque[ctypes.c_void_p] = deque()
        self._clock: _Clock | None = None
        self._stream: ctypes.c_void_p | None = None

    def mark(self, stream: int) -> CudaMark:
        clock = self._clock
        if clock is None or monotonic_ns() - clock.at > LASTS:
            clock = self._clock = self._set()
        event = self._event()
        try:
            self._context.call("Recording an event", unless_captured, self._cuda, stream, self._cuda.cuEventRecord, event, stream)
        except BaseException:
            self._idle.append(event)
            raise
        return CudaMark(self, clock, event)

    def _event(self) -> ctypes.c_void_p:
        try:
            return self._idle.popleft()
        except IndexError:
            event = ctypes.c_void_p()
            # With times, and so for this process only.
            self._context.call_during_captures("Creating an event", self._cuda.cuEventCreate, ctypes.byref(event), 0)
            return event

    def _set(self) -> _Clock:
        context, cuda = self._context, self._cuda
        if self._stream is None:
            stream, flags = ctypes.c_void_p(), libcuda.STREAM_NON_BLOCKING
            context.call_during_captures("Creating a stream", cuda.cuStreamCreate, ctypes.byref(stream), flags)
            self._stream = stream
        best: tuple[int, int, ctypes.c_void_p] | None = None
        for _ in range(READINGS):
            event = self._event()
            before = monotonic_ns()
            context.call("Recording an event", cuda.cuEventRecord, event, self._stream)
            # Within the driver, and exact: the stream has no other work to wait for.
            context.call_during_captures("Waiting for a clock", cuda.cuStreamSynchronize, self._stream)
            after = monotonic_ns()
            if best is not None and best[0] <= after - before:
                self._idle.append(event)
                continue
            if best is not None:
                self._idle.append(best[2])
            best = after - before, (before + after) // 2, event
        assert best is not None
        return _Clock(self, best[2], best[1])

    def time_of(self, clock: _Clock, event: ctypes.c_void_p) -> int | None:
        """The event's time; None: it has not happened."""
        milliseconds = ctypes.c_float()
        elapsed = self._cuda.cuEventElapsedTime
        status = self._context.status_during_captures(elapsed, ctypes.byref(milliseconds), clock.event, event)
        if status == libcuda.NOT_READY:
            return None
        self._cuda.check("Asking an event for its time", status)
        return clock.at + round(milliseconds.value * 1e6)

    def give_back(self, event: ctypes.c_void_p) -> None:
        self._idle.append(event)

    def close(self) -> None:
        if self._context.is_forked:
            return
        self._clock = None
        while self._idle:
            self._context.call_during_captures("Destroying an event", self._cuda.cuEventDestroy_v2, self._idle.popleft())
        stream, self._stream = self._stream, None
        if stream is not None:
            self._context.call_during_captures("Destroying a stream", self._cuda.cuStreamDestroy_v2, stream)


class CudaMark(Mark):
    __slots__ = ("_clock", "_event", "_marks", "_time")

    def __init__(self, marks: CudaMarks, clock: _Clock, event: ctypes.c_void_p) -> None:
        self._marks = marks
        self._clock = clock
        self._event: ctypes.c_void_p | None = event
        self._time: int | None = None

    def time(self) -> int | None:
        if self._time is None and self._event is not None:
            self._time = self._marks.time_of(self._clock, self._event)
            if self._time is not None:
                self._let_go()
        return self._time

    def _let_go(self) -> None:
        event, self._event = self._event, None
        if event is not None:
            self._marks.give_back(event)

    def __del__(self) -> None:
        self._let_go()
