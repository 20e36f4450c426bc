"""Generators in actors that run several calls at once: threads, event loops, and streams beside each other."""

from __future__ import annotations

import asyncio
import time

import numpy as np
import pytest


class Threads:
    def count(self, n, pause=0.0):
        for i in range(n):
            yield i
            time.sleep(pause)

    def arrays(self, n):
        for i in range(n):
            yield np.full(5 * (1 << 20), i, dtype=np.uint8)

    def quick(self):
        return "quick"


class Loop:
    def __init__(self):
        self.gate = asyncio.Event()
        self.ended = []

    async def count(self, n, pause=0.0):
        for i in range(n):
            await asyncio.sleep(pause)
            yield i

    async def until_open(self):
        yield "waiting"
        await self.gate.wait()
        yield "open"

    async def endless(self):
        try:
            i = 0
            while True:
                yield i
                i += 1
                await asyncio.sleep(0.001)
        finally:
            self.ended.append("end")

    async def without_a_pause(self, n):
        for i in range(n):
            yield i

    async def fail(self):
        yield 1
        raise ValueError("no more")

    def plain(self, n):
        for i in range(n):  # noqa: UP028  (Ray runs no `yield from` over what has no `send`)
            yield i

    async def open(self):
        self.gate.set()

    async def what_ended(self):
        return self.ended


def values(ray, generator):
    return [ray.get(ref) for ref in generator]


# --------------------------------------------------------------------------------------------- threads
def test_threads_of_an_actor_stream_beside_each_other(ray_session):
    ray = ray_session
    actor = ray.remote(Threads).options(max_concurrency=3).remote()
    streams = [actor.count.remote(20, 0.01) for _ in range(2)]
    assert ray.get(actor.quick.remote()) == "quick"
    pairs = [(ray.get(next(streams[0])), ray.get(next(streams[1]))) for _ in range(20)]
    assert pairs == [(i, i) for i in range(20)]
    assert values(ray, streams[0]) == values(ray, streams[1]) == []


def test_many_items_of_a_thread(ray_session):
    ray = ray_session
    actor = ray.remote(Threads).options(max_concurrency=2).remote()
    assert values(ray, actor.count.remote(1000)) == list(range(1000))


def test_large_arrays_of_a_thread(ray_session):
    ray = ray_session
    actor = ray.remote(Threads).options(max_concurrency=2).remote()
    streams = [actor.arrays.options(_generator_backpressure_num_objects=2).remote(6) for _ in range(2)]
    for i in range(6):
        for stream in streams:
            array = ray.get(next(stream))
            assert array.nbytes == 5 * (1 << 20)
            assert array[0] == array[-1] == i


def test_back_pressure_in_one_thread_holds_up_no_other(ray_session):
    ray = ray_session
    actor = ray.remote(Threads).options(max_concurrency=2).remote()
    held = actor.count.options(_generator_backpressure_num_objects=1).remote(5)
    assert ray.wait([held], timeout=60)[0]
    assert values(ray, actor.count.remote(30)) == list(range(30))
    assert values(ray, held) == list(range(5))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.only("mray", "local")  # Ray runs a generator of a thread to its end
def test_cancelling_a_generator_of_a_thread_ends_it_at_its_next_yield(ray_session, threads):
    ray = ray_session
    actor = ray.remote(Threads).options(max_concurrency=threads).remote()
    generator = actor.count.remote(100_000, 0.01)
    assert ray.get(next(generator)) == 0
    ray.cancel(generator)
    with pytest.raises(ray.exceptions.TaskCancelledError):
        for ref in generator:
            ray.get(ref)
    assert ray.get(actor.quick.remote()) == "quick"


# ---------------------------------------------------------------------------------------- event loops
def test_an_async_generator_streams_its_items(ray_session):
    ray = ray_session
    actor = ray.remote(Loop).remote()
    generator = actor.count.remote(5)
    assert isinstance(generator, ray.ObjectRefGenerator)
    assert values(ray, generator) == [0, 1, 2, 3, 4]
    assert values(ray, actor.plain.remote(4)) == [0, 1, 2, 3]


def test_an_async_generator_that_never_waits(ray_session):
    ray = ray_session
    actor = ray.remote(Loop).remote()
    assert values(ray, actor.without_a_pause.remote(1000)) == list(range(1000))


def test_async_generators_of_an_actor_run_beside_each_other(ray_session):
    ray = ray_session
    actor = ray.remote(Loop).remote()
    waiting = actor.until_open.remote()
    assert ray.get(next(waiting)) == "waiting"
    others = [actor.count.remote(10, 0.005) for _ in range(5)]
    assert [values(ray, other) for other in others] == [list(range(10))] * 5
    ray.get(actor.open.remote())
    assert values(ray, waiting) == ["open"]


def test_async_generators_are_read_by_coroutines(ray_session):
    ray = ray_session
    actor = ray.remote(Loop).remote()

    async def read(n):
        return [await ref async for ref in actor.count.remote(n, 0.002)]

    async def main():
        return await asyncio.gather(*(read(n) for n in range(6)))

    assert asyncio.run(main()) == [list(range(n)) for n in range(6)]


def test_what_an_async_generator_raises_is_its_last_item(ray_session):
    ray = ray_session
    generator = ray.remote(Loop).remote().fail.remote()
    assert ray.get(next(generator)) == 1
    with pytest.raises(ValueError, match="no more"):
        ray.get(next(generator))
    with pytest.raises(StopIteration):
        next(generator)


@pytest.mark.only("mray", "local")  # Ray runs what nobody reads to its end
def test_dropping_the_generator_ends_an_async_one(ray_session, eventually):
    ray = ray_session
    actor = ray.remote(Loop).remote()
    generator = actor.endless.remote()
    assert ray.get(next(generator)) == 0
    del generator
    eventually(lambda: ray.get(actor.what_ended.remote()) == ["end"])


def test_cancelling_an_async_generator(ray_session, eventually):
    ray = ray_session
    actor = ray.remote(Loop).remote()
    generator = actor.endless.remote()
    assert ray.get(next(generator)) == 0
    ray.cancel(generator)
    with pytest.raises(ray.exceptions.TaskCancelledError):
        for ref in generator:
            ray.get(ref)
    eventually(lambda: ray.get(actor.what_ended.remote()) == ["end"])


@pytest.mark.only("mray", "local")  # Ray's async actors have no back-pressure
def test_back_pressure_of_an_async_generator(ray_session, eventually):
    ray = ray_session
    actor = ray.remote(Loop).remote()
    generator = actor.endless.options(_generator_backpressure_num_objects=2).remote()
    assert [ray.get(next(generator)) for _ in range(10)] == list(range(10))
    unread = generator._stream._items
    eventually(lambda: len(unread) == 2)
    assert values(ray, actor.count.remote(5)) == list(range(5))
    assert len(unread) == 2
    del generator
    eventually(lambda: ray.get(actor.what_ended.remote()) == ["end"])


def test_a_generator_in_a_concurrency_group(ray_session):
    ray = ray_session

    @ray.remote(concurrency_groups={"io": 1})
    class Grouped:
        @ray.method(concurrency_group="io")
        async def count(self, n):
            for i in range(n):
                await asyncio.sleep(0.001)
                yield i

        async def wait(self):
            await asyncio.sleep(0.01)
            return 1

    actor = Grouped.remote()
    generator = actor.count.remote(10)
    assert ray.get(actor.wait.remote()) == 1
    assert values(ray, generator) == list(range(10))


# ------------------------------------------------------------------------------- limits of a whole actor
def test_the_generators_of_an_actor_have_a_limit_together(ray_session, eventually):
    ray = ray_session

    @ray.remote(max_concurrency=3, _actor_generator_backpressure_num_objects=3)
    class Limited:
        def __init__(self):
            self.made = 0

        def count(self, n):
            for i in range(n):
                self.made += 1
                yield i

        def how_many(self):
            return self.made

    actor = Limited.remote()
    streams = [actor.count.remote(6) for _ in range(2)]
    eventually(lambda: ray.get(actor.how_many.remote()) >= 3)
    # Each may have made one more before it knew of the other's.
    assert ray.get(actor.how_many.remote()) <= 4
    found = [[], []]
    while sum(map(len, found)) < 12:
        # Which of them goes on is not said: one may fill the room that both have.
        (ready,), _rest = ray.wait([stream for stream, items in zip(streams, found, strict=True) if len(items) < 6], timeout=60)
        found[streams.index(ready)].append(ray.get(next(ready)))
    assert found == [list(range(6))] * 2
