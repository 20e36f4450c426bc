"""Tasks, objects, actors, groups, graphs and variables over two machines of a Ray cluster; a machine that fails."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from mray.exceptions import ActorUnavailableError
from mray.proxy import InterpreterDiedError, RemoteInterpreterFactory
from mray.util.placement_group import placement_group, remove_placement_group
from mray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

SECOND = {"resources": {"second": 0.1}}


@pytest.fixture
def worker(ray: ModuleType) -> Any:
    """A class of actors."""

    class Worker:
        def where(self) -> str:
            node: str = ray.get_runtime_context().get_node_id()
            return node

        def make(self, size: int) -> Any:
            return np.arange(size)

        def total(self, array: Any) -> int:
            return int(array.sum())

        def add_one(self, value: Any) -> Any:
            return value + 1

        def fail_if_odd(self, value: int) -> int:
            if value % 2:
                raise LookupError(f"not {value}")
            return value

        def pid(self) -> int:
            return os.getpid()

    return ray.remote(num_cpus=0)(Worker)


def in_the_end(ask: Callable[[], Any]) -> Any:
    """The answer of an actor, or the error. Of a machine that fails Ray says at first only that it cannot be reached."""
    while True:
        try:
            return ask()
        except ActorUnavailableError:
            time.sleep(0.05)


def nodes_of(ray: ModuleType) -> tuple[str, str]:
    """Ids of the first machine, where this process is, and of the second."""
    living = {node["NodeID"]: node["Resources"] for node in ray.nodes() if node["Alive"]}
    (second,) = [node for node, resources in living.items() if "second" in resources]
    (first,) = set(living) - {second}
    assert ray.get_runtime_context().get_node_id() == first
    return first, second


def test_a_task_runs_on_the_machine_that_has_what_it_asks_for(ray, where):
    first, second = nodes_of(ray)
    assert ray.get(where.options(**SECOND).remote()) == second
    for node in (first, second):
        assert ray.get(where.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)).remote()) == node


def test_objects_go_from_machine_to_machine(ray, worker):
    here, there = worker.remote(), worker.options(**SECOND).remote()
    size = 300_000  # of 8 bytes: too large to go along with the call
    made = there.make.remote(size)
    assert ray.get(here.total.remote(made)) == sum(range(size))
    assert ray.get(made)[-1] == size - 1
    own = ray.put(np.ones(size))
    assert ray.get([actor.total.remote(own) for actor in (here, there)]) == [size, size]
    assert ray.get(there.total.remote(here.make.remote(size))) == sum(range(size))


def test_a_ref_inside_of_a_value_is_good_on_the_other_machine(ray):
    @ray.remote(**SECOND)
    def open_and_add(box):
        return ray.get(box["ref"]) + 1, ray.put("made there")

    number, ref = ray.get(open_and_add.remote({"ref": ray.put(41)}))
    assert (number, ray.get(ref)) == (42, "made there")


def test_bundles_that_spread_are_on_different_machines(ray, worker):
    group = placement_group([{"CPU": 1}, {"CPU": 1}], strategy="STRICT_SPREAD")
    assert ray.get(group.ready()) == group
    actors = [
        worker.options(num_cpus=1, scheduling_strategy=PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index)).remote()
        for index in range(2)
    ]
    assert set(ray.get([actor.where.remote() for actor in actors])) == set(nodes_of(ray))
    remove_placement_group(group)


def test_an_error_of_the_other_machine_is_what_the_user_raised(ray, worker):
    with pytest.raises(LookupError, match="not 7") as caught:
        ray.get(worker.options(**SECOND).remote().fail_if_odd.remote(7))
    assert isinstance(caught.value, ray.exceptions.RayTaskError)


def test_an_interpreted_graph_over_both_machines(ray, worker):
    here, there = worker.remote(), worker.options(**SECOND).remote()
    with ray.dag.InputNode() as given:
        dag = ray.dag.MultiOutputNode([there.add_one.bind(here.add_one.bind(given)), here.add_one.bind(given)])
    assert ray.get(dag.execute(1)) == [3, 2]


def test_a_compiled_graph_over_both_machines(ray, worker, compiled):
    here, there = worker.remote(), worker.options(**SECOND).remote()
    with ray.dag.InputNode() as given:
        graph = compiled(here.add_one.bind(there.add_one.bind(here.add_one.bind(given))))
    assert [ray.get(graph.execute(number)) for number in range(20)] == list(range(3, 23))
    # Not larger than the graph's buffers (1 MB): between machines Ray itself hangs now and then when it must replace them.
    array = np.zeros(10_000)
    assert (ray.get(graph.execute(array)) == 3).all()


def test_a_failing_method_of_the_other_machine_fails_its_execution_alone(ray, worker, compiled):
    there = worker.options(**SECOND).remote()
    with ray.dag.InputNode() as given:
        graph = compiled(there.fail_if_odd.bind(given))
    for number in range(0, 6, 2):
        assert ray.get(graph.execute(number)) == number
        with pytest.raises(LookupError, match=f"not {number + 1}"):
            ray.get(graph.execute(number + 1))


def test_variables_of_the_other_machine(ray):
    factory = RemoteInterpreterFactory(ray)
    here, there = factory.create(num_cpus=0), factory.create(num_cpus=0, **SECOND)
    array = there.put(np).arange(10)
    assert (array * 2).sum().fetch() == 90
    # Values of one interpreter go to the other by themselves.
    assert (here.put(100) + array.sum()).fetch() == 145


def test_who_waits_for_a_machine_that_fails_is_told(cluster, ray, worker, compiled, tmp_path):
    lonely = cluster.add_machine({"third": 1})
    third = {"resources": {"third": 0.1}}
    actor = worker.options(**third).remote()
    env = RemoteInterpreterFactory(ray).create(num_cpus=0, **third)
    variable = env.put(1)
    assert variable.fetch() == 1
    started = tmp_path / "started"

    @ray.remote(num_cpus=0, max_retries=0, **third)
    def sleep_until_the_end():
        import time

        started.touch()
        while True:
            time.sleep(0.01)

    with ray.dag.InputNode() as given:
        graph = compiled(actor.add_one.bind(given))
    assert ray.get(graph.execute(1)) == 2
    task = sleep_until_the_end.remote()
    while not started.exists():
        assert ray.wait([task], timeout=0.01) == ([], [task])
    cluster.end(lonely)
    with pytest.raises((ray.exceptions.NodeDiedError, ray.exceptions.WorkerCrashedError)):
        ray.get(task)
    with pytest.raises(ray.exceptions.ActorDiedError):
        ray.get(graph.execute(1))
    with pytest.raises(ray.exceptions.ActorDiedError):
        in_the_end(lambda: ray.get(actor.pid.remote()))
    with pytest.raises(InterpreterDiedError):
        in_the_end(lambda: (variable + 1).fetch())


def test_executing_a_graph_tells_which_actor_has_died(ray, worker, compiled):
    actor = worker.remote()
    with ray.dag.InputNode() as given:
        graph = compiled(actor.add_one.bind(given))
    assert ray.get(graph.execute(1)) == 2
    ray.kill(actor)
    with pytest.raises(ray.exceptions.ActorDiedError):  # Ray returns before it is dead
        while True:
            in_the_end(lambda: ray.get(actor.add_one.remote(1)))
    with pytest.raises(ray.exceptions.ActorDiedError):  # its process may answer for a moment more
        while True:
            ray.get(graph.execute(2))
    # By the second time Ray has closed the graph.
    with pytest.raises(ray.exceptions.ActorDiedError):
        ray.get(graph.execute(2))
