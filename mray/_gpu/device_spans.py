"""Spans of device streams in a profiled graph: their copies for edges, their waits for peers, the kernels of methods.

In an actor's main thread. The times of marks are read when the spans are collected. Only the end of a profile waits for a device,
briefly.

    host    │ write: queues a copy │ read: queues a wait │ method: queues kernels │
    stream  ▼mark ─── the copy ─── ▼mark ... ▼mark ─ the wait ─ ▼mark ... ▼mark ─ the kernels ─ ▼mark

A stream may be idle between two marks; a method that queues nothing gets a span of its own length.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from mray._common.clock import monotonic, sleep
from mray._device.device import Device, Mark, Platform
from mray._graph.gpu_edges import Method, Read, Write
from mray._inside.plans import plan as plans
from mray._inside.plans import select
from mray._inside.spans import kinds
from mray._inside.transports import NOTHING
from mray._trace.span import Buffer

SETTLING = 1.0


class _Open(NamedTuple):
    first: Mark
    last: Mark
    track: str
    name: str
    place: int
    number: int


class DeviceSpans:
    """Implements `mray._graph.watch.probes.DeviceMarks`."""

    def __init__(self, devices: Platform, buffer: Buffer) -> None:
        self._devices = devices
        self._buffer = buffer
        self._open: deque[_Open] = deque()
        #: Why devices have no spans; "" if they have.
        self.broken = ""

    def _begin(self) -> tuple[Device, int, Mark] | None:
        if self.broken or not self._devices.is_in_use():
            return None  # a mark would create a context on a device that user code does not use
        try:
            device = self._devices.current_device()
            stream = device.current_stream()
            return device, stream, device.mark(stream)
        except Exception as error:  # a stream that is being captured, for instance
            self.broken = f"{type(error).__name__}: {error}"
            return None

    def _end(self, begun: tuple[Device, int, Mark] | None, name: str, place: int, number: int) -> None:
        if begun is None:
            return
        device, stream, first = begun
        try:
            last = device.mark(stream)
        except Exception as error:
            self.broken = f"{type(error).__name__}: {error}"
            return
        self._open.append(_Open(first, last, f"{device.name} {device.index}, stream {stream:#x}", name, place, number))
        self.collect()

    def collect(self) -> None:
        while self._open:
            first = self._open[0]
            begin, end = first.first.time(), first.last.time()
            if begin is None or end is None:
                return
            self._open.popleft()
            self._buffer.add((kinds.DEVICE, begin, max(begin, end), first.track, first.name, first.place, first.number, 0, False))

    def settle(self) -> None:
        deadline = monotonic() + SETTLING
        self.collect()
        while self._open and monotonic() < deadline:
            sleep(0.0005)
            self.collect()
        self._buffer.dropped += len(self._open)
        self._open.clear()

    # -------------------------------------------------------------------------------------- around what
    def around_read(self, channel: plans.Route, read: Read, position: Callable[[], int]) -> Read:
        if channel.transport not in select.ON_DEVICES:
            return read

        def marked() -> Any:
            begun = self._begin()
            value = read()
            if value is not NOTHING:
                self._end(begun, channel.name, channel.index, position() - 1)
            return value

        return marked

    def around_write(self, channel: plans.Route, write: Write, position: Callable[[], int]) -> Write:
        if channel.transport not in select.ON_DEVICES:
            return write

        def marked(value: Any) -> bool:
            begun = self._begin()
            sent = write(value)
            if sent:
                self._end(begun, channel.name, channel.index, position() - 1)
            return sent

        return marked

    def around_method(self, step: plans.Step, name: str, method: Method) -> Method:
        def marked(*args: Any, **kwargs: Any) -> Any:
            begun = self._begin()
            result = method(*args, **kwargs)
            self._end(begun, name, step.index, -1)
            return result

        return marked
