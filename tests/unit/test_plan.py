"""Plans: which values travel, in which order actors work, and that none of it can hang."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given, settings

from mray._graph.compiler.compile import plan_graph
from mray._graph.compiler.deadlock import check_deadlock
from mray._graph.compiler.resolve import layout_for, resolve
from mray._graph.compiler.schedule import order_steps, schedule
from mray._graph.plan import COMPUTE, DRIVER, INPUT, READ, WRITE, Operation, Source
from tests.full import examples
from tests.unit.graphs import make_graph, random_graphs


# ------------------------------------------------------------------------------------------ channels
def test_what_stays_with_its_actor_needs_no_channel() -> None:
    channels, _size, _groups = resolve(make_graph(("a", (-1,)), ("a", (0,)), ("b", (1,))), 10)
    assert [(channel.source, channel.writer, channel.readers) for channel in channels] == [
        (INPUT, DRIVER, ("a",)),
        (Source(1), "a", ("b",)),
        (Source(2), "b", (DRIVER,)),
    ]


def test_one_channel_serves_all_readers_of_a_value() -> None:
    channels, _size, _groups = resolve(make_graph(("a", (-1,)), ("b", (0,)), ("c", (0,)), ("c", (0, 2)), outputs=(0, 1, 3)), 10)
    assert channels[1].source == Source(0)
    assert channels[1].readers == ("b", "c", DRIVER)


def test_rings_do_not_overlap() -> None:
    channels, size, _groups = resolve(make_graph(*[(f"a{i}", (-1,)) for i in range(5)], outputs=tuple(range(5))), 100)
    ends = [channel.offset + channel.layout.size for channel in channels]
    assert [channel.offset for channel in channels] == [0, *ends[:-1]]
    assert size == ends[-1]


@pytest.mark.parametrize("in_flight", [1, 2, 10, 65, 1000])
def test_a_ring_has_room_for_all_that_is_in_flight(in_flight: int) -> None:
    assert layout_for(in_flight, 3).entries >= in_flight


# ------------------------------------------------------------------------------------------ schedules
def test_an_actor_reads_computes_and_writes() -> None:
    plan = plan_graph(make_graph(("a", (-1,)), ("b", (0,))), 10)
    assert plan.schedule == {
        "a": (Operation(READ, 0, 0), Operation(COMPUTE, 0), Operation(WRITE, 0, 1)),
        "b": (Operation(READ, 1, 1), Operation(COMPUTE, 1), Operation(WRITE, 1, 2)),
    }


def test_a_value_is_read_once_for_all_methods_of_an_actor() -> None:
    plan = plan_graph(make_graph(("a", (-1,)), ("b", (0,)), ("b", (0, 0)), outputs=(1, 2)), 10)
    assert [operation.kind for operation in plan.schedule["b"]].count(READ) == 1


def test_steps_run_in_the_order_of_binding() -> None:
    graph = make_graph(("a", (-1,)), ("a", (-1,)), ("a", (-1,)), outputs=(0, 1, 2), order=(2, 0, 1))
    assert [step.index for step in order_steps(graph.steps)] == [1, 2, 0]


def test_dependencies_beat_the_order_of_binding() -> None:
    graph = make_graph(("a", (-1,)), ("a", (0,)), order=(1, 0))
    assert [step.index for step in order_steps(graph.steps)] == [0, 1]


def test_an_actor_waits_for_another_rather_than_change_the_order_of_binding() -> None:
    graph = make_graph(("a", (-1,)), ("b", (0,)), ("a", (1,)), ("a", (-1,)), outputs=(2, 3))
    assert [step.index for step in order_steps(graph.steps) if step.actor == "a"] == [0, 2, 3]


def test_steps_in_a_circle_are_refused() -> None:
    with pytest.raises(ValueError, match="wait for each other: m0 .*, m1 "):
        order_steps(make_graph(("a", (1,)), ("b", (0,))).steps)


@given(random_graphs())
@settings(max_examples=examples(100), deadline=None)
def test_each_step_is_computed_once_and_in_the_order_of_binding_where_that_is_possible(graph) -> None:
    plan = plan_graph(graph, 10)
    computed = [operation.step for operations in plan.schedule.values() for operation in operations if operation.kind == COMPUTE]
    assert sorted(computed) == list(range(len(graph.steps)))
    if all(source.step < 0 or graph.steps[source.step].bind_index < step.bind_index for step in graph.steps for source in step.sources):
        for operations in plan.schedule.values():
            order = [graph.steps[operation.step].bind_index for operation in operations if operation.kind == COMPUTE]
            assert order == sorted(order)


# ------------------------------------------------------------------------------------------- deadlock


def test_a_deadlock_is_told_with_its_circle() -> None:
    graph = make_graph(("a", (-1,)), ("b", (0,)), ("b", (-1,)), ("a", (2,)), outputs=(1, 3))
    channels, _size, _groups = resolve(graph, 2)
    good = schedule(graph, channels)
    # a sends what b waits for only after it has got what b sends later.
    late = {"a": (*good["a"][3:], *good["a"][:3]), "b": good["b"]}
    with pytest.raises(ValueError, match="READ of step 1 on actor b waits for WRITE of step 0 on actor a waits for"):
        check_deadlock(late, channels)
    check_deadlock(good, channels)


def test_plans_are_plain_data() -> None:
    plan = plan_graph(make_graph(("a", (-1,)), ("b", (0,))), 10)
    assert pickle.loads(pickle.dumps(plan)) == plan
