"""The pytest plugin, as a guest: small projects that run pytest in a process of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from mray.pytest_plugin.leaks import RETRY_DELAY
from tests.checkout import python_path

#: pytest-asyncio asks for a choice, whether or not a test is a coroutine.
INI = "[pytest]\nasyncio_default_fixture_loop_scope = function\nasyncio_mode = strict\n"

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def project(tmp_path: Path) -> Run:
    """``project({name: text}, *words)``: write the files, run ``python -m WORDS`` (pytest without any) there."""

    def run(files: dict[str, str], *words: str, module: str = "pytest", plugin: bool = True) -> subprocess.CompletedProcess[str]:
        for name, text in {"pytest.ini": INI, **files}.items():
            (tmp_path / name).write_text(textwrap.dedent(text))
        command = [sys.executable, "-m", module]
        if module == "pytest":
            # Hypothesis's takes a third of the start of pytest, and has nothing to do here.
            command += ["-p", "no:cacheprovider", "-p", "no:hypothesispytest", *(["-p", "mray.pytest_plugin"] if plugin else [])]
        own = ("PYTEST_", "COV", "MRAY_NULL", RETRY_DELAY)
        of_ci = ("CI", "BUILD_NUMBER")  # with these pytest's summary has whole messages
        environment = {name: value for name, value in os.environ.items() if not name.startswith(own) and name not in of_ci}
        environment["PYTHONPATH"] = python_path()
        return subprocess.run([*command, *words], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False)

    return run


def outcomes(done: subprocess.CompletedProcess[str]) -> dict[str, int]:
    """The counts of pytest's last line."""
    found = re.findall(r"(\d+) (passed|failed|errors?)", done.stdout.strip().splitlines()[-1])
    return {word.rstrip("s"): int(count) for count, word in found}


def test_tests_share_a_session_and_see_nothing_of_each_other(project):
    done = project(
        {
            "test_shared.py": """
                import os
                import pytest

                seen, sessions, workers = [], set(), set()

                @pytest.mark.parametrize("number", range(4))
                def test_alone(mray_session, number):
                    ray = mray_session
                    assert ray.cluster_resources()["CPU"] == 3
                    assert ray.cluster_resources()["GPU"] == 2
                    assert ray.cluster_resources()["x"] == 2
                    assert ray.available_resources() == ray.cluster_resources()
                    for ref in seen:
                        with pytest.raises(ValueError, match="reset"):
                            ray.get(ref)

                    @ray.remote(num_gpus=1, lifetime="detached", name="same")
                    class A:
                        def ping(self):
                            return number

                    @ray.remote
                    def pid():
                        return os.getpid()

                    actor = A.remote()
                    assert ray.get(actor.ping.remote()) == number
                    workers.add(ray.get(pid.remote()))
                    seen.append(ray.put(number))
                    sessions.add(ray.get_runtime_context().get_node_id())
                    assert len(sessions) == 1

                @pytest.mark.mray(num_cpus=1, resources={"y": 2})
                def test_fresh(mray_fresh):
                    assert mray_fresh.cluster_resources()["y"] == 2
                    assert mray_fresh.cluster_resources()["CPU"] == 1
                    assert "x" not in mray_fresh.cluster_resources()
                    assert mray_fresh.get_runtime_context().get_node_id() not in sessions

                @pytest.mark.mray(engine="local")
                def test_local(mray_fresh):
                    from mray._api.current import current_backend

                    assert type(current_backend()).__name__ == "LocalBackend"
                    assert mray_fresh.get(mray_fresh.remote(lambda: 1).remote()) == 1

                def test_after_it_ended_the_session(mray_session):
                    mray_session.shutdown()

                def test_another_session(mray_session):
                    assert mray_session.get(mray_session.put(1)) == 1

                @pytest.mark.mray(num_cpus=1)
                def test_wrong(mray_session):
                    pass
            """,
            "pytest.ini": INI + "mray_cpus = 8\nmray_resources = x=2\n",
        },
        "--mray-cpus=3",
        "--mray-gpus=2",
        "--strict-markers",
        "--strict-config",
    )
    assert outcomes(done) == {"passed": 8, "error": 1}, done.stdout + done.stderr
    assert "the marker `mray` is for `mray_fresh`" in done.stdout


def test_retries_follow_soon_unless_a_test_says_otherwise(project):
    done = project(
        {
            "test_delay.py": """
                import pytest

                from mray._api.current import current_backend

                def delay():
                    return current_backend().info()["retry_delay"]

                def test_short(mray_session):
                    assert delay() == 0.01

                @pytest.mark.mray(_system_config={"task_retry_delay_ms": 500})
                def test_of_its_own(mray_fresh):
                    assert delay() == 0.5

                @pytest.fixture(params=["MRAY_TASK_RETRY_DELAY_MS", "RAY_task_retry_delay_ms"])
                def variable(request, monkeypatch):
                    monkeypatch.setenv(request.param, "700")

                def test_by_a_variable(variable, mray_fresh):
                    assert delay() == 0.7
            """
        }
    )
    assert outcomes(done) == {"passed": 4}, done.stdout + done.stderr


def test_what_a_test_leaves_behind_fails_it(project):
    files = {
        "test_leaks.py": """
            import mmap, os, subprocess, sys, threading
            from mray.pytest_plugin import leaks

            leaks.PATIENCE, leaks.LASTING = 0.5, 0.2
            kept = []

            def leave(what):
                if what == "process":
                    kept.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"]))
                elif what == "thread":
                    event = threading.Event()
                    thread = threading.Thread(target=event.wait, name="kept-thread", daemon=True)
                    thread.start()
                    kept.append((event, thread))
                elif what == "file":
                    kept.append(open(__file__))
                elif what == "name":
                    with open("/dev/shm/mray-kept-%d" % os.getpid(), "w+") as file:
                        file.truncate(1)
                        kept.append(mmap.mmap(file.fileno(), 1))  # or it looks like what the dead have left, which whoever may remove

            def test_process(mray_session):
                leave("process")

            def test_process_of_a_worker(mray_session):
                def sleep():
                    return subprocess.Popen(["sleep", "1000"]).pid

                kept.append(mray_session.get(mray_session.remote(sleep).remote()))

            def test_thread(mray_fresh):
                leave("thread")

            def test_file(mray_session):
                leave("file")

            def test_name(mray_fresh):
                leave("name")

            def test_nothing(mray_session):
                mray_session.get(mray_session.remote(lambda: 1).remote())

            def test_without_mray():
                leave("thread")

            def test_clean_up():
                for each in kept:
                    if isinstance(each, subprocess.Popen):
                        each.kill()
                        each.wait()
                    elif isinstance(each, tuple):
                        each[0].set()
                        each[1].join()
                    elif isinstance(each, int):
                        try:
                            os.kill(each, 9)
                        except ProcessLookupError:  # it went with its session
                            pass
                    else:
                        each.close()
                os.unlink("/dev/shm/mray-kept-%d" % os.getpid())
        """
    }
    done = project(files)
    assert outcomes(done) == {"passed": 8, "error": 5}, done.stdout + done.stderr
    for text in (r"process \d+: python", r"process \d+: sleep", "thread kept-thread", "-> .*test_leaks.py", "shared memory mray-kept"):
        assert re.search(text, done.stdout), f"{text}\n{done.stdout}"
    done = project(files, "--mray-leaks=off", "-k", "name or clean_up")
    assert outcomes(done) == {"passed": 2}, done.stdout + done.stderr
    done = project(files, "--mray-leaks=all", "-k", "without_mray or name or clean_up")
    assert outcomes(done) == {"passed": 3, "error": 2}, done.stdout + done.stderr


def test_tests_that_start_sessions_of_their_own_may_stand_between_those_that_share_one(project):
    files = {
        "test_mixed.py": """
            import threading, unittest
            import mray, pytest
            from mray.pytest_plugin import leaks
            from mray.util.interleavings import explore

            leaks.PATIENCE, leaks.LASTING = 0.5, 0.2

            def test_first(mray_session):
                assert mray_session.cluster_resources()["CPU"] == 3
                assert mray.is_initialized()
                with pytest.raises(RuntimeError, match="twice"):
                    mray.init()

            class TestOwn(unittest.TestCase):
                @classmethod
                def setUpClass(cls):
                    assert not mray.is_initialized()
                    mray.init(num_cpus=1)

                def test_it(self):
                    self.assertEqual(mray.cluster_resources()["CPU"], 1)

                @classmethod
                def tearDownClass(cls):
                    mray.shutdown()

            def test_second(mray_session):
                assert mray_session.cluster_resources()["CPU"] == 3

            def test_explored():
                assert explore(lambda: mray.get(mray.put(1)), [5]) == {5: 1}

            def test_third(mray_session):
                assert mray_session.get(mray_session.remote(lambda: 1).remote()) == 1

            def test_that_ends_the_session_and_leaves_a_thread(mray_session):
                mray.shutdown()
                threading.Thread(target=threading.Event().wait, name="kept-thread", daemon=True).start()

            @pytest.mark.mray(1)
            def test_words(mray_fresh):
                raise AssertionError("not reached")
        """
    }
    done = project(files, "--mray-cpus=3")
    assert outcomes(done) == {"passed": 6, "error": 2}, done.stdout + done.stderr
    assert "thread kept-thread" in done.stdout
    assert "takes options of init() by name, not (1,)" in done.stdout


def test_runs_that_do_not_use_it_import_the_face_of_mray_alone(project):
    text = """
        import sys

        def test_plain():
            behind = ("mray._runtime", "mray._ipc", "mray._objects", "mray._graph", "mray._backends", "mray.pytest_plugin.", "mray.util")
            assert not [name for name in sys.modules if name.startswith(behind) or name in ("cloudpickle", "posix_ipc", "numpy")]
    """
    done = project({"test_plain.py": text})
    assert outcomes(done) == {"passed": 1}, done.stdout + done.stderr


def test_xdist_runs_have_a_session_in_each_process(project):
    done = project(
        {
            "test_many.py": """
                import os, pytest

                @pytest.mark.parametrize("number", range(12))
                def test_each(mray_session, number):
                    ray = mray_session

                    @ray.remote(name="same")
                    class A:
                        def parent(self):
                            return os.environ["PYTEST_XDIST_WORKER"]

                    actor = A.remote()
                    assert ray.get(actor.parent.remote()) == os.environ["PYTEST_XDIST_WORKER"]
                    large = ray.put(bytes(1 << 20))
                    assert len(ray.get(large)) == 1 << 20

                @pytest.mark.parametrize("number", range(2))
                def test_fresh(mray_fresh, number):
                    assert mray_fresh.get(mray_fresh.remote(lambda: 1).remote()) == 1
            """
        },
        "-n2",
        "--mray-leaks=all",
    )
    assert outcomes(done) == {"passed": 14}, done.stdout + done.stderr


def test_one_process_between_whose_tests_pytest_waits_for_threads_of_its_own(project):
    done = project(
        {
            "test_many.py": """
                import pytest

                @pytest.mark.parametrize("number", range(8))
                def test_each(mray_session, number):
                    assert mray_session.get(mray_session.remote(lambda: number).remote()) == number
            """
        },
        "-n2",
        "--mray-engine=local",
    )
    assert outcomes(done) == {"passed": 8}, done.stdout + done.stderr


def test_coroutines_await_refs(project):
    pytest.importorskip("pytest_asyncio")
    done = project(
        {
            "test_async.py": """
                import asyncio, pytest

                @pytest.mark.asyncio
                @pytest.mark.parametrize("number", range(3))
                async def test_await(mray_session, number):
                    @mray_session.remote
                    class A:
                        async def double(self, x):
                            await asyncio.sleep(0)
                            return 2 * x

                    actor = A.remote()
                    assert await actor.double.remote(2) == 4
                    assert sorted(await asyncio.gather(*(actor.double.remote(x) for x in range(5)))) == [0, 2, 4, 6, 8]
            """
        },
        "--mray-leaks=all",
        "-W",
        "error",
    )
    assert outcomes(done) == {"passed": 3}, done.stdout + done.stderr


HANGS = """
    import threading, pytest

    class A:
        def hangs_in_here(self):
            threading.Event().wait()

    def test_starts(mray_session):
        pass

    @pytest.mark.timeout(6)
    def test_hangs(mray_session):
        mray_session.get(mray_session.remote(A).remote().hangs_in_here.remote())

    def test_after_it(mray_session):
        assert mray_session.get(mray_session.put(1)) == 1
"""


def test_a_timeout_shows_what_every_process_is_doing(project):
    done = project({"test_hangs.py": HANGS}, "--timeout=100", "--timeout-method=signal")
    assert outcomes(done) == {"failed": 1, "passed": 2}, done.stdout + done.stderr
    assert "test_hangs has nearly used up its time" in done.stderr
    assert "hangs_in_here" in done.stderr
    assert re.search(r"=== node pid \d+", done.stderr)


COUNTED = {
    "work.py": """
        import time

        def in_a_task(x):
            return (x +
                    1)

        def never():
            return 1

        class A:
            def method(self):
                y = 3
                return y

            def killed_while_it_runs(self, event):
                n = 0
                import mray
                while True:
                    n += 1
                    time.sleep(0.01)
                    if n == 2:  # by now every line has run
                        event.set.remote()

            def ends_itself(self):
                import mray
                mray.actor.exit_actor()

        class Event:
            def __init__(self):
                import asyncio
                self.event = asyncio.Event()

            async def set(self):
                self.event.set()

            async def wait(self):
                await self.event.wait()
    """,
    "use.py": """
        import work

        def use(ray):
            assert ray.get(ray.remote(work.in_a_task).remote(1)) == 2
            actor = ray.remote(work.A).remote()
            event = ray.remote(work.Event).remote()
            assert ray.get(actor.method.remote()) == 3
            actor.killed_while_it_runs.remote(event)
            ray.get(event.wait.remote())
            ray.kill(actor)
            ending = ray.remote(work.A).remote()
            try:
                ray.get(ending.ends_itself.remote())
            except ray.exceptions.RayActorError:
                pass
            return event
    """,
}


def missing_lines(report: str) -> set[str]:
    """Lines of work.py that no process has run, as a report lists them."""
    (row,) = [line.split() for line in report.splitlines() if line.startswith("work.py")]
    return set("".join(row[4:]).split(",")) - {""}


def test_pytest_cov_counts_lines_of_workers_however_they_end(project, tmp_path):
    pytest.importorskip("pytest_cov")
    files = {
        **COUNTED,
        "test_counted.py": """
            from use import use

            def test_shared(mray_session):
                use(mray_session)

            def test_fresh(mray_fresh):
                use(mray_fresh)
        """,
    }
    for words in ((), ("-n1",)):
        done = project(files, "--cov=work", "--cov-report=term-missing", *words)
        assert outcomes(done)["passed"] == 2, done.stdout + done.stderr
        assert missing_lines(done.stdout) == {"9"}, done.stdout
        assert [path.name for path in tmp_path.glob(".coverage*")] == [".coverage"]


@pytest.mark.parametrize("config", ["[run]\nsource = .\n", "[run]\nsource = .\npatch = subprocess\n"])
def test_coverage_run_counts_lines_of_workers(project, tmp_path, config):
    pytest.importorskip("coverage")
    files = {
        **COUNTED,
        ".coveragerc": config,
        "program.py": "import mray\nfrom use import use\nmray.init(num_cpus=2)\nevent = use(mray)\n",
    }
    done = project(files, "run", "program.py", module="coverage")
    assert done.returncode == 0, done.stdout + done.stderr
    if "patch" in config:
        done = project(files, "combine", module="coverage")
    done = project(files, "report", "-m", module="coverage")
    assert missing_lines(done.stdout) == {"9"}, done.stdout + done.stderr
    assert [path.name for path in tmp_path.glob(".coverage*") if path.name != ".coveragerc"] == [".coverage"]


def test_a_worker_that_cannot_write_its_lines_says_so(project):
    pytest.importorskip("coverage")
    program = """
        import mray

        @mray.remote
        def spoil():
            import coverage

            def fail():
                raise OSError("the disk is gone")

            coverage.Coverage.current().save = fail

        mray.init(num_cpus=1)
        mray.get(spoil.remote())
        mray.shutdown()
    """
    done = project({"program.py": program}, "run", "program.py", module="coverage")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"coverage: the lines of this worker \(pid \d+\) are lost: OSError: the disk is gone", done.stdout + done.stderr)


def test_unittest_needs_no_plugin(project):
    done = project(
        {
            "test_unit.py": """
                import os, unittest
                import mray
                from mray.util.testing import reset

                class Shared(unittest.TestCase):
                    @classmethod
                    def setUpClass(cls):
                        mray.init(num_cpus=2, logging_level="ERROR")

                    @classmethod
                    def tearDownClass(cls):
                        mray.shutdown()

                    def tearDown(self):
                        reset()

                    def test_one(self):
                        self.actor = mray.remote(A).options(name="a").remote()
                        self.assertEqual(mray.get(self.actor.ping.remote()), 1)

                    def test_two(self):
                        self.test_one()

                class Own(unittest.TestCase):
                    def test_with(self):
                        with mray.init(num_cpus=1, logging_level="ERROR"):
                            self.assertEqual(mray.get(mray.remote(A).remote().ping.remote()), 1)
                        self.assertFalse(mray.is_initialized())

                    def test_after_an_exception(self):
                        with self.assertRaises(ZeroDivisionError), mray.init(num_cpus=1, logging_level="ERROR") as context:
                            kept = mray.remote(A).remote()
                            mray.get(kept.ping.remote())
                            1 / 0
                        self.assertFalse(mray.is_initialized())
                        self.assertFalse(os.path.exists(context["session_dir"]))

                class A:
                    def ping(self):
                        return 1
            """
        },
        "-v",
        module="unittest",
    )
    assert done.returncode == 0, done.stderr
    assert "Ran 4 tests" in done.stderr
    assert "Warning" not in done.stderr


def test_a_failed_test_is_shown_without_frames_of_mray_unless_it_is_asked_for(project):
    files = {
        "test_failing.py": """
            import mray

            def test_task(mray_session):
                @mray.remote
                def fails(): raise KeyError("of the user")
                mray.get(fails.remote())

            def test_call(mray_session):
                @mray.remote
                def f(): pass
                f.remote(1)

            def test_bug(mray_session, monkeypatch):
                monkeypatch.setattr(mray._api.verbs, "check_timeout", {}.__getitem__)
                mray.get([], timeout=1)
            """
    }
    done = project(files, "-p", "no:randomly")
    assert outcomes(done) == {"failed": 3}
    task, rest = done.stdout.split("test_call ___", 1)
    call, bug = rest.split("test_bug ___", 1)
    assert re.search(r">\s+mray.get\(fails.remote\(\)\)\nE\s+mray.exceptions.RayTaskError", task)
    assert re.search(r">\s+f.remote\(1\)\nE\s+TypeError: too many positional arguments", call)
    for text in (task, call):
        assert not re.search(r"/mray/_(api|backends|runtime)", text)
    assert "/mray/_api/verbs.py" in bug  # an error that is nobody's but mray's
    assert "/mray/_api/verbs.py" in project(files, "--full-trace", "-k", "task").stdout


def test_calls_that_wait_for_each_other_fail_their_test_unless_the_environment_says_otherwise(project):
    files = {
        "conftest.py": """
            import os

            os.environ["MRAY_WARN_WAITING"] = "0.2"
            """,
        "test_deadlock.py": """
            import os

            import mray

            class Alone:
                def know(self, me):
                    self.me = me

                def other(self):
                    return 1

                def go(self):
                    return mray.get(self.me.other.remote())

            def wait(ray, timeout):
                actor = ray.remote(Alone).remote()
                ray.get(actor.know.remote(actor))
                return ray.get(actor.go.remote(), timeout=timeout)

            def test_shared(mray_session):
                wait(mray_session, None)

            def test_fresh(mray_fresh):
                wait(mray_fresh, None)

            def test_after():
                assert "MRAY_RAISE_DEADLOCKS" not in os.environ
            """,
    }
    done = project(files)
    assert outcomes(done) == {"failed": 2, "passed": 1}
    assert done.stdout.count("Alone.go (pid ") == 2 * done.stdout.count("Alone.other, which is queued behind Alone.go (pid ") == 4
    assert done.stdout.count("mray.exceptions.RayTaskError(DeadlockError)") >= 2
    files["conftest.py"] += '\n            os.environ["MRAY_RAISE_DEADLOCKS"] = "0"\n'
    files["test_deadlock.py"] = files["test_deadlock.py"].replace("None)", "1)").replace("not in", "in")
    done = project(files)
    assert outcomes(done) == {"failed": 2, "passed": 1}
    assert "GetTimeoutError" in done.stdout
    assert "DeadlockError" not in done.stdout
