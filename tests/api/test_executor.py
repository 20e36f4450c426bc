"""`mray.util.executor.Executor`: a `concurrent.futures.Executor`.

CPython's own tests of executors run where the `test` package has them in modules of their own (from 3.12 on). Not all can apply: those of
processes, semaphores and start methods in ``test_process_pool`` look inside ProcessPoolExecutor; what they check of its behaviour is
checked here by tests of our own.
"""

from __future__ import annotations

import asyncio
import concurrent.futures as futures
import gc
import importlib
import os
import signal
import subprocess
import sys
import threading
import time
import unittest
import weakref
from concurrent.futures.process import BrokenProcessPool

import pytest

from tests.checkout import python_path

pytestmark = pytest.mark.only("mray", "local", "mray-on-ray")  # Ray has no executor

try:
    cases = importlib.import_module("test.test_concurrent_futures.executor")
except (ImportError, unittest.SkipTest):
    cases = None
PRELOAD = ["test.test_concurrent_futures.executor"] if cases is not None else None


@pytest.fixture
def executor_class(ray):
    return importlib.import_module("mray.util.executor").Executor


@pytest.fixture
def executor(ray_session, executor_class):
    with executor_class(2) as executor:
        yield executor


if cases is not None:

    @pytest.mark.usefixtures("ray_session")
    class TestCPythons(cases.ExecutorTest, unittest.TestCase):
        worker_count = 4

        @property
        def executor_type(self):
            from mray.util.executor import Executor

            return Executor

        def setUp(self) -> None:
            self.executor = self.executor_type(self.worker_count)

        def tearDown(self) -> None:
            self.executor.shutdown()


def test_calls_with_positions_and_keywords(executor):
    assert executor.submit(pow, 2, 8).result() == 256
    assert executor.submit(lambda *args, **kwargs: (args, kwargs), 1, self=2, fn=3).result() == ((1,), {"self": 2, "fn": 3})
    with pytest.raises(TypeError):
        executor.submit(fn=pow, arg=1)


def test_an_exception_comes_with_the_traceback_of_its_process(executor):
    def fail():
        raise RuntimeError(123)  # some comment

    future = executor.submit(fail)
    error = future.exception()
    assert type(error) is RuntimeError
    assert error.args == (123,)
    assert "raise RuntimeError(123)" in str(error.__cause__)
    with pytest.raises(RuntimeError):
        future.result()
    with pytest.raises(SystemExit):
        executor.submit(sys.exit, 3).result()


def test_what_cannot_be_pickled_fails_the_future(executor):
    future = executor.submit(id, threading.Lock())
    with pytest.raises(TypeError):
        future.result()
    assert executor.submit(abs, -1).result() == 1


def test_map_keeps_the_order_with_every_chunksize(executor):
    expected = [pow(2, value) for value in range(40)]
    for chunksize in (1, 6, 40, 50):
        assert list(executor.map(pow, [2] * 40, range(40), chunksize=chunksize)) == expected
    assert list(executor.map(abs, range(-5, 0))) == [5, 4, 3, 2, 1]
    assert list(executor.map(abs, [])) == []
    with pytest.raises(ValueError, match="chunksize"):
        executor.map(pow, range(3), range(3), chunksize=-1)


@pytest.mark.parametrize(("chunksize", "ahead"), [(1, 2), (3, 6)])
def test_map_reads_no_further_ahead_than_it_may(executor, chunksize, ahead):
    read = []
    results = executor.map(abs, (read.append(item) or item for item in range(20)), chunksize=chunksize, buffersize=2)
    assert len(read) == ahead
    assert next(results) == 0
    assert len(read) == ahead + chunksize
    assert list(results) == [*range(1, 20)]
    with pytest.raises(ValueError, match="buffersize must be None or > 0"):
        executor.map(abs, [1], buffersize=0)
    with pytest.raises(TypeError, match="buffersize must be an integer or None"):
        executor.map(abs, [1], buffersize=1.5)


def test_map_raises_when_the_turn_of_the_failure_comes(executor):
    values = executor.map(divmod, [1, 1, 1, 1], [2, 3, 0, 5])
    assert [next(values), next(values)] == [(0, 1), (0, 1)]
    with pytest.raises(ZeroDivisionError):
        next(values)


def test_map_has_a_time_limit(executor):
    assert next(executor.map(time.sleep, [0], timeout=60)) is None
    values = executor.map(time.sleep, [1000], timeout=0.5)
    with pytest.raises(futures.TimeoutError):
        next(values)
    # The sleeper would hold `shutdown` up.
    executor._worker_pool.terminate(RuntimeError("over"))


def test_futures_can_be_waited_for_in_every_way(executor):
    done, pending = futures.wait([executor.submit(abs, -value) for value in range(20)], timeout=60)
    assert sorted(future.result() for future in done) == list(range(20))
    assert not pending
    submitted = [executor.submit(abs, -value) for value in range(20)]
    assert sorted(future.result() for future in futures.as_completed(submitted)) == list(range(20))
    told = threading.Event()
    executor.submit(abs, -1).add_done_callback(lambda _future: told.set())
    assert told.wait(60)


def test_an_event_loop_can_await_it(executor):
    async def main():
        loop = asyncio.get_running_loop()
        return await asyncio.gather(*(loop.run_in_executor(executor, abs, -value) for value in range(10)))

    assert asyncio.run(main()) == list(range(10))


def test_a_wait_has_a_time_limit(executor, tmp_path):
    def hold():
        while not (tmp_path / "go").exists():
            time.sleep(0.001)
        return "went"

    future = executor.submit(hold)
    with pytest.raises(futures.TimeoutError):
        future.result(timeout=0.01)
    with pytest.raises(futures.TimeoutError):
        future.exception(timeout=0)
    (tmp_path / "go").touch()
    assert future.result(timeout=60) == "went"


def test_a_call_can_be_cancelled_until_it_begins(ray_session, executor_class, tmp_path, eventually):
    def hold():
        (tmp_path / "begun").touch()
        while not (tmp_path / "go").exists():
            time.sleep(0.001)

    with executor_class(1) as executor:
        running = executor.submit(hold)
        eventually((tmp_path / "begun").exists)
        waiting = executor.submit(abs, -1)
        assert not running.cancel()
        assert running.running()
        assert waiting.cancel()
        assert waiting.cancelled()
        with pytest.raises(futures.CancelledError):
            waiting.result()
        (tmp_path / "go").touch()
        assert running.result() is None
        assert executor.submit(abs, -2).result() == 2


def test_shutdown_finishes_what_was_submitted(ray_session, executor_class):
    executor = executor_class(2)
    submitted = [executor.submit(abs, -value) for value in range(30)]
    executor.shutdown(wait=False)
    with pytest.raises(RuntimeError, match="cannot schedule new futures after shutdown"):
        executor.submit(abs, 1)
    assert [future.result() for future in submitted] == list(range(30))
    executor.shutdown()


def test_shutdown_can_cancel_what_has_not_begun(ray_session, executor_class, tmp_path, eventually):
    def hold():
        (tmp_path / "begun").touch()
        while not (tmp_path / "go").exists():
            time.sleep(0.001)

    executor = executor_class(1)
    running = executor.submit(hold)
    eventually((tmp_path / "begun").exists)
    waiting = [executor.submit(abs, -1) for _ in range(5)]
    executor.shutdown(wait=False, cancel_futures=True)
    assert all(future.cancelled() for future in waiting)
    (tmp_path / "go").touch()
    assert running.result() is None
    executor.shutdown()


def test_the_death_of_a_worker_breaks_the_executor(ray_session, executor_class):
    executor = executor_class(2)
    submitted = [executor.submit(time.sleep, 1000), executor.submit(os._exit, 3)]
    with pytest.raises(BrokenProcessPool, match="exit") as raised:
        submitted[1].result()
    assert isinstance(raised.value.__cause__, ray_session.exceptions.ActorDiedError)
    with pytest.raises(BrokenProcessPool):
        submitted[0].result()
    with pytest.raises(BrokenProcessPool):
        executor.submit(abs, 1)
    executor.shutdown()


def test_an_initializer_runs_in_every_worker_or_breaks_the_executor(ray_session, executor_class):
    def prepare(value):
        os.environ["PREPARED"] = value

    with executor_class(2, initializer=prepare, initargs=("yes",)) as executor:
        assert executor.submit(lambda: os.environ["PREPARED"]).result() == "yes"

    def fail():
        raise KeyError("nothing there")

    executor = executor_class(1, initializer=fail)
    with pytest.raises(BrokenProcessPool, match="nothing there"):
        executor.submit(abs, 1).result()
    executor.shutdown()


def test_workers_start_when_they_are_needed_and_are_replaced(ray_session, executor_class):
    with executor_class(4) as executor:
        for _ in range(3):
            executor.submit(abs, -1).result()
        assert len(executor._worker_pool.workers) == 1
    with executor_class(1, max_tasks_per_child=3) as executor:
        pids = [executor.submit(os.getpid).result() for _ in range(4)]
        assert pids[0] == pids[1] == pids[2] != pids[3]


def test_arguments_are_let_go(executor, eventually):
    class Thing:
        pass

    thing = Thing()
    gone = weakref.ref(thing)
    executor.submit(id, thing).result()
    del thing
    eventually(lambda: gc.collect() >= 0 and gone() is None)


def test_workers_end_with_an_executor_that_is_dropped(ray_session, executor_class, eventually):
    executor = executor_class(1)
    pid = executor.submit(os.getpid).result()
    del executor
    eventually(lambda: gc.collect() >= 0 and not os.path.exists(f"/proc/{pid}"))


def test_wrong_options_are_refused(ray_session, executor_class):
    for number in (0, -1):
        with pytest.raises(ValueError, match="max_workers must be greater than 0"):
            executor_class(number)
    with pytest.raises(TypeError, match="callable"):
        executor_class(1, initializer=1)
    with pytest.raises(ValueError, match="max_tasks_per_child"):
        executor_class(1, max_tasks_per_child=0)


def test_the_end_of_the_session_fails_what_is_under_way(fresh, init, executor_class):
    from mray.util.multiprocessing import Pool

    init(num_cpus=2)
    pool, executor = Pool(2), executor_class(2)
    results = [pool.apply_async(time.sleep, (1000,)) for _ in range(4)]
    submitted = [executor.submit(time.sleep, 1000) for _ in range(4)]
    told = []

    def wait():
        for get in (*(result.get for result in results), *(future.result for future in submitted)):
            try:
                get()
            except Exception as error:
                told.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    fresh.shutdown()
    thread.join()
    assert len(told) == 8
    with pytest.raises(BrokenProcessPool):
        executor.submit(abs, 1).result()
    with pytest.raises(fresh.exceptions.RayError):
        pool.apply(abs, (1,))
    pool.terminate()
    pool.join()
    executor.shutdown()


@pytest.mark.parametrize("call", ["Pool(2).map(time.sleep, [1000] * 8)", "Executor(2).submit(time.sleep, 1000).result()"])
def test_an_interrupt_ends_a_program_that_waits(tmp_path, call):
    source = "import time\nfrom mray.util.multiprocessing import Pool\nfrom mray.util.executor import Executor\nprint('go', flush=True)\n"
    program = subprocess.Popen(
        [sys.executable, "-c", source + call],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": python_path()},
    )
    assert program.stdout.readline() == "go\n"
    program.send_signal(signal.SIGINT)
    _out, error = program.communicate()
    assert program.returncode != 0
    assert "KeyboardInterrupt" in error
