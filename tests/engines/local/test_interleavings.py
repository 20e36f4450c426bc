"""One process: a seed fixes the order in which tasks and actors run, another seed another one; time is the session's own."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import pytest

import mray
from mray._backends.local.run_token import RunToken
from mray.util.interleavings import decisions, explore


def two_deposits():
    """Two tasks read a balance and write it back: who comes in between loses."""

    @mray.remote
    class Account:
        def __init__(self):
            self.balance = 0

        def read(self):
            return self.balance

        def write(self, balance):
            self.balance = balance

    @mray.remote(num_cpus=0)
    def deposit(account):
        balance = mray.get(account.read.remote())
        mray.get(account.write.remote(balance + 1))

    account = Account.remote()
    mray.get([deposit.remote(account), deposit.remote(account)])
    return mray.get(account.read.remote())


def event_log():
    """The steps of a program, in their order."""

    @mray.remote
    class Log:
        def __init__(self):
            self.lines = []

        def note(self, line):
            self.lines.append(line)

        def all(self):
            return self.lines

    @mray.remote(num_cpus=0)
    def work(log, name):
        for step in range(3):
            log.note.remote((name, step))
            time.sleep(0.001 * (step + 1))
        return name

    log = Log.remote()
    mray.get([work.remote(log, name) for name in "abcd"])
    return mray.get(log.all.remote()), decisions()


def test_some_seeds_show_a_race_and_others_do_not():
    balances = explore(two_deposits, range(40), num_cpus=4)
    assert set(balances.values()) == {1, 2}


def test_the_same_seed_shows_the_same_every_time():
    first = explore(event_log, range(8), num_cpus=4)
    assert len({str(told) for told in first.values()}) > 1
    for _ in range(3):
        assert explore(event_log, range(8), num_cpus=4) == first


def test_an_order_does_not_depend_on_what_else_the_machine_does():
    first = explore(event_log, [3], num_cpus=4)
    end = threading.Event()

    def burn():
        while not end.is_set():
            sum(range(1000))

    burner = threading.Thread(target=burn)
    burner.start()
    try:
        assert explore(event_log, [3], num_cpus=4) == first
        assert explore(event_log, [3], num_cpus=4, real_time=True) == first
    finally:
        end.set()
        burner.join()


def test_what_a_seed_shows_is_named_with_it():
    def program():
        assert two_deposits() == 2, "an update is lost"

    with pytest.raises(AssertionError, match="an update is lost") as caught:
        explore(program, num_cpus=4)
    if sys.version_info >= (3, 11):
        (note,) = caught.value.__notes__
        seed = int(note.split("MRAY_LOCAL_SEED=")[1].rstrip("."))
        with pytest.raises(AssertionError, match="an update is lost"):
            explore(program, [seed], num_cpus=4)
    assert not mray.is_initialized()


def test_the_variable_chooses_the_order(monkeypatch):
    told = []
    for seed in ("5", "5", "6"):
        monkeypatch.setenv("MRAY_LOCAL_SEED", seed)
        with mray.init(local_mode=True, num_cpus=4, logging_level="ERROR"):
            told.append(event_log())
    assert told[0] == told[1] != told[2]


def test_an_error_that_ends_a_program_comes_with_the_seed():
    source = "import mray\nmray.init(local_mode=True)\n@mray.remote\ndef f():\n    raise ValueError('oh')\nmray.get(f.remote())\n"
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "ValueError: oh" in done.stderr
    assert "MRAY_LOCAL_SEED=0" in done.stderr


def test_only_a_session_in_one_process_has_decisions():
    with pytest.raises(mray.exceptions.RaySystemError, match="local_mode=True"):
        decisions()


def test_a_session_that_runs_is_in_the_way_of_an_exploration():
    with mray.init(local_mode=True, logging_level="ERROR"), pytest.raises(mray.exceptions.RaySystemError, match="shutdown"):
        explore(event_log)


# ---------------------------------------------------------------------------------------------------- time
def test_sleepers_wake_in_the_order_of_their_times():
    def program():
        @mray.remote(num_cpus=0)
        def sleeper(seconds):
            time.sleep(seconds)
            return seconds

        waiting = [sleeper.remote(seconds) for seconds in (30, 10, 20)]
        order = []
        while waiting:
            (ready,), waiting = mray.wait(waiting)
            order.append(mray.get(ready))
        return order

    assert set(map(tuple, explore(program, range(20)).values())) == {(10, 20, 30)}


def test_a_time_limit_is_kept_by_the_same_clock():
    def program():
        @mray.remote
        def sleeper(seconds):
            time.sleep(seconds)
            return seconds

        with pytest.raises(mray.exceptions.GetTimeoutError):
            mray.get(sleeper.remote(100), timeout=99)
        assert mray.get(sleeper.remote(100), timeout=101) == 100
        ref = sleeper.remote(50)
        assert mray.wait([ref], timeout=40) == ([], [ref])
        assert mray.wait([ref], timeout=11) == ([ref], [])

    explore(program, range(10), num_cpus=4)


def test_who_asks_again_and_again_lets_time_pass():
    def program():
        @mray.remote
        def sleeper():
            time.sleep(0.2)

        ref = sleeper.remote()
        while not mray.wait([ref], timeout=0)[0]:
            pass
        ended.append(ref)

    ended = []
    explore(program, range(3))
    assert len(ended) == 3


def test_sleeping_really_sleeps_unless_told_otherwise():
    with mray.init(local_mode=True, logging_level="ERROR"):
        began = time.monotonic()
        time.sleep(0.1)
        assert time.monotonic() - began >= 0.1


# ------------------------------------------------------------------------------------------------ deadlock
DEADLOCK = (
    r"(?s)deadlock.*driver waits for Caller.call, large\n.*"
    r"Caller \(Caller.call\) waits for Caller.call\n.*large waits for.*MRAY_LOCAL_SEED=0"
)


def test_a_deadlock_is_told_at_once_and_says_who_waits():
    @mray.remote
    class Caller:
        def call(self, other, depth):
            return mray.get(other[0].call.remote(other, depth + 1))

    @mray.remote(num_cpus=3)
    def large():
        """Too large for what is free."""

    with mray.init(local_mode=True, num_cpus=4, logging_level="ERROR"):
        caller = Caller.options(num_cpus=2).remote()
        refs = [caller.call.remote([caller], 0), large.remote()]
        with pytest.raises(mray.exceptions.RaySystemError, match=DEADLOCK):
            mray.get(refs)
        # It is over for who was told, and the session goes on.
        mray.kill(caller)
        assert mray.get(refs[1]) is None


def test_a_deadlock_names_calls_in_lanes_and_owners_of_objects():
    @mray.remote
    class Loop:
        async def hang(self):
            import asyncio

            await asyncio.Event().wait()

    @mray.remote
    class Owner:
        def ask(self, other):
            return [other.hang.remote()]

    @mray.remote(max_concurrency=2)
    class Threads:
        def get(self, refs):
            return mray.get(refs)

        def wait(self, refs):
            return mray.wait(refs)

    with mray.init(local_mode=True, num_cpus=4, logging_level="ERROR"):
        owner, threads = Owner.remote(), Threads.remote()
        refs = mray.get(owner.ask.remote(Loop.remote()))
        with pytest.raises(mray.exceptions.RaySystemError) as told:
            mray.get([threads.get.remote(refs), threads.wait.remote(refs)])
    lines = set(map(str.strip, str(told.value).splitlines()))
    assert "driver waits for Threads.get, Threads.wait" in lines
    assert "Loop (Loop.hang) waits" in lines
    assert any(line.endswith("waits for an object of Owner") and "Threads.get" in line for line in lines), lines


# ----------------------------------------------------------------------------------------------- the run token
def test_a_run_token_is_passed_on_by_its_seed():
    def order(seed):
        run_token = RunToken(seed)
        from mray._backends.local.run_token import here

        here.sim_thread = run_token.driver
        told = []

        def body(name):
            for _ in range(5):
                told.append(name)
                run_token.pause()

        for name in "abc":
            run_token.spawn(name, lambda name=name: body(name), None)
        run_token.wait_until(lambda: len(told) == 15, None)
        run_token.close()
        return told

    assert order(1) == order(1)
    assert len({str(order(seed)) for seed in range(10)}) > 5
