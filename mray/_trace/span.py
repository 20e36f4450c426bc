"""Spans, and the buffers in which a process stores them.

A `Buffer` is filled by its own thread and read by any: appending to a list and copying one are atomic in the interpreter.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

from mray._common.clock import monotonic_ns
from mray._common.process_local import ProcessLocal

#: Nanoseconds of CLOCK_MONOTONIC, which all processes of a machine share.
clock = monotonic_ns

#: About 150 bytes each.
MOST_SPANS = 250_000

#: The suffix of the name of a running call.
RUNNING = " (still running)"


class Span(NamedTuple):
    """The fields of a span, which buffers hold as plain tuples."""

    kind: str
    #: A time of `clock`.
    begin: int
    end: int
    #: The row of its process in which it is drawn; spans of one track nest.
    track: str
    #: Its name: ``Worker.forward``, ``the edge from ... to ...``.
    name: str
    #: The step (COMPUTE) or the channel; -1: none. Of a call: its task's id in hexadecimal.
    place: int | str = -1
    #: The number of the message in its channel, as both endpoints count; -1: none.
    number: int = -1
    size: int = 0
    failed: bool = False


class Buffer:
    """Spans in the order of their ends; those that do not fit are counted."""

    __slots__ = ("begun", "dropped", "limit", "spans")

    def __init__(self, limit: int = MOST_SPANS) -> None:
        self.spans: list[tuple[Any, ...]] = []
        self.limit = limit
        self.dropped = 0
        self.begun = clock()

    def add(self, span: tuple[Any, ...]) -> None:
        if len(self.spans) < self.limit:
            self.spans.append(span)
        else:
            self.dropped += 1

    def sheet(self) -> dict[str, Any]:
        """The spans, as builtin values. Any thread."""
        return {"begun": self.begun, "taken": clock(), "spans": self.spans.copy(), "dropped": self.dropped}


class SpanBuffers:
    """The buffers of one process: of its calls, and of the graphs that were profiled last."""

    #: Graphs whose spans are retained after their profile has ended.
    MOST = 8

    def __init__(self) -> None:
        self.graphs: dict[str, tuple[str, Buffer]] = {}
        self.calls: Buffer | None = None
        #: Profiles that want spans of calls.
        self.wanted: set[str] = set()

    def open(self, graph_id: str, endpoint: str, limit: int) -> Buffer:
        """A new buffer for the operations of `endpoint` in a graph."""
        buffer = Buffer(limit)
        key = f"{graph_id}/{endpoint}"
        self.graphs.pop(key, None)
        self.graphs[key] = endpoint, buffer
        for old in list(itertools.islice(self.graphs, max(len(self.graphs) - self.MOST, 0))):
            self.graphs.pop(old, None)
        return buffer

    def sheets(self) -> list[dict[str, Any]]:
        return [
            {"graph": key.partition("/")[0], "endpoint": endpoint, **buffer.sheet()}
            for key, (endpoint, buffer) in list(self.graphs.items())
        ]


span_buffers: ProcessLocal[SpanBuffers] = ProcessLocal(SpanBuffers)
