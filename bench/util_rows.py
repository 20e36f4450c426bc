"""The rows of `mray.util`: waiting for many, pools, executors and joblib, on mray, on Ray and on what else a user would pick.

`measure.py` finds them by name. A row is a function of the module under test; `peer` runs it on the standard library or loky.
"""

from __future__ import annotations

import concurrent.futures
import importlib
import multiprocessing
from collections.abc import Callable
from typing import Any

from measure import per_item, session, times


def square(number: int) -> int:
    return number * number


def total(array: Any) -> float:
    return float(array.sum())


def doubled(array: Any) -> Any:
    return array * 2


def _module(ray: Any, name: str) -> Any:
    return importlib.import_module(f"{ray.__name__}.util.{name}")


# ---------------------------------------------------------------------------------- refs and actors
def wait_1k(ray: Any) -> list[float]:
    """One wait for one of a thousand refs that are ready."""
    with session(ray):
        refs = [ray.put(number) for number in range(1000)]
        return times(lambda: ray.wait(refs), 300, 20)


def wait_1k_all(ray: Any) -> list[float]:
    with session(ray):
        refs = [ray.put(number) for number in range(1000)]
        return times(lambda: ray.wait(refs, num_returns=1000), 300, 20)


def actor_pool_map(ray: Any) -> list[float]:
    class Worker:
        def square(self, number: int) -> int:
            return number * number

    with session(ray):
        worker = ray.remote(num_cpus=0)(Worker)
        pool = _module(ray, "actor_pool").ActorPool([worker.remote() for _ in range(2)])
        return per_item(lambda: list(pool.map(lambda actor, number: actor.square.remote(number), range(10_000))), 10_000, 3)


def queue_put_get(ray: Any) -> list[float]:
    with session(ray):
        items = _module(ray, "queue").Queue()

        def both() -> None:
            items.put(1)
            items.get()

        return times(both, 500, 50)


# ------------------------------------------------------------------------------------------------ pools
def _pool_rows(row: str, pool: Any) -> list[float]:
    if row == "pool_map":
        return times(lambda: pool.map(square, range(10_000)), 20, 3)
    if row == "pool_map_single":
        return per_item(lambda: pool.map(square, range(2000), 1), 2000, 5)
    if row == "pool_apply":
        return times(lambda: pool.apply(square, (3,)), 500, 50)
    numpy = importlib.import_module("numpy")
    arrays = [numpy.ones(1 << 19) for _ in range(16)]
    function = total if row == "pool_arrays_in" else doubled
    return times(lambda: pool.map(function, arrays, 1), 8, 2)


def _pool(row: str) -> Callable[[Any], list[float]]:
    def measure(ray: Any) -> list[float]:
        with session(ray, num_cpus=2):
            pool = _module(ray, "multiprocessing").Pool(2)
            try:
                return _pool_rows(row, pool)
            finally:
                pool.terminate()

    return measure


pool_map = _pool("pool_map")
pool_map_single = _pool("pool_map_single")
pool_apply = _pool("pool_apply")
pool_arrays_in = _pool("pool_arrays_in")
pool_arrays_both = _pool("pool_arrays_both")


# -------------------------------------------------------------------------------------------- executors
def _executor_rows(row: str, executor: Any) -> list[float]:
    executor.submit(square, 1).result()
    if row == "executor_call":
        return times(lambda: executor.submit(square, 3).result(), 1000, 200)
    return per_item(lambda: list(executor.map(square, range(2000))), 2000, 4)


def executor_call(ray: Any) -> list[float]:
    with session(ray, num_cpus=2), _module(ray, "executor").Executor(2) as executor:
        return _executor_rows("executor_call", executor)


def executor_map(ray: Any) -> list[float]:
    with session(ray, num_cpus=2), _module(ray, "executor").Executor(2) as executor:
        return _executor_rows("executor_map", executor)


# ----------------------------------------------------------------------------------------------- joblib
def _joblib_rows(row: str, backend: str) -> list[float]:
    joblib = importlib.import_module("joblib")
    delayed, parallel = joblib.delayed, joblib.Parallel
    with joblib.parallel_config(backend, n_jobs=2):
        if row == "joblib_calls":
            return times(lambda: parallel()(delayed(square)(number) for number in range(2000)), 10, 2)
        if row == "joblib_arrays":
            array = importlib.import_module("numpy").ones(1 << 20)
            return times(lambda: parallel()(delayed(total)(array) for _ in range(64)), 10, 2)
        search = importlib.import_module("sklearn.model_selection")
        features, labels = importlib.import_module("sklearn.datasets").load_digits(return_X_y=True)
        grid = search.GridSearchCV(importlib.import_module("sklearn.svm").SVC(), {"C": [0.1, 1, 10], "gamma": [1e-3, 1e-2]}, cv=3)
        return times(lambda: grid.fit(features[:600], labels[:600]), 5, 1)


def _joblib(row: str) -> Callable[[Any], list[float]]:
    def measure(ray: Any) -> list[float]:
        _module(ray, "joblib").register_ray()
        with session(ray, num_cpus=2):
            return _joblib_rows(row, "ray")

    return measure


joblib_calls = _joblib("joblib_calls")
joblib_arrays = _joblib("joblib_arrays")
joblib_grid = _joblib("joblib_grid")


# ------------------------------------------------------------------------------------------------ peers
def peer(engine: str, row: str) -> list[float]:
    """A row on `multiprocessing.Pool`, `ProcessPoolExecutor` or loky."""
    if engine == "loky":
        return _joblib_rows(row, "loky")
    if engine == "executor":
        with concurrent.futures.ProcessPoolExecutor(2) as executor:
            return _executor_rows(row, executor)
    with multiprocessing.Pool(2) as pool:
        return _pool_rows(row, pool)
