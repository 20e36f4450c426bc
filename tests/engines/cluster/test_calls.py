"""Calls, refs, actors and errors between machines: what a single Ray, under which tests/api runs, does not show."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


def test_work_goes_to_the_node_that_has_what_it_needs(ray: ModuleType) -> None:
    @ray.remote(resources={"second": 1})
    def where() -> str:
        return str(ray.get_runtime_context().get_node_id())

    there = ray.get(where.remote())
    assert there != ray.get_runtime_context().get_node_id()
    assert there in {node["NodeID"] for node in ray.nodes()}


def test_refs_and_handles_inside_of_values_work_on_another_node(ray: ModuleType) -> None:
    np = pytest.importorskip("numpy")

    @ray.remote
    class Counter:
        def __init__(self) -> None:
            self.total = 0

        def add(self, number: int) -> int:
            self.total += number
            return self.total

    @ray.remote(resources={"second": 1})
    def work(things: dict[str, Any]) -> tuple[int, Any]:
        return ray.get(things["counter"].add.remote(int(ray.get(things["array"]).sum()))), ray.put("from there")

    things = {"counter": Counter.remote(), "array": ray.put(np.ones(1_000_000))}
    total, ref = ray.get(work.remote(things))
    assert total == 1_000_000
    assert ray.get(ref) == "from there"
    assert ray.get(things["counter"].add.remote(1)) == 1_000_001


def test_a_ref_that_only_a_value_holds_stays_alive(ray: ModuleType) -> None:
    np = pytest.importorskip("numpy")

    @ray.remote
    class Keeper:
        def keep(self, refs: list[Any]) -> None:
            self.refs = refs

        def give(self) -> list[Any]:
            return self.refs

    keeper = Keeper.options(resources={"second": 1}).remote()
    ref = ray.put(np.arange(500_000))
    ray.get(keeper.keep.remote([ref]))
    del ref
    assert ray.get(ray.get(keeper.give.remote())[0])[-1] == 499_999


def test_nodes_are_chosen_by_their_id(ray: ModuleType) -> None:
    from mray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    @ray.remote
    def where() -> str:
        return str(ray.get_runtime_context().get_node_id())

    for node in ray.nodes():
        strategy = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        assert ray.get(where.options(scheduling_strategy=strategy).remote()) == node["NodeID"]


def test_a_placement_group_spreads_over_the_nodes(ray: ModuleType) -> None:
    from mray.util import placement_group, remove_placement_group
    from mray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    @ray.remote(num_cpus=1)
    def where() -> str:
        return str(ray.get_runtime_context().get_node_id())

    group = placement_group([{"CPU": 1}, {"CPU": 1}], strategy="STRICT_SPREAD")
    assert ray.get(group.ready()) == group
    places = [PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index) for index in range(2)]
    assert len(set(ray.get([where.options(scheduling_strategy=place).remote() for place in places]))) == 2
    remove_placement_group(group)


def test_an_actor_of_a_program_written_for_ray_is_found_by_its_name(ray: ModuleType) -> None:
    import ray as original

    class Old:
        def add(self, left: int, right: int = 1) -> int:
            return left + right

        @original.method(num_returns=2)
        def both(self) -> tuple[int, int]:
            return 1, 2

        def items(self) -> Iterator[int]:
            for number in range(3):  # noqa: UP028  (Ray sends values into generators, which a range cannot take)
                yield number

    old = original.remote(Old).options(name="old").remote()
    found = ray.get_actor("old")
    assert ray.get(found.add.remote(1, right=3)) == 4
    assert ray.get(found.both.remote()) == [1, 2]
    assert [ray.get(ref) for ref in found.items.remote()] == [0, 1, 2]
    with pytest.raises(TypeError):
        found.add.remote()
    with pytest.raises(AttributeError):
        _ = found.subtract
    del old


def test_a_generator_may_delegate_to_any_iterator(ray: ModuleType) -> None:
    @ray.remote
    def items() -> Iterator[int]:
        yield from range(3)

    assert [ray.get(ref) for ref in items.remote()] == [0, 1, 2]


def test_what_ray_lacks_fails_at_the_call_and_is_named(ray: ModuleType) -> None:
    @ray.remote
    def work() -> None: ...

    with pytest.raises(NotImplementedError, match="cpu_affinity"):
        work.options(cpu_affinity=[0]).remote()
    with pytest.raises(NotImplementedError, match="timeout_s"):
        work.options(timeout_s=3).remote()
    with pytest.raises(NotImplementedError, match="retry_delay_s"):
        work.options(retry_delay_s=0.5).remote()
    with pytest.raises(NotImplementedError, match="RayBackend has no tensor transports"):
        ray.put(1, _tensor_transport="shm")


def test_errors_of_a_task_elsewhere_are_mrays(ray: ModuleType) -> None:
    @ray.remote(resources={"second": 1}, max_retries=0)
    def fail(how: str) -> None:
        if how == "exit":
            os._exit(3)
        raise ray.exceptions.GetTimeoutError("of the user")

    with pytest.raises(ray.exceptions.WorkerCrashedError):
        ray.get(fail.remote("exit"))
    with pytest.raises(ray.exceptions.GetTimeoutError, match="of the user") as caught:
        ray.get(fail.remote("raise"))
    assert isinstance(caught.value, ray.exceptions.RayTaskError)
    with pytest.raises(ray.exceptions.GetTimeoutError):
        ray.get(fail.options(resources={"nowhere": 1}).remote("raise"), timeout=0.01)


PROGRAM = """
import mray as ray

@ray.remote
def square(number):
    return number * number

@ray.remote(resources={"second": 1})
class Sum:
    def __init__(self):
        self.total = 0
    def add(self, numbers):
        self.total += sum(ray.get(numbers))
        return self.total

total = Sum.remote()
print(ray.get(total.add.remote([square.remote(number) for number in range(4)])))
"""


@pytest.mark.parametrize("auto", [False, True], ids=["ray:HOST:PORT", "ray:auto"])
def test_one_variable_moves_a_program_to_the_cluster(cluster: Any, tmp_path: Path, auto: bool) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    environment = {**os.environ, "MRAY_ADDRESS": "ray:auto" if auto else cluster.address}
    environment["RAY_ADDRESS"] = cluster.address.removeprefix("ray:")
    done = subprocess.run([sys.executable, str(program)], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1:] == ["14"], done.stderr
    assert done.returncode == 0
