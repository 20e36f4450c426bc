"""A cluster of two nodes on this machine, joined by one setting: what a single Ray, under which tests/api runs, does not show."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("ray")

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def cluster(shared_session: Any) -> Iterator[Any]:
    """Two nodes, the second with the resource "far"; its workers find mray."""
    from ray.cluster_utils import Cluster

    shared_session.running = True
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH")])))
        patch.delenv("RAY_ADDRESS", raising=False)
        patch.delenv("MRAY_ADDRESS", raising=False)
        made = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
        made.add_node(num_cpus=2, resources={"far": 2})
        made.wait_for_nodes()
        yield made
        made.shutdown()
    shared_session.running = False


@pytest.fixture(scope="module")
def mray(cluster: Any) -> Iterator[ModuleType]:
    """mray, connected to the cluster."""
    import mray

    mray.shutdown()
    mray.init(address=f"ray:{cluster.address}", namespace="tests", log_to_driver=False, logging_level="ERROR")
    yield mray
    mray.shutdown()


def test_work_goes_to_the_node_that_has_what_it_needs(mray: ModuleType) -> None:
    @mray.remote(resources={"far": 1})
    def where() -> str:
        return str(mray.get_runtime_context().get_node_id())

    there = mray.get(where.remote())
    assert there != mray.get_runtime_context().get_node_id()
    assert there in {node["NodeID"] for node in mray.nodes()}


def test_refs_and_handles_inside_of_values_work_on_another_node(mray: ModuleType) -> None:
    np = pytest.importorskip("numpy")

    @mray.remote
    class Counter:
        def __init__(self) -> None:
            self.total = 0

        def add(self, number: int) -> int:
            self.total += number
            return self.total

    @mray.remote(resources={"far": 1})
    def work(things: dict[str, Any]) -> tuple[int, Any]:
        return mray.get(things["counter"].add.remote(int(mray.get(things["array"]).sum()))), mray.put("from there")

    things = {"counter": Counter.remote(), "array": mray.put(np.ones(1_000_000))}
    total, ref = mray.get(work.remote(things))
    assert total == 1_000_000
    assert mray.get(ref) == "from there"
    assert mray.get(things["counter"].add.remote(1)) == 1_000_001


def test_a_ref_that_only_a_value_holds_stays_alive(mray: ModuleType) -> None:
    np = pytest.importorskip("numpy")

    @mray.remote
    class Keeper:
        def keep(self, refs: list[Any]) -> None:
            self.refs = refs

        def give(self) -> list[Any]:
            return self.refs

    keeper = Keeper.options(resources={"far": 1}).remote()
    ref = mray.put(np.arange(500_000))
    mray.get(keeper.keep.remote([ref]))
    del ref
    assert mray.get(mray.get(keeper.give.remote())[0])[-1] == 499_999


def test_nodes_are_chosen_by_their_id(mray: ModuleType) -> None:
    from mray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    @mray.remote
    def where() -> str:
        return str(mray.get_runtime_context().get_node_id())

    for node in mray.nodes():
        strategy = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        assert mray.get(where.options(scheduling_strategy=strategy).remote()) == node["NodeID"]


def test_a_placement_group_spreads_over_the_nodes(mray: ModuleType) -> None:
    from mray.util import placement_group, remove_placement_group
    from mray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    @mray.remote(num_cpus=1)
    def where() -> str:
        return str(mray.get_runtime_context().get_node_id())

    group = placement_group([{"CPU": 1}, {"CPU": 1}], strategy="STRICT_SPREAD")
    assert mray.get(group.ready()) == group
    places = [PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index) for index in range(2)]
    assert len(set(mray.get([where.options(scheduling_strategy=place).remote() for place in places]))) == 2
    remove_placement_group(group)


def test_an_actor_of_a_program_written_for_ray_is_found_by_its_name(mray: ModuleType) -> None:
    import ray

    class Old:
        def add(self, left: int, right: int = 1) -> int:
            return left + right

        @ray.method(num_returns=2)
        def both(self) -> tuple[int, int]:
            return 1, 2

        def items(self) -> Iterator[int]:
            for number in range(3):  # noqa: UP028  (Ray sends values into generators, which a range cannot take)
                yield number

    old = ray.remote(Old).options(name="old", namespace="tests").remote()
    found = mray.get_actor("old")
    assert mray.get(found.add.remote(1, right=3)) == 4
    assert mray.get(found.both.remote()) == [1, 2]
    assert [mray.get(ref) for ref in found.items.remote()] == [0, 1, 2]
    with pytest.raises(TypeError):
        found.add.remote()
    with pytest.raises(AttributeError):
        _ = found.subtract
    del old


def test_a_generator_may_delegate_to_any_iterator(mray: ModuleType) -> None:
    @mray.remote
    def items() -> Iterator[int]:
        yield from range(3)

    assert [mray.get(ref) for ref in items.remote()] == [0, 1, 2]


def test_what_ray_lacks_fails_at_the_call_and_is_named(mray: ModuleType) -> None:
    @mray.remote
    def work() -> None: ...

    with pytest.raises(NotImplementedError, match="cpu_affinity"):
        work.options(cpu_affinity=[0]).remote()
    with pytest.raises(NotImplementedError, match="RayBackend has no tensor transports"):
        mray.put(1, _tensor_transport="shm")


def test_errors_of_a_task_elsewhere_are_mrays(mray: ModuleType) -> None:
    @mray.remote(resources={"far": 1}, max_retries=0)
    def fail(how: str) -> None:
        if how == "exit":
            os._exit(3)
        raise mray.exceptions.GetTimeoutError("of the user")

    with pytest.raises(mray.exceptions.WorkerCrashedError):
        mray.get(fail.remote("exit"))
    with pytest.raises(mray.exceptions.GetTimeoutError, match="of the user") as caught:
        mray.get(fail.remote("raise"))
    assert isinstance(caught.value, mray.exceptions.RayTaskError)
    with pytest.raises(mray.exceptions.GetTimeoutError):
        mray.get(fail.options(resources={"nowhere": 1}).remote("raise"), timeout=0.01)


PROGRAM = """
import mray as ray

@ray.remote
def square(number):
    return number * number

@ray.remote(resources={"far": 1})
class Sum:
    def __init__(self):
        self.total = 0
    def add(self, numbers):
        self.total += sum(ray.get(numbers))
        return self.total

total = Sum.remote()
print(ray.get(total.add.remote([square.remote(number) for number in range(4)])))
"""


@pytest.mark.parametrize("address", ["ray:{0}", "ray:auto"])
def test_one_variable_moves_a_program_to_the_cluster(cluster: Any, tmp_path: Path, address: str) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    environment = {**os.environ, "MRAY_ADDRESS": address.format(cluster.address), "RAY_ADDRESS": cluster.address}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH")]))
    done = subprocess.run([sys.executable, str(program)], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1:] == ["14"], done.stderr
    assert done.returncode == 0
