"""An actor's side of a profile.

    caller                             actor
    request "profile now" -----------> reading thread: from the next execution on, the program records spans (`mray._graph.watch.probes`)
    request "profile" ---------------> the same in its main thread, which the torch profiler needs
    request "unprofile" -------------> its main thread, between two operations: returns the spans, and ends
    request "unprofile now" ---------> the same in the reading thread, when the main thread computes for long

Both ends of a message are recorded before either process answers "unprofile" in its main thread, so that arrows between spans are whole.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from mray._api.current import backend_if_started
from mray._common.kept import os
from mray._common.process_local import ProcessLocal
from mray._graph.gpu_edges import DeviceMarks
from mray._graph.graph_messages import ProfileRequest
from mray._graph.watch.probes import Probe, SpanProbe, device_marks
from mray._trace.span import Buffer, span_buffers
from mray._trace.torch_profiler import TorchProfiler

if TYPE_CHECKING:
    from mray._graph.host import GraphHost
    from mray._graph.plan import Assignment


class RunningProgram(Protocol):
    """`mray._graph.actor.loop.Program`."""

    assignment: Assignment

    def probe(self, probe: Probe | None) -> None:
        """Put this probe around its operations, or none, from the next execution on. Any thread."""


@dataclass
class _Running:
    token: str
    buffer: Buffer
    marks: DeviceMarks | None
    torch: TorchProfiler | None


_own_running: ProcessLocal[dict[tuple[str, str], _Running]] = ProcessLocal(dict)


def graph_track(graph_id: str) -> str:
    return f"graph {graph_id[:8]}"


def profile(host: GraphHost, programs: Iterable[RunningProgram], payload: bytes) -> bytes:
    """Returns the pickled reason why there is no torch profiler, or "". Any thread."""
    request: ProfileRequest = pickle.loads(payload)
    why = ""
    for program in programs:
        if program.assignment.graph_id != request.graph_id:
            continue
        key = request.graph_id, program.assignment.actor
        before = _own_running.get().pop(key, None)
        if before is not None and before.torch is not None:
            before.torch.stop()
        buffer = span_buffers.get().open(*key, request.limit)
        marks = device_marks(host, program.assignment.channels, buffer)
        torch = None
        if request.torch:
            torch = TorchProfiler()
            why = torch.start()
        _own_running.get()[key] = _Running(request.token, buffer, marks, torch if not why else None)
        program.probe(SpanProbe(buffer, graph_track(request.graph_id), marks))
    if request.calls:
        host.look_at_calls(request.token, True)
    return pickle.dumps(why)


def unprofile(host: GraphHost, programs: Iterable[RunningProgram], payload: bytes, *, at_once: bool) -> bytes:
    """Returns pickled spans, a dict for each endpoint. `at_once`: not in the main thread, which alone may end the torch profiler."""
    graph_id, token = payload.decode().split("/")
    calls = host.look_at_calls(token, False)
    sheets: list[dict[str, Any]] = []
    backend = backend_if_started()
    own = {"pid": os.getpid(), "name": (backend.context()["actor_name"] or "") if backend is not None else ""}
    taking_part = {program.assignment.actor: program for program in programs if program.assignment.graph_id == graph_id}
    for key, running in list(_own_running.get().items()):
        if key[0] != graph_id or running.token != token:
            continue
        del _own_running.get()[key]
        endpoint = key[1]
        if endpoint in taking_part:  # else it has left the graph, and gives its earlier spans
            taking_part[endpoint].probe(None)
        if running.marks is not None and not at_once:
            running.marks.settle()
        foreign = running.torch.stop() if running.torch is not None and not at_once else []
        sheets.append({"endpoint": endpoint, **own, **running.buffer.sheet(), "foreign": foreign})
    if calls is not None:
        sheets.append({"endpoint": None, **own, **calls})
    return pickle.dumps(sheets)
