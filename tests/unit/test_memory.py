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
from mray._decide.scheduler import events
from mray._decide.scheduler.instructions import KillWorker, SpawnWorker, Tell
from mray._decide.scheduler.memory_victims import ACTOR, ACTOR_AGAIN, IDLE_WORKER, TASK, TASK_AGAIN, Suspect, choose, suspects
from mray._decide.scheduler.records import environment_of
from mray._decide.scheduler.scheduler import Scheduler
from mray._ipc.discovery import memory_groups, memory_limit
from mray._ipc.table import POOLED, ROW_WORDS, SessionTable
from mray._runtime.node import memory_monitor
from mray._runtime.node.members import Members
from mray._runtime.node.memory_monitor import MemoryMonitor
from mray._runtime.node.memory_usage import ProcessMemory, alone, is_in, largest, largest_other, objects_of, processes, read_usage

MIB = 1 << 20


# ------------------------------------------------------------------------------------------ the policy
def there(*info: tuple[int, int]) -> list[Suspect]:
    """Suspects named by their place, of (cost, MiB), in the order in which they began."""
    return [Suspect(str(number), 100 + number, "x", cost, number, held * MIB) for number, (cost, held) in enumerate(info)]


def chosen(needed: int, *info: tuple[int, int]) -> str:
    return " ".join(suspect.process for suspect in choose(there(*info), needed * MIB))


@pytest.mark.parametrize(
    ("info", "needed", "expected"),
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
def test_who_costs_least_goes_and_among_equals_who_began_last(info: Any, needed: int, expected: str) -> None:
    assert chosen(needed, *info) == expected


def test_several_go_when_one_does_not_give_enough() -> None:
    assert chosen(90, (TASK_AGAIN, 50), (TASK_AGAIN, 50), (TASK_AGAIN, 50)) == "2 1"


def test_who_holds_too_little_to_help_is_passed_over() -> None:
    assert chosen(1000, (ACTOR, 20_000), (TASK_AGAIN, 5), (TASK_AGAIN, 5)) == "0"
    assert chosen(100, (TASK_AGAIN, 5000), (TASK_AGAIN, 5)) == "0"
    assert chosen(100, (TASK_AGAIN, 60), (IDLE_WORKER, 5), (TASK_AGAIN, 60)) == "2 0"


def test_nobody_goes_when_the_end_of_all_does_not_suffice() -> None:
    assert chosen(10_000, (ACTOR, 50), (TASK_AGAIN, 5), (IDLE_WORKER, 50)) == ""
    assert chosen(10_000, (IDLE_WORKER, 50)) == ""
    assert chosen(106, (ACTOR, 50), (TASK_AGAIN, 5), (IDLE_WORKER, 50)) == ""
    assert chosen(105, (ACTOR, 50), (TASK_AGAIN, 5), (IDLE_WORKER, 50)) == "2 1 0"


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
    (_request, _lease, worker, *_rest), *_others = stage.heard(m.LEASE_GRANT)
    for process in (worker, stage.worker_of(b"a"), stage.worker_of(b"b")):
        stage(events.ActorWatched("driver", b"a"))
        stage(events.ActorWatched("driver", b"b"))
        stage.low(process)
    cause = (m.CAUSE_MEMORY, "memory is low", 7, -9, None)
    assert stage.heard(m.WORKER_GONE)[0] == (worker, "", cause)
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
def test_a_meminfo_without_totals_is_refused_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "meminfo"
    path.write_text("MemTotal: 5 kB\n")
    with pytest.raises(ValueError, match=f"{path} has no lines MemTotal and MemAvailable"):
        read_usage(str(path), [])


def meminfo(path: Path, total: int, available: int) -> str:
    """A file like /proc/meminfo, in MiB."""
    path.write_text(f"MemTotal:       {total * 1024} kB\nMemFree:        1 kB\nMemAvailable:   {available * 1024} kB\nBuffers: 0 kB\n")
    return str(path)


def test_usage_of_the_machine_leaves_out_what_the_kernel_can_take_back(tmp_path: Path) -> None:
    usage = read_usage(meminfo(tmp_path / "meminfo", 1000, 400), [])
    assert (usage.used, usage.total, usage.share) == (600 * MIB, 1000 * MIB, 0.6)


def group(path: Path, version: int, limit: str, used: int, cached: int, high: str = "max") -> tuple[int, str]:
    path.mkdir(parents=True, exist_ok=True)
    names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_") if version == 1 else ("memory.max", "memory.current", "")
    (path / names[0]).write_text(limit + "\n")
    (path / names[1]).write_text(f"{used * MIB}\n")
    (path / "memory.stat").write_text(f"cache 1\n{names[2]}inactive_file {cached * MIB}\n{names[2]}active_file {cached * MIB}\n")
    if version == 2:
        (path / "memory.high").write_text(high + "\n")
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


@pytest.fixture
def tree(tmp_path: Path) -> Any:
    """Makes a file like /proc/self/cgroup; and where control groups are to be seen."""
    mount = tmp_path / "cgroup"

    def membership(text: str) -> str:
        (tmp_path / "membership").write_text(text)
        return str(tmp_path / "membership")

    return SimpleNamespace(mount=mount, membership=membership, meminfo=lambda: meminfo(tmp_path / "meminfo", 1000, 900))


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(("outer", "inner"), [(100, 200), (200, 100)])
def test_of_nested_control_groups_the_lowest_limit_counts(tree: Any, version: int, outer: int, inner: int) -> None:
    root = tree.mount / "memory" if version == 1 else tree.mount
    unlimited = "9223372036854771712" if version == 1 else "max"
    group(root, version, unlimited, 95, 0)
    group(root / "pod", version, str(outer * MIB), 95, 0)
    group(root / "pod" / "box", version, str(inner * MIB), 95, 0)
    group(root / "pod" / "box" / "own", version, unlimited, 95, 0)
    membership = tree.membership("7:cpu:/\n4:memory:/pod/box/own\n" if version == 1 else "0::/pod/box/own\n")
    usage = read_usage(tree.meminfo(), memory_groups(membership, str(tree.mount)))
    assert (usage.used, usage.total) == (95 * MIB, 100 * MIB)
    assert usage.group == (version, str(root / "pod" if outer == 100 else root / "pod" / "box"))


def test_a_group_that_others_fill_counts_before_an_inner_one_with_room(tree: Any) -> None:
    group(tree.mount / "slice", 2, str(200 * MIB), 190, 0)
    group(tree.mount / "slice" / "own", 2, str(100 * MIB), 10, 0)
    usage = read_usage(tree.meminfo(), memory_groups(tree.membership("0::/slice/own\n"), str(tree.mount)))
    assert usage.group == (2, str(tree.mount / "slice"))


def test_what_is_slowed_down_at_is_a_limit_as_well(tmp_path: Path) -> None:
    slowed = group(tmp_path / "slowed", 2, str(100 * MIB), 40, 0, high=str(50 * MIB))
    assert memory_limit(*slowed) == 50 * MIB
    usage = read_usage(meminfo(tmp_path / "meminfo", 1000, 900), [slowed])
    assert (usage.used, usage.total) == (40 * MIB, 50 * MIB)


def test_a_container_is_told_of_limits_above_what_it_sees(tmp_path: Path) -> None:
    inner = group(tmp_path / "inner", 1, "9223372036854771712", 40, 0)
    with (tmp_path / "inner" / "memory.stat").open("a") as file:
        file.write(f"hierarchical_memory_limit {50 * MIB}\n")
    usage = read_usage(meminfo(tmp_path / "meminfo", 1000, 900), [inner])
    assert (usage.used, usage.total) == (40 * MIB, 50 * MIB)


def test_the_largest_of_the_others_is_none_of_ours_and_within_the_limit() -> None:
    found = [ProcessMemory(1, 1, 5), ProcessMemory(2, 2, 50), ProcessMemory(3, 2, 500), ProcessMemory(4, 4, 40), ProcessMemory(5, 4, 30)]
    assert largest_other(found, {2}).pid == 4
    assert largest_other(found, {4}).pid == 3
    assert largest_other(found, {2}, lambda pid: pid != 4).pid == 5
    assert largest_other(found, {1, 2, 4}) is None


def test_a_process_counts_towards_its_own_groups_only(tmp_path: Path) -> None:
    assert is_in(None, os.getpid())
    assert not is_in((2, str(tmp_path)), os.getpid())
    for mine in memory_groups():
        assert is_in(mine, os.getpid())


def test_objects_are_their_owners(tmp_path: Path) -> None:
    for name, size in (("mray-s-a-b1", 1), ("mray-s-a-c2", 2), ("mray-s-b-a3", 4), ("mray-t-a-a4", 8), ("mray-s-odd", 16)):
        (tmp_path / name).write_bytes(bytes(size << 12))
    assert objects_of("/mray-s-", str(tmp_path)) == {"a": 3 << 12, "b": 4 << 12}
    assert objects_of("/mray-s-", str(tmp_path / "gone")) == {}


def test_pages_that_are_shared_since_a_fork_count_in_part() -> None:
    code = "import os; block = bytearray(os.urandom(64 << 20)); pid = os.fork(); pid and print(flush=True); os.read(0, 1)"
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, text=True)
    try:
        assert child.stdout is not None
        child.stdout.readline()
        of_both = [process for process in processes() if process.session == child.pid]
        assert len(of_both) == 2
        assert all(process.held >= 64 * MIB for process in of_both)
        assert 64 * MIB <= sum(map(alone, of_both)) < 128 * MIB
        assert alone(ProcessMemory(1 << 30, 0, 7)) == 7, "the process is gone"
    finally:
        child.communicate("\n\n")


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
        table = largest([found[child.pid], ProcessMemory(1 << 30, 0, 1)], 2).splitlines()
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
        #: The first worker has most.
        self.there = [ProcessMemory(100, 100, 1000 * MIB), ProcessMemory(7, 7, 100 * MIB)]
        self.trims = 0
        self.printed: list[str] = []
        self.events: list[events.MemoryRanLow] = []
        events: Any = self.events
        self.monitor = MemoryMonitor(
            {"threshold": 0.9, "refresh_ms": 250, "meminfo": meminfo, "groups": [], **options},
            "IP: 127.0.0.1, ID: ab",
            "/mray-none-",
            reactor,
            self.stage.scheduler,
            self.members,
            check=lambda: None,
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
    monkeypatch.setattr(memory_monitor, "processes", lambda: list(made[-1].there))
    monkeypatch.setattr(memory_monitor, "alone", lambda process: process.held)
    monkeypatch.setattr(memory_monitor, "command_of", lambda pid: f"program {pid}")
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
    node.stage(events.MemberDied(process, Cause(m.CAUSE_MEMORY, "", 7, -9)))
    other = working(node)
    node.there[0] = ProcessMemory(101, 101, 1000 * MIB)
    while len(node.events) < 2:
        node.tick()
    assert node.events[1].processes == [other]


def test_when_the_memory_is_a_strangers_nobody_is_ended_and_one_warning_names_him(tmp_path: Path, watched: Any) -> None:
    node = watched()
    working(node)
    node.there = [ProcessMemory(100, 100, 30 * MIB), ProcessMemory(7, 7, 920 * MIB), ProcessMemory(8, 7, 5 * MIB)]
    meminfo(tmp_path / "meminfo", 1000, 50)
    assert [node.tick() for _ in range(5)] == [0.25] * 5
    assert node.events == []
    (text,) = node.printed
    assert "0.93GB used / 0.98GB limit (0.950000), which is above the threshold of 90.0%" in text
    assert "No worker was ended, since that would not help: the 1 workers of this session hold 0.03GB together" in text
    assert "The largest of all other processes is program 7, pid=7, with 0.90GB." in text
    meminfo(tmp_path / "meminfo", 1000, 500)
    node.tick()
    meminfo(tmp_path / "meminfo", 1000, 50)
    node.tick()
    assert len(node.printed) == 1, "it is known by now"
    meminfo(tmp_path / "meminfo", 1000, 500)
    node.tick()
    node.there[1] = ProcessMemory(9, 9, 920 * MIB)
    meminfo(tmp_path / "meminfo", 1000, 50)
    node.tick()
    assert len(node.printed) == 2, "it is another one"
    node.there[0] = ProcessMemory(100, 100, 70 * MIB)
    node.tick()
    assert len(node.events) == 1, "what the worker holds would suffice by now"


def test_a_driver_that_has_the_memory_is_named_as_what_it_is(tmp_path: Path, watched: Any) -> None:
    node = watched()
    working(node)
    node.there = [ProcessMemory(1, 3, 920 * MIB), ProcessMemory(100, 100, 30 * MIB)]  # the scheduler knows a driver of pid 1
    meminfo(tmp_path / "meminfo", 1000, 50)
    node.tick()
    assert "which is no worker but a driver of this session" in node.printed[0]
    assert "program 1, pid=1, with 0.90GB" in node.printed[0]


def test_where_nobody_can_be_seen_to_have_the_memory_it_says_so(tmp_path: Path, watched: Any) -> None:
    node = watched()
    node.there = []
    meminfo(tmp_path / "meminfo", 1000, 50)
    node.tick()
    node.tick()
    assert len(node.printed) == 1
    assert "No other process can be seen" in node.printed[0]


def test_pages_that_workers_only_share_are_no_reason_to_end_one(tmp_path: Path, watched: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    node = watched()
    working(node)
    monkeypatch.setattr(memory_monitor, "alone", lambda process: process.held // 20)
    meminfo(tmp_path / "meminfo", 1000, 20)
    node.tick()
    assert node.events == []


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
    assert node.tick() == 0.25
    assert not node.events


def test_a_period_of_zero_switches_it_off(watched: Any) -> None:
    assert watched(refresh_ms=0).timers == []
