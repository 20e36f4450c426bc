"""Numbers of a compiled graph, by step and by channel: its counters, and the durations of its latest profile."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mray._graph.participants import Participants
from mray._graph.plan import DRIVER, Plan
from mray._graph.structure import call_numbers
from mray._trace.digest import Digest


def measured(participants: Participants, digest: Digest | None, counters: Mapping[int, Mapping[str, int]]) -> dict[str, Any]:
    """As `CompiledGraph.statistics` describes them."""
    plan = participants.plan
    numbers = call_numbers(plan.graph)
    steps = {numbers[step.index]: _step(participants, plan, step.index, digest) for step in plan.graph.steps}
    edges: dict[int, dict[str, Any]] = {}
    for channel in plan.channels:
        counted = counters.get(channel.index, {})
        edge: dict[str, Any] = {
            "name": channel.name,
            "transport": channel.transport,
            "writer": channel.writer,
            "readers": channel.readers,
            "count": counted.get("written", 0),
            "written": counted.get("written", 0),
        }
        if "waiting" in counted:
            edge.update(waiting=counted["waiting"], occupancy=counted["waiting"] / channel.layout.entries)
        if digest is not None:
            # Its count is of the profile's messages.
            edge.update(digest.edge(channel.index, channel.readers))
        edges[channel.index] = edge
    found: dict[str, Any] = {"steps": steps, "edges": edges, "endpoints": {}, "bottleneck": None, "why": "", "seconds": 0.0}
    if digest is not None:
        endpoints = (DRIVER, *plan.graph.actors)
        found["seconds"] = digest.seconds
        found["endpoints"] = {each: {"name": participants.name(each), "busy": digest.utilization(each)} for each in endpoints}
        found["bottleneck"], found["why"] = _bottleneck(participants, digest, numbers)
    return found


def _step(participants: Participants, plan: Plan, index: int, digest: Digest | None) -> dict[str, Any]:
    step = plan.graph.steps[index]
    said: dict[str, Any] = {"name": step.method, "actor": step.actor, "owner": participants.name(step.actor)}
    if digest is not None:
        channels = [plan.channel_to(source, step.actor) for source in step.sources if plan.graph.endpoint_of(source) != step.actor]
        said.update(digest.step(index, [(channel.index, step.actor) for channel in channels if channel is not None]))
    return said


def _bottleneck(participants: Participants, digest: Digest, numbers: Mapping[int, int]) -> tuple[str | None, str]:
    """The step (or the caller) that bounds the throughput, or None, and the reason."""
    plan = participants.plan
    busiest = digest.busiest((DRIVER, *plan.graph.actors))
    if busiest is None:
        return None, "no endpoint was busy"
    share = f"{participants.name(busiest)} was busy for {digest.utilization(busiest):.0%} of {digest.seconds:.3g} s"
    if busiest == DRIVER:
        return participants.name(busiest), share
    longest = max((step for step in plan.graph.steps if step.actor == busiest), key=lambda step: digest.total_compute(step.index))
    part = digest.total_compute(longest.index) / max(digest.busy.get(busiest, 0), 1)
    return f"[{numbers[longest.index]}] {longest.method}", f"{share}, {part:.0%} of that in {longest.method}()"
