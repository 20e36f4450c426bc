"""`util.queue.Queue`: one queue for every process. Runs on mray and on real Ray."""

from __future__ import annotations

import asyncio
import importlib
import queue

import pytest


@pytest.fixture
def module(ray_session):
    return importlib.import_module(f"{ray_session.__name__}.util.queue")


@pytest.fixture
def make(module):
    made = []

    def make(*args, **options):
        made.append(module.Queue(*args, actor_options={"num_cpus": 0}, **options))
        return made[-1]

    yield make
    for each in made:
        each.shutdown(force=True)


def test_items_come_out_in_the_order_they_went_in(make):
    items = make()
    assert items.empty()
    for value in range(10):
        items.put(value)
    assert (len(items), items.size(), items.qsize(), items.empty(), items.full()) == (10, 10, 10, False, False)
    assert [items.get() for _ in range(10)] == list(range(10))


def test_what_is_not_there_is_told_at_once_or_in_time(make, module):
    items = make()
    for take in (items.get_nowait, lambda: items.get(block=False), lambda: items.get(timeout=0.01)):
        with pytest.raises(module.Empty) as raised:
            take()
        assert isinstance(raised.value, queue.Empty)


def test_where_there_is_no_room_is_told_at_once_or_in_time(make, module):
    items = make(maxsize=1)
    items.put(0)
    assert items.full()
    for put in (items.put_nowait, lambda value: items.put(value, block=False), lambda value: items.put(value, timeout=0.01)):
        with pytest.raises(module.Full) as raised:
            put(1)
        assert isinstance(raised.value, queue.Full)
    assert items.get() == 0
    assert items.empty()


def test_negative_time_limits_are_refused(make):
    items = make()
    with pytest.raises(ValueError, match="non-negative"):
        items.put(1, timeout=-1)
    with pytest.raises(ValueError, match="non-negative"):
        items.get(timeout=-1)
    items.put(1, block=False, timeout=-1)
    assert items.get(block=False, timeout=-1) == 1


def test_batches_go_as_a_whole_or_not_at_all(make, module):
    items = make(maxsize=3)
    with pytest.raises(module.Full, match="Cannot add 4 items"):
        items.put_nowait_batch([1, 2, 3, 4])
    items.put_nowait_batch([1, 2, 3])
    with pytest.raises(module.Empty, match="Cannot get 4 items"):
        items.get_nowait_batch(4)
    assert items.get_nowait_batch(2) == [1, 2]
    assert items.get_nowait_batch(0) == []
    assert items.size() == 1
    with pytest.raises(TypeError):
        items.put_nowait_batch(1)
    with pytest.raises(TypeError):
        items.get_nowait_batch("1")
    with pytest.raises(ValueError, match="nonnegative"):
        items.get_nowait_batch(-1)


def test_who_waits_for_an_item_gets_it_when_it_comes(ray_session, make):
    items = make()

    @ray_session.remote(num_cpus=0)
    def take(items):
        return items.get()

    waiting = [take.remote(items) for _ in range(3)]
    assert not ray_session.wait(waiting, timeout=0.2)[0]
    for value in range(3):
        items.put(value)
    assert sorted(ray_session.get(waiting)) == [0, 1, 2]


def test_who_waits_for_room_goes_on_when_there_is_some(ray_session, make):
    items = make(maxsize=1)
    items.put(0)

    @ray_session.remote(num_cpus=0)
    def put(items, value):
        items.put(value)
        return value

    waiting = put.remote(items, 1)
    assert not ray_session.wait([waiting], timeout=0.2)[0]
    assert items.get() == 0
    assert ray_session.get(waiting) == 1
    assert items.get() == 1


def test_many_can_wait_in_one_event_loop(make, module):
    items = make()

    async def main():
        taken = [asyncio.ensure_future(items.get_async()) for _ in range(50)]
        await asyncio.gather(*(items.put_async(value) for value in range(50)))
        assert sorted(await asyncio.gather(*taken)) == list(range(50))
        with pytest.raises(module.Empty):
            await items.get_async(block=False)
        with pytest.raises(module.Empty):
            await items.get_async(timeout=0.01)
        with pytest.raises(ValueError, match="non-negative"):
            await items.put_async(1, timeout=-1)

    asyncio.run(main())


def test_options_are_those_of_the_actor(ray_session, module):
    items = module.Queue(actor_options={"num_cpus": 0, "name": "the queue"})
    items.put(1)
    assert ray_session.get(ray_session.get_actor("the queue").qsize.remote()) == 1
    items.shutdown(force=True)


@pytest.mark.parametrize("force", [False, True])
def test_shutdown_ends_the_actor(ray_session, module, force):
    items = module.Queue(actor_options={"num_cpus": 0})
    actor = items.actor
    items.put(1)
    items.shutdown(force=force)
    assert items.actor is None
    with pytest.raises(ray_session.exceptions.RayActorError):
        for _ in range(1000):
            ray_session.get(actor.qsize.remote())


def test_who_waits_is_told_when_the_actor_dies(ray_session, make):
    items = make()

    @ray_session.remote(num_cpus=0)
    def take(items):
        items.get()

    waiting = take.remote(items)
    assert not ray_session.wait([waiting], timeout=0.2)[0]
    ray_session.kill(items.actor)
    with pytest.raises(ray_session.exceptions.RayActorError):
        ray_session.get(waiting)


@pytest.mark.only("mray", "local")  # Ray's actor is full after a thousand, and so hangs
def test_thousands_that_wait_for_items_leave_room_for_who_brings_them(ray_session, make):
    items = make()
    waiting = [items.actor.get.remote() for _ in range(1500)]
    items.put_nowait_batch(range(1500))
    assert sorted(ray_session.get(waiting)) == list(range(1500))
