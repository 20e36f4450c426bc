"""Lifetime: an object lives while a ref lives anywhere, and then its memory goes back."""

from __future__ import annotations

import gc
import pickle
import time

import pytest

LARGE = 20 * 1024 * 1024
STORE = 100 * 1024 * 1024


def test_gigabytes_pass_through_a_small_store(fresh, init):
    import numpy

    ray = fresh
    init(num_cpus=1, object_store_memory=STORE)
    for i in range(60):
        ref = ray.put(numpy.full(LARGE, i % 256, dtype=numpy.uint8))
        assert ray.get(ref)[-1] == i % 256


def test_results_of_tasks_are_freed_too(fresh, init):
    import numpy

    ray = fresh
    init(num_cpus=1, object_store_memory=STORE)

    @ray.remote
    def f(array):
        return array + 1

    array = numpy.zeros(LARGE, dtype=numpy.uint8)
    for _ in range(15):
        assert ray.get(f.remote(array))[0] == 1
    ref = f.remote(array)
    for _ in range(15):
        ref = f.remote(ref)
    assert ray.get(ref)[0] == 16


def test_a_value_outlives_its_ref_while_an_array_of_it_is_held(fresh, init):
    import numpy

    ray = fresh
    init(num_cpus=1, object_store_memory=STORE)
    held = ray.get(ray.put(numpy.full(LARGE, 7, dtype=numpy.uint8)))
    gc.collect()
    for i in range(10):
        ray.get(ray.put(numpy.full(LARGE, i, dtype=numpy.uint8)))
    assert held.min() == held.max() == 7


def test_the_argument_of_a_queued_task_is_kept(ray_session, signal):
    import numpy

    ray = ray_session
    gate = signal()

    @ray.remote
    def waits(gate):
        while not ray.get(gate.is_set.remote()):
            time.sleep(0.003)

    @ray.remote
    def total(array, _):
        return int(array.sum())

    ref = ray.put(numpy.ones(1_000_000, dtype=numpy.uint8))
    result = total.remote(ref, waits.remote(gate))
    del ref
    gc.collect()
    ray.get(gate.send.remote())
    assert ray.get(result) == 1_000_000


def test_a_ref_nested_in_an_object_keeps_what_it_points_to(ray_session):
    ray = ray_session
    outer = ray.put([ray.put(b"x" * 200_000), {"k": ray.put("inner")}])
    gc.collect()
    big, small = ray.get(outer)
    assert len(ray.get(big)) == 200_000
    assert ray.get(small["k"]) == "inner"


def test_deeply_nested_refs(ray_session):
    ray = ray_session
    ref = ray.put("bottom")
    for _ in range(10):
        ref = ray.put([ref])
    gc.collect()
    value = ref
    for _ in range(10):
        (value,) = ray.get(value)
    assert ray.get(value) == "bottom"


def test_a_ref_inside_an_object_passed_to_a_task_is_borrowed(ray_session):
    ray = ray_session

    @ray.remote
    def f(refs):
        return ray.get(refs[0]) + 1

    assert ray.get(f.remote([ray.put(1)])) == 2


def test_an_actor_may_keep_a_ref_that_everyone_else_forgot(ray_session):
    ray = ray_session

    @ray.remote
    class Keeper:
        def keep(self, refs):
            self.refs = refs

        def read(self):
            return ray.get(self.refs[0])

    keeper = Keeper.remote()
    ray.get(keeper.keep.remote([ray.put(b"x" * 500_000)]))
    gc.collect()
    assert len(ray.get(keeper.read.remote())) == 500_000


def test_a_ref_handed_from_actor_to_actor_stays_good(ray_session):
    ray = ray_session

    @ray.remote
    class Keeper:
        def keep(self, refs):
            self.refs = refs

        def give(self):
            refs, self.refs = self.refs, None
            return refs

        def read(self):
            return ray.get(self.refs[0])

    first, second = Keeper.remote(), Keeper.remote()
    ray.get(first.keep.remote([ray.put("handed")]))
    ray.get(second.keep.remote(first.give.remote()))
    gc.collect()
    assert ray.get(second.read.remote()) == "handed"


def test_a_task_may_return_a_ref_to_its_own_put(ray_session):
    ray = ray_session

    @ray.remote
    def f():
        return [ray.put(b"y" * 300_000), ray.put("small")]

    big, small = ray.get(f.remote())
    assert len(ray.get(big)) == 300_000
    assert ray.get(small) == "small"


def test_a_task_may_return_the_ref_it_was_given(ray_session):
    ray = ray_session

    @ray.remote
    def f(refs):
        return refs

    ref = ray.put("mine")
    (back,) = ray.get(f.remote([ref]))
    assert back == ref
    del ref
    gc.collect()
    assert ray.get(back) == "mine"


def test_refs_that_are_dropped_before_the_task_is_done_do_no_harm(ray_session):
    ray = ray_session

    @ray.remote
    def f(x):
        return b"x" * 200_000

    for i in range(20):
        f.remote(i)
    gc.collect()
    assert ray.get(f.remote(0)) == b"x" * 200_000


def test_plain_pickle_of_a_ref_pins_the_object(ray_session):
    ray = ray_session
    ref = ray.put("pinned")
    pickled = ray.cloudpickle.dumps(ref) if hasattr(ray, "cloudpickle") else pickle.dumps(ref)
    del ref
    gc.collect()
    assert ray.get(pickle.loads(pickled)) == "pinned"


def test_pickling_a_ref_out_of_band_may_be_forbidden(run_program):
    done = run_program(
        """
        import pickle
        import ENGINE as ray

        ray.init(num_cpus=1, logging_level="ERROR", include_dashboard=False)
        ref = ray.put(1)
        try:
            (ray.cloudpickle if hasattr(ray, "cloudpickle") else pickle).dumps(ref)
        except Exception as error:
            print(type(error).__name__)

        @ray.remote
        def f(refs):
            return ray.get(refs[0])

        @ray.remote
        def captures():
            return ray.get(ref)

        @ray.remote
        class Captures:
            def m(self):
                return ray.get(ref)

        print(ray.get(f.remote([ref])))
        for captured in captures, Captures:
            try:
                captured.remote()
            except ray.exceptions.OufOfBandObjectRefSerializationException as error:
                print(" ".join(str(error).split(":")[0].split()))
        """,
        env={"RAY_allow_out_of_band_object_ref_serialization": "0"},
    )
    lines = done.stdout.splitlines()
    assert lines[:2] == ["OufOfBandObjectRefSerializationException", "1"]
    assert [line.rpartition(" ")[0] for line in lines[2:]] == ["Could not serialize the function", "Could not serialize the actor class"]


@pytest.mark.parametrize("how", ["function", "argument", "value"])
def test_what_a_users_pickling_raises_is_raised(ray_session, how):
    ray = ray_session

    class Refuses:
        def __reduce__(self):
            raise ValueError("not me")

    refuses = Refuses()

    @ray.remote
    def captures(_=None):
        return refuses

    @ray.remote
    def takes(_):
        return 1

    with pytest.raises(ValueError, match="not me"):
        {"function": captures.remote, "argument": lambda: takes.remote(refuses), "value": lambda: ray.put(refuses)}[how]()


def test_an_object_larger_than_the_store_goes_to_disk(fresh, init):
    import numpy

    ray = fresh
    init(num_cpus=1, object_store_memory=STORE)
    ok = ray.put(numpy.zeros(LARGE // 2, dtype=numpy.uint8))
    ref = ray.put(numpy.zeros(3 * STORE, dtype=numpy.uint8))
    assert ray.get(ref).nbytes == 3 * STORE
    assert ray.get(ok).nbytes == LARGE // 2


def test_a_pending_ref_whose_owner_died_is_an_owner_died_error(ray_session):
    ray = ray_session

    @ray.remote
    def slow():
        time.sleep(10_000)

    @ray.remote
    class Owner:
        def make(self):
            return [slow.remote()]

        def stop(self):
            import os

            os._exit(1)

    owner = Owner.remote()
    (ref,) = ray.get(owner.make.remote())
    with pytest.raises(ray.exceptions.RayActorError):
        ray.get(owner.stop.remote())
    with pytest.raises(ray.exceptions.OwnerDiedError):
        ray.get(ref)


def test_what_an_ended_actor_returned_stays_readable(ray_session):
    ray = ray_session

    @ray.remote
    class Producer:
        def small(self):
            return "small"

        def large(self):
            return b"x" * 1_000_000

    producer = Producer.remote()
    small, large = producer.small.remote(), producer.large.remote()
    ray.wait([small, large], num_returns=2)
    ray.kill(producer)
    assert ray.get(small) == "small"
    assert len(ray.get(large)) == 1_000_000


def test_two_actors_that_meet_at_the_same_moment_keep_each_others_objects(ray_session):
    """Each has connected to the other: a borrow must not go another way than the reply that lets go of the object."""
    ray = ray_session

    @ray.remote(num_cpus=0)
    class Keeper:
        def __init__(self):
            self.kept = []

        def echo(self):
            return 1

        def keep(self, refs):
            self.kept.append(refs[0])

        def give(self, other):
            for i in range(5):
                other.keep.remote([ray.put([i] * 30_000)])
            return ray.get(ray.put([-1] * 30_000))[0]

        def count(self):
            return len(self.kept)

        def check(self):
            return [ray.get(ref)[0] for ref in self.kept]

    for _ in range(5):
        pair = Keeper.remote(), Keeper.remote()
        ray.get([keeper.echo.remote() for keeper in pair])
        ray.get([pair[0].give.remote(pair[1]), pair[1].give.remote(pair[0])])
        while ray.get([keeper.count.remote() for keeper in pair]) != [5, 5]:
            time.sleep(0.01)
        time.sleep(0.1)  # until whoever gave them has let go
        assert ray.get([keeper.check.remote() for keeper in pair]) == [list(range(5))] * 2
