"""Spans as a Chrome trace file, which https://ui.perfetto.dev and ``chrome://tracing`` open. Pure, except `save`.

  process  ─▶ a group of rows              span    ─▶ a slice (X), coloured by its kind
  track    ─▶ a row                        message ─▶ an arrow from the writer's slice to each reader's (s, f),
                                                      and a slice on a row of the edge while it is on its way (b, e)

Times are microseconds of CLOCK_MONOTONIC. An arrow is drawn only if both of its ends were recorded.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from mray._common.kept import io, os
from mray._trace.kinds import (
    ARGUMENTS,
    CALL,
    COMPUTE,
    DESERIALIZE,
    DEVICE,
    EXECUTE,
    GET,
    QUEUE,
    READ_WAIT,
    RECEIVE,
    REPLY,
    SERIALIZE,
    SUBMIT,
    TRANSFER,
    WAITS,
    WRITE_WAIT,
)
from mray._trace.span import Span

#: By kind; Perfetto chooses its own, by name.
COLOURS = {
    COMPUTE: "thread_state_running",
    EXECUTE: "rail_animation",
    READ_WAIT: "grey",
    WRITE_WAIT: "terrible",
    QUEUE: "grey",
    DESERIALIZE: "rail_load",
    ARGUMENTS: "rail_load",
    SERIALIZE: "rail_idle",
    REPLY: "rail_idle",
    TRANSFER: "rail_response",
    RECEIVE: "rail_response",
    DEVICE: "cq_build_passed",
    SUBMIT: "background_memory_dump",
    GET: "grey",
    CALL: "generic_work",
}

_WRITES = frozenset({SERIALIZE, TRANSFER})
_READS = frozenset({DESERIALIZE, RECEIVE})


@dataclass
class Recording:
    """The record of one process: of a graph, or (`graph` is empty) of calls."""

    #: 0 for a recording that is of no process.
    pid: int
    name: str
    spans: Sequence[Span]
    graph: str = ""
    endpoint: str = ""
    dropped: int = 0


@dataclass
class Trace:
    """The contents of one file."""

    recordings: list[Recording] = field(default_factory=list)
    #: Events of other profilers, with times of `clock`.
    foreign: list[dict[str, Any]] = field(default_factory=list)
    info: dict[str, Any] = field(default_factory=dict)
    #: When each function was called first, as far as processes remember, also before the recordings begin; not in the file.
    functions: dict[str, int] = field(default_factory=dict)

    def events(self) -> list[dict[str, Any]]:
        return _Builder(self).build()

    def save(self, path: str | os.PathLike[str], *, bare: bool = False) -> None:
        """Write the file atomically. `bare`: only the list of events."""
        events = self.events()
        document: Any = events if bare else {"traceEvents": events, "displayTimeUnit": "ns", "otherData": self.metadata()}
        write_json(path, document)

    def metadata(self) -> dict[str, Any]:
        """The file's clock, missing processes and dropped spans."""
        dropped = {f"{each.name} (pid {each.pid})": each.dropped for each in self.recordings if each.dropped}
        return {"clock": "CLOCK_MONOTONIC, microseconds; the same for all processes of this machine", "dropped": dropped, **self.info}


def write_json(path: str | os.PathLike[str], document: Any) -> None:
    """Write a JSON file atomically, by renaming a temporary one."""
    path = os.fspath(path)
    fd, name = tempfile.mkstemp(dir=os.path.dirname(path) or ".", prefix=".mray-trace-")
    try:
        mask = os.umask(0)
        os.umask(mask)
        os.fchmod(fd, 0o666 & ~mask)
        with io.open(fd, "w", encoding="utf-8") as file:
            json.dump(document, file, separators=(",", ":"))
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


class Message(NamedTuple):
    """The spans of both ends, with their pids."""

    #: Unique in a trace.
    key: str
    write: tuple[int, Span]
    read: tuple[int, Span]

    @property
    def left(self) -> int:
        """The latest time of its departure: a reader may begin while the writer still rings others."""
        write, read = self.write[1], self.read[1]
        return max(write.begin, min(write.end, read.begin))


def messages(recordings: Iterable[Recording]) -> Iterator[Message]:
    """Every message whose write and read were recorded, once for each reader."""
    graphs = [each for each in recordings if each.graph]
    written: dict[tuple[str, int | str, int], tuple[int, Span]] = {}
    for each in graphs:
        for span in each.spans:
            if span.kind in _WRITES and span.number >= 0:
                written[each.graph, span.place, span.number] = each.pid, span
    for each in graphs:
        for span in each.spans:
            if span.kind in _READS and span.number >= 0:
                write = written.get((each.graph, span.place, span.number))
                if write is not None:
                    yield Message(f"{each.graph[:16]}/{span.place}/{span.number}/{each.endpoint}", write, (each.pid, span))


class _Builder:
    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._events: list[dict[str, Any]] = []
        #: Row numbers by (pid, track).
        self._rows: dict[tuple[int, str], int] = {}

    def build(self) -> list[dict[str, Any]]:
        names: list[dict[str, Any]] = []
        seen: dict[int, list[str]] = {}
        for each in self._trace.recordings:
            known = seen.setdefault(each.pid, [])
            if each.name not in known:
                known.append(each.name)
            for span in each.spans:
                self._slice(each.pid, span)
        self._messages()
        self._calls()
        for order, (pid, known) in enumerate(seen.items()):
            names.append(_named("process_name", pid, 0, name=f"{', '.join(known)} pid {pid}" if pid else known[0]))
            names.append(_named("process_sort_index", pid, 0, sort_index=order))
        for (pid, track), row in self._rows.items():
            names.append(_named("thread_name", pid, row, name=track))
            names.append(_named("thread_sort_index", pid, row, sort_index=row))
        about = _named("mray", 0, 0, **self._trace.metadata())
        return [about, *names, *self._events, *self._trace.foreign]

    def _row(self, pid: int, track: str) -> int:
        row = self._rows.get((pid, track))
        if row is None:
            # Small numbers: other profilers name rows by thread ids.
            row = self._rows[pid, track] = 1 + sum(known == pid for known, _track in self._rows)
        return row

    def _slice(self, pid: int, span: Span) -> None:
        said: dict[str, Any] = {}
        if isinstance(span.place, str) and span.place:
            said.update(task_id=span.place, name=span.name)
        if span.number >= 0:
            said["message"] = span.number
        if span.size:
            said["bytes"] = span.size
        if span.failed:
            said["failed"] = True
        self._events.append(
            {
                "ph": "X",
                "name": f"{span.kind}: {span.name}" if span.kind in WAITS else span.name,
                "cat": f"task::{span.name}" if span.kind == CALL else span.kind,
                "pid": pid,
                "tid": self._row(pid, span.track),
                "ts": span.begin / 1000,
                "dur": (span.end - span.begin) / 1000,
                "cname": COLOURS.get(span.kind, "generic_work"),
                "args": said,
            }
        )

    def _messages(self) -> None:
        """An arrow and the transfer time for every message whose ends were recorded."""
        for message in messages(self._trace.recordings):
            key, (writer, write), (reader, read) = message.key, message.write, message.read
            self._arrow(key, "message", (writer, write, message.left), (reader, read, max(read.begin, message.left)))
            if read.begin > write.end:
                common = {"cat": "on its way", "name": write.name, "id": key, "pid": writer, "tid": self._row(writer, write.track)}
                said = {"message": write.number, "bytes": write.size}
                self._events.append({**common, "ph": "b", "ts": write.end / 1000, "args": said})
                self._events.append({**common, "ph": "e", "ts": read.begin / 1000})

    def _arrow(self, key: str, what: str, begin: tuple[int, Span, int], end: tuple[int, Span, int]) -> None:
        common = {"cat": what, "name": what, "id": key}
        for phase, (pid, span, at) in (("s", begin), ("f", end)):
            event = {**common, "ph": phase, "pid": pid, "tid": self._row(pid, span.track), "ts": at / 1000}
            self._events.append({**event, "bp": "e"} if phase == "f" else event)

    def _calls(self) -> None:
        """An arrow from the submission of each call to its run, and the time in the queue."""
        submitted: dict[int | str, tuple[int, Span]] = {}
        for each in self._trace.recordings:
            submitted.update({span.place: (each.pid, span) for span in each.spans if span.kind == SUBMIT and span.place})
        for each in self._trace.recordings:
            for span in each.spans:
                found = submitted.get(span.place) if span.kind == CALL else None
                if found is None:
                    continue
                pid, submit = found
                # A call may begin before the caller has finished submitting it.
                left = min(submit.end, span.begin)
                key = f"call/{span.place}"
                self._arrow(key, "call", (pid, submit, left), (each.pid, span, span.begin))
                common = {"cat": QUEUE, "name": f"{QUEUE}: {span.name}", "id": key, "pid": each.pid, "tid": self._row(each.pid, span.track)}
                self._events.append({**common, "ph": "b", "ts": left / 1000, "args": {}})
                self._events.append({**common, "ph": "e", "ts": span.begin / 1000})


def _named(what: str, pid: int, row: int, **said: Any) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": pid, "tid": row, "args": said}


def spans_by_track(recordings: Iterable[Recording]) -> dict[tuple[int, str], list[Span]]:
    """Spans by (pid, track), in the order of their beginnings, outer ones first."""
    tracks: dict[tuple[int, str], list[Span]] = {}
    for each in recordings:
        for span in each.spans:
            tracks.setdefault((each.pid, span.track), []).append(span)
    for spans in tracks.values():
        spans.sort(key=lambda span: (span.begin, -span.end))
    return tracks
