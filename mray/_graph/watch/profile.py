"""``with graph.profile() as profile``: spans of all operations of a running compiled graph.

    caller                                                    each actor
    start: a probe on the own ends; "profile" ──────────────▶ a probe on its program, from the next execution on
    ... the graph runs ...
    stop: "unprofile" ──────────────────────────────────────▶ ends, and returns its spans
    Profile: spans, percentiles, a Chrome trace file ◀─────── (a dead actor's are lost: the profile says so)

A profile begins and ends while executions are in flight.
"""

from __future__ import annotations

import itertools
import pickle
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from mray._common.clock import time_ns
from mray._common.kept import os
from mray._graph.gpu_edges import DeviceMarks
from mray._graph.graph_messages import PROFILE, PROFILE_NOW, UNPROFILE, UNPROFILE_NOW, ProfileRequest
from mray._graph.participants import Participants, late
from mray._graph.plan import DRIVER
from mray._graph.watch.measures import measured
from mray._graph.watch.probes import Probe, SpanProbe, device_marks
from mray._trace.chrome import Recording, Trace
from mray._trace.digest import Digest, spans_of
from mray._trace.span import Buffer, Span, clock, span_buffers

#: Seconds that `stop` waits for main threads, and then for reading threads.
PATIENCE = 2.0


class Attachment(NamedTuple):
    #: ValueError during another profile, RayChannelError when the graph has ended.
    begin: Callable[[Profile], None]
    #: Puts probes around the input's writing and the results' reading.
    put_probes: Callable[[Probe, Probe], None]
    end: Callable[[], None]
    keep: Callable[[Digest], None]


class Profile:
    def __init__(
        self,
        participants: Participants,
        attachment: Attachment,
        filename: str | os.PathLike[str] | None,
        *,
        calls: bool,
        torch: bool,
        limit: int,
    ) -> None:
        if limit < 1:
            raise ValueError(f"a profile keeps at least 1 span, not {limit}")
        self._participants = participants
        self._attachment = attachment
        self._filename = filename
        self._request = ProfileRequest(participants.plan.graph_id, uuid.uuid4().hex, limit, calls, torch)
        #: Its begin and end: nanoseconds of CLOCK_MONOTONIC; 0: not yet.
        self.begun = 0
        self.ended = 0
        #: Actors whose spans are missing -> why.
        self.lost: dict[str, str] = {}
        self.notes: list[str] = []
        self._recordings: list[Recording] = []
        self._foreign: list[dict[str, Any]] = []
        #: This process's spans.
        self._buffer: Buffer | None = None
        self._marks: DeviceMarks | None = None

    # ------------------------------------------------------------------------------------ on and off
    def __enter__(self) -> Profile:
        return self.start()

    def __exit__(self, *_error: object) -> None:
        self.stop()

    def start(self) -> Profile:
        """Returns when every actor that answers records. ValueError when the graph is being profiled, RayChannelError when it has ended."""
        self._attachment.begin(self)
        try:
            self._begin_everywhere()
        except BaseException:
            self.stop()
            raise
        return self

    def _begin_everywhere(self) -> None:
        participants, request = self._participants, self._request
        answers = self._ask(PROFILE if request.torch else PROFILE_NOW, pickle.dumps(request), None if request.torch else PATIENCE)
        for name, answer in answers.items():
            if isinstance(answer, str):
                self.lost[name] = answer
            elif why := pickle.loads(answer):
                self.notes.append(f"{name}: no torch profiler: {why}")
        if request.calls:
            participants.host.look_at_calls(request.token, True)
        buffer = span_buffers.get().open(request.graph_id, DRIVER, request.limit)
        self._buffer = buffer
        own = [channel for channel in participants.plan.channels if DRIVER in (channel.writer, *channel.readers)]
        self._marks = marks = device_marks(participants.host, own, buffer)
        short = request.graph_id[:8]
        own_ends = SpanProbe(buffer, f"graph {short}: execute", marks), SpanProbe(buffer, f"graph {short}: results", marks)
        self._attachment.put_probes(*own_ends)

    def stop(self) -> None:
        """End and collect the spans. Idempotent. Dead actors are in `lost`; busy ones give their spans so far."""
        if not self.begun or self.ended:
            return
        self.ended = clock()
        self._attachment.end()
        payload = f"{self._request.graph_id}/{self._request.token}".encode()
        own = self._participants.host.look_at_calls(self._request.token, False)
        if self._marks is not None:
            self._marks.settle()
        answers = self._ask(UNPROFILE, payload, PATIENCE)
        slow = [name for name, answer in answers.items() if answer == late(PATIENCE)]
        if slow:
            answers.update({name: answer for name, answer in self._ask(UNPROFILE_NOW, payload, PATIENCE).items() if name in slow})
        for name, answer in answers.items():
            if isinstance(answer, str):
                self.lost[name] = answer
            else:
                self._take(name, pickle.loads(answer))
        if own is not None:
            self._recordings.append(_recording(os.getpid(), DRIVER_NAME, own))
        if self._buffer is not None:
            sheet = self._buffer.sheet()
            self._recordings.insert(0, _recording(os.getpid(), DRIVER_NAME, sheet, self._request.graph_id, DRIVER))
        self._recordings.sort(key=lambda each: each.endpoint != DRIVER)
        self._attachment.keep(self.digest())
        if self._filename is not None:
            self.save(self._filename)

    def _take(self, name: str, sheets: Sequence[Mapping[str, Any]]) -> None:
        plan = self._participants.plan
        for sheet in sheets:
            endpoint = sheet["endpoint"]
            title = f"{sheet['name']}: {name}" if sheet["name"] else name
            if endpoint is None:
                if not any(each.pid == sheet["pid"] and not each.graph for each in self._recordings):
                    self._recordings.append(_recording(sheet["pid"], title, sheet))
                continue
            self._recordings.append(_recording(sheet["pid"], title, sheet, plan.graph_id, endpoint))
            self._foreign += sheet["foreign"]
        if not sheets:
            self.lost[name] = "no longer took part in the graph"

    def _ask(self, verb: str, payload: bytes, patience: float | None) -> dict[str, bytes | str]:
        """Actor name -> its answer or why there is none."""
        answers = self._participants.ask(verb, payload, patience)
        return {self._participants.name(endpoint, DRIVER_NAME): answer for endpoint, answer in answers.items()}

    # ------------------------------------------------------------------------------------ what there is
    @property
    def seconds(self) -> float:
        return ((self.ended or clock()) - self.begun) * 1e-9 if self.begun else 0.0

    @property
    def spans(self) -> list[Span]:
        """Spans of all processes by their beginnings; empty before the end."""
        return sorted(itertools.chain.from_iterable(each.spans for each in self._recordings), key=lambda span: (span.begin, -span.end))

    @property
    def recordings(self) -> tuple[Recording, ...]:
        return tuple(self._recordings)

    @property
    def dropped(self) -> int:
        return sum(each.dropped for each in self._recordings)

    @property
    def trace(self) -> Trace:
        info = {"graph": self._request.graph_id, "lost": self.lost, "notes": self.notes, "unix_nanoseconds": time_ns() - clock()}
        return Trace(list(self._recordings), list(self._foreign), info)

    def events(self) -> list[dict[str, Any]]:
        return self.trace.events()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a trace file, for https://ui.perfetto.dev or ``chrome://tracing``."""
        self.trace.save(path)

    def digest(self) -> Digest:
        return Digest({each.endpoint: each.spans for each in self._recordings if each.graph}, self.seconds)

    def statistics(self) -> dict[str, Any]:
        """As `CompiledGraph.statistics`, of this profile."""
        return measured(self._participants, self.digest(), {})

    def __repr__(self) -> str:
        state = "has not begun" if not self.begun else f"{len(self.spans)} spans in {self.seconds:.3g} s" if self.ended else "is going on"
        return f"<Profile of the compiled graph {self._request.graph_id[:8]}: {state}>"


DRIVER_NAME = "caller"


def _recording(pid: int, name: str, sheet: Mapping[str, Any], graph: str = "", endpoint: str = "") -> Recording:
    return Recording(pid, name, spans_of(sheet), graph, endpoint, sheet["dropped"])
