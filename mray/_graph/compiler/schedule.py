"""Pass: the operations of each actor in each execution, in order. Pure.

A channel is read before the first step that needs it, and written right after the step that fills it, or after the actor that relays it
has read it. Readers of a blocking channel read when it is written, before any other operation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from mray._api.bind_order import BoundCall, order_calls
from mray._channel.select import BLOCKING
from mray._graph.plan import COMPUTE, DRIVER, READ, WRITE, Graph, Operation, Route, Source, Step


def order_steps(steps: Sequence[Step]) -> list[Step]:
    """ValueError when steps wait for each other in a cycle."""
    places = {step.index: place for place, step in enumerate(steps)}
    calls = [
        BoundCall(step.actor, step.bind_index, {places[source.step] for source in step.sources if source.step >= 0}, step.group)
        for step in steps
    ]
    ordered = [steps[place] for place in order_calls(calls)]
    if len(ordered) < len(steps):
        waiting = [step for step in steps if step not in ordered]
        raise ValueError(f"the steps of this graph wait for each other: {', '.join(_describe(step) for step in waiting)}")
    return ordered


def _describe(step: Step) -> str:
    return f"{step.method} (step {step.index} on {step.actor[:8]})"


def schedule(graph: Graph, channels: Iterable[Route]) -> dict[str, tuple[Operation, ...]]:
    carrying: dict[Source, list[Route]] = {}
    arriving: dict[tuple[str, Source], Route] = {}
    for channel in channels:
        carrying.setdefault(channel.source, []).append(channel)
        arriving.update({(reader, channel.source): channel for reader in channel.readers})
    relayed = {
        (channel.writer, source) for source, those in carrying.items() for channel in those if channel.writer != graph.endpoint_of(source)
    }
    operations: dict[str, list[Operation]] = {actor: [] for actor in graph.actors}
    read: set[tuple[str, Source]] = set()

    def read_once(actor: str, source: Source, step: int) -> None:
        if (actor, source) not in read:
            read.add((actor, source))
            operations[actor].append(Operation(READ, step, arriving[actor, source].index))
            # Before the relay's own steps can change it.
            operations[actor] += [Operation(WRITE, step, channel.index) for channel in carrying[source] if channel.writer == actor]

    for _place, steps in groupby(order_steps(graph.steps), key=lambda step: step.index if step.group < 0 else ~step.group):
        together = list(steps)
        for step in together:
            # Others wait for what this actor passes on.
            for source in sorted(step.sources, key=lambda source: (step.actor, source) not in relayed):
                if graph.endpoint_of(source) != step.actor:
                    read_once(step.actor, source, step.index)
            operations[step.actor].append(Operation(COMPUTE, step.index))
        # After the whole group has synchronized, since one member may read what another writes.
        for source in [Source(step.index, output) for step in together for output in range(step.num_returns)]:
            # Non-blocking channels first.
            own = [channel for channel in carrying.get(source, ()) if channel.writer == graph.endpoint_of(source)]
            for channel in sorted(own, key=lambda channel: channel.transport in BLOCKING):
                operations[channel.writer].append(Operation(WRITE, source.step, channel.index))
                if channel.transport in BLOCKING:
                    for reader in channel.readers:
                        if reader != DRIVER:
                            read_once(reader, source, _first_use(graph, reader, source))
    assert DRIVER not in operations
    return {actor: tuple(each) for actor, each in operations.items()}


def _first_use(graph: Graph, actor: str, source: Source) -> int:
    return next(step.index for step in graph.steps if step.actor == actor and source in step.sources)
