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
    with pytest.raises(TimeoutError, match="Timed out waiting for result"):
        pool.get_next(timeout=0.01)
    with pytest.raises(TimeoutError, match="Timed out waiting for result"):
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
    with pytest.raises(ValueError, match="Actor already belongs to current ActorPool"):
        pool.push(first)
    with pytest.raises(ValueError, match="Actor already belongs to current ActorPool"):
        pool.push(second)
    assert [pool.get_next(), pool.get_next()] == [2, 4]


def test_a_new_map_drops_what_was_not_taken(workers, pool_of):
    pool = pool_of(workers(2))
    iterator = pool.map(double, range(4))
    assert next(iterator) == 0
    assert list(pool.map(double, [10, 20])) == [20, 40]


def test_its_state_is_readable_under_rays_names(ray_session, workers, pool_of):
    actors = workers(2)
    pool = pool_of(actors)
    assert pool._idle_actors == actors
    for value in range(3):
        pool.submit(double, value)
    assert pool._idle_actors == []
    assert [(number, actor in actors) for number, actor in pool._future_to_actor.values()] == [(0, True), (1, True)]
    assert [ray_session.get(pool._index_to_future[number]) for number in (0, 1)] == [0, 2]
    assert list(pool._index_to_future.values()) == list(pool._future_to_actor)
    assert pool._pending_submits == [(double, 2)]
    assert (pool._next_task_index, pool._next_return_index) == (2, 0)
    assert pool.get_next() == 0
    assert (pool._next_task_index, pool._next_return_index, pool._pending_submits) == (3, 1, [])
    actor = pool_of(actors).pop_idle()
    pool._return_actor(actor, is_alive=False)
    assert pool._idle_actors == []
    several = pool_of(actors[:1])
    several.submit(lambda actor, value: [actor.double.remote(value), actor.double.remote(-value)], 3)
    assert [type(key) for key in several._future_to_actor] == [tuple]
    assert [type(made) for made in several._index_to_future.values()] == [list]


def test_a_subclass_may_override_what_the_pool_calls(workers, pool_of):
    class Noting(pool_of):
        def __init__(self, actors):
            super().__init__(actors)
            self.noted = []

        def submit(self, fn, value, weight=1):
            self.noted.append(("submit", value, weight))
            if self._idle_actors:
                super().submit(fn, value)
            else:
                self._pending_submits.append((fn, value, weight + 1))

        def has_next(self):
            self.noted.append("has_next")
            return super().has_next()

        def get_next(self, timeout=None, ignore_if_timedout=False):
            self.noted.append("get_next")
            return super().get_next(timeout, ignore_if_timedout)

        def _return_actor(self, actor, is_alive=True):
            self.noted.append("_return_actor")
            super()._return_actor(actor, is_alive=is_alive)

        def _get_result(self, future, actor):
            self.noted.append("_get_result")
            return super()._get_result(future, actor)

    pool = Noting(workers(1))
    assert list(pool.map(double, [1, 2])) == [2, 4]
    called = ["has_next", ("submit", 1, 1), ("submit", 2, 1)]
    taken = ["has_next", "get_next", "has_next", "_get_result", "_return_actor"]
    assert pool.noted == [*called, *taken, ("submit", 2, 2), *taken, "has_next"]


def test_jobs_of_clients_share_a_pool_as_flower_has_it(ray_session, pool_of, eventually):
    import threading

    @ray_session.remote(num_cpus=0, max_restarts=0)
    class Client:
        def run(self, client, work):
            return client, work(client)

        def terminate(self):
            ray_session.actor.exit_actor()

    class ClientPool(pool_of):
        """Jobs have names; each is fetched by the thread that waits for it, and whoever waits serves all. Dead actors are struck off."""

        def __init__(self, make, size, actors=None):
            self.make, self.size = make, size
            super().__init__([make() for _ in range(size)] if actors is None else actors)
            self.jobs = {}
            self.dead = set()
            self.lock = threading.RLock()

        def __reduce__(self):
            return ClientPool, (self.make, self.size, self._idle_actors)

        def submit(self, fn, value):
            work, client = value
            actor = self._idle_actors.pop()
            if actor._actor_id.hex() in self.dead:
                self.dead.remove(actor._actor_id.hex())
                self.size -= 1
                self.submit_job(fn, value)
                return
            future = fn(actor, client, work)
            self._future_to_actor[future] = (self._next_task_index, actor, client)
            self._next_task_index += 1
            self.jobs[client]["future"] = future

        def submit_job(self, fn, job):
            with self.lock:
                self.jobs[job[1]] = {"future": None, "ready": False}
                if self._idle_actors:
                    self.submit(fn, job)
                else:
                    self._pending_submits.append((fn, job))

        def process(self):
            ready, _pending = ray_session.wait(list(self._future_to_actor), num_returns=1, timeout=60)
            with self.lock:
                _number, actor, client = self._future_to_actor.pop(ready[0], (None, None, None))
                if actor is not None:
                    self._return_actor(actor)
                    self.jobs[client]["ready"] = True

        def result_of(self, client):
            while self.has_next() and not self.jobs[client]["ready"]:
                self.process()
            try:
                found, value = ray_session.get(self.jobs.pop(client)["future"])
            except ray_session.exceptions.RayActorError as error:
                self.dead.add(error.actor_id)
                raise
            assert found == client
            return value

    def run(actor, client, work):
        return actor.run.remote(client, work)

    pool = ClientPool(Client.remote, 2)
    for client in range(8):
        pool.submit_job(run, (lambda client: client * 10, client))
    assert [pool.result_of(client) for client in reversed(range(8))] == [client * 10 for client in reversed(range(8))]
    assert sorted(pool._idle_actors, key=str) == sorted(set(pool._idle_actors), key=str) and len(pool._idle_actors) == 2
    pool._idle_actors.extend([Client.remote()])
    pool.size += 1

    import os

    pool.submit_job(run, (lambda _client: os._exit(1), "dies"))
    with pytest.raises(ray_session.exceptions.RayActorError):
        pool.result_of("dies")
    assert len(pool.dead) == 1
    for client in range(6):
        pool.submit_job(run, (lambda client: client + 1, client))
    assert [pool.result_of(client) for client in range(6)] == [1, 2, 3, 4, 5, 6]
    assert (pool.size, len(pool._idle_actors), pool.dead) == (2, 2, set())

    @ray_session.remote(num_cpus=0)
    def elsewhere(pool):
        pool.submit_job(run, (lambda client: client * 2, 21))
        return pool.result_of(21), len(pool._idle_actors)

    assert ray_session.get(elsewhere.remote(pool), timeout=60) == (42, 2)
    while pool._idle_actors:
        pool._idle_actors.pop().terminate.remote()
