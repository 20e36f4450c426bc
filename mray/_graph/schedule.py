"""Pass: what each actor does in each execution, in which order. Pure.

The steps of one actor run in the order in which they were bound. Only where the dependencies forbid that order does a step that
is ready go first. Steps that meet (one group) run at the same place of the one order that all steps are brought into, so that no two
groups can wait for each other.

A channel is read before the first step that needs it, and written right after the step that fills it. Where the writer of a channel waits
for its readers, they read as soon as it writes, whatever they do next: in the one order, reading and writing stand at the same place.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mray._channel.select import BLOCKING
from mray._graph.plan import COMPUTE, DRIVER, READ, WRITE, Channel, Graph, Operation, Source, Step


def order_steps(steps: Sequence[Step]) -> list[Step]:
    """One order for all steps: after what they depend on, and per actor in the order of binding as far as that allows.

    The steps of a group follow each other. Raises ValueError when steps wait for each other in a circle.
    """
    queues: dict[str, list[Step]] = {}
    groups: dict[int, list[Step]] = {}
    for step in sorted(steps, key=lambda step: (step.bind_index, step.index)):
        queues.setdefault(step.actor, []).append(step)
        if step.group >= 0:
            groups.setdefault(step.group, []).append(step)
    done: set[int] = set()
    ordered: list[Step] = []

    def together(step: Step) -> list[Step]:
        return [step] if step.group < 0 else groups[step.group]

    def is_ready(step: Step) -> bool:
        return all(source.step < 0 or source.step in done for each in together(step) for source in each.sources)

    while len(ordered) < len(steps):
        heads = [queue[0] for queue in queues.values() if queue]
        ready = [step for step in heads if is_ready(step) and all(each in heads for each in together(step))]
        if not ready:
            ready = [step for queue in queues.values() for step in queue if is_ready(step)]
        if not ready:
            waiting = [step for queue in queues.values() for step in queue]
            raise ValueError(f"the steps of this graph wait for each other: {', '.join(_describe(step) for step in waiting)}")
        for step in together(min(ready, key=lambda step: (step.bind_index, step.index))):
            queues[step.actor].remove(step)
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

    def read_once(actor: str, source: Source, step: int) -> None:
        if (actor, source) not in read:
            read.add((actor, source))
            operations[actor].append(Operation(READ, step, carrying[source].index))

    for step in order_steps(graph.steps):
        own = operations[step.actor]
        for source in step.sources:
            if graph.endpoint_of(source) != step.actor:
                read_once(step.actor, source, step.index)
        own.append(Operation(COMPUTE, step.index))
        for output in range(step.num_returns):
            source = Source(step.index, output)
            channel = carrying.get(source)
            if channel is not None:
                own.append(Operation(WRITE, step.index, channel.index))
                if channel.transport in BLOCKING:
                    for reader in channel.readers:
                        if reader != DRIVER:
                            read_once(reader, source, _first_use(graph, reader, source))
    assert DRIVER not in operations
    return {actor: tuple(each) for actor, each in operations.items()}


def _first_use(graph: Graph, actor: str, source: Source) -> int:
    return next(step.index for step in graph.steps if step.actor == actor and source in step.sources)
