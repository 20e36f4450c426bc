"""One process: graphs, coroutines, threads of actors and remote variables in the order that a seed fixes, by the session's clock."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import threading
import time

import pytest

import mray
from mray.dag import InputNode, MultiOutputNode
from mray.proxy import RemoteInterpreterFactory
from mray.util.interleavings import decisions, explore


def diamond():
    """Two actors compute side by side, three executions in flight: what comes of it, and in which order they do it."""
    told = []  # everybody's: there is one process, and what a closure holds by a module is not pickled
    globals()["told"] = told

    @mray.remote(num_cpus=0)
    class Worker:
        def __init__(self, name):
            self.name = name

        def work(self, number):
            globals_of_module()["told"].append((self.name, number))
            return number + 1

        def add(self, left, right):
            globals_of_module()["told"].append((self.name, left + right))
            return left + right

    a, b, c = Worker.remote("a"), Worker.remote("b"), Worker.remote("c")
    with InputNode() as number:
        graph = c.add.bind(a.work.bind(number), b.work.bind(number)).experimental_compile()
    refs = [graph.execute(number) for number in range(3)]
    results = [ref.get() for ref in refs]
    graph.teardown()
    return results, tuple(told), decisions()


def globals_of_module():
    """This module's own globals, from a class that travels by value."""
    import tests.engines.local.test_graph_interleavings as module

    return vars(module)


def test_seeds_interleave_the_operations_of_a_graph_and_its_results_stay_the_same():
    found = explore(diamond, range(12))
    assert {str(results) for results, _told, _decisions in found.values()} == {str([2, 4, 6])}
    assert len({told for _results, told, _decisions in found.values()}) > 5
    # Each actor does its executions in order, whoever else does what meanwhile.
    for _results, told, _decisions in found.values():
        for name in "abc":
            own = [number for who, number in told if who == name]
            assert own == sorted(own)


def test_the_same_seed_runs_a_graph_by_the_same_decisions():
    first = explore(diamond, range(6))
    for _ in range(3):
        assert explore(diamond, range(6)) == first


def deposits_of_a_graph():
    """Two actors of a graph read a balance and write it back, in the same execution."""

    @mray.remote(num_cpus=0)
    class Account:
        def __init__(self):
            self.balance = 0

        def read(self):
            return self.balance

        def write(self, balance):
            self.balance = balance

    @mray.remote(num_cpus=0)
    class Clerk:
        def __init__(self, account):
            self.account = account

        def deposit(self, amount):
            balance = mray.get(self.account.read.remote())
            mray.get(self.account.write.remote(balance + amount))

    account = Account.remote()
    clerks = [Clerk.remote(account) for _ in range(2)]
    with InputNode() as amount:
        graph = MultiOutputNode([clerk.deposit.bind(amount) for clerk in clerks]).experimental_compile()
    mray.get(graph.execute(1))
    graph.teardown()
    return mray.get(account.read.remote())


def test_a_race_between_actors_of_a_graph_is_found_and_replayed():
    balances = explore(deposits_of_a_graph, range(25))
    assert set(balances.values()) == {1, 2}
    lost = next(seed for seed, balance in balances.items() if balance == 1)
    for _ in range(5):
        assert explore(deposits_of_a_graph, [lost]) == {lost: 1}


def test_values_between_actors_are_copies_and_those_within_one_are_not():
    def program():
        @mray.remote(num_cpus=0)
        class Worker:
            def make(self, _number):
                self.made = [1]
                return self.made

            def is_own(self, value):
                return value is self.made

            def append(self, value):
                value.append(2)
                return value

            def last(self):
                return self.made

        a, b = Worker.remote(), Worker.remote()
        with InputNode() as number:
            made = a.make.bind(number)
            graph = MultiOutputNode([a.is_own.bind(made), b.append.bind(made)]).experimental_compile()
        assert mray.get(graph.execute(0)) == [True, [1, 2]]
        assert mray.get(a.last.remote()) == [1]
        graph.teardown()

    explore(program, range(10))


# --------------------------------------------------------------------------------------------------- clock
def test_time_limits_of_graphs_are_kept_by_the_sessions_clock():
    def program():
        @mray.remote(num_cpus=0)
        class Sleeper:
            def sleep(self, seconds):
                time.sleep(seconds)
                return seconds

        with InputNode() as seconds:
            graph = Sleeper.remote().sleep.bind(seconds).experimental_compile()
        ref = graph.execute(1000)
        with pytest.raises(mray.exceptions.RayChannelTimeoutError, match="computes sleep"):
            ref.get(timeout=990)
        assert ref.get(timeout=20) == 1000
        refs = [graph.execute(100) for _ in range(3)]
        with pytest.raises(mray.exceptions.RayChannelTimeoutError):
            mray.get(refs, timeout=250)
        graph.teardown()

    explore(program, range(5))


def test_coroutines_of_the_driver_sleep_by_the_sessions_clock():
    def program():
        @mray.remote(num_cpus=0)
        def after(seconds):
            time.sleep(seconds)
            return seconds

        async def main():
            order = []

            async def note(awaitable, name):
                await awaitable
                order.append(name)

            await asyncio.gather(
                note(asyncio.sleep(30), "a sleep of 30"), note(after.remote(10), "a task of 10"), note(asyncio.sleep(20), "a sleep of 20")
            )
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(after.remote(100), 50)
            return order

        return asyncio.run(main())

    assert set(map(tuple, explore(program, range(10)).values())) == {("a task of 10", "a sleep of 20", "a sleep of 30")}


def test_a_loop_that_outlives_the_session_is_asyncios_own_again():
    loop = asyncio.new_event_loop()

    async def ask():
        @mray.remote
        def one():
            return 1

        return await one.remote()

    with mray.init(local_mode=True, logging_level="ERROR"):
        assert loop.run_until_complete(ask()) == 1
    before = loop.time()
    loop.run_until_complete(asyncio.sleep(0.01))
    assert loop.time() - before >= 0.01
    assert abs(loop.time() - time.monotonic()) < 60
    loop.close()


# ----------------------------------------------------------------------------------------- actors' threads
def threads_of_an_actor(lock):
    """Three calls of a threaded actor count, with a pause between reading and writing."""

    def program():
        @mray.remote(num_cpus=0, max_concurrency=3)
        class Counter:
            def __init__(self):
                self.lock = threading.Lock()
                self.count = 0

            def add(self):
                if lock:
                    with self.lock:
                        self.add_one()
                else:
                    self.add_one()

            def add_one(self):
                count = self.count
                time.sleep(0)
                mray.get_runtime_context().get_task_id()
                mray.put(None)
                self.count = count + 1

            def get(self):
                return self.count

        counter = Counter.remote()
        mray.get([counter.add.remote() for _ in range(3)])
        return mray.get(counter.get.remote()), decisions()

    return program


def test_threads_of_an_actor_race_in_some_orders_and_a_lock_holds_in_all():
    without = explore(threads_of_an_actor(False), range(25))
    assert {count for count, _decisions in without.values()} > {3}
    assert explore(threads_of_an_actor(False), range(10)) == {seed: without[seed] for seed in range(10)}
    assert {count for count, _decisions in explore(threads_of_an_actor(True), range(25)).values()} == {3}


def test_locks_taken_in_two_orders_are_a_deadlock_in_some_orders_and_told_at_once():
    def program():
        @mray.remote(num_cpus=0, max_concurrency=2)
        class Both:
            def __init__(self):
                self.locks = threading.Lock(), threading.Lock()

            def take(self, first):
                with self.locks[first]:
                    mray.put(None)
                    with self.locks[1 - first]:
                        return first

        both = Both.remote()
        try:
            return mray.get([both.take.remote(0), both.take.remote(1)])
        except mray.exceptions.RaySystemError as error:
            return "deadlock" if "a lock of threading" in str(error) else str(error)

    assert {str(outcome) for outcome in explore(program, range(30)).values()} == {"deadlock", "[0, 1]"}


def test_coroutines_of_an_actor_interleave_by_the_seed():
    def program():
        @mray.remote(num_cpus=0)
        class Async:
            def __init__(self):
                self.told = []

            async def work(self, other, name):
                for step in range(3):
                    self.told.append((name, step, await other.echo.remote(step)))

            async def all(self):
                return self.told

        @mray.remote(num_cpus=0, max_concurrency=3)
        class Echo:
            def echo(self, value):
                return value

        worker, echo = Async.remote(), Echo.remote()
        mray.get([worker.work.remote(echo, name) for name in "abc"])
        return tuple(mray.get(worker.all.remote())), decisions()

    first = explore(program, range(10))
    assert len({told for told, _decisions in first.values()}) > 3
    assert explore(program, range(10)) == first


# ----------------------------------------------------------------------------------------------- remains
def left(session):
    """Names of shared memory and folders of a session."""
    return [path for place in ("/dev/shm", os.path.dirname(session)) for path in os.listdir(place) if os.path.basename(session) in path]


LARGE = """
import os
import signal
import numpy
import mray
from mray._api.current import current_backend
from mray.dag import InputNode
from mray.util import collective

mray.init(local_mode=True, logging_level="ERROR")

@mray.remote(num_cpus=0)
class Echo:
    def echo(self, value):
        return value

with InputNode() as value:
    graph = Echo.remote().echo.bind(value).experimental_compile()
graph.execute(numpy.ones(1_000_000))
directory = current_backend().info()["session_dir"]

@mray.remote(num_cpus=0)
class Member:
    def meet(self, rank):
        collective.init_collective_group(2, rank, backend="gloo", group_name="pair")
        collective.allreduce(numpy.ones(3), "pair")

mray.get([member.meet.remote(rank) for rank, member in enumerate([Member.remote(), Member.remote()])])
assert os.listdir(directory + "/groups") is not None
print(directory, flush=True)
%s
"""


#: Leftovers of a killed program are removed by the next session of any kind, or on request.
NEXT = {
    "one process": "import mray; mray.init(local_mode=True, logging_level='ERROR'); mray.shutdown()",
    "processes": "import mray; mray.init(num_cpus=1, logging_level='ERROR'); mray.shutdown()",
    "doctor": "import mray.cli; mray.cli.main(['doctor', '--clean'])",
}


@pytest.fixture
def sessions(monkeypatch):
    """Where sessions of programs are."""
    with tempfile.TemporaryDirectory(prefix="ml", dir="/tmp") as folder:
        monkeypatch.setenv("MRAY_TMPDIR", folder)
        yield folder


def test_nothing_of_a_session_is_left_behind(sessions):
    pytest.importorskip("numpy")
    assert left(subprocess.check_output([sys.executable, "-c", LARGE % ""], text=True).strip()) == []


@pytest.mark.parametrize("who", NEXT)
def test_nothing_of_a_session_is_left_behind_that_was_killed(sessions, who):
    pytest.importorskip("numpy")
    killed = LARGE % "os.kill(os.getpid(), signal.SIGKILL)"
    done = subprocess.run([sys.executable, "-c", killed], capture_output=True, text=True, check=False)
    directory = done.stdout.strip()
    assert "local_" in os.path.basename(directory), done.stderr
    assert left(directory)
    subprocess.run([sys.executable, "-c", NEXT[who]], capture_output=True, check=False)
    assert left(directory) == []


@pytest.mark.parametrize("who", NEXT)
def test_a_session_that_lives_keeps_what_is_its_own(sessions, who):
    pytest.importorskip("numpy")
    program = subprocess.Popen([sys.executable, "-c", LARGE % "input()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with program:
        directory = program.stdout.readline().strip()
        before = left(directory)
        subprocess.run([sys.executable, "-c", NEXT[who]], capture_output=True, check=False)
        assert left(directory) == before
        assert os.path.isdir(directory + "/groups")
        program.communicate("\n")
    assert left(directory) == []


# -------------------------------------------------------------------------------------------- many areas
def test_remote_variables_of_two_interpreters_are_apart_and_in_the_same_order_again():
    def program():
        rif = RemoteInterpreterFactory(mray)
        one, two = rif.create(num_cpus=0), rif.create(num_cpus=0)
        numbers = [1, 2]
        there, elsewhere = one.put(numbers), two.put(numbers)
        there.append(3)
        elsewhere.extend(there)
        one["name"] = 5
        assert "name" not in two
        assert (numbers, there.fetch(), elsewhere.fetch()) == ([1, 2], [1, 2, 3], [1, 2, 1, 2, 3])
        return decisions()

    assert explore(program, range(3)) == explore(program, range(3))


def test_collectives_of_a_graph_meet_in_every_order():
    numpy = pytest.importorskip("numpy")
    from mray.experimental.collective import allreduce

    def program():
        @mray.remote(num_cpus=0)
        class Member:
            def make(self, number):
                return numpy.full(10, float(number))

            def total(self, value):
                return float(value.sum())

        members = [Member.remote() for _ in range(3)]
        with InputNode() as number:
            reduced = allreduce.bind([member.make.bind(number) for member in members])
            graph = MultiOutputNode(
                [member.total.bind(value) for member, value in zip(members, reduced, strict=True)]
            ).experimental_compile()
        refs = [graph.execute(number) for number in range(4)]
        assert [mray.get(ref) for ref in refs] == [[30.0 * number] * 3 for number in range(4)]
        graph.teardown()

    explore(program, range(6))


def test_an_actor_that_makes_the_first_finalizer_does_not_run_everybodys_at_its_end():
    source = """
import weakref
import mray

mray.init(local_mode=True, logging_level="ERROR")

@mray.remote
class Actor:
    def leave(self):
        self.kept = type("Kept", (), {})()
        weakref.finalize(self.kept, list)
        mray.actor.exit_actor()

def at_exit():
    print("at the end")

weakref.finalize._registered_with_atexit = False  # as where nobody has made one yet
actor = Actor.remote()
try:
    mray.get(actor.leave.remote())
except mray.exceptions.ActorDiedError:
    print("left")
kept = type("Kept", (), {})()
finalizer = weakref.finalize(kept, at_exit)
assert finalizer.alive
print("alive")
"""
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=False)
    assert (done.stdout.splitlines(), done.stderr) == (["left", "alive", "at the end"], "")
