"""Measurements of actors that run several calls at once, and of refs awaited in a driver; `measure.py` runs them like its own."""

from __future__ import annotations

import asyncio
from typing import Any

from measure import per_item, session, times

FLIGHT = 1000
AWAITED = 10_000
#: Callers and actors of the rows with several of each.
SIDES = 2
ROUND = 500


def async_actor(ray: Any) -> Any:
    class Async:
        async def echo(self, value: Any) -> Any:
            return value

    return ray.remote(Async)


def threaded_actor(ray: Any) -> Any:
    class Threaded:
        def echo(self, value: Any) -> Any:
            return value

    return ray.remote(max_concurrency=8)(Threaded)


def _round_trip(ray: Any, make: Any) -> list[float]:
    with session(ray):
        actor = make(ray).remote()
        return times(lambda: ray.get(actor.echo.remote(1)), 1000, 200)


def _flight(ray: Any, make: Any) -> list[float]:
    with session(ray):
        actor = make(ray).remote()
        return per_item(lambda: ray.get([actor.echo.remote(i) for i in range(FLIGHT)]), FLIGHT, 6, 2)


def async_call(ray: Any) -> list[float]:
    return _round_trip(ray, async_actor)


def async_flight(ray: Any) -> list[float]:
    return _flight(ray, async_actor)


def threaded_call(ray: Any) -> list[float]:
    return _round_trip(ray, threaded_actor)


def threaded_flight(ray: Any) -> list[float]:
    return _flight(ray, threaded_actor)


def async_between(ray: Any) -> list[float]:
    """Tasks that each keep many calls to all of several async actors in flight."""

    @ray.remote(num_cpus=1)
    def call(actors: Any, count: int) -> None:
        for _ in range(count // ROUND):
            ray.get([actors[i % len(actors)].echo.remote(i) for i in range(ROUND)])

    count = 2000
    with session(ray):
        actors = [async_actor(ray).remote() for _ in range(SIDES)]
        return per_item(lambda: ray.get([call.remote(actors, count) for _ in range(SIDES)]), SIDES * count, 4)


def await_call(ray: Any) -> list[float]:
    async def run(actor: Any) -> list[float]:
        loop = asyncio.get_running_loop()
        samples = []
        for _ in range(1000):
            start = loop.time()
            await actor.echo.remote(1)
            samples.append(loop.time() - start)
        return samples[200:]

    with session(ray):
        return asyncio.run(run(async_actor(ray).remote()))


def await_10000(ray: Any) -> list[float]:
    async def gather(actor: Any) -> None:
        await asyncio.gather(*[actor.echo.remote(i) for i in range(AWAITED)])

    with session(ray):
        actor = async_actor(ray).remote()
        return per_item(lambda: asyncio.run(gather(actor)), AWAITED, 3)
