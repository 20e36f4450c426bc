"""Pass: what each actor does in each execution, in which order. Pure.

The steps of one actor run in the order in which they were bound. Only where the dependencies forbid that order does a step that
is ready go first. A channel is read before the first step that needs it, and written right after the step that fills it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mray._graph.plan import COMPUTE, DRIVER, READ, WRITE, Channel, Graph, Operation, Source, Step


def order_steps(steps: Sequence[Step]) -> list[Step]:
    """One order for all steps: after what they depend on, and per actor in the order of binding as far as that allows.

    Raises ValueError when steps wait for each other in a circle.
    """
    by_actor: dict[str, list[Step]] = {}
    for step in sorted(steps, key=lambda step: (step.bind_index, step.index)):
        by_actor.setdefault(step.actor, []).append(step)
    done: set[int] = set()
    ordered: list[Step] = []

    def is_ready(step: Step) -> bool:
        return all(source.step < 0 or source.step in done for source in step.sources)

    while len(ordered) < len(steps):
        heads = [queue[0] for queue in by_actor.values() if queue]
        ready = [step for step in heads if is_ready(step)]
        if not ready:
            ready = [step for queue in by_actor.values() for step in queue if is_ready(step)]
        if not ready:
            waiting = [step for queue in by_actor.values() for step in queue]
            raise ValueError(f"the steps of this graph wait for each other: {', '.join(_describe(step) for step in waiting)}")
        step = min(ready, key=lambda step: (step.bind_index, step.index))
        by_actor[step.actor].remove(step)
        done.add(step.index)
        ordered.append(step)
    return ordered


def _describe(step: Step) -> str:
    return f"{step.method} (step {step.index} on {step.actor[:8]})"


def schedule(graph: Graph, channels: Iterable[Channel]) -> dict[str, tuple[Operation, ...]]:
    """The operations of each actor."""
    carrying: dict[Source, Channel] = {channel.source: channel for channel in channels}
    operations: dict[str, list[Operation]] = {actor: [] for actor in graph.actors}
    read: set[tuple[str, Source]] = set()
    for step in order_steps(graph.steps):
        own = operations[step.actor]
        for source in step.sources:
            if graph.endpoint_of(source) != step.actor and (step.actor, source) not in read:
                read.add((step.actor, source))
                own.append(Operation(READ, step.index, carrying[source].index))
        own.append(Operation(COMPUTE, step.index))
        for output in range(step.num_returns):
            channel = carrying.get(Source(step.index, output))
            if channel is not None:
                own.append(Operation(WRITE, step.index, channel.index))
    assert DRIVER not in operations
    return {actor: tuple(each) for actor, each in operations.items()}
