"""`ActorPool`: calls for whichever actor is free. Runs on mray and on real Ray."""

from __future__ import annotations

import pytest


@pytest.fixture
def workers(ray_session):
    @ray_session.remote(num_cpus=0)
    class Worker:
        def __init__(self):
            self.calls = 0

        def double(self, value):
            self.calls += 1
            return 2 * value

        def fail(self, value):
            raise ValueError(value)

        def pair(self, value):
            return value, -value

        def count(self):
            return self.calls

        def hold(self, signal):
            while not ray_session.get(signal.is_set.remote()):
                pass
            return "held"

        def end(self, value):
            import os

            os._exit(3)

    return lambda count: [Worker.remote() for _ in range(count)]


def double(actor, value):
    return actor.double.remote(value)


@pytest.fixture
def pool_of(ray_session):
    return ray_session.util.ActorPool


def test_it_is_in_both_modules(ray_session, pool_of):
    import importlib

    assert importlib.import_module(f"{ray_session.__name__}.util.actor_pool").ActorPool is pool_of


def test_map_keeps_the_order_and_uses_every_actor(ray_session, workers, pool_of):
    actors = workers(3)
    assert list(pool_of(actors).map(double, range(50))) == [2 * value for value in range(50)]
    counts = ray_session.get([actor.count.remote() for actor in actors])
    assert sum(counts) == 50
    assert min(counts) > 0


def test_map_unordered_yields_every_result(workers, pool_of):
    assert sorted(pool_of(workers(2)).map_unordered(double, range(30))) == [2 * value for value in range(30)]


def test_map_unordered_does_not_wait_for_the_slow(ray_session, workers, pool_of, signal):
    gate = signal()
    pool = pool_of(workers(2))
    pool.submit(lambda actor, value: actor.hold.remote(value), gate)
    pool.submit(double, 4)
    pool.submit(double, 5)
    assert [pool.get_next_unordered(), pool.get_next_unordered()] == [8, 10]
    ray_session.get(gate.send.remote())
    assert pool.get_next_unordered() == "held"
    assert not pool.has_next()


def test_a_call_waits_for_a_free_actor(workers, pool_of):
    (actor,) = workers(1)
    pool = pool_of([actor])
    assert pool.has_free()
    pool.submit(double, 1)
    pool.submit(double, 2)
    assert not pool.has_free()
    assert pool.pop_idle() is None
    assert pool.get_next() == 2
    assert pool.get_next() == 4
    assert pool.has_free()
    assert pool.pop_idle() == actor
    assert pool.pop_idle() is None


def test_there_is_nothing_to_get_from_an_idle_pool(workers, pool_of):
    pool = pool_of(workers(1))
    with pytest.raises(StopIteration, match="No more results"):
        pool.get_next()
    with pytest.raises(StopIteration, match="No more results"):
        pool.get_next_unordered()


def test_a_timeout_leaves_the_call_where_it_is(ray_session, workers, pool_of, signal):
    gate = signal()
    pool = pool_of(workers(1))
    pool.submit(lambda actor, value: actor.hold.remote(value), gate)
    with pytest.raises(TimeoutError):
        pool.get_next(timeout=0.01)
    with pytest.raises(TimeoutError):
        pool.get_next_unordered(timeout=0.01)
    ray_session.get(gate.send.remote())
    assert pool.get_next(timeout=60) == "held"


def test_a_call_may_be_given_up_at_the_timeout(ray_session, workers, pool_of, signal):
    gate = signal()
    pool = pool_of(workers(1))
    pool.submit(lambda actor, value: actor.hold.remote(value), gate)
    pool.submit(double, 3)
    with pytest.raises(TimeoutError, match="has been ignored"):
        pool.get_next(timeout=0.01, ignore_if_timedout=True)
    ray_session.get(gate.send.remote())
    assert pool.get_next() == 6
    assert not pool.has_next()


def test_order_is_lost_with_the_first_unordered_result(workers, pool_of):
    pool = pool_of(workers(1))
    pool.submit(double, 1)
    assert pool.get_next_unordered() == 2
    pool.submit(double, 2)
    assert pool.get_next() == 4


def test_an_error_of_a_call_is_raised_and_the_pool_goes_on(workers, pool_of):
    pool = pool_of(workers(1))
    pool.submit(lambda actor, value: actor.fail.remote(value), "no")
    pool.submit(double, 2)
    with pytest.raises(ValueError, match="no"):
        pool.get_next()
    assert pool.get_next() == 4


def test_a_dead_actor_leaves_the_pool(ray_session, workers, pool_of):
    pool = pool_of(workers(2))
    pool.submit(lambda actor, value: actor.end.remote(value), 0)
    with pytest.raises(ray_session.exceptions.ActorDiedError):
        pool.get_next()
    assert list(pool.map(double, range(5))) == [0, 2, 4, 6, 8]
    assert pool.pop_idle() is not None
    assert pool.pop_idle() is None


def test_a_call_may_return_several_refs(workers, pool_of):
    pool = pool_of(workers(1))
    pool.submit(lambda actor, value: actor.pair.options(num_returns=2).remote(value), 3)
    assert pool.get_next() == [3, -3]


def test_an_actor_can_be_added_once(workers, pool_of):
    first, second = workers(2)
    pool = pool_of([first])
    pool.submit(double, 1)
    pool.submit(double, 2)
    pool.push(second)
    with pytest.raises(ValueError, match="already belongs"):
        pool.push(first)
    with pytest.raises(ValueError, match="already belongs"):
        pool.push(second)
    assert [pool.get_next(), pool.get_next()] == [2, 4]


def test_a_new_map_drops_what_was_not_taken(workers, pool_of):
    pool = pool_of(workers(2))
    iterator = pool.map(double, range(4))
    assert next(iterator) == 0
    assert list(pool.map(double, [10, 20])) == [20, 40]
