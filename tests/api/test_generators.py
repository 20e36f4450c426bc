"""Remote generators: refs of what a task or a method yields, while it runs."""

from __future__ import annotations

import asyncio
import copy
import pickle
import time

import numpy as np
import pytest


def count(n):
    yield from range(n)


class Counter:
    def count(self, n):
        yield from range(n)

    def fail_at(self, n):
        yield from range(n)
        raise ValueError("no more")

    def plain(self):
        return 5


def values_of(ray, generator):
    """Values of the items; an error that is one stands as its class."""
    found = []
    for ref in generator:
        try:
            found.append(ray.get(ref))
        except Exception as error:
            found.append(type(getattr(error, "cause", None) or error))
    return found


# ------------------------------------------------------------------------------------------- iterating
def test_a_generator_function_streams_its_items(ray_session):
    ray = ray_session
    generator = ray.remote(count).remote(5)
    assert isinstance(generator, ray.ObjectRefGenerator)
    assert [ray.get(ref) for ref in generator] == [0, 1, 2, 3, 4]
    for _ in range(3):
        with pytest.raises(StopIteration):
            next(generator)


def test_a_generator_method_streams_its_items(ray_session):
    ray = ray_session
    actor = ray.remote(Counter).remote()
    assert values_of(ray, actor.count.remote(4)) == [0, 1, 2, 3]
    assert values_of(ray, actor.count.options(num_returns="streaming").remote(0)) == []
    assert ray.get(actor.plain.remote()) == 5


def test_an_item_can_be_read_before_the_next_one_is_made(ray_session, signal):
    ray = ray_session
    gate = signal()

    @ray.remote
    def two(gate):
        yield "first"
        while not ray.get(gate.is_set.remote()):
            time.sleep(0.01)
        yield "second"

    generator = two.remote(gate)
    assert ray.get(next(generator)) == "first"
    assert not generator.is_finished()
    assert ray.wait([generator.completed()], timeout=0)[0] == []
    ray.get(gate.send.remote())
    assert values_of(ray, generator) == ["second"]


def test_items_are_return_values_of_one_task(ray_session):
    ray = ray_session
    generator = ray.remote(count).remote(2)
    refs = list(generator)
    done = generator.completed()
    assert [ref.task_id() for ref in refs] == [done.task_id()] * 2
    assert len({*refs, done}) == 3
    assert ray.get(done) is None


def test_async_for_goes_over_the_items(ray_session):
    ray = ray_session

    async def read():
        generator = ray.remote(count).remote(4)
        first = await (await anext(generator))
        rest = [await ref async for ref in generator]
        with pytest.raises(StopAsyncIteration):
            await anext(generator)
        return first, rest

    assert asyncio.run(read()) == (0, [1, 2, 3])


def test_many_items_arrive_in_order(ray_session):
    ray = ray_session
    assert ray.get(list(ray.remote(count).remote(5000))) == list(range(5000))


def test_arrays_are_read_without_a_copy(ray_session):
    ray = ray_session

    @ray.remote
    def arrays():
        for i in range(4):
            yield np.full(300_000, i)

    for i, ref in enumerate(arrays.remote()):
        array = ray.get(ref)
        assert array.sum() == i * 300_000
        assert not array.flags.writeable


def test_refs_and_handles_may_be_inside_items(ray_session):
    ray = ray_session
    Inner = ray.remote(Counter)

    @ray.remote
    def nested():
        yield [ray.put(7)]
        yield {"actor": Inner.remote()}

    generator = nested.remote()
    (inner,) = ray.get(next(generator))
    actor = ray.get(next(generator))["actor"]
    with pytest.raises(StopIteration):
        next(generator)
    assert ray.get(inner) == 7
    assert ray.get(actor.plain.remote()) == 5


# ---------------------------------------------------------------------------------------------- errors
def test_what_a_generator_raises_is_its_last_item(ray_session):
    ray = ray_session
    actor = ray.remote(Counter).remote()
    generator = actor.fail_at.remote(2)
    assert values_of(ray, generator) == [0, 1, ValueError]
    for _ in range(2):
        with pytest.raises(StopIteration):
            next(generator)
    assert generator.is_finished()
    assert ray.get(generator.completed()) is None


def test_an_item_that_cannot_be_pickled_is_the_last_one(ray_session):
    ray = ray_session

    @ray.remote
    def unpicklable():
        import threading

        yield 1
        yield threading.Lock()
        yield 3

    assert values_of(ray, unpicklable.remote()) == [1, TypeError]


def test_a_failed_argument_is_the_only_item(ray_session):
    ray = ray_session

    @ray.remote
    def fail():
        raise KeyError("k")

    generator = ray.remote(count).remote(fail.remote())
    assert values_of(ray, generator) == [KeyError]
    with pytest.raises(KeyError):
        ray.get(generator.completed())


# --------------------------------------------------------------------------------------------- objects
def test_a_generator_of_refs_is_not_pickled_or_copied(ray_session):
    ray = ray_session
    generator = ray.remote(count).remote(2)
    for forbidden in (pickle.dumps, copy.copy, ray.put, ray.remote(count).remote):
        with pytest.raises(TypeError, match="Serializing a ObjectRefGenerator is not allowed"):
            forbidden(generator)
    assert ray.get(generator) is generator
    with pytest.raises(TypeError, match="which is not an ray.ObjectRef"):
        ray.get([generator])


def test_what_python_s_generators_have_and_these_have_not(ray_session):
    generator = ray_session.remote(count).remote(1)
    for name, arguments in (("send", (1,)), ("throw", (ValueError(),)), ("close", ())):
        with pytest.raises(NotImplementedError, match=f"`gen.{name}` is not supported."):
            getattr(generator, name)(*arguments)
    for name, arguments in (("asend", (1,)), ("athrow", (ValueError(),)), ("aclose", ())):
        with pytest.raises(NotImplementedError, match=f"`gen.{name}` is not supported."):
            asyncio.run(getattr(generator, name)(*arguments))
