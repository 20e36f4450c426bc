"""One process: what is in it, what a debugger and a coverage run see of it, how simulated processes end, and what is refused."""

from __future__ import annotations

import concurrent.futures
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

import mray
from tests.checkout import python_path


@pytest.fixture
def session():
    with mray.init(local_mode=True, num_cpus=4, logging_level="ERROR"):
        yield mray


def run(source: str, *words: str, stdin: str = "", **options) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *words, "-c", textwrap.dedent(source)] if not options.get("path") else [sys.executable, *words]
    options.pop("path", None)
    environment = {**os.environ, "PYTHONPATH": python_path()}
    return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, env=environment, **options)


def test_everything_is_in_this_process_and_nothing_stays(belongings):
    now, check = belongings
    before = now()
    threads = threading.active_count()
    with mray.init(local_mode=True, logging_level="ERROR"):

        @mray.remote
        class Actor:
            def array(self):
                import numpy

                return numpy.zeros(10**6)

        actor = Actor.remote()
        assert mray.get(actor.array.remote()).sum() == 0
        # Other test runs on this machine make names in shared memory meanwhile.
        more = [item for item in now().more_than(before) if not item.startswith("shared memory")]
        assert more
        assert [item for item in more if not item.startswith("thread mray-")] == []
    assert threading.active_count() == threads
    check(before)


def test_a_breakpoint_in_a_task_stops_in_the_drivers_debugger():
    program = """
        import mray
        mray.init(local_mode=True, logging_level="ERROR")

        @mray.remote
        def task(secret):
            breakpoint()
            return secret + 1

        print("result", mray.get(task.remote(41)))
    """
    done = run(program, stdin="p secret * 1000\nc\n")
    assert "41000" in done.stdout, done
    assert "result 42" in done.stdout


def test_a_breakpoint_that_the_driver_has_set_stops_a_task(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(
        "import mray\n"
        "mray.init(local_mode=True, logging_level='ERROR')\n"
        "@mray.remote\n"
        "def task(secret):\n"
        "    doubled = secret * 2\n"
        "    return doubled\n"
        "print('result', mray.get(task.remote(21)))\n"
    )
    done = run("", "-m", "pdb", str(path), stdin="b 6\nc\np doubled * 1000\nc\nq\n", path=True)
    assert "42000" in done.stdout, done
    assert "result 42" in done.stdout


def test_coverage_sees_the_lines_of_tasks(tmp_path):
    pytest.importorskip("coverage")
    path = tmp_path / "program.py"
    path.write_text(
        "import mray\n"
        "mray.init(local_mode=True, logging_level='ERROR')\n"
        "@mray.remote\n"
        "class Actor:\n"
        "    def method(self, flag):\n"
        "        if flag:\n"
        "            return 1\n"
        "        return 2\n"
        "actor = Actor.remote()\n"
        "assert mray.get(actor.method.remote(True)) == 1\n"
    )
    run("", "-m", "coverage", "run", str(path), path=True, cwd=tmp_path)
    report = run("", "-m", "coverage", "report", "-m", "--include", str(path), path=True, cwd=tmp_path)
    line = next(line for line in report.stdout.splitlines() if "program.py" in line)
    assert line.split()[-1] == "8", report


def test_the_environment_of_a_task_is_there_while_it_runs(session):
    name = "MRAY_TEST_VARIABLE_OF_A_TASK"

    @session.remote
    def look(rounds):
        seen = []
        for _ in range(rounds):
            seen.append(os.environ.get(name))
            time.sleep(0.001)
        return set(seen)

    one = look.options(runtime_env={"env_vars": {name: "one"}}).remote(20)
    two = look.options(runtime_env={"env_vars": {name: "two"}}).remote(20)
    none = look.remote(20)
    assert session.get([one, two, none]) == [{"one"}, {"two"}, {None}]
    assert name not in os.environ


def test_ps_shows_the_command_of_the_driver():
    source = """
        import mray
        with open("/proc/self/cmdline") as file:
            command = file.read()
        mray.init(local_mode=True, logging_level="ERROR")

        @mray.remote
        class Actor:
            def ping(self):
                return 1

        mray.get(Actor.remote().ping.remote())
        with open("/proc/self/cmdline") as file:
            assert file.read() == command
        print("same")
    """
    assert run(source).stdout == "same\n"


def test_coroutines_that_a_session_ends_run_their_finally_clauses_and_say_nothing():
    source = """
        import asyncio, mray
        mray.init(local_mode=True, logging_level="ERROR")

        @mray.remote(max_concurrency=2)
        class Actor:
            async def wait(self, number):
                try:
                    await asyncio.Event().wait()
                finally:
                    print("over", number)

        actor = Actor.remote()
        refs = [actor.wait.remote(number) for number in range(3)]
        assert not mray.wait(refs, timeout=0.1)[0]
        mray.shutdown()
        print("end")
    """
    done = run(source)
    assert done.stdout == "over 0\nover 1\nend\n"
    assert done.stderr == ""


def test_killing_the_pid_of_an_actor_ends_it_alone(session):
    @session.remote(max_restarts=1)
    class Actor:
        def pid(self):
            return os.getpid()

    actor = Actor.remote()
    pid = session.get(actor.pid.remote())
    assert pid != os.getpid()
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(session.exceptions.RayActorError, match="SIGKILL"):
        session.get(actor.pid.remote())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_task_that_exits_ends_its_simulated_process(session):
    @session.remote(max_retries=0)
    def leave(status):
        try:
            os._exit(status)
        except BaseException:
            time.sleep(0)  # nobody goes on after that
            session.get(session.put(1))
            return "still here"

    with pytest.raises(session.exceptions.WorkerCrashedError, match="3"):
        session.get(leave.remote(3))


def test_large_copies_have_no_thread_beside_the_simulated_ones(session):
    """A simulated thread that waited for one could not be seen to go on."""
    import numpy

    @session.remote(num_returns=3)
    def make(array):
        return [array + number for number in range(3)]

    array = numpy.zeros(1 << 24, dtype=numpy.uint8)
    for number, ref in enumerate(make.remote(session.put(array))):
        assert set(session.get(ref)[::4096].tolist()) == {number}
    assert not [thread for thread in threading.enumerate() if thread.name == "mray-copier"]


def test_what_needs_a_process_is_refused_at_the_call(session):
    @session.remote
    def task():
        """Never runs."""

    with pytest.raises(NotImplementedError, match="process of its own"):
        task.options(runtime_env={"pip": ["numpy"]}).remote()


def test_a_condition_that_the_caller_does_not_hold_refuses_to_wait(session):
    @mray.remote
    def wait_unheld() -> None:
        threading.Condition().wait()

    with pytest.raises(RuntimeError, match="cannot wait on un-acquired lock"):
        mray.get(wait_unheld.remote())


def test_a_thread_of_the_user_may_call(session):
    @session.remote
    def double(value):
        return 2 * value

    found = []
    threads = [threading.Thread(target=lambda value=value: found.append(session.get(double.remote(value)))) for value in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [0, 2, 4, 6]


def test_a_thread_that_is_older_than_the_session_may_bring_something_about():
    begun, happened = threading.Event(), threading.Event()

    def work():
        begun.wait()
        time.sleep(0.05)
        happened.set()

    thread = threading.Thread(target=work)
    thread.start()
    with mray.init(local_mode=True, logging_level="ERROR"):
        begun.set()
        assert happened.wait()
    thread.join()


def test_a_daemon_that_is_older_than_the_session_is_waited_for_by_name():
    begun = threading.Event()
    thread = threading.Thread(target=lambda: (begun.wait(), time.sleep(0.05)), daemon=True)
    thread.start()
    with mray.init(local_mode=True, logging_level="ERROR"):
        begun.set()
        thread.join()
        assert not thread.is_alive()


def test_a_driver_that_only_looks_at_a_future_lets_others_run(session):
    @session.remote
    def add(number, *after):
        return number + 1

    first = add.remote(0)
    future = add.remote(1, first, add.remote(2, first)).future()
    while not future.done():
        pass
    assert future.result(0) == 2
    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        asked = threads.submit(lambda: session.get(add.remote(3)))
        while not asked.done():
            pass
    assert asked.result(0) == 4


def test_an_interrupt_reaches_a_driver_that_waits(tmp_path):
    source = """
        import mray, time
        mray.init(local_mode=True, logging_level="ERROR")

        @mray.remote
        def sleeper():
            time.sleep(1000)

        ref = sleeper.remote()
        print("go", flush=True)
        mray.get(ref)
    """
    program = subprocess.Popen([sys.executable, "-c", textwrap.dedent(source)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with program:
        assert program.stdout.readline() == "go\n"
        program.send_signal(signal.SIGINT)
        _out, error = program.communicate()
    assert "KeyboardInterrupt" in error
    assert program.returncode != 0


def test_an_address_and_one_process_exclude_each_other():
    with pytest.raises(ValueError, match="Invalid address format"):
        mray.init("auto", local_mode=True)


def test_a_fork_has_no_session(session, monkeypatch):
    monkeypatch.setattr(sys, "unraisablehook", lambda _: os._exit(9))  # an error of leaving the session, which Python drops
    pid = os.fork()
    if not pid:
        try:
            mray.put(1)
        except mray.exceptions.RaySystemError:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7


def test_what_tasks_print_and_their_bars_come_out_at_once(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        """
import os, sys
import mray
from mray.experimental.tqdm_ray import tqdm

sys.stderr.isatty = lambda: True  # bars are drawn for a person
mray.init(local_mode=True, num_cpus=2, logging_level="ERROR")

@mray.remote
def speaks(number):
    print("said by", number)
    bar = tqdm(desc=f"job {number}", total=5, flush_interval_s=0)
    for _ in range(5):
        bar.update(1)
    bar.close()
    print("to stderr", number, file=sys.stderr)

for number in range(2):
    mray.get(speaks.remote(number))
    print("done", number)
"""
    )
    done = run("", str(program), path=True)
    assert done.stdout.splitlines() == ["said by 0", "done 0", "said by 1", "done 1"]
    for number in range(2):
        assert f"to stderr {number}" in done.stderr
        assert re.search(rf"job {number}: +100%", done.stderr)
