"""The memory monitor without processes: whom it ends, what it reads, how often it looks."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mray._common import messages as m
from mray._common.causes import Cause
from mray._common.memory_options import monitor_options, retry_options
from mray._ipc.table import POOLED, ROW_WORDS, SessionTable
from mray._runtime.node import memory_monitor
from mray._runtime.node.members import Members
from mray._runtime.node.memory_monitor import MemoryMonitor
from mray._runtime.node.memory_usage import Process, largest, processes, read_usage
from mray._scheduler import events
from mray._scheduler.instructions import KillWorker, SpawnWorker, Tell
from mray._scheduler.memory import ACTOR, ACTOR_AGAIN, IDLE_WORKER, TASK, TASK_AGAIN, Suspect, choose, suspects
from mray._scheduler.records import environment_of
from mray._scheduler.scheduler import Scheduler

MIB = 1 << 20


# ------------------------------------------------------------------------------------------ the policy
def there(*facts: tuple[int, int]) -> list[Suspect]:
    """Suspects named by their place, of (cost, MiB), in the order in which they began."""
    return [Suspect(str(number), 100 + number, "x", cost, number, held * MIB) for number, (cost, held) in enumerate(facts)]


def chosen(needed: int, *facts: tuple[int, int]) -> str:
    return " ".join(suspect.process for suspect in choose(there(*facts), needed * MIB))


@pytest.mark.parametrize(
    ("facts", "needed", "expected"),
    [
        ([], 10, ""),
        ([(TASK_AGAIN, 50), (TASK_AGAIN, 50)], 10, "1"),
        ([(TASK_AGAIN, 50), (TASK, 50), (ACTOR, 50)], 10, "0"),
        ([(ACTOR_AGAIN, 50), (TASK_AGAIN, 50)], 10, "1"),
        ([(TASK_AGAIN, 50), (ACTOR_AGAIN, 5000)], 10, "0"),
        ([(ACTOR, 50), (ACTOR_AGAIN, 50), (TASK, 50)], 10, "1"),
        ([(ACTOR, 50), (TASK, 50)], 10, "1"),
        ([(TASK_AGAIN, 50), (IDLE_WORKER, 50)], 10, "1"),
    ],
)
def test_who_costs_least_goes_and_among_equals_who_began_last(facts: Any, needed: int, expected: str) -> None:
    assert chosen(needed, *facts) == expected


def test_several_go_when_one_does_not_give_enough() -> None:
    assert chosen(90, (TASK_AGAIN, 50), (TASK_AGAIN, 50), (TASK_AGAIN, 50)) == "2 1"


def test_who_holds_too_little_to_help_is_passed_over() -> None:
    assert chosen(1000, (ACTOR, 20_000), (TASK_AGAIN, 5), (TASK_AGAIN, 5)) == "0"
    assert chosen(100, (TASK_AGAIN, 5000), (TASK_AGAIN, 5)) == "0"
    assert chosen(100, (TASK_AGAIN, 60), (IDLE_WORKER, 5), (TASK_AGAIN, 60)) == "2 0"


def test_when_nothing_suffices_the_cheapest_that_works_goes() -> None:
    assert chosen(10_000, (ACTOR, 50), (TASK_AGAIN, 5), (IDLE_WORKER, 50)) == "1"
    assert chosen(10_000, (IDLE_WORKER, 50)) == "0"


# --------------------------------------------------------------------------------------- in the scheduler
class Stage:
    """A scheduler with four workers, whose kernel does what it is told."""

    def __init__(self) -> None:
        numbers = itertools.count()
        self.scheduler = Scheduler({"CPU": 4}, (), environment_of({}, ()), lambda: f"w{next(numbers)}")
        self.killed: list[str] = []
        self.told: list[tuple[Any, ...]] = []
        self(events.MemberJoined("driver", 1))

    def __call__(self, event: events.Event) -> None:
        for instruction in self.scheduler.handle(event):
            if isinstance(instruction, SpawnWorker):
                self(events.MemberJoined(instruction.process, 100 + int(instruction.process[1:])))
            elif isinstance(instruction, KillWorker):
                self.killed.append(instruction.process)
            elif isinstance(instruction, Tell):
                self.told.append(instruction.message)
        self.scheduler.validate()

    def task(self, request: int, retriable: bool) -> None:
        demand = {"resources": {"CPU": 1.0}, "label": "task f", "retriable": retriable}
        self(events.LeaseRequested("driver", request, demand))

    def actor(self, actor: bytes, max_restarts: int) -> None:
        spec = {"label": "actor A", "resources": {"CPU": 1.0}, "max_restarts": max_restarts}
        self(events.ActorRequested("driver", 0, actor, spec))
        self(events.ActorConstructed(self.worker_of(actor), actor))

    def worker_of(self, actor: bytes) -> str:
        worker = self.scheduler.actors.records[actor].worker
        assert worker is not None
        return worker.process

    def heard(self, code: int) -> list[tuple[Any, ...]]:
        return [message[1:] for message in self.told if message[0] == code]

    def low(self, *processes: str) -> None:
        self(events.MemoryRanLow(list(processes), "memory is low"))
        for process in self.killed:
            self(events.MemberDied(process, Cause(m.CAUSE_CRASH, "", 7, -9, b"last words")))
        self.killed.clear()


def test_suspects_are_who_works_and_who_is_idle_with_what_their_end_costs() -> None:
    stage = Stage()
    stage.task(1, True)
    stage.task(2, False)
    stage.actor(b"a", 0)
    stage.actor(b"b", 1)
    found = suspects(stage.scheduler.workers.workers.values(), stage.scheduler.members, lambda pid: pid * MIB, lambda _process: False)
    assert [(one.cost, one.held == one.pid * MIB) for one in sorted(found, key=lambda one: one.began)] == [
        (TASK_AGAIN, True),
        (TASK, True),
        (ACTOR, True),
        (ACTOR_AGAIN, True),
    ]
    lease = next(iter(stage.scheduler.leases))
    stage(events.LeaseReturned("driver", lease))
    found = suspects(stage.scheduler.workers.workers.values(), stage.scheduler.members, lambda _pid: 0, lambda _process: False)
    assert sum(one.cost == IDLE_WORKER for one in found) == 1


def test_who_is_on_its_way_out_is_no_suspect() -> None:
    stage = Stage()
    stage.actor(b"a", 0)
    stage(events.ActorKilled(b"a", True))
    assert suspects(stage.scheduler.workers.workers.values(), stage.scheduler.members, lambda _pid: MIB, lambda _process: False) == []


def test_an_actor_that_nobody_holds_is_a_suspect_while_its_calls_run_and_they_hear_why_it_ended() -> None:
    stage = Stage()
    stage.actor(b"a", -1)
    stage(events.ActorWatched("driver", b"a"))
    stage(events.HandlesDropped("driver", [b"a"]))
    process = stage.worker_of(b"a")
    found = suspects(stage.scheduler.workers.workers.values(), stage.scheduler.members, lambda _pid: MIB, lambda _process: False)
    assert [(one.process, one.cost) for one in found] == [(process, ACTOR)]
    stage.low(process)
    assert stage.heard(m.ACTOR_STATE)[-1] == (b"a", "dead", "", 0, (m.CAUSE_MEMORY, "memory is low", 7, -9, None))


def test_an_idle_worker_costs_what_depends_on_it() -> None:
    stage = Stage()
    stage.task(1, True)
    ((_request, lease, worker, *_rest),) = stage.heard(m.LEASE_GRANT)
    stage(events.ActorRequested(worker, 0, b"a", {"label": "actor A", "resources": {"CPU": 1.0}}))
    stage(events.LeaseReturned("driver", lease))

    def cost() -> int:
        found = suspects(stage.scheduler.workers.workers.values(), stage.scheduler.members, lambda _pid: MIB, lambda _process: False)
        return next(one.cost for one in found if one.process == worker)

    assert cost() == ACTOR
    stage(events.ActorKilled(b"a", True))
    stage(events.MemberDied(stage.killed.pop(), Cause(m.CAUSE_CRASH, "", 7, -9, None)))
    assert cost() == IDLE_WORKER
    demand = {"resources": {"CPU": 1.0}, "label": "task g", "retriable": True}
    stage(events.LeaseRequested(worker, 1, {**demand, "env": {"A": "1"}}))
    assert cost() == TASK


def test_an_idle_worker_whose_objects_others_hold_costs_as_much_as_an_actor() -> None:
    stage = Stage()
    stage(events.PrestartAllowed())
    workers = stage.scheduler.workers.workers
    owner = next(iter(workers))
    found = suspects(workers.values(), stage.scheduler.members, lambda _pid: MIB, lambda process: process == owner)
    assert {one.process: one.cost for one in found} == {process: ACTOR if process == owner else IDLE_WORKER for process in workers}


def test_those_who_wait_hear_that_memory_ran_low() -> None:
    stage = Stage()
    stage.task(1, True)
    stage.actor(b"a", 0)
    stage.actor(b"b", 1)
    (_request, lease, worker, *_rest), *_others = stage.heard(m.LEASE_GRANT)
    for process in (worker, stage.worker_of(b"a"), stage.worker_of(b"b")):
        stage(events.ActorWatched("driver", b"a"))
        stage(events.ActorWatched("driver", b"b"))
        stage.low(process)
    cause = (m.CAUSE_MEMORY, "memory is low", 7, -9, None)
    assert stage.heard(m.LEASE_LOST) == [(lease, cause)]
    states = {(message[0], message[1]): message[4] for message in stage.heard(m.ACTOR_STATE)}
    assert states[b"a", "dead"] == cause
    assert states[b"b", "restarting"] == cause


def test_idle_workers_go_silently() -> None:
    stage = Stage()
    stage(events.PrestartAllowed())
    idle = list(stage.scheduler.workers.workers)
    stage.low(*idle, "unknown")
    assert not stage.scheduler.workers.workers


# ------------------------------------------------------------------------------------------ what it reads
def meminfo(path: Path, total: int, available: int) -> str:
    """A file like /proc/meminfo, in MiB."""
    path.write_text(f"MemTotal:       {total * 1024} kB\nMemFree:        1 kB\nMemAvailable:   {available * 1024} kB\nBuffers: 0 kB\n")
    return str(path)


def test_usage_of_the_machine_leaves_out_what_the_kernel_can_take_back(tmp_path: Path) -> None:
    usage = read_usage(meminfo(tmp_path / "meminfo", 1000, 400), [])
    assert (usage.used, usage.total, usage.share) == (600 * MIB, 1000 * MIB, 0.6)


def group(path: Path, version: int, limit: str, used: int, cached: int) -> tuple[int, str]:
    path.mkdir()
    names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_") if version == 1 else ("memory.max", "memory.current", "")
    (path / names[0]).write_text(limit + "\n")
    (path / names[1]).write_text(f"{used * MIB}\n")
    (path / "memory.stat").write_text(f"cache 1\n{names[2]}inactive_file {cached * MIB}\n{names[2]}active_file {cached * MIB}\n")
    return version, str(path)


@pytest.mark.parametrize("version", [1, 2])
def test_a_control_group_that_is_nearer_to_its_limit_counts(tmp_path: Path, version: int) -> None:
    machine = meminfo(tmp_path / "meminfo", 1000, 400)
    tight = group(tmp_path / "tight", version, str(100 * MIB), 95, 5)
    usage = read_usage(machine, [tight])
    assert (usage.used, usage.total) == (85 * MIB, 100 * MIB)
    roomy = group(tmp_path / "roomy", version, str(500 * MIB), 50, 5)
    assert read_usage(machine, [roomy]).total == 1000 * MIB
    assert read_usage(machine, [roomy, tight]).total == 100 * MIB


@pytest.mark.parametrize(("version", "limit"), [(2, "max"), (1, "9223372036854771712")])
def test_a_control_group_without_a_limit_does_not_count(tmp_path: Path, version: int, limit: str) -> None:
    unlimited = group(tmp_path / "group", version, limit, 950, 0)
    assert read_usage(meminfo(tmp_path / "meminfo", 1000, 400), [unlimited, (2, str(tmp_path / "gone"))]).total == 1000 * MIB


def test_this_machine_tells_its_memory() -> None:
    usage = read_usage("/proc/meminfo", [])
    assert 0 < usage.used < usage.total


def test_processes_are_known_by_session_and_by_what_they_hold() -> None:
    code = "block = bytearray(64 << 20); print(flush=True); input()"
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, text=True)
    try:
        assert child.stdout is not None
        child.stdout.readline()
        found = {process.pid: process for process in processes()}
        assert found[child.pid].session == child.pid
        assert found[child.pid].held >= 64 * MIB
        assert found[os.getpid()].session == os.getsid(0)
        table = largest([found[child.pid], Process(1 << 30, 0, 1)], 2).splitlines()
        assert table[1].startswith(f"{child.pid}\t0.") and "bytearray" in table[1]
    finally:
        child.communicate("\n")


def test_options_take_rays_names_and_refuse_wrong_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_memory_usage_threshold", "0.5")
    monkeypatch.setenv("RAY_memory_monitor_refresh_ms", "100")
    monkeypatch.setenv("RAY_task_oom_retries", "4")
    assert monitor_options(None) == {"threshold": 0.5, "refresh_ms": 100, "meminfo": "/proc/meminfo"}
    assert monitor_options({"memory_usage_threshold": 0.75})["threshold"] == 0.75
    assert retry_options(None) == (4, 1.0)
    assert retry_options({"task_oom_retries": 2, "task_oom_retry_delay_base_ms": 10}) == (2, 0.01)
    with pytest.raises(ValueError, match="between 0 and 1"):
        monitor_options({"memory_usage_threshold": 95})
    with pytest.raises(ValueError, match="negative"):
        monitor_options({"memory_monitor_refresh_ms": -1})


# ------------------------------------------------------------------------------------------ how it goes about
class Watched:
    """A node as the monitor sees it, and what the monitor does to it."""

    def __init__(self, meminfo: str, **options: Any) -> None:
        self.stage = Stage()
        self.table = SessionTable.create(f"/mray-test-{os.getpid()}-memory")
        self.table.segment.unlink()
        self.members = Members(self.table)
        self.now = 1.0
        self.timers: list[tuple[float, Any]] = []
        reactor: Any = SimpleNamespace(call_later=lambda seconds, call: self.timers.append((seconds, call)))
        self.trims = 0
        self.printed: list[str] = []
        self.events: list[events.MemoryRanLow] = []
        events: Any = self.events
        self.monitor = MemoryMonitor(
            {"threshold": 0.9, "refresh_ms": 250, "meminfo": meminfo, "groups": [], **options},
            "IP: 127.0.0.1, ID: ab",
            reactor,
            self.stage.scheduler,
            self.members,
            trim=self._trim,
            tell=self.printed.append,
            apply=events.append,
        )
        self.monitor.start()

    def _trim(self) -> None:
        self.trims += 1

    def tick(self) -> float:
        """Let the timer run; seconds until the next."""
        (seconds, call), self.timers = self.timers[0], self.timers[1:]
        self.now += seconds
        call()
        ((seconds, _call),) = self.timers
        return seconds


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(memory_monitor, "usable_cores", lambda: 2)
    monkeypatch.setattr(memory_monitor, "monotonic", lambda: made[-1].now)
    made = []

    def make(**options: Any) -> Watched:
        made.append(Watched(str(tmp_path / "meminfo"), **options))
        return made[-1]

    yield make
    for node in made:
        node.table.close()


def working(node: Watched) -> str:
    """Has one worker with a task; its process."""
    node.stage.task(1, True)
    process = next(iter(node.stage.scheduler.workers.workers))
    connection: Any = None
    node.members.join(process, connection)
    return process


def test_the_further_the_limit_the_later_the_next_look(tmp_path: Path, watched: Any) -> None:
    node = watched()
    meminfo(tmp_path / "meminfo", 100 << 10, 99 << 10)
    assert node.tick() == 4.0
    for left, pause in ((19, 1.125), (18, 1.0), (11, 0.25)):
        node = watched()
        meminfo(tmp_path / "meminfo", 100 << 10, left << 10)
        assert node.tick() == pytest.approx(pause)
        assert node.tick() == pytest.approx(pause)
        assert not node.events


def test_the_faster_memory_fills_up_the_sooner_the_next_look(tmp_path: Path, watched: Any) -> None:
    node = watched()
    pauses = []
    for used in (100, 500, 800, 890, 899):
        meminfo(tmp_path / "meminfo", 1000, 1000 - used)
        pauses.append(node.tick())
    assert pauses[0] == 0.25
    # 400 MiB in 250 ms leave 250 ms, and so on.
    assert pauses[1] == pytest.approx(0.125)
    assert pauses[2] == pytest.approx(0.125 / 300 * 100 / 2)
    assert pauses[3:] == [0.01, 0.01]
    assert not node.events
    meminfo(tmp_path / "meminfo", 1000, 500)
    assert node.tick() == 0.25


def test_what_is_kept_for_reuse_goes_before_any_worker(tmp_path: Path, watched: Any) -> None:
    node = watched()
    process = working(node)
    node.table.words[ROW_WORDS + POOLED] = MIB
    meminfo(tmp_path / "meminfo", 1000, 50)
    node.tick()
    assert (node.trims, node.events) == (1, [])
    node.tick()
    assert node.trims == 1, "asked once"
    assert node.events[0].processes == [process]


def test_it_waits_for_the_dead_before_it_ends_another_one(tmp_path: Path, watched: Any) -> None:
    node = watched()
    process = working(node)
    meminfo(tmp_path / "meminfo", 1000, 50)
    node.tick()
    node.tick()
    assert [event.processes for event in node.events] == [[process]]
    node.monitor.gone(process)
    while len(node.events) < 2:
        node.tick()


def test_the_more_are_ended_in_vain_the_longer_it_waits_before_the_next(
    tmp_path: Path, watched: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = processes()  # once: a thousand looks at a busy machine take minutes
    monkeypatch.setattr(memory_monitor, "processes", lambda: there)
    node = watched()
    process = working(node)

    def ended(seconds: float) -> int:
        """How many are ended in this time, each dead at once."""
        before, until = len(node.events), node.now + seconds
        while node.now < until:
            node.tick()
            node.monitor.gone(process)
        return len(node.events) - before

    meminfo(tmp_path / "meminfo", 1000, 50)
    assert ended(0.3) == 1
    assert ended(120) == pytest.approx(120 / 4, abs=6)
    meminfo(tmp_path / "meminfo", 1000, 500)
    ended(1)
    meminfo(tmp_path / "meminfo", 1000, 50)
    assert ended(0.3) == 1


def test_the_text_tells_how_low_memory_was_and_who_was_ended(tmp_path: Path, watched: Any) -> None:
    node = watched()
    working(node)
    meminfo(tmp_path / "meminfo", 10 << 10, 512)
    node.tick()
    text = node.events[0].text
    assert "Memory on the node (IP: 127.0.0.1, ID: ab) was 9.50GB used / 10.00GB limit (0.950000)" in text
    assert f"Memory usage {9728 * MIB}B exceeded threshold of {9216 * MIB}B (90.0% of {10240 * MIB}B limit)" in text
    assert "Killed: task f, pid=100, actual memory used=" in text
    assert "Top 10 memory users: PID\tMEM(GB)\tCOMMAND" in text
    assert "RAY_memory_usage_threshold" in text
    assert node.printed == [text.partition("\nTop 10")[0] + "\n"]


def test_without_workers_and_without_a_readable_file_it_goes_on_looking(tmp_path: Path, watched: Any) -> None:
    node = watched()
    assert node.tick() == 0.25
    meminfo(tmp_path / "meminfo", 1000, 50)
    assert node.tick() == 0.05
    assert not node.events


def test_a_period_of_zero_switches_it_off(watched: Any) -> None:
    assert watched(refresh_ms=0).timers == []
