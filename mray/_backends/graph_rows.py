"""Compiled graphs as rows of builtin values, for observers (see `mray._observe.process_snapshot`).

In the reading thread, with the client's lock held. A graph's lock must not be waited for, so counters are read without it, and a
graph that is being torn down may lack some.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mray._graph.caller.compiled import CompiledGraph
from mray._graph.depicted import plan_artist
from mray._graph.plan import DRIVER, READ, WRITE, Assignment

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mray._channel.base import ChannelWriter
    from mray._graph.actor.loop import Program
    from mray._graph.graph_messages import ProgramState
    from mray._graph.plan import Route

GRAPHS = "graphs"
PROGRAMS = "programs"
PICTURES = "pictures"


def graphs_of(graphs: Iterable[CompiledGraph]) -> list[dict[str, Any]]:
    """Graphs that the process has compiled and not torn down."""
    awaited = CompiledGraph.awaited()
    return [_graph(graph, id(graph) in awaited) for graph in list(graphs)]


def _graph(graph: CompiledGraph, awaited: bool) -> dict[str, Any]:
    seen, counts = graph.participants, graph.counts()
    plan = seen.plan
    missing = [plan.graph.results[number] for number in counts.missing] if awaited else []
    channels = [plan.channel_to(source, DRIVER) for source in missing]
    return {
        "graph_id": plan.graph_id,
        "state": graph.state.name,
        "error": str(graph.cause or ""),
        "actors": {endpoint: seen.classes.get(endpoint, "") for endpoint in plan.graph.actors},
        "processes": dict(seen.processes),
        "num_tasks": len(plan.graph.steps),
        "submitted": counts.submitted,
        "finished": counts.finished,
        "kept": counts.kept,
        "max_in_flight": graph.limits.in_flight,
        "awaited": awaited,
        "waits_for": list(dict.fromkeys(map(plan.graph.endpoint_of, missing))),
        "waits_on": [channel.index for channel in channels if channel is not None],
        "size_bytes": plan.size,
        "copy_of": plan.copy_of,
        "channels": [_channel(channel, plan.graph.steps) for channel in plan.channels],
        "counters": _counters(graph.writers),
    }


def pictures_of(graphs: Iterable[CompiledGraph]) -> dict[str, str]:
    """SVG of each, by the graph's id; the program ``dot`` is not needed."""
    seen = [graph.participants for graph in list(graphs)]
    return {each.plan.graph_id: plan_artist().plain_svg(each.plan, each.classes) for each in seen}


def _channel(channel: Route, steps: Any) -> dict[str, Any]:
    source = channel.source
    return {
        "index": channel.index,
        "source": "input" if source.step < 0 else f"{steps[source.step].method}()",
        "writer": channel.writer,
        "readers": list(channel.readers),
        "transport": channel.transport,
        "slots": channel.layout.slots,
    }


def _counters(writers: dict[int, ChannelWriter]) -> dict[int, dict[str, int]]:
    counters = {}
    for index, writer in list(writers.items()):
        try:
            counters[index] = {name: int(value) for name, value in writer.statistics().items()}
        except Exception:  # its memory has been released
            continue
    return counters


def programs_of(programs: Iterable[Program]) -> list[dict[str, Any]]:
    """The position of each program that the actor runs, and the endpoints that it waits for."""
    rows = []
    for program in programs:
        assignment = program.assignment
        found = program.state()
        kind, method, waits_for, waits_on = _place(assignment, found)
        rows.append(
            {
                "graph_id": assignment.graph_id,
                "actor": assignment.actor,
                "owner": assignment.owner,
                "executions": found.executions,
                "running": found.running,
                "kind": kind,
                "awaits_room": kind == WRITE,
                "method": method,
                "waits_for": waits_for,
                "waits_on": waits_on,
                "counters": _counters(program.ends.writers),
            }
        )
    return rows


def _place(assignment: Assignment, found: ProgramState) -> tuple[str, str, list[str], list[int]]:
    """(kind of operation, method, endpoints and channels that it waits for)."""
    operations = assignment.operations
    operation = operations[min(found.place, len(operations) - 1)]
    steps = {step.index: step.method for step in assignment.steps}
    channels = {channel.index: channel for channel in assignment.channels}
    method = steps.get(operation.step, "")
    if found.running:
        return "COMPUTE", method, [], []
    if found.missing:
        awaited = [index for index in found.missing if index in channels]
        return READ, method, list(dict.fromkeys(channels[index].writer for index in awaited)), awaited
    if operation.kind == WRITE and operation.channel in channels:
        return WRITE, method, list(channels[operation.channel].readers), [operation.channel]
    return operation.kind, method, [], []
