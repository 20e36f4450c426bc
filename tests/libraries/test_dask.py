"""Dask's collections on Ray's scheduler for them, on mray and on Ray; and joblib's backend, and deprecated parts of Ray's own files."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from tests.full import full

pytest.importorskip("ray")


@pytest.fixture(autouse=True)
def _pool() -> Iterator[None]:
    """The scheduler for dask keeps the threads that submit for as long as the process lives."""
    yield
    scheduler = sys.modules.get("ray.util.dask.scheduler")
    if scheduler is not None and scheduler.default_pool is not None:
        atexit.unregister(scheduler.default_pool.close)
        scheduler.default_pool.terminate()
        scheduler.default_pool.join()
        scheduler.default_pool = None


def test_a_graph_is_computed_by_tasks(ray_session: ModuleType) -> None:
    pytest.importorskip("dask")
    from ray.util.dask import ray_dask_get

    pids: Any = ray_dask_get({"a": 1, "b": (lambda a: (a + 1, os.getpid()), "a"), "c": (lambda b: (b[0] * 10, b[1]), "b")}, ["c", "b"])
    assert [value for value, _pid in pids] == [20, 2]
    assert os.getpid() not in {pid for _value, pid in pids}


@full
def test_collections_of_dask_are_computed(ray_session: ModuleType) -> None:
    dask = pytest.importorskip("dask")
    array = pytest.importorskip("dask.array")
    from dask import bag
    from ray.util.dask import disable_dask_on_ray, enable_dask_on_ray, ray_dask_get

    assert float(array.ones((300, 300), chunks=(100, 100)).sum().compute(scheduler=ray_dask_get)) == 90_000
    with enable_dask_on_ray():
        assert sorted(bag.from_sequence(range(10), npartitions=3).map(lambda number: number**2).compute()) == [n * n for n in range(10)]
        assert dask.delayed(sum)([dask.delayed(abs)(-3), 4]).compute() == 7
    enable_dask_on_ray()
    try:
        assert array.arange(10, chunks=3).mean().compute() == 4.5
        kept = array.arange(10, chunks=5).persist()
        assert int(kept.sum().compute()) == 45
    finally:
        disable_dask_on_ray()


@full
def test_data_frames_of_dask_are_computed_and_become_datasets(ray_session: ModuleType) -> None:
    pytest.importorskip("dask")
    frames = pytest.importorskip("dask.dataframe")
    import pandas as pd
    import ray.data
    from ray.util.dask import disable_dask_on_ray, enable_dask_on_ray

    enable_dask_on_ray()
    try:
        frame = frames.from_pandas(pd.DataFrame({"key": [1, 2] * 50, "value": range(100)}), npartitions=4)
        assert frame.groupby("key").value.sum().compute().to_dict() == {1: 2450, 2: 2500}
        assert ray.data.from_dask(frame).sum("value") == 4950
    finally:
        disable_dask_on_ray()


@full
def test_callbacks_of_dask_on_ray_are_called(ray_session: ModuleType) -> None:
    dask = pytest.importorskip("dask")
    from ray.util.dask import RayDaskCallback, ray_dask_get

    seen = []

    class Seen(RayDaskCallback):
        """Notes the tasks."""

        def _ray_presubmit(self, task: Any, key: Any, deps: Any) -> None:
            seen.append("submit")

        def _ray_postsubmit_all(self, object_refs: Any, dsk: Any) -> None:
            seen.append("all")

        def _ray_finish(self, result: Any) -> None:
            seen.append("finish")

    with Seen():
        assert dask.delayed(lambda: 1)().compute(scheduler=ray_dask_get) == 1
    assert seen == ["submit", "all", "finish"]


@full
def test_an_error_in_a_task_of_dask_is_raised(ray_session: ModuleType) -> None:
    dask = pytest.importorskip("dask")
    from ray.util.dask import ray_dask_get

    def fail() -> None:
        raise ZeroDivisionError("in the graph")

    with pytest.raises(ZeroDivisionError, match="in the graph"):
        dask.delayed(fail)().compute(scheduler=ray_dask_get)


@full
def test_joblib_computes_on_actors(ray_session: ModuleType) -> None:
    joblib = pytest.importorskip("joblib")
    from ray.util.joblib import register_ray

    register_ray()
    with joblib.parallel_backend("ray", n_jobs=2):
        assert joblib.Parallel()(joblib.delayed(pow)(number, 2) for number in range(20)) == [number**2 for number in range(20)]


@full
def test_scikit_learn_searches_on_ray(ray_session: ModuleType) -> None:
    pytest.importorskip("sklearn")
    import joblib
    import numpy as np
    from ray.util.joblib import register_ray
    from sklearn.model_selection import GridSearchCV
    from sklearn.tree import DecisionTreeClassifier

    register_ray()
    chance = np.random.default_rng(1)
    points = chance.random((80, 2))
    search = GridSearchCV(DecisionTreeClassifier(random_state=0), {"max_depth": [1, 5]}, cv=2)
    with joblib.parallel_backend("ray", n_jobs=2):
        search.fit(points, points.sum(axis=1) > 1)
    assert search.best_params_ == {"max_depth": 5}


def test_parallel_iterators_of_the_deprecated_kind(ray_session: ModuleType) -> None:
    iterators = pytest.importorskip("ray.util.iter")

    numbers = iterators.from_range(12, num_shards=3)
    assert sorted(numbers.for_each(lambda number: number * 2).filter(lambda number: number > 10).gather_sync()) == [12, 14, 16, 18, 20, 22]
    assert sorted(number for pair in numbers.batch(2).gather_async() for number in pair) == list(range(12))
    assert numbers.num_shards() == 3


def test_groups_of_actors_of_the_deprecated_kind(ray_session: ModuleType) -> None:
    groups = pytest.importorskip("ray.util.actor_group")

    class Member:
        """One of a group."""

        def __init__(self, start: int) -> None:
            self.start = start

        def add(self, number: int) -> int:
            return self.start + number

    group = groups.ActorGroup(Member, num_actors=2, init_args=(10,))
    try:
        assert ray_session.get(group.add.remote(5)) == [15, 15]
        assert len(group) == 2
    finally:
        group.shutdown()
