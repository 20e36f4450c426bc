"""`util.multiprocessing.Pool`: CPython's own tests of `multiprocessing.Pool`, run from the installed `test` package, and what mray adds.

Of CPython's, two cannot apply. `TestPoolNotLeakOnFailure` replaces the class of the processes, which a pool of actors does not have.
``test_worker_finalization_via_atexit_handler_of_multiprocessing`` runs a program that imports the standard library's pool; its counterpart
here is `test_a_pool_that_nobody_closes_ends_with_its_program`.
"""

from __future__ import annotations

import functools
import gc
import importlib
import multiprocessing
import os
import pickle
import sys
import threading
import time
import unittest
import weakref
from unittest import mock

import pytest

CPYTHON = "test._test_multiprocessing"
cases = pytest.importorskip(CPYTHON)

#: The module of CPython's functions, which every worker would import by itself.
PRELOAD = [CPYTHON]


@pytest.fixture
def pool_class(ray):
    return importlib.import_module(f"{ray.__name__}.util.multiprocessing").Pool


@pytest.fixture
def pool(ray_session, pool_class):
    pool = pool_class(2)
    yield pool
    pool.terminate()
    pool.join()


# ----------------------------------------------------------------------------------------------- CPython's
@pytest.mark.only("mray", "local")  # Ray's pool returns exceptions from imap, drops the cause, and has no lifetime of workers to look at
@pytest.mark.usefixtures("ray_session")
class TestCPythons(cases._TestPool, unittest.TestCase):
    TYPE = "processes"

    @classmethod
    def setUpClass(cls) -> None:
        """The pool of a class is made before its first fixture."""

    @classmethod
    def tearDownClass(cls) -> None:
        pass

    @staticmethod
    def Pool(*args, **kwargs):
        from mray.util.multiprocessing import Pool

        return Pool(*args, **kwargs)

    def setUp(self) -> None:
        self.pool = self.Pool(4)

    def tearDown(self) -> None:
        self.pool.terminate()
        self.pool.join()


@pytest.mark.only("mray", "local")  # as above
@pytest.mark.usefixtures("ray_session")
class TestCPythonsLifetimes(cases._TestPoolWorkerLifetime, unittest.TestCase):
    test_worker_finalization_via_atexit_handler_of_multiprocessing = None

    def setUp(self) -> None:
        from mray.util.multiprocessing import Pool

        patch = mock.patch.object(multiprocessing, "Pool", Pool)
        patch.start()
        self.addCleanup(patch.stop)


@pytest.mark.only("mray", "local")
def test_a_pool_that_nobody_closes_ends_with_its_program(run_program):
    done = run_program("""
        from ENGINE.util.multiprocessing import Pool
        class Holder:
            def __init__(self):
                self.pool = Pool(processes=1)
        problem = Holder()
        print(problem.pool.map(float, range(3)))
    """)
    assert "[0.0, 1.0, 2.0]" in done.stdout


# ------------------------------------------------------------------------------------------- on both engines
def test_functions_need_no_importable_name(pool):
    offset = 7
    assert pool.map(lambda value: value + offset, range(20)) == list(range(7, 27))
    offset = 8
    assert pool.map(lambda value: value + offset, range(3)) == [8, 9, 10]


def test_starmap_and_keywords(pool):
    assert pool.starmap(pow, [(2, 3), (3, 2)]) == [8, 9]
    assert pool.apply(int, ("101",), {"base": 2}) == 5


def test_imap_reads_as_it_goes(pool):
    read = []

    def endless():
        while True:
            read.append(len(read))
            yield read[-1]

    iterator = pool.imap(str, endless())
    assert [next(iterator) for _ in range(50)] == [str(number) for number in range(50)]
    assert len(read) < 500


def test_the_initializer_runs_in_every_process(ray_session, pool_class):
    def prepare(value):
        os.environ["PREPARED"] = value

    with pool_class(2, initializer=prepare, initargs=("yes",)) as pool:
        assert pool.map(lambda _item: os.environ["PREPARED"], range(8), chunksize=1) == ["yes"] * 8


@pytest.mark.differs("Ray's callback gets its own wrapper of the exception")
def test_callbacks_get_the_value_or_the_error(pool, eventually):
    told = []
    pool.apply_async(abs, (-1,), callback=told.append).wait()
    result = pool.apply_async(int, ("x",), error_callback=told.append)
    result.wait()
    assert not result.successful()
    with pytest.raises(ValueError, match="invalid literal"):
        result.get()
    eventually(lambda: len(told) == 2)
    assert told[0] == 1
    assert isinstance(getattr(told[1], "underlying", told[1]), ValueError)


def test_a_callback_that_raises_is_reported_and_ends_neither_its_result_nor_the_pool(pool, eventually, monkeypatch):
    reported = []
    monkeypatch.setattr(threading, "excepthook", reported.append)

    def fail(value):
        raise LookupError(value)

    assert pool.apply_async(abs, (-1,), callback=fail).get() == 1
    eventually(lambda: reported)
    assert str(reported[0].exc_value) == "1"
    assert pool.map(abs, [-2]) == [2]


def test_a_closed_pool_takes_no_calls_and_finishes_those_it_has(ray_session, pool_class):
    pool = pool_class(2)
    results = [pool.apply_async(abs, (-value,)) for value in range(20)]
    with pytest.raises(ValueError, match="still running"):
        pool.join()
    pool.close()
    with pytest.raises(ValueError, match="not running"):
        pool.apply(abs, (1,))
    pool.join()
    assert [result.get() for result in results] == list(range(20))


def test_more_processes_than_cpus_are_refused(ray_session, pool_class):
    with pytest.raises(ValueError, match="Tried to start a pool with 100 processes on an existing ray cluster, but there are only 4 CPUs"):
        pool_class(100)


# -------------------------------------------------------------------------------------------------- mray's own
@pytest.mark.only("mray", "local")
def test_chunks_without_items_and_pickles_of_a_pool_are_refused(pool):
    with pytest.raises(ValueError, match="Chunksize must be 1[+], not 0"):
        pool.imap(abs, [1], chunksize=0)
    with pytest.raises(NotImplementedError, match="pool objects cannot be passed between processes or pickled"):
        pickle.dumps(pool)


@pytest.mark.only("mray", "local")  # on Ray the call never ends
def test_a_call_whose_process_dies_fails_and_the_pool_goes_on(ray_session, pool):
    with pytest.raises(ray_session.exceptions.ActorDiedError):
        pool.apply(os._exit, (3,))
    assert pool.map(abs, range(-10, 0), chunksize=1) == list(range(10, 0, -1))
    with pytest.raises(SystemExit):
        pool.apply(sys.exit, (3,))


@pytest.mark.only("mray", "local")
def test_an_idle_process_that_dies_is_replaced(ray_session, pool, eventually):
    before = {worker.pid for worker in pool._pool}
    os.kill(min(before), 9)
    eventually(lambda: min(before) not in {worker.pid for worker in pool._pool})
    assert pool.map(abs, range(4), chunksize=1) == [0, 1, 2, 3]


@pytest.mark.only("mray", "local")
def test_an_initializer_that_fails_breaks_the_pool(ray_session, pool_class):
    def fail():
        raise KeyError("nothing there")

    pool = pool_class(2, initializer=fail)
    with pytest.raises(KeyError, match="nothing there"):
        pool.map(abs, range(4))
    pool.terminate()
    pool.join()


@pytest.fixture
def meet(tmp_path):
    """A function of two names that returns once it was called with them the other way round, too."""

    def meet(name, other):
        (tmp_path / name).touch()
        while not (tmp_path / other).exists():
            time.sleep(0.001)
        return name

    return meet


@pytest.mark.only("mray", "local")
def test_calls_that_wait_for_each_other_meet_behind_many_short_ones(ray_session, pool, meet):
    """Short calls are sent ahead; two that wait for each other must not end up behind one another."""
    short = [pool.apply_async(abs, (-1,)) for _ in range(200)]
    met = [pool.apply_async(meet, names) for names in (("a", "b"), ("b", "a"))]
    after = [pool.apply_async(abs, (-2,)) for _ in range(20)]
    assert [result.get(60) for result in met] == ["a", "b"]
    assert [result.get(60) for result in short + after] == [1] * 200 + [2] * 20


@pytest.mark.only("mray", "local")
def test_calls_that_wait_for_each_other_meet_behind_a_long_one(ray_session, pool, meet):
    """One member has both, sent ahead while calls were short, when calls turn out to be long."""
    pool.map(abs, range(200), chunksize=1)
    calls = [
        (time.sleep, (0.2,)),
        (time.sleep, (0.01,)),
        (time.sleep, (0.01,)),
        (meet, ("a", "b")),
        (time.sleep, (0.01,)),
        (meet, ("b", "a")),
    ]
    results = [pool.apply_async(*call) for call in calls]
    assert [result.get(60) for result in results] == [None, None, None, "a", None, "b"]


@pytest.mark.only("mray", "local")
def test_large_arrays_come_through_shared_memory(ray_session, pool):
    import numpy

    arrays = [numpy.full(1_000_000, value, dtype=numpy.uint8) for value in range(4)]
    doubled = pool.map(lambda array: array * 2, arrays, chunksize=1)
    assert [int(array[-1]) for array in doubled] == [0, 2, 4, 6]
    assert not doubled[0].flags.writeable


@pytest.mark.only("mray", "local")
def test_a_closed_pool_still_reads_the_input_of_imap(ray_session, pool_class):
    pool = pool_class(2)
    iterator = pool.imap(abs, iter(range(-300, 0)))
    pool.close()
    pool.join()
    assert list(iterator) == list(range(300, 0, -1))


def test_what_a_terminated_pool_was_asked_fails(ray_session, pool_class):
    pool = pool_class(1)
    results = [pool.apply_async(time.sleep, (1000,)) for _ in range(3)]
    pool.terminate()
    pool.join()
    for result in results:
        with pytest.raises(ray_session.exceptions.RayError):
            result.get(60)


@pytest.mark.only("mray", "local")
def test_a_pool_works_in_threads_and_in_tasks(ray_session, pool):
    found = {}

    def use(base):
        found[base] = pool.map(abs, range(-base, 0), chunksize=3)

    threads = [threading.Thread(target=use, args=(base,)) for base in (10, 20, 30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {base: list(range(base, 0, -1)) for base in (10, 20, 30)}

    @ray_session.remote
    def nested():
        from mray.util.multiprocessing import Pool

        with Pool(2) as inner:
            return inner.map(abs, [-1, -2])

    assert ray_session.get(nested.remote()) == [1, 2]


@pytest.mark.only("mray")  # in one process its end is the end of all
def test_of_short_jobs_sent_ahead_to_a_member_that_dies_each_runs_once(ray_session, pool_class, tmp_path):
    log = tmp_path / "log"

    def run(number):
        file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(file, b"%d\n" % number)
        os.close(file)
        if number == 5:
            os._exit(1)
        return number

    with pool_class(1) as pool:
        for _ in range(5):
            assert [result.get() for result in [pool.apply_async(abs, (number,)) for number in range(400)]] == list(range(400))
            log.unlink(missing_ok=True)
            results = [pool.apply_async(run, (number,)) for number in range(12)]
            ended = []
            for result in results:
                try:
                    ended.append(result.get())
                except ray_session.exceptions.ActorDiedError:
                    ended.append("died")
            assert sorted(map(int, log.read_text().split())) == list(range(12))
            assert ended == [*range(5), "died", *range(6, 12)]


# ---------------------------------------------------------------------------------------------- functions
#: A function that cannot be imported, and so travels with what it uses.
BY_VALUE = """
factor = 1

class Scaled:
    factor = 1
    def __init__(self, number):
        self.value = self.factor * number

def by_global(number):
    return factor * number

def by_helper(number):
    return by_global(number)

def by_default(number, scale={"factor": 1}):
    return scale["factor"] * number

def by_class(number):
    return Scaled(number).value

def by_attribute(number):
    return by_attribute.factor * number

by_attribute.factor = 1
"""


@pytest.mark.parametrize("ask", ["map", "starmap", "imap", "imap_unordered", "apply"])
def test_a_function_is_what_it_is_when_it_is_given(pool, ask):
    made = {"__name__": "made_by_the_test"}
    exec(BY_VALUE, made)

    def answers(name):
        function = made[name]
        if ask == "apply":
            return [pool.apply(function, (number,)) for number in (1, 2)]
        return sorted(getattr(pool, ask)(function, [(1,), (2,)] if ask == "starmap" else [1, 2]))

    names = ["by_global", "by_helper", "by_default", "by_class", "by_attribute"]
    assert [answers(name) for name in names] == [[1, 2]] * 5
    made["factor"] = made["Scaled"].factor = made["by_default"].__defaults__[0]["factor"] = made["by_attribute"].factor = 10
    assert [answers(name) for name in names] == [[10, 20]] * 5
    assert [made["Scaled"](2).value, *(each.value for each in pool.map(made["Scaled"], [2]))] == [20, 20]


def test_what_a_function_does_to_itself_in_a_process_is_not_there_for_the_next_call(pool):
    def count(number, seen=[]):  # noqa: B006
        seen.append(number)
        return len(seen)

    assert [pool.apply(count, (number,)) for number in range(6)] == [1] * 6


class Burden:
    """Captured by functions, and counted in the processes that have them."""

    def __init__(self):
        self.content = bytes(1_000_000)


def burdens():
    import gc

    return sum(type(each).__name__ == "Burden" for each in gc.get_objects())


@pytest.mark.parametrize("kind", ["closure", "default", "partial", "bound method"])
def test_a_process_of_a_pool_keeps_no_function_whose_calls_are_over(ray_session, pool_class, eventually, kind):
    def give():
        burden = Burden()

        class Model:
            def __init__(self):
                self.burden = burden

            def size(self, _number):
                return len(self.burden.content)

        made = {
            "closure": lambda _number: len(burden.content),
            "default": lambda _number, burden=burden: len(burden.content),
            "partial": functools.partial(lambda burden, _number: len(burden.content), burden),
            "bound method": Model().size,
        }[kind]
        assert pool.map(made, [1, 2]) == [1_000_000] * 2
        return weakref.ref(burden)

    with pool_class(1) as pool:
        given = [give() for _ in range(8)]
        eventually(lambda: gc.collect() is None or not any(burden() for burden in given))

        def left():
            import gc

            gc.collect()
            return burdens()

        assert pool.apply(left) == 0


def test_refs_in_a_function_are_there_while_it_runs(ray_session, pool):
    def summing(ref):
        return lambda number: number + len(ray_session.get(ref))

    results = [pool.map_async(summing(ray_session.put(bytes(200_000))), range(3), chunksize=1) for _ in range(3)]
    assert [result.get() for result in results] == [[200_000, 200_001, 200_002]] * 3


def test_what_programs_read_of_a_pool_has_rays_names(ray_session, pool_class):
    with pool_class(2, initializer=abs, initargs=(1,), maxtasksperchild=50, ray_remote_args={"num_cpus": 0}) as pool:
        assert len(pool._actor_pool) == 2
        ray_session.get([actor.ping.remote() for actor, _count in pool._actor_pool])
        assert pool.map(abs, range(-8, 0), chunksize=1) == [8, 7, 6, 5, 4, 3, 2, 1]
        assert sum(count for _actor, count in pool._actor_pool) == 8
        assert (pool._initializer, pool._initargs, pool._maxtasksperchild) == (abs, (1,), 50)
        assert (pool._ray_remote_args, pool._closed) == ({"num_cpus": 0}, False)
        ids = {actor._actor_id for actor, _count in pool._actor_pool}
        assert len(ids) == 2
    assert pool._closed


def test_arguments_are_what_they_are_when_they_are_given(ray_session, pool_class, signal):
    def first(items):
        return items[0]

    def held(gate):
        while not ray_session.get(gate.is_set.remote()):
            time.sleep(0.01)

    with pool_class(1) as pool:
        gate = signal()
        holding = pool.apply_async(held, (gate,))
        given = [0]
        results = []
        for number in range(5):
            given[0] = number
            results.append(pool.apply_async(first, (given,)))
            results.append(pool.apply_async(first, (), {"items": given}))
        mapped = pool.map_async(first, [given, given])
        starred = pool.starmap_async(first, [(given,), (given,)])
        given[0] = "changed"
        ray_session.get(gate.send.remote())
        holding.get()
        assert [result.get() for result in results] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
        assert mapped.get() == starred.get() == [4, 4]


@pytest.mark.parametrize("ask", ["imap", "imap_unordered"])
def test_an_input_may_yield_the_same_list_again_and_again(pool, ask):
    def filled():
        buffer = [0]
        for number in range(40):
            buffer[0] = number
            yield buffer

    assert sorted(getattr(pool, ask)(lambda items: items[0], filled())) == list(range(40))
