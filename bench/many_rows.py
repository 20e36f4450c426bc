"""Measurements with many actors and many queued tasks; `measure.py` runs them.

Where a row has several sizes, its title names the largest that Ray reaches on a small machine.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from measure import echo_actor, proportional_set_size, session, times


@contextmanager
def many(ray: Any, count: int) -> Iterator[list[Any]]:
    """A session with this number of actors, each of which has answered once."""
    Echo = echo_actor(ray).options(num_cpus=0)
    with session(ray):
        actors = [Echo.remote() for _ in range(count)]
        ray.get([actor.echo.remote(0) for actor in actors])
        yield actors


def made(ray: Any, count: int) -> list[float]:
    """Seconds per actor from nothing to the first reply of the last one."""
    Echo = echo_actor(ray).options(num_cpus=0)
    with session(ray):
        begin = time.perf_counter()
        actors = [Echo.remote() for _ in range(count)]
        ray.get([actor.echo.remote(0) for actor in actors])
        return [(time.perf_counter() - begin) / count]


def made_100(ray: Any) -> list[float]:
    return made(ray, 100)


def made_1000(ray: Any) -> list[float]:
    return made(ray, 1000)


def killed(ray: Any, count: int) -> list[float]:
    """Seconds per actor until each call of a killed one has raised."""
    with many(ray, count) as actors:
        errors = importlib.import_module(f"{ray.__name__}.exceptions")
        begin = time.perf_counter()
        for actor in actors:
            ray.kill(actor)
        for actor in actors:
            try:
                ray.get(actor.echo.remote(1))
            except errors.ActorDiedError:
                continue
            raise AssertionError("an actor lives on")
        return [(time.perf_counter() - begin) / count]


def killed_100(ray: Any) -> list[float]:
    return killed(ray, 100)


def killed_1000(ray: Any) -> list[float]:
    return killed(ray, 1000)


def memory(ray: Any, count: int) -> list[float]:
    """Megabytes of each actor's process, PSS."""
    with many(ray, count) as actors:
        pids = ray.get([actor.pid.remote() for actor in actors])
        time.sleep(1.0)
        return [proportional_set_size(pid) for pid in pids[:: max(1, count // 20)]]


def memory_100(ray: Any) -> list[float]:
    return memory(ray, 100)


def memory_1000(ray: Any) -> list[float]:
    return memory(ray, 1000)


def call_among(ray: Any, count: int) -> list[float]:
    """Round trips to one actor after another, with as many connections open."""
    with many(ray, count) as actors:
        calls = iter([*actors, *actors] * 2)
        return times(lambda: ray.get(next(calls).echo.remote(1)), 2 * count, count)


def call_among_100(ray: Any) -> list[float]:
    return call_among(ray, 100)


def call_among_1000(ray: Any) -> list[float]:
    return call_among(ray, 1000)


def same_among(ray: Any, count: int) -> list[float]:
    """Round trips to the same actor, with as many connections open."""
    with many(ray, count) as actors:
        return times(lambda: ray.get(actors[0].echo.remote(1)), 2000, 200)


def same_among_100(ray: Any) -> list[float]:
    return same_among(ray, 100)


def same_among_1000(ray: Any) -> list[float]:
    return same_among(ray, 1000)


def queued(ray: Any, count: int) -> list[float]:
    """Seconds per task, of which all are queued before the first reply is read."""

    @ray.remote
    def nothing() -> None:
        return None

    with session(ray):
        ray.get([nothing.remote() for _ in range(100)])
        begin = time.perf_counter()
        ray.get([nothing.remote() for _ in range(count)])
        return [(time.perf_counter() - begin) / count]


def queued_10k(ray: Any) -> list[float]:
    return queued(ray, 10_000)


def queued_100k(ray: Any) -> list[float]:
    return queued(ray, 100_000)


def graph_of(ray: Any, count: int) -> list[float]:
    """Round trips of a graph that sends a value to each of `count` actors and gathers their answers."""
    dag = importlib.import_module(f"{ray.__name__}.dag")
    with many(ray, count) as actors:
        with dag.InputNode() as given:
            graph = dag.MultiOutputNode([actor.echo.bind(given) for actor in actors]).experimental_compile()
        found = times(lambda: ray.get(graph.execute(1)), 100, 20)
        graph.teardown()
        return found


def graph_10(ray: Any) -> list[float]:
    return graph_of(ray, 10)


def graph_100(ray: Any) -> list[float]:
    return graph_of(ray, 100)
