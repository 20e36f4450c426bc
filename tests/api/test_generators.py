"""Remote generators: refs of what a task or a method yields, while it runs."""

from __future__ import annotations

import asyncio
import copy
import pickle
import time

import numpy as np
import pytest


def count(n):
    for i in range(n):  # noqa: UP028  (Ray runs no `yield from` over what has no `send`)
        yield i


class Counter:
    def count(self, n):
        yield from count(n)

    def fail_at(self, n):
        yield from count(n)
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


# ---------------------------------------------------------------------------- num_returns that is a number
def test_a_generator_with_as_many_return_values_as_it_yields(ray_session):
    ray = ray_session
    refs = ray.remote(num_returns=3)(count).remote(3)
    assert ray.get(refs) == [0, 1, 2]
    actor = ray.remote(Counter).remote()
    assert ray.get(actor.count.options(num_returns=2).remote(2)) == [0, 1]


def test_too_few_items_are_a_value_error_of_the_missing_ones(ray_session):
    ray = ray_session
    *first, last = ray.remote(count).options(num_returns=4).remote(3)
    assert ray.get(first) == [0, 1, 2]
    with pytest.raises(ValueError, match="Task returned 3 objects, but num_returns=4."):
        ray.get(last)


def test_items_beyond_the_return_values_are_left_out(ray_session):
    ray = ray_session
    assert ray.get(ray.remote(count).options(num_returns=2).remote(5)) == [0, 1]
    assert ray.get(ray.remote(count).options(num_returns=1).remote(5)) == 0
    assert ray.remote(count).options(num_returns=0).remote(5) is None


def test_what_was_yielded_before_an_error_is_good(ray_session):
    ray = ray_session
    actor = ray.remote(Counter).remote()
    first, *rest = actor.fail_at.options(num_returns=3).remote(1)
    assert ray.get(first) == 0
    for ref in rest:
        with pytest.raises(ValueError, match="no more"):
            ray.get(ref)


# ------------------------------------------------------------------------------------------- "dynamic"
@pytest.mark.filterwarnings("ignore:num_returns='dynamic':DeprecationWarning")
def test_a_dynamic_generator_is_one_ref_of_all_refs(ray_session):
    ray = ray_session

    @ray.remote
    def total(found):
        return sum(ray.get(list(found)))

    ref = ray.remote(count).options(num_returns="dynamic").remote(4)
    found = ray.get(ref)
    assert len(found) == 4
    assert ray.get(list(found)) == [0, 1, 2, 3]
    assert len(found) == 0
    assert ray.get(total.remote(ref)) == 6
    actor = ray.remote(Counter).remote()
    assert values_of(ray, ray.get(actor.fail_at.options(num_returns="dynamic").remote(1))) == [0, ValueError]


@pytest.mark.filterwarnings("ignore:num_returns='dynamic':DeprecationWarning")
def test_only_generators_stream(ray_session):
    ray = ray_session
    actor = ray.remote(Counter).remote()
    for num_returns in ("streaming", "dynamic"):
        with pytest.raises(ValueError, match="can only be used with generator functions"):
            actor.plain.options(num_returns=num_returns).remote()
        with pytest.raises(ValueError, match="can only be used with generator functions"):
            ray.remote(num_returns=num_returns)(lambda: 1)
        with pytest.raises(ValueError, match="can only be used with generator functions"):
            ray.method(num_returns=num_returns)(lambda self: 1)


def test_a_generator_method_is_no_dag_node(ray_session):
    ray = ray_session
    actor = ray.remote(Counter).remote()
    with ray.dag.InputNode() as given, pytest.raises(TypeError):
        actor.count.bind(given)


# --------------------------------------------------------------------------------- looking without taking
def test_whether_the_next_item_is_there(ray_session, signal, engine, eventually):
    ray = ray_session
    gate = signal()

    @ray.remote
    def one(gate):
        while not ray.get(gate.is_set.remote()):
            time.sleep(0.01)
        yield 1

    generator = one.remote(gate)
    assert not generator.next_ready()
    assert not generator.is_finished()
    assert ray.wait([generator], timeout=0) == ([], [generator])
    gate.send.remote()
    assert ray.wait([generator], timeout=60) == ([generator], [])
    assert generator.next_ready()
    ray.get(generator.completed())
    assert not generator.is_finished()
    assert ray.get(next(generator)) == 1
    if engine == "ray":  # which may hear of the end later than of the last item
        eventually(generator.is_finished)
    assert generator.is_finished()
    assert not generator.next_ready()
    assert ray.wait([generator], timeout=60) == ([generator], [])


def test_waiting_for_generators_and_refs_together(ray_session, signal):
    ray = ray_session
    gate = signal()

    @ray.remote
    def never(gate):
        while not ray.get(gate.is_set.remote()):
            time.sleep(0.01)
        yield 1

    late = never.remote(gate)
    early = ray.remote(count).remote(1)
    ref = ray.put(5)
    ready, rest = ray.wait([late, early, ref], num_returns=2, timeout=60)
    assert (ready, rest) == ([early, ref], [late])
    with pytest.raises(TypeError, match="got a single"):
        ray.wait(late)
    with pytest.raises(ValueError, match="unique"):
        ray.wait([late, late])
    gate.send.remote()
    assert ray.wait([late], timeout=60)[0] == [late]


def test_next_with_a_time_limit(ray_session, signal):
    ray = ray_session
    gate = signal()

    @ray.remote
    def one(gate):
        while not ray.get(gate.is_set.remote()):
            time.sleep(0.01)
        yield 1

    generator = one.remote(gate)
    assert generator._next_sync(timeout_s=0.05).is_nil()
    ray.get(gate.send.remote())
    assert ray.get(generator._next_sync()) == 1


def test_refs_of_the_next_items_can_be_had_before_they_are_made(ray_session):
    ray = ray_session
    generator = ray.remote(count).remote(3)
    refs = generator._get_next_ref_n(5)
    assert ray.get(refs[:3]) == [0, 1, 2]
    for ref in refs[3:]:
        with pytest.raises(ray.exceptions.ObjectRefStreamEndOfStreamError):
            ray.get(ref)
    generator._consume_next_ref_n(2)
    assert list(generator) == refs[2:3]


# ------------------------------------------------------------------------------------ several items at once
def test_a_yield_may_be_of_several_items(ray_session):
    ray = ray_session

    @ray.remote(_num_objects_per_yield=2)
    def pairs(*items):
        for item in items:  # noqa: UP028
            yield item

    assert values_of(ray, pairs.remote((1, 2), [3, 4])) == [1, 2, 3, 4]
    assert values_of(ray, pairs.remote((1, 2), (3, 4, 5))) == [1, 2, ValueError]
    for wrong, text in (
        ((1, 2, 3), "Streaming generator task yielded 3 objects, but _num_objects_per_yield=2"),
        (7, "Streaming generator tasks with _num_objects_per_yield=2 must yield a tuple or list of length 2"),
    ):
        (failure,) = pairs.remote(wrong)
        with pytest.raises(ValueError, match=text):
            ray.get(failure)
    with pytest.raises(ValueError, match="cannot be overridden per task call"):
        pairs.options(_num_objects_per_yield=1).remote()
    with pytest.raises(ValueError, match="must be set to a positive integer"):
        ray.remote(_num_objects_per_yield=0)(count)
