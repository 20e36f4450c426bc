"""Graphs for tests: a short way to write them, random ones, and a simulator that runs a plan without processes."""

from __future__ import annotations

from random import Random

from hypothesis import strategies as st

from mray._graph.plan import COMPUTE, DIRECT, DRIVER, INPUT, READ, Argument, Graph, Plan, Source, Step


def make_graph(*steps: tuple[str, tuple[int, ...]], outputs: tuple[int, ...] | None = None, order: tuple[int, ...] = ()) -> Graph:
    """Steps as (actor, numbers of the steps it takes values of; -1 is the input); the last step is the output unless told otherwise.

    `order` gives the bind indices; by default steps are bound in the order of writing.
    """
    made = []
    for number, (actor, sources) in enumerate(steps):
        arguments = tuple(Argument(INPUT if source < 0 else Source(source)) for source in sources)
        made.append(Step(number, actor, f"m{number}", order[number] if order else number, arguments))
    wanted = outputs if outputs is not None else (len(steps) - 1,)
    return Graph(tuple(made), tuple(Argument(Source(output)) for output in wanted), outputs is not None, 1, (), DIRECT)


@st.composite
def random_graphs(draw: st.DrawFn) -> Graph:
    """Graphs of up to 12 steps over up to 4 actors, bound in any order, every step used."""
    count = draw(st.integers(1, 12))
    actors = draw(st.integers(1, 4))
    steps = []
    for number in range(count):
        sources = draw(st.lists(st.integers(-1, number - 1), min_size=1, max_size=3))
        steps.append((f"a{draw(st.integers(0, actors - 1))}", tuple(sources)))
    order = tuple(draw(st.permutations(range(count))))
    used = {source for _actor, sources in steps for source in sources}
    leaves = tuple(number for number in range(count) if number not in used)
    return make_graph(*steps, outputs=leaves, order=order)


class Hung(Exception):
    """Nobody can move."""


def simulate(plan: Plan, executions: int, in_flight: int, seed: int, entries: int | None = None) -> list[list[tuple[int, int]]]:
    """Run a plan: any endpoint that can move moves next. Returns what the driver read, per execution: (step, execution) of each value.

    `entries` makes the rings smaller than planned.
    """
    random = Random(seed)
    rings = {channel.index: {reader: [] for reader in channel.readers} for channel in plan.channels}
    room = {channel.index: entries or channel.layout.entries for channel in plan.channels}
    place = dict.fromkeys(plan.schedule, 0)
    execution = dict.fromkeys(plan.schedule, 0)
    cells: dict[str, dict[Source, int]] = {actor: {} for actor in plan.schedule}
    submitted = 0
    results: list[list[tuple[int, int]]] = []
    input_channel = plan.channel_of(INPUT)
    assert input_channel is not None
    outputs = [plan.channel_of(output.source) for output in plan.graph.outputs if output.source is not None]

    def full(channel: int) -> bool:
        return any(len(queue) >= room[channel] for queue in rings[channel].values())

    def move_driver() -> bool:
        nonlocal submitted
        moved = False
        if submitted < executions and submitted - len(results) < in_flight and not full(input_channel.index):
            for queue in rings[input_channel.index].values():
                queue.append(submitted)
            submitted += 1
            moved = True
        wanted = {channel.index for channel in outputs if channel is not None}
        if all(rings[index][DRIVER] for index in wanted):
            taken = {index: rings[index][DRIVER].pop(0) for index in wanted}
            results.append([(channel.source.step, taken[channel.index]) for channel in outputs if channel is not None])
            moved = True
        return moved

    def move_actor(actor: str) -> bool:
        operation = plan.schedule[actor][place[actor]]
        now, own = execution[actor], cells[actor]
        if operation.kind == READ:
            queue = rings[operation.channel][actor]
            if not queue:
                return False
            assert queue.pop(0) == now, "messages of another execution"
            own[plan.channels[operation.channel].source] = now
        elif operation.kind == COMPUTE:
            step = plan.graph.steps[operation.step]
            assert all(own.get(source) == now for source in step.sources), "computed before its values were there"
            for output in range(step.num_returns):
                own[Source(step.index, output)] = now
        else:
            if full(operation.channel):
                return False
            assert own[plan.channels[operation.channel].source] == now, "written before it was computed"
            for queue in rings[operation.channel].values():
                queue.append(now)
        place[actor] += 1
        if place[actor] == len(plan.schedule[actor]):
            place[actor] = 0
            execution[actor] += 1
            own.clear()
        return True

    movers = [move_driver, *[lambda actor=actor: move_actor(actor) for actor in plan.schedule]]
    while len(results) < executions:
        random.shuffle(movers)
        if not any(mover() for mover in movers):
            raise Hung(f"after {len(results)} executions, actors at {place}")
    return results
