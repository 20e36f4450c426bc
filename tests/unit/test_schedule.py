"""Schedules proved without processes: every valid graph runs to its end, every schedule that hangs is refused, and no other."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mray._channel.select import COMMUNICATOR, CUDA_IPC, NCCL, PINNED, SHM
from mray._channel.site import Site
from mray._graph.compiler.compile import plan_graph
from mray._graph.compiler.deadlock import check_deadlock
from mray._graph.plan import COMPUTE, DRIVER, INPUT, MIXED, PART, READ, WRITE, Argument, Graph, Operation, Plan, Source, Step, Transfer
from tests.full import examples
from tests.unit.simulator import Simulator, Stuck
from tests.unit.sites import actor, driver

RANDOM = st.randoms(use_true_random=False)


# ------------------------------------------------------------------------------------------- random graphs
def make_graph(random: Random, steps: int, actors: int, *, is_ordered: bool, with_meetings: bool) -> Graph:
    """A graph of about so many steps: several returns, constants, keywords, containers, parts of the input, leaves.

    `is_ordered`: methods of an actor are bound in the order of the steps, as a program does it; otherwise in any order.
    `with_meetings`: some steps meet in groups, and some values go through a communicator, whose writer waits for its readers.
    """
    names = [f"actor{number}" for number in range(actors)]
    made: list[Step] = []
    known = [INPUT]
    while len(made) < steps:
        members = random.sample(names, random.randint(2, actors)) if with_meetings and actors > 1 and random.random() < 0.2 else []
        fresh = []
        for name in members or [random.choice(names)]:
            arguments = [make_argument(random, known) for _ in range(random.randint(0, 3))]
            keywords = tuple((f"word{number}", make_argument(random, known)) for number in range(random.choice([0, 0, 1])))
            group = len(made) - len(fresh) if members else -1
            number = len(made)
            made.append(Step(number, name, f"m{number}", number, tuple(arguments), keywords, random.choice([1, 1, 1, 2, 3]), group=group))
            fresh.append(number)
        known += [Source(number, output) for number in fresh for output in range(made[number].num_returns)]
    if not is_ordered:
        indices = random.sample(range(len(made)), len(made))
        made = [replace(step, bind_index=index) for step, index in zip(made, indices, strict=True)]
    outputs = tuple(Argument(source) for source in random.sample(known, random.randint(1, len(known))))
    used = {source.step for step in made for source in step.sources} | {output.source.step for output in outputs if output.source}
    leaves = tuple(Source(step.index) for step in made if step.index not in used)
    carried = [source for source in known[1:] if with_meetings and random.random() < 0.5]
    transfers = {source: random.choice([Transfer("cpu", communicator=0), Transfer("auto")]) for source in carried}
    return Graph(tuple(made), outputs, True, 1, ("key",), MIXED, leaves, transfers)


def make_sites(random: Random, graph: Graph) -> dict[str, Site]:
    """Where the endpoints of a graph are: on one of three GPUs, two of which reach each other, or on none."""
    reach = {0: [1], 1: [0], 2: []}
    sites = {DRIVER: driver(*([0, 1, 2] if random.random() < 0.5 else []))}
    for endpoint in graph.actors:
        gpus = [random.randrange(3)] if random.random() < 0.8 else []
        sites[endpoint] = actor(endpoint, *gpus, reaches=reach[gpus[0]] if gpus else [])
    return sites


def planned(graph: Graph, in_flight: int, random: Random) -> Plan:
    """The plan of a graph, in half of all cases with endpoints that need different transports."""
    return plan_graph(graph, in_flight, make_sites(random, graph) if random.random() < 0.5 else None)


def make_argument(random: Random, known: list[Source]) -> Argument:
    kind = random.random()
    if kind < 0.1:
        return Argument(None, constant=0)
    if kind < 0.2:
        return Argument(None, constant=0, nested=tuple(Argument(random.choice(known)) for _ in range(2)))
    if kind < 0.3:
        return Argument(INPUT, "key", by=PART)
    return Argument(random.choice(known))


def is_bound_in_order(graph: Graph) -> bool:
    return all(step.bind_index == step.index for step in graph.steps)


GRAPHS = st.builds(
    make_graph,
    RANDOM,
    st.integers(1, 14),
    st.integers(1, 5),
    is_ordered=st.booleans(),
    with_meetings=st.booleans(),
)


def shuffled(operations: tuple[Operation, ...], plan: Plan, random: Random) -> tuple[Operation, ...]:
    """The operations of one actor in any order in which it reads before it computes, and computes before it writes."""
    ready: set[Source] = set()
    waiting, ordered = list(operations), []

    def can_go(operation: Operation) -> bool:
        if operation.kind == READ:
            return True
        if operation.kind == COMPUTE:
            return ready.issuperset(plan.graph.steps[operation.step].sources)
        return plan.channels[operation.channel].source in ready

    while waiting:
        operation = random.choice([each for each in waiting if can_go(each)])
        waiting.remove(operation)
        ordered.append(operation)
        if operation.kind == READ:
            ready.add(plan.channels[operation.channel].source)
        elif operation.kind == COMPUTE:
            ready.update(Source(operation.step, output) for output in range(plan.graph.steps[operation.step].num_returns))
    return tuple(ordered)


def refusal(plan: Plan) -> str | None:
    """Why the schedule is refused."""
    try:
        check_deadlock(plan.schedule, plan.channels, plan.graph.steps)
    except ValueError as error:
        return str(error)
    return None


def gets_stuck(plan: Plan, capacity: int, in_flight: int, random: Random) -> Stuck | None:
    try:
        Simulator(plan, capacity, in_flight, random).run(4)
    except Stuck as stuck:
        return stuck
    return None


# ------------------------------------------------------------------------------------------- valid graphs
@pytest.mark.timeout(600)  # of many examples on a busy machine
@given(GRAPHS, st.integers(1, 3), st.integers(1, 4), RANDOM)
@settings(max_examples=examples(100), deadline=None)
def test_every_valid_graph_runs_to_its_end(graph: Graph, capacity: int, in_flight: int, random: Random) -> None:
    simulator = Simulator(planned(graph, in_flight, random), capacity, in_flight, random)
    simulator.run(5)
    assert simulator.finished == 5


@given(GRAPHS, RANDOM)
@settings(max_examples=examples(200), deadline=None)
def test_each_operation_stands_once_in_its_actor(graph: Graph, random: Random) -> None:
    plan = planned(graph, 4, random)
    told = Counter((actor, kind, step if kind == COMPUTE else channel) for actor, (kind, step, channel) in flat(plan))
    wanted = Counter((step.actor, COMPUTE, step.index) for step in graph.steps)
    for channel in plan.channels:
        wanted.update((reader, READ, channel.index) for reader in channel.readers if reader)
        wanted.update([(channel.writer, WRITE, channel.index)] if channel.writer else [])
    assert told == wanted


@given(GRAPHS.filter(is_bound_in_order), RANDOM)
@settings(max_examples=examples(100), deadline=None)
def test_actors_compute_in_the_order_of_binding_when_nothing_forbids_it(graph: Graph, random: Random) -> None:
    plan = planned(graph, 4, random)
    for operations in plan.schedule.values():
        computed = [operation.step for operation in operations if operation.kind == COMPUTE]
        assert computed == sorted(computed)


def flat(plan: Plan) -> list[tuple[str, Operation]]:
    return [(actor, operation) for actor, operations in plan.schedule.items() for operation in operations]


# ------------------------------------------------------------------------------------------- deadlock
@pytest.mark.timeout(600)  # as above
@given(GRAPHS, st.integers(1, 3), st.integers(1, 4), st.booleans(), RANDOM)
@settings(max_examples=examples(150), deadline=None)
def test_exactly_what_gets_stuck_is_refused(graph: Graph, capacity: int, in_flight: int, everybody: bool, random: Random) -> None:
    plan = planned(graph, in_flight, random)
    victims = set(plan.schedule) if everybody else {random.choice(list(plan.schedule))}
    changed = {actor: shuffled(each, plan, random) if actor in victims else each for actor, each in plan.schedule.items()}
    plan = replace(plan, schedule=changed)
    assert (refusal(plan) is not None) == (gets_stuck(plan, capacity, in_flight, random) is not None)


def test_shuffling_makes_both_kinds_of_schedules() -> None:
    """Else the test above would prove little."""
    random = Random(0)
    verdicts: Counter[bool] = Counter()
    for _ in range(200):
        plan = planned(make_graph(random, 8, 3, is_ordered=True, with_meetings=random.random() < 0.5), 2, random)
        changed = {actor: shuffled(each, plan, random) for actor, each in plan.schedule.items()}
        verdicts[refusal(replace(plan, schedule=changed)) is None] += 1
    assert min(verdicts[True], verdicts[False]) > 20, verdicts


def test_random_graphs_have_everything_that_a_schedule_must_cope_with() -> None:
    random = Random(0)
    seen: Counter[str] = Counter()
    for _ in range(50):
        graph = make_graph(random, 10, 4, is_ordered=True, with_meetings=True)
        plan = planned(graph, 4, random)
        seen["group"] += any(step.group >= 0 for step in graph.steps)
        seen["leaf"] += bool(graph.leaves)
        seen["several returns"] += any(step.num_returns > 1 for step in graph.steps)
        seen["several readers"] += any(len(channel.readers) > 1 for channel in plan.channels)
        seen["several channels"] += any(len(plan.channels_of(channel.source)) > 1 for channel in plan.channels)
        seen["several channels of the input"] += len(plan.channels_of(INPUT)) > 1
        seen.update({channel.transport for channel in plan.channels})
    kinds = ["group", "leaf", "several returns", "several readers", "several channels", "several channels of the input"]
    assert min(seen[each] for each in [*kinds, SHM, COMMUNICATOR, CUDA_IPC, PINNED, NCCL]) > 5, seen


# ------------------------------------------------------------------------------------------- what is told
def crossing() -> Plan:
    """Two actors that send each other a value: a good plan."""
    steps = (
        Step(0, "a" * 32, "send", 0, (Argument(INPUT),)),
        Step(1, "b" * 32, "send", 0, (Argument(INPUT),)),
        Step(2, "a" * 32, "take", 1, (Argument(Source(1)),)),
        Step(3, "b" * 32, "take", 1, (Argument(Source(0)),)),
    )
    return plan_graph(Graph(steps, (Argument(Source(2)), Argument(Source(3))), True, 1, (), MIXED), 2)


def reading_first(plan: Plan, actor: str, step: int) -> tuple[Operation, ...]:
    """The operations of an actor, its reading for a step moved to the front."""
    operations = plan.schedule[actor]
    first = tuple(operation for operation in operations if operation.kind == READ and operation.step == step)
    return first + tuple(operation for operation in operations if operation not in first)


def test_the_refusal_shows_the_circle() -> None:
    plan = crossing()
    a, b = plan.schedule
    assert refusal(plan) is None
    assert refusal(replace(plan, schedule={**plan.schedule, a: reading_first(plan, a, 2)})) is None
    both = replace(plan, schedule={a: reading_first(plan, a, 2), b: reading_first(plan, b, 3)})
    told = refusal(both)
    assert told is not None
    circle = [part.removesuffix(", which") for part in told.partition(": ")[2].rstrip(".").split(" waits for ")]
    assert circle.pop() == "the first"
    shown = {f"{operation.kind} of step {operation.step} on actor {actor[:8]}" for actor, operation in flat(both)}
    assert shown.issuperset(circle)
    assert {"READ of step 2 on actor aaaaaaaa", "WRITE of step 1 on actor bbbbbbbb"} <= set(circle)
    assert {"READ of step 3 on actor bbbbbbbb", "WRITE of step 0 on actor aaaaaaaa"} <= set(circle)
    with pytest.raises(Stuck):
        Simulator(both, 3, 3, Random(0)).run(1)


@given(GRAPHS, RANDOM)
@settings(max_examples=examples(150), deadline=None)
def test_who_stands_in_the_circle_is_stuck(graph: Graph, random: Random) -> None:
    """Each actor of the circle that is shown never gets past the operation that it shows."""
    plan = planned(graph, 2, random)
    plan = replace(plan, schedule={actor: shuffled(each, plan, random) for actor, each in plan.schedule.items()})
    told = refusal(plan)
    if told is not None:
        stuck = gets_stuck(plan, 2, 2, random)
        assert stuck is not None
        for actor, operations in plan.schedule.items():
            shown = [n for n, each in enumerate(operations) if f"{each.kind} of step {each.step} on actor {actor[:8]}" in told]
            if shown:
                assert operations.index(stuck.waiting[actor]) <= max(shown)
