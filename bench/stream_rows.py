"""Measurements of remote generators; `measure.py` runs them like its own."""

from __future__ import annotations

import asyncio
from typing import Any

from measure import MIB, per_item, session, times

ITEMS = 5000
ARRAYS = 200


def producer(ray: Any, **options: Any) -> Any:
    class Producer:
        def small(self, count: int) -> Any:
            for i in range(count):  # noqa: UP028  (Ray runs no `yield from` over what has no `send`)
                yield i

        def arrays(self, count: int) -> Any:
            import numpy

            array = numpy.ones(MIB, dtype=numpy.uint8)
            for _ in range(count):
                yield array

        @ray.method(_generator_backpressure_num_objects=1)
        def in_turn(self, count: int) -> Any:
            for i in range(count):  # noqa: UP028
                yield i

    Actor = ray.remote(Producer)
    return (Actor.options(**options) if options else Actor).remote()


def read(ray: Any, generator: Any) -> None:
    for ref in generator:
        ray.get(ref)


def stream_small(ray: Any) -> list[float]:
    with session(ray):
        actor = producer(ray)
        return per_item(lambda: read(ray, actor.small.remote(ITEMS)), ITEMS, 4)


def stream_task(ray: Any) -> list[float]:
    @ray.remote
    def small(count: int) -> Any:
        for i in range(count):  # noqa: UP028
            yield i

    with session(ray):
        return per_item(lambda: read(ray, small.remote(ITEMS)), ITEMS, 4)


def stream_asyncio(ray: Any) -> list[float]:
    async def all_items(generator: Any) -> None:
        async for ref in generator:
            await ref

    with session(ray):
        actor = producer(ray)
        return per_item(lambda: asyncio.run(all_items(actor.small.remote(ITEMS))), ITEMS, 4)


def stream_coroutine(ray: Any) -> list[float]:
    class Coroutines:
        async def small(self, count: int) -> Any:
            for i in range(count):
                yield i

    with session(ray):
        actor = ray.remote(Coroutines).remote()
        return per_item(lambda: read(ray, actor.small.remote(ITEMS)), ITEMS, 4)


def stream_threads(ray: Any) -> list[float]:
    """Two streams of one actor at a time, read by one thread in turn."""
    with session(ray):
        actor = producer(ray, max_concurrency=2)

        def both() -> None:
            for refs in zip(actor.small.remote(ITEMS), actor.small.remote(ITEMS), strict=True):
                ray.get(list(refs))

        return per_item(both, 2 * ITEMS, 4)


def stream_arrays(ray: Any) -> list[float]:
    with session(ray, object_store_memory=1 << 30):
        actor = producer(ray)
        return per_item(lambda: read(ray, actor.arrays.remote(ARRAYS)), ARRAYS, 4)


def stream_in_turn(ray: Any) -> list[float]:
    with session(ray):
        generator = producer(ray).in_turn.remote(10_000)
        return times(lambda: ray.get(next(generator)), 1500, 200)
