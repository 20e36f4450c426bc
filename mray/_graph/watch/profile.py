"""``with graph.profile() as profile``: what a compiled graph does, noted down while it runs.

    caller                                                    each actor
    start: a probe on the own ends; "profile" ──────────────▶ a probe on its program, from the next execution on
    ... the graph runs ...
    stop: "unprofile" ──────────────────────────────────────▶ ends, and hands over its spans
    Profile: spans, percentiles, a file of Chrome ◀────────── (a dead actor's are lost: the profile says so)

In the process that compiled the graph. A profile begins and ends at any time, also while executions are in flight: those are noted down
from the operation on that each process is at, or comes to next. Nothing is recompiled but the programs' lists of actions.
"""

from __future__ import annotations

import itertools
import os
import pickle
import uuid
from collections.abc import Mapping, Sequence
from time import time_ns
from typing import TYPE_CHECKING, Any

from mray._channel.base import ChannelWriter
from mray._channel.fan_out import FanOutWriter
from mray._graph.measures import measured
from mray._graph.plan import DRIVER, INPUT, Channel
from mray._graph.watch.device_spans import DeviceSpans, device_marks
from mray._graph.watch.probes import Probe, SpanProbe, probed_writers
from mray._graph.watch.profiled import PROFILE, PROFILE_NOW, UNPROFILE, UNPROFILE_NOW, Wish
from mray._trace.chrome import Recording, Trace
from mray._trace.digest import Digest, spans_of
from mray._trace.span import Buffer, Span, clock, own_shelf

if TYPE_CHECKING:
    from mray._graph.caller.compiled import CompiledGraph
    from mray._graph.host import Pending

#: Seconds that `stop` waits for main threads that compute, before their reading threads answer in their stead; and for those.
PATIENCE = 2.0


class Profile:
    """What was noted down of one graph; a context manager that begins and ends. See `CompiledGraph.profile`."""

    def __init__(self, graph: CompiledGraph, filename: str | os.PathLike[str] | None, *, calls: bool, torch: bool, limit: int) -> None:
        if limit < 1:
            raise ValueError(f"a profile keeps 1 span at least, not {limit}")
        self._graph = graph
        self._filename = filename
        self._wish = Wish(graph.get_id(), uuid.uuid4().hex, limit, calls, torch)
        #: When it began and ended, in nanoseconds of CLOCK_MONOTONIC; 0: it has not.
        self.begun = 0
        self.ended = 0
        #: Name of each actor whose spans are missing -> why.
        self.lost: dict[str, str] = {}
        #: What else is to be known, in words.
        self.notes: list[str] = []
        self._recordings: list[Recording] = []
        self._foreign: list[dict[str, Any]] = []
        #: What this process notes down.
        self._buffer: Buffer | None = None
        self._marks: DeviceSpans | None = None

    # ------------------------------------------------------------------------------------ on and off
    def __enter__(self) -> Profile:
        return self.start()

    def __exit__(self, *_error: object) -> None:
        self.stop()

    def start(self) -> Profile:
        """Begin; returns when every actor that answers notes down what it does next. ValueError when the graph is being profiled.

        RayChannelError when the graph has ended. Waits for methods that are running only to start the torch profiler.
        """
        graph = self._graph
        with graph._lock:
            if graph._stopped:
                graph._raise_stopped()
            if graph._profile is not None:
                raise ValueError(f"The compiled graph {graph.get_id()} is being profiled already.")
            if self.begun:
                raise ValueError("This profile has ended; make another one.")
            graph._profile = self
            self.begun = clock()
        try:
            self._begin_everywhere()
        except BaseException:
            self.stop()
            raise
        return self

    def _begin_everywhere(self) -> None:
        graph, wish = self._graph, self._wish
        answers = self._ask(PROFILE if wish.torch else PROFILE_NOW, pickle.dumps(wish), None if wish.torch else PATIENCE)
        for name, answer in answers.items():
            if isinstance(answer, str):
                self.lost[name] = answer
            elif why := pickle.loads(answer):
                self.notes.append(f"{name}: no torch profiler: {why}")
        if wish.calls:
            graph._host.look_at_calls(wish.token, True)
        buffer = own_shelf.get().open(wish.graph_id, DRIVER, wish.limit)
        self._buffer = buffer
        own = [channel for channel in graph._plan.channels if DRIVER in (channel.writer, *channel.readers)]
        self._marks = marks = device_marks(own, buffer)
        short = wish.graph_id[:8]
        with graph._lock:
            if not graph._stopped:
                _look_on(graph, SpanProbe(buffer, f"graph {short}: execute", marks), SpanProbe(buffer, f"graph {short}: results", marks))

    def stop(self) -> None:
        """End, and collect. Idempotent. An actor that has died is in `lost`; one that computes for long tells what it has so far."""
        graph = self._graph
        if not self.begun or self.ended:
            return
        self.ended = clock()
        with graph._lock:
            graph._profile = None
            if not graph._is_teardown:
                _look_on(graph, None, None)
        payload = f"{self._wish.graph_id}/{self._wish.token}".encode()
        own = graph._host.look_at_calls(self._wish.token, False)
        if self._marks is not None:
            self._marks.settle()
        answers = self._ask(UNPROFILE, payload, PATIENCE)
        late = [name for name, answer in answers.items() if answer == _LATE]
        if late:
            answers.update({name: answer for name, answer in self._ask(UNPROFILE_NOW, payload, PATIENCE).items() if name in late})
        for name, answer in answers.items():
            if isinstance(answer, str):
                self.lost[name] = answer
            else:
                self._take(name, pickle.loads(answer))
        if own is not None:
            self._recordings.append(_recording(os.getpid(), DRIVER_NAME, own))
        if self._buffer is not None:
            sheet = self._buffer.sheet()
            self._recordings.insert(0, _recording(os.getpid(), DRIVER_NAME, sheet, self._wish.graph_id, DRIVER))
        self._recordings.sort(key=lambda each: each.endpoint != DRIVER)
        graph._measured = self.digest()
        if self._filename is not None:
            self.save(self._filename)

    def _take(self, name: str, sheets: Sequence[Mapping[str, Any]]) -> None:
        plan = self._graph._plan
        for sheet in sheets:
            endpoint = sheet["endpoint"]
            if endpoint is None:
                if not any(each.pid == sheet["pid"] and not each.graph for each in self._recordings):
                    self._recordings.append(_recording(sheet["pid"], name, sheet))
                continue
            self._recordings.append(_recording(sheet["pid"], name, sheet, plan.graph_id, endpoint))
            self._foreign += sheet["foreign"]
        if not sheets:
            self.lost[name] = "took no part in the graph any more"

    def _ask(self, verb: str, payload: bytes, patience: float | None) -> dict[str, bytes | str]:
        """Name of each actor -> its answer, or in words why there is none. The actors of one process answer once."""
        graph = self._graph
        host = graph._host
        pendings: dict[str, Pending | str] = {}
        for endpoint in graph._plan.graph.actors:
            name = endpoint_name(graph, endpoint)
            try:
                pendings[name] = host.request(graph._made.processes[endpoint], verb, payload)
            except Exception as error:
                pendings[name] = f"is dead: {error}"
        host.wait_until(lambda: all(isinstance(each, str) or each.done() for each in pendings.values()), patience)
        answers: dict[str, bytes | str] = {}
        for name, pending in pendings.items():
            if isinstance(pending, str):
                answers[name] = pending
            elif not pending.done():
                answers[name] = _LATE
            else:
                try:
                    answers[name] = pending.result()
                except Exception as error:
                    answers[name] = f"is dead: {error}"
        return answers

    # ------------------------------------------------------------------------------------ what there is
    @property
    def seconds(self) -> float:
        """How long it has lasted."""
        return ((self.ended or clock()) - self.begun) * 1e-9 if self.begun else 0.0

    @property
    def spans(self) -> list[Span]:
        """Every span, of all processes, in the order of their beginnings; empty before the end."""
        return sorted(itertools.chain.from_iterable(each.spans for each in self._recordings), key=lambda span: (span.begin, -span.end))

    @property
    def recordings(self) -> tuple[Recording, ...]:
        """What each process has noted down."""
        return tuple(self._recordings)

    @property
    def dropped(self) -> int:
        """Spans that did not fit."""
        return sum(each.dropped for each in self._recordings)

    @property
    def trace(self) -> Trace:
        """All of it as one trace."""
        facts = {"graph": self._wish.graph_id, "lost": self.lost, "notes": self.notes, "unix_nanoseconds": time_ns() - clock()}
        return Trace(list(self._recordings), list(self._foreign), facts)

    def events(self) -> list[dict[str, Any]]:
        """All of it as events of a Chrome trace."""
        return self.trace.events()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a trace file, for https://ui.perfetto.dev or ``chrome://tracing``."""
        self.trace.save(path)

    def digest(self) -> Digest:
        """Percentiles by step and edge."""
        return Digest({each.endpoint: each.spans for each in self._recordings if each.graph}, self.seconds)

    def statistics(self) -> dict[str, Any]:
        """What `CompiledGraph.statistics` says of steps and edges, of this profile."""
        return measured(self._graph, self.digest(), {})

    def __repr__(self) -> str:
        state = "has not begun" if not self.begun else f"{len(self.spans)} spans in {self.seconds:.3g} s" if self.ended else "is going on"
        return f"<Profile of the compiled graph {self._wish.graph_id[:8]}: {state}>"


_LATE = "does not answer: its process is stopped, or holds the interpreter lock"
DRIVER_NAME = "caller"


def endpoint_name(graph: CompiledGraph, endpoint: str) -> str:
    """What the process of an endpoint is called in a trace."""
    if endpoint == DRIVER:
        return DRIVER_NAME
    return f"{graph._names[endpoint]}({endpoint[:8]})" if graph._names.get(endpoint) else endpoint


def _recording(pid: int, name: str, sheet: Mapping[str, Any], graph: str = "", endpoint: str = "") -> Recording:
    return Recording(pid, name, spans_of(sheet), graph, endpoint, sheet["dropped"])


def _look_on(graph: CompiledGraph, execute: Probe | None, results: Probe | None) -> None:
    """Put probes on the own ends of a graph, or take them away. Graph's lock held."""
    plan = graph._plan
    channels: dict[int, Channel] = {channel.index: channel for channel in plan.channels}
    writer: ChannelWriter = graph._writer
    reads = [reader.try_read for reader in graph._readers]
    if execute is not None and results is not None:
        inputs = plan.channels_of(INPUT)
        probed = list(probed_writers(execute, channels, {each.index: graph._made.ends.writers[each.index] for each in inputs}).values())
        writer = probed[0] if len(probed) == 1 else FanOutWriter(probed, lambda error: graph._host.failure(error, "execute"))
        found = [plan.channel_to(source, DRIVER) for source in plan.graph.results]
        reads = [results.read(channel, reader) for channel, reader in zip(found, graph._readers, strict=True) if channel is not None]
    graph._try_write = writer.try_write
    graph._results.read_by(reads)
    if graph._fast_read is not None:
        graph._fast_read = reads[0]
        graph._only_read = None if graph._room_wanted else graph._fast_read
