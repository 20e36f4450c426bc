"""Collectives that work in place on arrays that an actor or a task received: in actors of all kinds, in calls that are run again, for
arrays of structures. Needs no torch, which `test_collective` does.
"""

from __future__ import annotations

import importlib
import uuid
import warnings
from typing import Any

import pytest

np = pytest.importorskip("numpy")

pytestmark = pytest.mark.usefixtures("_collective")

#: In the message, and in a segment.
SIZES = [10, 1 << 16]
sizes = pytest.mark.parametrize("size", SIZES)


@pytest.fixture(scope="module")
def _collective(ray: Any) -> None:
    """The packages that a group needs here: Ray's needs torch."""
    if ray.__name__ == "ray":
        pytest.importorskip("torch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of cupy, which Ray imports, on machines without its libraries
        importlib.import_module(f"{ray.__name__}.util.collective")


def member_classes(ray: Any) -> dict[str, Any]:
    """Actors of all kinds that double an array in place, as a group of one's own with a twin: the sum of two equal arrays."""
    name = ray.__name__

    class Base:
        def __init__(self) -> None:
            import importlib

            self.collective = importlib.import_module(f"{name}.util.collective")
            self.kept: list[Any] = []
            self.found: list[Any] = []

        def join(self, rank: int, group: str, world_size: int = 2) -> None:
            self.group = group
            self.collective.init_collective_group(world_size, rank, "gloo", group)

        def reduce(self, array: Any) -> list[Any]:
            self.collective.allreduce(array, self.group)
            return array.ravel()[:2].tolist()

        def fail_until(self, last: int, arrays: Any) -> list[Any]:
            """Keeps the arrays, and what became of them in all attempts; the last of these returns it."""
            self.kept.append(arrays)
            self.found.append([self.reduce(array)[0] for array in arrays])
            if len(self.found) < last:
                raise OSError
            return self.found

    class Plain(Base):
        def double(self, array: Any) -> list[Any]:
            return self.reduce(array)

        def double_at_last(self, last: int, *arrays: Any) -> list[Any]:
            return self.fail_until(last, arrays)

    class Async(Base):
        async def double(self, array: Any) -> list[Any]:
            import asyncio

            await asyncio.sleep(0)
            return self.reduce(array)

        async def double_at_last(self, last: int, *arrays: Any) -> list[Any]:
            return self.fail_until(last, arrays)

        async def double_deep_inside(self, array: Any) -> list[Any]:
            return await self.double(array)

    class Grouped(Base):
        @ray.method(concurrency_group="compute")
        def double(self, array: Any) -> list[Any]:
            return self.reduce(array)

    class Generating(Base):
        def double(self, array: Any) -> Any:
            yield self.reduce(array)[0]
            yield self.reduce(array)[0] / 2

    return {
        "plain": ray.remote(num_cpus=0)(Plain),
        "async": ray.remote(num_cpus=0)(Async),
        "threaded": ray.remote(num_cpus=0, max_concurrency=3)(Plain),
        "grouped": ray.remote(num_cpus=0, concurrency_groups={"compute": 2})(Grouped),
        "generating": ray.remote(num_cpus=0)(Generating),
    }


def counterparts(ray: Any, kind: str) -> list[Any]:
    made = [member_classes(ray)[kind].remote() for _ in range(2)]
    group = f"counterparts {uuid.uuid4()}"  # Ray remembers where the last group of a name met
    ray.get([member.join.remote(rank, group) for rank, member in enumerate(made)])
    return made


kinds = pytest.mark.parametrize("kind", ["plain", "async", "threaded", "grouped"])


@kinds
def test_actors_of_all_kinds_work_in_place_on_their_arguments(ray_session, engine, kind):
    pair = counterparts(ray_session, kind)
    for size in SIZES:
        assert ray_session.get([member.double.remote(np.full(size, 1.5)) for member in pair]) == [[3, 3], [3, 3]]
        refs = [ray_session.put(np.full(size, 2.0)) for _ in pair]
        assert ray_session.get([member.double.remote(ref) for member, ref in zip(pair, refs, strict=True)]) == [[4, 4], [4, 4]]
        if engine == "mray":
            assert [ray_session.get(ref)[0] for ref in refs] == [2, 2]


def test_a_coroutine_that_another_awaits_works_in_place_too(ray_session):
    pair = counterparts(ray_session, "async")
    assert ray_session.get([member.double_deep_inside.remote(np.ones(8)) for member in pair]) == [[2, 2], [2, 2]]


def test_a_generator_works_in_place_on_its_argument(ray_session):
    pair = counterparts(ray_session, "generating")
    streams = [member.double.options(num_returns="streaming").remote(np.ones(8)) for member in pair]
    assert [[ray_session.get(item) for item in stream] for stream in streams] == [[2, 2], [2, 2]]
    pairs = [member.double.options(num_returns=2).remote(np.ones(8)) for member in pair]
    assert [ray_session.get(refs) for refs in pairs] == [[2, 2], [2, 2]]


def test_an_array_got_long_ago_is_worked_on_in_place(ray_session, ray, engine):
    """The garbage collector has looked at all that holds it, and tracks no dictionary or tuple that cannot be in a cycle."""

    def work(actor, refs, name):
        import gc
        import importlib

        array = importlib.import_module(name).get(refs[0])
        for _ in range(3):
            gc.collect()
        return actor.reduce(array), importlib.import_module(name).get(refs[0])[0]

    pair = counterparts(ray_session, "plain")
    for size in SIZES:
        refs = [ray_session.put(np.ones(size)) for _ in pair]
        calls = [member.__ray_call__.remote(work, [ref], ray.__name__) for member, ref in zip(pair, refs, strict=True)]
        for doubled, stored in ray_session.get(calls):
            assert doubled == [2, 2]
            assert stored == 1 or engine == "ray"


@sizes
@pytest.mark.parametrize("kind", ["plain", "async"])
@pytest.mark.differs("with Ray, the stored object itself is changed, for everybody")
def test_a_method_that_is_run_again_gets_its_arguments_as_they_were(ray_session, engine, kind, size):
    pair = counterparts(ray_session, kind)
    method = {"max_task_retries": 2, "retry_exceptions": True}
    calls = [member.double_at_last.options(**method).remote(3, np.ones(size), ray_session.put(np.full(size, 5.0))) for member in pair]
    found = ray_session.get(calls)
    if engine == "mray":
        assert found == [[[2, 10]] * 3] * 2
    else:
        assert all(attempts[-1][1] > 10 for attempts in found)


@sizes
def test_a_task_that_is_run_again_gets_its_arguments_as_they_were(ray_session, ray, size):
    name = ray.__name__

    @ray_session.remote(num_cpus=0)
    class Attempts:
        def __init__(self):
            self.count = 0

        def next(self):
            self.count += 1
            return self.count

    @ray_session.remote(num_cpus=0, max_retries=1, retry_exceptions=True)
    def double(attempts, rank, array):
        import importlib

        collective = importlib.import_module(f"{name}.util.collective")
        number = importlib.import_module(name).get(attempts.next.remote())
        collective.init_collective_group(2, rank, "gloo", f"attempt {number}")
        collective.allreduce(array, f"attempt {number}")
        collective.destroy_collective_group(f"attempt {number}")
        if number == 1:
            raise OSError
        return array[0]

    assert ray_session.get([double.remote(Attempts.remote(), rank, np.ones(size)) for rank in range(2)]) == [2, 2]


@sizes
@pytest.mark.differs("with Ray, a large object itself is changed, for everybody")
@pytest.mark.processes("an actor ends its process")
def test_a_method_of_an_actor_that_died_over_it_gets_its_argument_as_it_was(ray_session, ray, engine, size, tmp_path):
    name, folder = ray.__name__, str(tmp_path)

    @ray_session.remote(num_cpus=0, max_restarts=1, max_task_retries=1)
    class Dying:
        def double(self, rank, array):
            import importlib
            import os

            collective = importlib.import_module(f"{name}.util.collective")
            marker = os.path.join(folder, str(rank))
            again = os.path.exists(marker)
            group = f"{folder} {again}"
            try:
                collective.init_collective_group(2, rank, "gloo", group)
                collective.allreduce(array, group)
            finally:
                if not again:
                    open(marker, "w").close()
                    os._exit(1)
            return array[0]

    refs = [ray_session.put(np.ones(size)) for _ in range(2)]
    found = ray_session.get([Dying.remote().double.remote(rank, ref) for rank, ref in enumerate(refs)])
    if size == 10 or engine == "mray":
        assert found == [2, 2]


def test_a_field_of_structures_is_worked_on_in_place(ray_session):
    def work(actor, points):
        actor.collective.allreduce(points["x"], actor.group)
        actor.collective.allreduce(points["y"][1:], actor.group)
        return points[:2].tolist(), points["x"].sum()

    pair = counterparts(ray_session, "plain")
    for size in SIZES:
        points = np.array([(1, 2)] * size, dtype=[("x", "f8"), ("y", "f8")])
        results = ray_session.get([member.__ray_call__.remote(work, points) for member in pair])
        assert results == [([(2, 2), (2, 4)], 2 * size)] * 2


@pytest.mark.only("mray", "local")
def test_records_are_sent_whole_and_not_added(ray_session):
    def work(actor, points):
        refused = ""
        try:
            actor.reduce(points)
        except (TypeError, ValueError) as error:
            refused = str(error)
        actor.collective.broadcast(points, 0, actor.group)
        return refused, points[0].tolist()

    pair = counterparts(ray_session, "plain")
    for size in SIZES:
        points = [np.array([(rank, rank)] * size, dtype=[("x", "f8"), ("n", "i4")]) for rank in range(2)]
        for refused, first in ray_session.get([member.__ray_call__.remote(work, own) for member, own in zip(pair, points, strict=True)]):
            assert "cannot be reduced" in refused
            assert first == (0, 0)
