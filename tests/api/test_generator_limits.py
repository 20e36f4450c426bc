"""How far generators run ahead, and how they end: back-pressure, dropping, cancelling, death, retries, memory."""

from __future__ import annotations

import os
import signal
import time

import numpy as np
import pytest

MEGABYTE = 1 << 20


class Log:
    """Remembers what generators tell it."""

    def __init__(self):
        self.said = []

    def say(self, word):
        self.said.append(word)

    def all(self):
        return self.said


def talk(log, n):
    try:
        for i in range(n):
            log.say.remote(i)
            yield i
    finally:
        log.say.remote("end")


@pytest.fixture
def log(ray_session):
    return ray_session.remote(num_cpus=0)(Log).remote()


def said(ray, log):
    return ray.get(log.all.remote())


class Talker:
    def talk(self, log, n):
        yield from talk(log, n)

    def pid(self):
        return os.getpid()


# --------------------------------------------------------------------------------------- back-pressure
@pytest.mark.parametrize("window", [1, 3])
def test_the_producer_waits_while_so_many_items_are_unread(ray_session, log, eventually, window):
    ray = ray_session
    generator = ray.remote(_generator_backpressure_num_objects=window)(talk).remote(log, 6)
    for taken in range(6):
        eventually(lambda taken=taken: len([w for w in said(ray, log) if w != "end"]) == min(6, taken + window))
        assert ray.get(next(generator)) == taken
    eventually(lambda: said(ray, log)[-1:] == ["end"])
    with pytest.raises(StopIteration):
        next(generator)


def test_the_producer_does_not_run_on_while_nothing_is_read(ray_session, log, eventually):
    ray = ray_session
    generator = ray.remote(_generator_backpressure_num_objects=2)(talk).remote(log, 100)
    eventually(lambda: said(ray, log) == [0, 1])
    other = ray.remote(talk).remote(log, 0)
    ray.get(other.completed())
    eventually(lambda: "end" in said(ray, log))
    assert said(ray, log) == [0, 1, "end"]
    assert [ray.get(ref) for ref in generator] == list(range(100))


def test_back_pressure_of_a_method(ray_session, log, eventually):
    ray = ray_session
    actor = ray.remote(Talker).remote()
    generator = actor.talk.options(_generator_backpressure_num_objects=1).remote(log, 3)
    eventually(lambda: said(ray, log) == [0])
    assert [ray.get(ref) for ref in generator] == [0, 1, 2]


def test_back_pressure_of_no_item_is_refused(ray_session):
    ray = ray_session
    with pytest.raises(ValueError, match="_generator_backpressure_num_objects=0 is not allowed"):
        ray.remote(talk).options(_generator_backpressure_num_objects=0)
    assert [ray.get(ref) for ref in ray.remote(_generator_backpressure_num_objects=-1)(lambda: (yield 1)).remote()] == [1]


# -------------------------------------------------------------------------------------------- dropping
def test_dropping_the_generator_lets_a_waiting_producer_end(ray_session, log, eventually):
    ray = ray_session
    generator = ray.remote(_generator_backpressure_num_objects=1)(talk).remote(log, 5)
    ray.get(next(generator))
    del generator
    eventually(lambda: said(ray, log)[-1:] == ["end"])


@pytest.mark.differs("Ray runs a generator that nobody reads to its end; here it ends at its next yield, as Python's own do")
def test_dropping_the_generator_stops_a_producer_that_goes_on(ray_session, log, eventually, engine):
    ray = ray_session

    @ray.remote
    def steady(log):
        try:
            for i in range(40):
                yield i
                time.sleep(0.05)
            log.say.remote("all")
        finally:
            log.say.remote("end")

    generator = steady.remote(log)
    ref = next(generator)
    del generator
    eventually(lambda: said(ray, log)[-1:] == ["end"])
    assert said(ray, log) == (["all", "end"] if engine == "ray" else ["end"])
    assert ray.get(ref) == 0


def test_an_item_outlives_its_generator(ray_session):
    ray = ray_session

    @ray.remote
    def arrays():
        for i in range(3):
            yield np.full(MEGABYTE, i, dtype=np.uint8)

    generator = arrays.remote()
    refs = [next(generator), next(generator)]
    done = generator.completed()
    del generator
    ray.get(done)
    assert [int(array[-1]) for array in ray.get(refs)] == [0, 1]


@pytest.mark.only("mray")  # looks into the producer's store
def test_items_are_freed_with_their_refs_and_with_the_generator(ray_session, eventually):
    ray = ray_session

    @ray.remote(num_cpus=0)
    class Producer:
        def arrays(self, n):
            for i in range(n):
                yield np.full(MEGABYTE, i, dtype=np.uint8)

        def alive(self):
            from mray._api.current import current_backend

            return len(current_backend().client.owner.store._used)

    producer = Producer.remote()
    generator = producer.arrays.remote(8)
    ray.get(generator.completed())
    assert ray.get(producer.alive.remote()) == 8
    first = next(generator)
    next(generator)
    eventually(lambda: ray.get(producer.alive.remote()) == 7)
    del generator
    eventually(lambda: ray.get(producer.alive.remote()) == 1)
    assert ray.get(first).sum() == 0
    del first
    eventually(lambda: ray.get(producer.alive.remote()) == 0)


@pytest.mark.only("mray")  # looks into the producer's store
def test_what_arrives_for_nobody_is_freed(ray_session, eventually):
    ray = ray_session

    @ray.remote(num_cpus=0)
    class Producer:
        def arrays(self):
            while True:
                yield np.zeros(MEGABYTE, dtype=np.uint8)

        def alive(self):
            from mray._api.current import current_backend

            return len(current_backend().client.owner.store._used)

    producer = Producer.remote()
    generator = producer.arrays.options(_generator_backpressure_num_objects=5).remote()
    del generator
    eventually(lambda: ray.get(producer.alive.remote()) == 0)


# ------------------------------------------------------------------------------------------ cancelling
def test_cancelling_a_generator_ends_it(ray_session):
    ray = ray_session

    @ray.remote
    def endless():
        yield "first"
        while True:
            time.sleep(0.02)

    generator = endless.remote()
    assert ray.get(next(generator)) == "first"
    ray.cancel(generator)
    with pytest.raises(ray.exceptions.TaskCancelledError):
        ray.get(next(generator))
    with pytest.raises(StopIteration):
        next(generator)
    with pytest.raises(ray.exceptions.TaskCancelledError):
        ray.get(generator.completed())


@pytest.mark.differs("on Ray the item behind which the generator waits is lost with it; here what was yielded can be read")
def test_cancelling_a_generator_that_waits_for_its_reader(ray_session, log, engine):
    ray = ray_session
    generator = ray.remote(_generator_backpressure_num_objects=1)(talk).remote(log, 5)
    assert ray.wait([generator], timeout=60)[0] == [generator]
    ray.cancel(generator)
    if engine == "mray":
        assert ray.get(next(generator)) == 0
    with pytest.raises(ray.exceptions.TaskCancelledError):
        ray.get(next(generator))


def test_a_generator_that_is_over_is_not_cancelled(ray_session, log):
    ray = ray_session
    generator = ray.remote(talk).remote(log, 2)
    ray.get(generator.completed())
    ray.cancel(generator)
    assert [ray.get(ref) for ref in generator] == [0, 1]


# ------------------------------------------------------------------------------------- deaths and retries
def test_the_death_of_the_process_is_the_last_item(ray_session):
    ray = ray_session

    @ray.remote(max_retries=0)
    def die():
        yield 1
        yield np.ones(MEGABYTE)
        time.sleep(0.3)
        os._exit(1)

    generator = die.remote()
    assert ray.get(next(generator)) == 1
    large = next(generator)
    with pytest.raises(ray.exceptions.WorkerCrashedError):
        ray.get(next(generator))
    with pytest.raises(StopIteration):
        next(generator)
    assert generator.is_finished()
    assert ray.get(large).sum() == MEGABYTE


def test_an_attempt_after_a_death_brings_the_missing_items(ray_session, tmp_path):
    ray = ray_session
    flag = tmp_path / "died"

    @ray.remote(max_retries=1)
    def die_once():
        for i in range(6):
            if i == 3 and not flag.exists():
                flag.touch()
                time.sleep(0.3)
                os._exit(1)
            yield (i, os.getpid())

    items = [ray.get(ref) for ref in die_once.remote()]
    assert [i for i, _pid in items] == list(range(6))
    assert len({pid for _i, pid in items}) == 2


def test_an_attempt_after_an_error_brings_the_missing_items(ray_session, tmp_path):
    ray = ray_session
    flag = tmp_path / "failed"

    @ray.remote(max_retries=2, retry_exceptions=[KeyError])
    def fail_once(other):
        for i in range(5):
            if i == 2 and not flag.exists():
                flag.touch()
                raise KeyError("again")
            if i == other:
                raise ValueError("not again")
            yield np.full(MEGABYTE // 8, i)

    assert [int(ray.get(ref)[0]) for ref in fail_once.remote(-1)] == list(range(5))
    flag.unlink()
    generator = fail_once.remote(4)
    assert [int(ray.get(next(generator))[0]) for _ in range(4)] == list(range(4))
    with pytest.raises(ValueError, match="not again"):
        ray.get(next(generator))


@pytest.mark.processes("a worker is killed")
def test_an_attempt_that_has_to_wait_before_its_first_item_is_told_when_it_may_go_on(ray_session, tmp_path, eventually):
    ray = ray_session
    begun, again = tmp_path / "begun", tmp_path / "again"

    @ray.remote(max_retries=1, _generator_backpressure_num_objects=1)
    def count():
        (again if begun.exists() else begun).write_text(str(os.getpid()))
        for i in range(4):
            yield i * i

    generator = count.remote()
    eventually(lambda: ray.wait([generator], timeout=0.1)[0])
    os.kill(int(begun.read_text()), signal.SIGKILL)
    eventually(lambda: ray.wait([generator.completed()], timeout=0.1) and again.exists())
    time.sleep(0.3)  # it has repeated the item that nobody has taken
    assert [ray.get(ref) for ref in generator] == [0, 1, 4, 9]


def test_a_generator_method_is_retried_by_a_restarted_actor(ray_session, tmp_path):
    ray = ray_session
    flag = tmp_path / "died"

    @ray.remote(max_restarts=1, max_task_retries=1)
    class Mortal:
        def count(self, n):
            for i in range(n):
                if i == 2 and not flag.exists():
                    flag.touch()
                    time.sleep(0.3)
                    os._exit(1)
                yield i

    actor = Mortal.remote()
    generator = actor.count.options(_generator_backpressure_num_objects=2).remote(5)
    assert [ray.get(ref) for ref in generator] == list(range(5))


@pytest.mark.differs("Ray may lose items that were there before the death; two seconds later it always has")
def test_the_death_of_the_actor_is_the_last_item(ray_session, engine, log):
    ray = ray_session
    actor = ray.remote(Talker).remote()
    generator = actor.talk.options(_generator_backpressure_num_objects=1).remote(log, 5)
    assert ray.wait([generator], timeout=60)[0] == [generator]
    ray.kill(actor)
    assert ray.wait([generator.completed()], timeout=60)[0]
    if engine == "ray":
        with pytest.raises(ray.exceptions.RayActorError):
            for ref in generator:
                assert ray.get(ref) == 0
        return
    assert ray.get(next(generator)) == 0
    with pytest.raises(ray.exceptions.RayActorError):
        ray.get(next(generator))
    with pytest.raises(StopIteration):
        next(generator)


def test_the_death_of_the_reader_ends_the_producer(ray_session, log, eventually):
    ray = ray_session
    talker = ray.remote(Talker).options(num_cpus=0).remote()

    @ray.remote(num_cpus=0)
    class Reader:
        def read(self, talker, log):
            self.generator = talker.talk.options(_generator_backpressure_num_objects=1).remote(log, 5)
            return ray.get(next(self.generator))

    reader = Reader.remote()
    assert ray.get(reader.read.remote(talker, log)) == 0
    ray.kill(reader)
    # The talker is free for others again.
    assert ray.get(talker.pid.remote(), timeout=60) > 0
    eventually(lambda: said(ray, log)[-1:] == ["end"])


# ------------------------------------------------------------------------------------------- resources
def test_a_task_that_waits_for_an_item_gives_its_cpus_back(init):
    import importlib

    init(num_cpus=1)
    ray = importlib.import_module("ray" if os.environ.get("MRAY_TEST_ENGINE") == "ray" else "mray")

    @ray.remote
    def inner():
        yield 0
        yield 1
        yield 2

    @ray.remote
    def outer():
        return [ray.get(ref) for ref in inner.remote()]

    assert ray.get(outer.remote(), timeout=60) == [0, 1, 2]


def test_a_long_generator_holds_no_other_task_back(ray_session, log, eventually):
    ray = ray_session
    quick = ray.remote(lambda i: i)
    ray.get([quick.remote(i) for i in range(50)])
    generator = ray.remote(_generator_backpressure_num_objects=1)(talk).remote(log, 3)
    assert ray.get([quick.remote(i) for i in range(50)], timeout=60) == list(range(50))
    assert [ray.get(ref) for ref in generator] == [0, 1, 2]


@pytest.mark.processes("reads its title")
def test_the_process_title_names_the_generator_at_every_step(ray_session):
    ray = ray_session

    def title():
        with open("/proc/self/cmdline", "rb") as file:
            return file.read().split(b"\0")[0].decode()

    @ray.remote
    def titled():
        for _ in range(3):
            yield title()

    @ray.remote
    class Titled:
        def steps(self):
            for _ in range(3):
                yield title()

    assert {ray.get(ref) for ref in titled.remote()} == {"ray::titled"}
    assert {ray.get(ref) for ref in titled.options(name="other").remote()} == {"ray::other"}
    assert {ray.get(ref) for ref in Titled.remote().steps.remote()} == {"ray::Titled.steps"}
