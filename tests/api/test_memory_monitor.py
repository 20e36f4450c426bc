"""Workers that are ended because memory runs low, and what those who wait for them get."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes("a worker is ended to have its memory")

#: Kilobytes of a machine so small that each worker holds much of it.
TOTAL = 10_000


class Memory:
    """The file that the session reads as the machine's memory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.fill(0.1)

    def fill(self, share: float) -> None:
        new = self.path.with_suffix(".new")
        new.write_text(f"MemTotal: {TOTAL} kB\nMemFree: 1 kB\nMemAvailable: {int(TOTAL * (1 - share))} kB\n")
        os.replace(new, self.path)


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Memory]:
    """The machine's memory, for sessions that begin after this."""
    made = Memory(tmp_path / "meminfo")
    monkeypatch.setenv("MRAY_MEMINFO", str(made.path))
    monkeypatch.setenv("MRAY_MEMORY_MONITOR_REFRESH_MS", "10")
    monkeypatch.setenv("MRAY_TASK_OOM_RETRY_DELAY_BASE_MS", "10")
    yield made
    made.fill(0.1)


def attempts(path: Path) -> list[int]:
    """The pids that a task has written down."""
    return [int(line) for line in path.read_text().split()] if path.exists() else []


@pytest.mark.parametrize("what", ["task", "actor"])
def test_who_may_not_be_tried_again_is_an_out_of_memory_error(run_program: Callable[..., object], what: str) -> None:
    """On the real memory of this machine, of which little more than what is in use is too much."""
    done = run_program(
        """
        import sys
        import time

        import ENGINE as ray

        info = dict(line.split(":") for line in open("/proc/meminfo"))
        total, available = (int(info[name].split()[0]) for name in ("MemTotal", "MemAvailable"))
        threshold = (total - available + 200_000 + total // 50) / total  # 1 % is to be free below it when a worker has ended
        ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, _system_config={"memory_usage_threshold": threshold})

        def grow():
            blocks = []
            while len(blocks) < 80:
                blocks.append(bytearray(b"x") * (50 << 20))
                time.sleep(0.02)
            time.sleep(1000)

        @ray.remote(max_retries=0)
        def task():
            grow()

        @ray.remote
        class Actor:
            def run(self):
                grow()

        try:
            ray.get(task.remote() if sys.argv[1] == "task" else Actor.remote().run.remote())
        except ray.exceptions.OutOfMemoryError as error:
            print(error)
            assert isinstance(error, ray.exceptions.RayError)
        """,
        what,
    )
    text = done.stdout  # type: ignore[attr-defined]
    assert "1 worker(s) were killed due to the node running low on memory." in text
    assert "OOM kill reason: Memory usage " in text
    assert "Top 10 memory users: PID\tMEM(GB)\tCOMMAND" in text
    assert "RAY_memory_usage_threshold" in text


@pytest.mark.only("mray")  # Ray ends the worker
def test_a_stranger_with_all_the_memory_is_named_once_and_work_goes_on(run_program: Callable[..., object]) -> None:
    """On the real memory of this machine, of which any use is too much."""
    done = run_program(
        """
        import subprocess
        import sys

        import ENGINE as ray

        hold = "block = bytearray(b'x') * (300 << 20); print(flush=True); input()"
        stranger = subprocess.Popen([sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        stranger.stdout.readline()
        ray.init(num_cpus=2)

        @ray.remote(max_retries=0)
        def task(number):
            return number + 1

        @ray.remote
        class Actor:
            def run(self, number):
                return number + 1

        actor = Actor.remote()
        for number in range(200):
            assert ray.get([task.remote(number), actor.run.remote(number)]) == [number + 1, number + 1]
        print(stranger.pid)
        ray.shutdown()
        stranger.communicate(b"\\n")
        """,
        env={"RAY_memory_usage_threshold": "0.001", "RAY_memory_monitor_refresh_ms": "10"},
    )
    pid = done.stdout.strip()  # type: ignore[attr-defined]
    warnings = [line for line in done.stderr.splitlines() if "Memory on the node" in line]  # type: ignore[attr-defined]
    assert len(warnings) == 1
    assert "No worker was ended" in warnings[0]
    assert "killed" not in done.stderr  # type: ignore[attr-defined]
    # (Another program of this machine may hold more.)
    assert ", pid=" in warnings[0] and pid


@pytest.mark.only("mray")  # the memory of the machine is made up
def test_a_task_is_tried_again_until_memory_suffices(fresh, init, memory, tmp_path, eventually):
    ray = fresh
    init(num_cpus=1)
    path = tmp_path / "attempts"

    @ray.remote(max_retries=1)
    def task():
        with path.open("a") as file:
            file.write(f"{os.getpid()}\n")
        while len(attempts(path)) < 4:
            time.sleep(0.005)
        return len(attempts(path))

    ref = task.remote()
    for number in range(1, 4):  # more often than max_retries allows
        eventually(lambda wanted=number: len(attempts(path)) >= wanted)
        pid = attempts(path)[-1]
        memory.fill(0.99)
        eventually(lambda pid=pid: not os.path.exists(f"/proc/{pid}"))
        memory.fill(0.1)
    assert ray.get(ref) >= 4


@pytest.mark.only("mray")  # the memory of the machine is made up
def test_attempts_can_be_limited(fresh, init, memory, capfd):
    ray = fresh
    init(num_cpus=1, _system_config={"task_oom_retries": 2})

    @ray.remote
    def task():
        time.sleep(1000)

    memory.fill(0.99)
    with pytest.raises(ray.exceptions.OutOfMemoryError, match=r"Killed: task .*task, pid=\d+"):
        ray.get(task.remote())
    ray.shutdown()
    # Workers may have been ended besides that were to run the task and did not have it yet.
    assert capfd.readouterr().err.count("Killed: task task") >= 3


@pytest.mark.only("mray")  # the memory of the machine is made up
def test_a_task_that_rests_can_be_cancelled_and_ends_with_the_session(fresh, init, memory, tmp_path, eventually, monkeypatch):
    monkeypatch.setenv("MRAY_TASK_OOM_RETRY_DELAY_BASE_MS", "1000000")
    ray = fresh
    init(num_cpus=2)

    @ray.remote
    def task(path):
        with open(path, "a") as file:
            file.write(f"{os.getpid()}\n")
        time.sleep(1000)

    paths = [tmp_path / "first", tmp_path / "second"]
    refs = [task.remote(str(path)) for path in paths]
    eventually(lambda: all(attempts(path) for path in paths))
    pids = [attempts(path)[0] for path in paths]
    memory.fill(0.99)
    eventually(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids))
    memory.fill(0.1)
    assert ray.wait(refs, timeout=0)[0] == []
    ray.cancel(refs[0])
    with pytest.raises(ray.exceptions.TaskCancelledError):
        ray.get(refs[0])
    ray.shutdown()
    assert all(len(attempts(path)) == 1 for path in paths)


@pytest.mark.only("mray")  # the memory of the machine is made up
def test_an_actor_that_may_be_is_restarted_without_its_state(fresh, init, memory, eventually):
    ray = fresh
    init(num_cpus=1)

    @ray.remote(max_restarts=-1, max_task_retries=-1)
    class Counter:
        def __init__(self):
            self.count = 0

        def add(self):
            self.count += 1
            return self.count, os.getpid()

    counter = Counter.remote()
    assert ray.get(counter.add.remote())[0] == 1
    count, pid = ray.get(counter.add.remote())
    assert count == 2
    memory.fill(0.99)
    eventually(lambda: not os.path.exists(f"/proc/{pid}"))
    memory.fill(0.1)
    assert ray.get(counter.add.remote())[0] == 1


@pytest.mark.only("mray")  # the memory of the machine is made up
def test_calls_to_an_actor_that_was_ended_say_why(fresh, init, memory):
    ray = fresh
    init(num_cpus=1)

    @ray.remote
    class Actor:
        def wait(self):
            time.sleep(1000)

    actor = Actor.remote()
    ref = actor.wait.remote()
    memory.fill(0.99)
    for call in (lambda: ref, actor.wait.remote):
        with pytest.raises(ray.exceptions.OutOfMemoryError, match=r"Killed: actor .*Actor, pid=\d+"):
            ray.get(call())


@pytest.mark.only("mray")  # the memory of the machine is made up
def test_a_task_that_may_be_tried_again_goes_before_an_actor_and_nobody_else_goes(run_program, tmp_path):
    memory = Memory(tmp_path / "meminfo")
    done = run_program(
        """
        import os
        import sys
        import time

        import ENGINE as ray

        ray.init(num_cpus=4)

        @ray.remote
        def task(path):
            open(path, "w").close()
            time.sleep(1000)

        @ray.remote
        class Actor:
            def run(self):
                time.sleep(1000)
            def here(self):
                pass

        path, meminfo = sys.argv[1:]
        ref = task.remote(path)
        while not os.path.exists(path):
            time.sleep(0.005)
        actor, again = Actor.remote(), Actor.options(max_restarts=1).remote()
        ray.get([actor.here.remote(), again.here.remote()])
        full = open(meminfo).read().replace("MemAvailable: 9000", "MemAvailable: 100")
        with open(meminfo + "2", "w") as file:
            file.write(full)
        os.replace(meminfo + "2", meminfo)
        try:
            ray.get(actor.run.remote())
        except ray.exceptions.OutOfMemoryError:
            print("ended")
        """,
        str(tmp_path / "began"),
        str(memory.path),
        env={
            "MRAY_MEMINFO": str(memory.path),
            "MRAY_MEMORY_MONITOR_REFRESH_MS": "10",
            "MRAY_TASK_OOM_RETRY_DELAY_BASE_MS": "1000000",
        },
    )
    assert done.stdout == "ended\n"
    ended = [line.partition("Killed: ")[2] for line in done.stderr.splitlines() if "Killed: " in line]
    assert [text.partition(",")[0] for text in ended if not text.startswith("an idle")][:2] == ["task task", "actor Actor"]
    assert "it may be retried" in ended[0]


@pytest.mark.only("mray")  # the memory of the machine is made up
def test_the_monitor_can_be_switched_off(fresh, init, memory, monkeypatch):
    monkeypatch.setenv("MRAY_MEMORY_MONITOR_REFRESH_MS", "0")
    ray = fresh
    init(num_cpus=1)
    memory.fill(0.99)

    @ray.remote(max_retries=0)
    def task():
        time.sleep(0.3)
        return 1

    assert ray.get(task.remote()) == 1


@pytest.mark.only("mray")  # Ray does the same in its own time
def test_the_kernel_would_rather_end_a_worker_than_the_driver(ray_session):
    ray = ray_session

    @ray.remote
    def score():
        return int(Path("/proc/self/oom_score_adj").read_text())

    assert ray.get(score.remote()) == 1000
    assert int(Path("/proc/self/oom_score_adj").read_text()) < 1000
