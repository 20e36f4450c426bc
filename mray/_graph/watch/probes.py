"""Probes around the operations of a profiled program: spans, NVTX ranges, ranges of the torch profiler.

A program without probes has no trace of them.

    try_read, try_write, method  --probe-->  the same, recorded  --compile_program-->  actions

A wait begins with the first try that finds no message. A program's spans never overlap.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from mray._channel.base import NOTHING, ChannelReader, ChannelWriter, ReaderBy, WrappedWriter
from mray._channel.select import BLOCKING, ON_DEVICES
from mray._graph.gpu_edges import DeviceMarks, Method, Read, Write
from mray._graph.host import GraphHost
from mray._graph.plan import Route, Step
from mray._trace.kinds import COMPUTE, DESERIALIZE, READ_WAIT, RECEIVE, SERIALIZE, TRANSFER, WRITE_WAIT
from mray._trace.span import Buffer, clock


class Probe(Protocol):
    """Wrappers behave as the wrapped operation, exceptions too, and retain no value."""

    def read(self, channel: Route, reader: ChannelReader) -> Read:
        """Around ``reader.try_read``."""

    def write(self, channel: Route, writer: ChannelWriter) -> Write:
        """Around ``writer.try_write``."""

    def method(self, step: Step, name: str, method: Method) -> Method:
        """Around the method of a step."""


class ProbedWriter(WrappedWriter):
    __slots__ = ("try_write",)

    try_write: Write  # type: ignore[assignment]

    def __init__(self, inner: ChannelWriter, write: Write) -> None:
        super().__init__(inner)
        self.try_write = write


def probed_readers(probe: Probe, channels: Mapping[int, Route], readers: Mapping[int, ChannelReader]) -> dict[int, ChannelReader]:
    return {index: ReaderBy(reader, probe.read(channels[index], reader)) for index, reader in readers.items()}


def probed_writers(probe: Probe, channels: Mapping[int, Route], writers: Mapping[int, ChannelWriter]) -> dict[int, ChannelWriter]:
    return {index: ProbedWriter(writer, probe.write(channels[index], writer)) for index, writer in writers.items()}


# ------------------------------------------------------------------------------------------------ spans
class SpanProbe:
    def __init__(self, buffer: Buffer, track: str, marks: DeviceMarks | None = None) -> None:
        self._add = buffer.add
        self._track = track
        self._marks = marks
        #: Begin of the current wait; 0: none.
        self._since = 0

    def read(self, channel: Route, reader: ChannelReader) -> Read:
        add, track, name, index = self._add, self._track, channel.name, channel.index
        try_read, position = reader.try_read, reader.position
        kind = RECEIVE if channel.transport in BLOCKING else DESERIALIZE

        def read() -> Any:
            begin = clock()
            value = try_read()
            if value is NOTHING:
                if not self._since:
                    self._since = begin
                return NOTHING
            end = clock()
            number = position() - 1
            if self._since:
                add((READ_WAIT, self._since, begin, track, name, index, number, 0, False))
                self._since = 0
            add((kind, begin, end, track, name, index, number, 0, False))
            return value

        return read if self._marks is None else self._marks.around_read(channel, read, position)

    def write(self, channel: Route, writer: ChannelWriter) -> Write:
        add, track, name, index = self._add, self._track, channel.name, channel.index
        send, position, last_size = writer.try_write, writer.position, writer.last_size
        blocking = channel.transport in BLOCKING
        kind = TRANSFER if blocking else SERIALIZE
        last_size()  # to count the bytes that devices send afterwards

        def write(value: Any) -> bool:
            begin = clock()
            size = _bytes_of(value) if blocking else 0
            try:
                sent = send(value)
            except BaseException:
                add((kind, begin, clock(), track, name, index, -1, 0, True))
                raise
            if not sent:
                if not self._since:
                    self._since = begin
                return False
            end = clock()
            number = position() - 1
            if self._since:
                add((WRITE_WAIT, self._since, begin, track, name, index, number, 0, False))
                self._since = 0
            add((kind, begin, end, track, name, index, number, size + last_size(), False))
            return True

        return write if self._marks is None else self._marks.around_write(channel, write, position)

    def method(self, step: Step, name: str, method: Method) -> Method:
        add, track, index = self._add, self._track, step.index

        def traced(*args: Any, **kwargs: Any) -> Any:
            begin = clock()
            try:
                result = method(*args, **kwargs)
            except BaseException:
                add((COMPUTE, begin, clock(), track, name, index, -1, 0, True))
                raise
            add((COMPUTE, begin, clock(), track, name, index, -1, 0, False))
            return result

        return traced if self._marks is None else self._marks.around_method(step, name, traced)


def _bytes_of(value: Any) -> int:
    """Bytes of tensors, also in a list, tuple or dict."""
    if value.__class__ is dict:
        return sum(map(_bytes_of, value.values()))
    if value.__class__ in (list, tuple):
        return sum(map(_bytes_of, value))
    size = getattr(value, "nbytes", 0) if hasattr(value, "shape") else 0
    return size if isinstance(size, int) else 0


def device_marks(host: GraphHost, routes: Iterable[Route], buffer: Buffer) -> DeviceMarks | None:
    """None if no channel leaves tensors on devices."""
    return host.gpus().marks(buffer) if any(route.transport in ON_DEVICES for route in routes) else None


# ----------------------------------------------------------------------------------- other profilers
class Ranges(Protocol):
    """`mray._trace.nvtx`, `mray._trace.torch_profiler`."""

    def push(self, kind: str, name: str) -> Any:
        """Begin a range inside of the open one; returns the token that ends it."""

    def pop(self, token: Any) -> None:
        """End the range that was begun last."""

    def start(self, kind: str, name: str) -> Any:
        """Begin a range that other ranges may outlive; returns the token that ends it."""

    def stop(self, token: Any) -> None:
        """End it."""


class RangeProbe:
    def __init__(self, ranges: Ranges) -> None:
        self._ranges = ranges
        self._wait: Any = None

    def _waits(self, kind: str, name: str) -> None:
        if self._wait is None:
            self._wait = self._ranges.start(kind, name)

    def _goes_on(self) -> None:
        if self._wait is not None:
            wait, self._wait = self._wait, None
            self._ranges.stop(wait)

    def read(self, channel: Route, reader: ChannelReader) -> Read:
        push, pop, ready, try_read = self._ranges.push, self._ranges.pop, reader.ready, reader.try_read
        name = channel.name

        def read() -> Any:
            if not ready():
                self._waits(READ_WAIT, name)
                return NOTHING
            self._goes_on()
            token = push(DESERIALIZE, name)
            try:
                return try_read()
            finally:
                pop(token)

        return read

    def write(self, channel: Route, writer: ChannelWriter) -> Write:
        push, pop, has_room, send = self._ranges.push, self._ranges.pop, writer.has_room, writer.try_write
        name = channel.name

        def write(value: Any) -> bool:
            if not has_room():
                self._waits(WRITE_WAIT, name)
                return False
            self._goes_on()
            token = push(SERIALIZE, name)
            try:
                return send(value)
            finally:
                pop(token)

        return write

    def method(self, step: Step, name: str, method: Method) -> Method:
        push, pop = self._ranges.push, self._ranges.pop

        def annotated(*args: Any, **kwargs: Any) -> Any:
            token = push(COMPUTE, name)
            try:
                return method(*args, **kwargs)
            finally:
                pop(token)

        return annotated


def apply(
    probes: Iterable[Probe],
    channels: Sequence[Route],
    readers: Mapping[int, ChannelReader],
    writers: Mapping[int, ChannelWriter],
) -> tuple[Mapping[int, ChannelReader], Mapping[int, ChannelWriter]]:
    """The last probe is outermost."""
    by_index = {channel.index: channel for channel in channels}
    for probe in probes:
        readers = probed_readers(probe, by_index, readers)
        writers = probed_writers(probe, by_index, writers)
    return readers, writers
