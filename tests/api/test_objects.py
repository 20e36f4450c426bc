"""Objects: `put` and what comes back, `ObjectRef` as a value, locations."""

from __future__ import annotations

import asyncio
import collections
import concurrent.futures
import copy
import threading
import time

import pytest

VALUES = [
    None, True, 0, -7, 2**200, 1.5, float("inf"), 1j, "", "text", "ünï", b"", b"bytes",
    (), (1,), (1, (2, [3])), [], [1, "a", None], {}, {"k": [1, {"n": 2}]}, set(), {1, 2}, frozenset({3}),
    range(5), slice(1, 2), Ellipsis, int, len, collections.OrderedDict(a=1), collections.deque([1, 2]),
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_value_comes_back_equal_and_of_its_type(ray_session, value):
    back = ray_session.get(ray_session.put(value))
    assert back == value
    assert type(back) is type(value)


@pytest.mark.differs("Ray gives a bytearray back as bytes")
def test_a_bytearray_comes_back_as_what_it_was(ray_session, engine):
    back = ray_session.get(ray_session.put(bytearray(b"ba")))
    assert back == b"ba"
    assert type(back) is (bytes if engine == "ray" else bytearray)


def test_a_list_that_contains_itself_survives(ray_session):
    value: list[object] = []
    value.append(value)
    back = ray_session.get(ray_session.put(value))
    assert back[0] is back


def test_large_bytes_survive(ray_session):
    value = bytes(range(256)) * 40_000
    assert ray_session.get(ray_session.put(value)) == value


def test_each_get_of_a_small_mutable_value_is_a_copy(ray_session):
    ref = ray_session.put([1])
    first = ray_session.get(ref)
    first.append(2)
    assert ray_session.get(ref) == [1]


def test_the_value_put_is_a_snapshot(ray_session):
    value = [1]
    ref = ray_session.put(value)
    value.append(2)
    assert ray_session.get(ref) == [1]


def test_put_of_a_ref_is_an_error(ray_session):
    with pytest.raises(TypeError, match="(?i)calling 'put' on an ray.ObjectRef is not allowed|ObjectRef"):
        ray_session.put(ray_session.put(1))


def test_put_takes_one_value(ray_session):
    with pytest.raises(TypeError):
        ray_session.put()
    with pytest.raises(TypeError):
        ray_session.put(1, 2)


def test_instances_of_local_classes_survive(ray_session):
    class Local:
        def __init__(self, x):
            self.x = x

        def double(self):
            return self.x * 2

    assert ray_session.get(ray_session.put(Local(3))).double() == 6


def test_refs_are_values(ray_session):
    ray = ray_session
    first, second = ray.put(1), ray.put(1)
    assert first == first
    assert first != second
    assert first != 1
    assert len({first, second, first}) == 2
    assert copy.copy(first) == first
    assert copy.deepcopy(first) == first


def test_a_ref_has_a_hex_form(ray_session):
    ref = ray_session.put(1)
    assert ref.hex() == ref.binary().hex()
    assert str(ref) == f"ObjectRef({ref.hex()})"
    assert repr(ref) == str(ref)
    assert not ref.is_nil()
    assert ray_session.ObjectRef.nil().is_nil()


def test_a_ref_of_a_task_names_the_task(ray_session):
    ray = ray_session

    @ray.remote
    def f():
        return ray.get_runtime_context().get_task_id()

    ref = f.remote()
    assert ref.task_id().hex() == ray.get(ref)
    assert ref.job_id().hex() == ray.get_runtime_context().get_job_id()


def test_a_ref_is_generic_in_annotations(ray):
    assert ray.ObjectRef[int] is not None


def test_a_ref_cannot_be_called_or_iterated(ray_session):
    ref = ray_session.put([1])
    with pytest.raises(TypeError):
        list(ref)
    with pytest.raises(TypeError):
        ref()


def test_a_ref_can_be_awaited(ray_session):
    ray = ray_session

    @ray.remote
    def f(x):
        return x

    async def main():
        ref = f.remote(1)
        return [await ref, await ref, *await asyncio.gather(f.remote(2), f.remote(3))]

    assert asyncio.run(main()) == [1, 1, 2, 3]


def test_awaiting_a_ref_raises_its_error(ray_session):
    ray = ray_session

    @ray.remote
    def f():
        raise KeyError("k")

    async def main():
        with pytest.raises(KeyError):
            await f.remote()

    asyncio.run(main())


def test_many_refs_can_be_awaited_at_once(ray_session):
    ray = ray_session

    @ray.remote
    def f(x):
        return x

    async def main():
        ready, pending = await asyncio.wait([asyncio.ensure_future(wrap(f.remote(i))) for i in range(20)])
        return sorted(task.result() for task in ready), pending

    async def wrap(ref):
        return await ref

    assert asyncio.run(main()) == (list(range(20)), set())


def test_as_future_gives_an_asyncio_future(ray_session):
    ray = ray_session

    async def main():
        future = ray.put(5).as_future()
        assert isinstance(future, asyncio.Future)
        return await future

    assert asyncio.run(main()) == 5


def test_cancelling_the_asyncio_future_leaves_the_task_alone(ray_session, signal):
    ray = ray_session
    gate = signal()

    @ray.remote
    def f(gate):
        import time

        while not ray.get(gate.is_set.remote()):
            time.sleep(0.005)
        return "finished"

    ref = f.remote(gate)

    async def main():
        task = asyncio.ensure_future(wrap(ref))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    async def wrap(ref):
        return await ref

    asyncio.run(main())
    ray.get(gate.send.remote())
    assert ray.get(ref) == "finished"


def test_future_gives_a_concurrent_future(ray_session):
    ray = ray_session

    @ray.remote
    def f(x):
        if x < 0:
            raise ValueError("negative")
        return x

    good, bad = f.remote(1).future(), f.remote(-1).future()
    assert isinstance(good, concurrent.futures.Future)
    assert good.result() == 1
    with pytest.raises(ValueError, match="negative"):
        bad.result()


def test_futures_may_be_waited_for_in_every_way(ray_session, signal):
    ray = ray_session
    gate = signal()

    @ray.remote
    def f(x, *, waits=False):
        while waits and not ray.get(gate.is_set.remote()):
            pass
        return x

    late = f.remote(0, waits=True).future()
    with pytest.raises(concurrent.futures.TimeoutError):
        late.result(timeout=0.05)
    with pytest.raises(concurrent.futures.TimeoutError):
        late.exception(timeout=0.05)
    assert not late.done()
    quick = [f.remote(number).future() for number in range(4)]
    assert concurrent.futures.wait([*quick, late], return_when=concurrent.futures.FIRST_COMPLETED).done
    assert sorted(future.result() for future in concurrent.futures.as_completed(quick)) == [0, 1, 2, 3]
    # Several threads wait for one future, and one of them opens the gate.
    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        results = [threads.submit(late.result) for _ in range(3)]
        ray.get(gate.send.remote())
        assert [result.result(30) for result in results] == [0, 0, 0]
    # Looked at, and never waited for.
    polled = f.remote(5).future()
    while not polled.done():
        pass
    assert polled.result(0) == 5


def test_a_future_that_is_cancelled_leaves_the_task_alone(ray_session, signal):
    ray = ray_session
    gate = signal()

    @ray.remote
    def f(gate):
        while not ray.get(gate.is_set.remote()):
            pass
        return 1

    ref = f.remote(gate)
    future = ref.future()
    assert future.cancel()
    assert future.cancelled()
    ray.get(gate.send.remote())
    assert ray.get(ref) == 1


def test_a_completed_ref_calls_back(ray_session):
    ray = ray_session
    seen = []
    done = threading.Event()

    def callback(value):
        seen.append(value)
        done.set()

    @ray.remote
    def f():
        return "value"

    ref = f.remote()
    ref._on_completed(callback)
    ray.get(ref)
    assert done.wait(60)
    assert seen == ["value"]


def test_a_callback_that_raises_harms_nobody(ray_session):
    ray = ray_session
    done = threading.Event()

    def callback(_value):
        done.set()
        raise ValueError("a mistake in the callback")

    ref = ray.put(1)
    ref._on_completed(callback)
    assert done.wait(60)
    assert ray.get(ref) == 1
    done.clear()

    @ray.remote
    def slow():
        time.sleep(0.2)

    late = slow.remote()
    late._on_completed(callback)
    assert ray.get(late) is None
    assert done.wait(60)
    assert ray.get(ray.put(2)) == 2


def test_locations_of_an_object(ray_session):
    ray = ray_session
    ref = ray.put(b"x" * 300_000)
    ray.wait([ref])
    location = ray.experimental.get_object_locations([ref])[ref]
    assert location["object_size"] >= 300_000
    assert location["node_ids"] == [ray.get_runtime_context().get_node_id()]


def test_local_locations_of_an_object(ray_session, signal):
    ray = ray_session
    gate = signal()

    @ray.remote
    def f(gate):
        import time

        while not ray.get(gate.is_set.remote()):
            time.sleep(0.005)

    ref = f.remote(gate)
    assert ray.experimental.get_local_object_locations([ref])[ref]["object_size"] is None
    ray.get(gate.send.remote())
    ray.get(ref)


def test_locations_before_init_are_a_runtime_error(fresh):
    with pytest.raises(RuntimeError):
        fresh.experimental.get_object_locations([])


@pytest.mark.only("mray", "local")  # Ray's process dies
@pytest.mark.parametrize("name", ["get_object_locations", "get_local_object_locations"])
def test_locations_of_what_is_no_ref_are_a_type_error(ray_session, name):
    with pytest.raises(TypeError, match="Locations are those of ObjectRefs, not of str: 'x'"):
        getattr(ray_session.experimental, name)([ray_session.put(1), "x"])


def test_as_completed_yields_refs_or_values_as_they_come(ray_session):
    ray = ray_session

    @ray.remote
    def f(x):
        return x

    refs = [f.remote(i) for i in range(10)]
    assert sorted(ray.util.as_completed(refs, chunk_size=3)) == list(range(10))
    assert set(ray.util.as_completed(refs, yield_obj_refs=True)) == set(refs)


def test_map_unordered_maps(ray_session):
    ray = ray_session

    @ray.remote
    def f(x):
        return x * 2

    assert sorted(ray.util.map_unordered(f, range(10), backpressure_size=20, chunk_size=5)) == [2 * i for i in range(10)]


@pytest.mark.only("mray", "local")  # on Ray the thread that would bring the value is the one that waits for it
def test_a_callback_of_a_future_may_get_what_is_not_there_yet(ray_session):
    ray = ray_session

    @ray.remote
    def f(seconds):
        time.sleep(seconds)
        return seconds

    got = []
    called = threading.Event()

    def callback(future):
        got.append(ray.get(f.remote(future.result() + 0.1)))
        called.set()

    f.remote(0.1).future().add_done_callback(callback)
    assert called.wait(30)
    assert got == [0.2]
    assert ray.get(f.remote(0.0)) == 0.0
