"""Listings of calls: they say what runs and for how long, and a look costs what it shows, however many calls are kept."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from mray._observe.observer import Interview
from mray.util import state
from mray.util.state._select import matches
from mray.util.state.api import look, session_directory
from mray.util.state.common import TaskState

pytestmark = pytest.mark.only("mray")
Eventually = Callable[..., None]


@pytest.fixture
def ray(init: Callable[..., Any], fresh: ModuleType) -> ModuleType:
    init(num_cpus=2)
    return fresh


class Stage:
    """Actors of one class, whose calls `hold` until the end of the test."""

    def __init__(self, ray: ModuleType, folder: Path) -> None:
        self.ray, self.go = ray, str(folder / "go")

        class Worker:
            def hold(self, path: str) -> None:
                while not os.path.exists(path):
                    time.sleep(0.005)

            def quick(self, number: int) -> int:
                return number

            def fail(self, word: str) -> None:
                raise ValueError(word)

            def work(self) -> None:
                time.sleep(0.001)

        self.cls = ray.remote(num_cpus=0)(Worker)

    def end(self, refs: list[Any]) -> None:
        Path(self.go).touch()
        self.ray.get(refs)


@pytest.fixture
def stage(ray: ModuleType, tmp_path: Path) -> Iterator[Stage]:
    made = Stage(ray, tmp_path)
    yield made
    Path(made.go).touch()


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Rows that the processes have sent, by section."""
    found: Counter[str] = Counter()
    ask = Interview.ask

    def counting(self: Interview, *args: Any) -> Any:
        answers = ask(self, *args)
        for sections in answers.values():
            for section in ("calls", "failed", "finished"):
                found[section] += len((sections.get(section) or (True, {"rows": ()}))[1]["rows"])
            found["counts"] += sum(len(sections.get(f"{kind} counts") or ()) for kind in ("call", "failed", "finished"))
        return answers

    monkeypatch.setattr(Interview, "ask", counting)
    return found


# ------------------------------------------------------------------------------------------------ running
def test_running_calls_have_their_seconds(ray: ModuleType, stage: Stage, eventually: Eventually) -> None:
    @ray.remote(num_cpus=1)
    def task(path: str) -> None:
        while not os.path.exists(path):
            time.sleep(0.005)

    @ray.remote(num_cpus=0)
    class Async:
        async def hold(self, path: str) -> None:
            import asyncio

            while not os.path.exists(path):
                await asyncio.sleep(0.005)

    @ray.remote(num_cpus=0)
    class Slow:
        def __init__(self, path: str) -> None:
            while not os.path.exists(path):
                time.sleep(0.005)

    actors = [stage.cls.remote(), stage.cls.options(max_concurrency=2).remote(), Async.remote()]
    refs = [task.remote(stage.go), *(actor.hold.remote(stage.go) for actor in actors)]
    slow = Slow.remote(stage.go)
    names = ["Async.hold", "Slow.__init__", "Worker.hold", "Worker.hold", "task"]
    eventually(lambda: sorted(row.name for row in state.list_tasks(filters=[("state", "=", "RUNNING")]) if row.seconds) == names)
    before = {row.task_id: row for row in state.list_tasks(detail=True)}
    now = time.time() * 1000
    assert all(0 <= now - row.start_time_ms < 200_000 for row in before.values() if row.state == "RUNNING")
    eventually(
        lambda: all(row.seconds > before[row.task_id].seconds for row in state.list_tasks(filters=[("state", "=", "RUNNING")])),
    )
    shown = subprocess.run([sys.executable, "-m", "mray", "list", "tasks"], capture_output=True, text=True, check=True).stdout
    assert "SECONDS" in shown.splitlines()[0]
    stage.end([*refs, slow.__ray_ready__.remote()])
    row = state.get_task(refs[0])
    assert row is not None and row.seconds == pytest.approx((row.end_time_ms - row.start_time_ms) / 1000, abs=0.002)


def test_a_call_that_is_under_way_to_an_idle_process_runs(ray: ModuleType, stage: Stage) -> None:
    """Short calls end between the looks at their worker and at their caller."""
    actor = stage.cls.remote()
    ray.get(actor.quick.remote(0))
    seen: Counter[str] = Counter()
    for _ in range(100):
        ref = actor.work.remote()
        seen.update(row.state for row in state.list_tasks(filters=[("name", "=", "Worker.work"), ("state", "!=", "FINISHED")]))
        ray.get(ref)
    assert set(seen) == {"RUNNING"}


def test_of_calls_that_a_process_has_received_the_oldest_runs(ray: ModuleType, stage: Stage, eventually: Eventually) -> None:
    actor = stage.cls.remote()
    refs = [actor.hold.remote(stage.go), *(actor.quick.remote(number) for number in range(4))]
    eventually(lambda: state.get_task(refs[0]).state == "RUNNING")  # type: ignore[union-attr]
    assert Counter(row.state for row in state.list_tasks() if row.actor_id and row.name != "Worker.__init__") == {
        "RUNNING": 1,
        "SUBMITTED_TO_WORKER": 4,
    }
    assert [row.name for row in state.list_tasks(limit=1)] == ["Worker.hold"]
    stage.end(refs)


def test_a_worker_is_busy_while_it_runs_something_and_idle_between_tasks(ray: ModuleType, stage: Stage, eventually: Eventually) -> None:
    @ray.remote
    def pid() -> int:
        return os.getpid()

    def row_of(pid: int) -> tuple[str | None, str | None]:
        (row,) = state.list_workers(filters=[("pid", "=", pid), ("is_alive", "=", True)], detail=True)
        return row.state, row.current_task

    own = ray.get(pid.remote())
    assert row_of(own) == ("idle", "")  # still leased
    threaded = stage.cls.options(max_concurrency=3).remote()
    refs = [threaded.hold.remote(stage.go) for _ in range(3)]
    eventually(lambda: len(state.list_tasks(filters=[("state", "=", "RUNNING")])) == 3)
    home = state.list_actors()[0].pid
    assert home is not None and row_of(home) == ("busy", "Worker.hold and 2 more")
    stage.end(refs)
    eventually(lambda: row_of(home) == ("idle", ""))


# ------------------------------------------------------------------------------------------------ cost
def test_a_look_costs_what_it_shows_however_many_calls_are_kept(ray: ModuleType, stage: Stage, told: Counter[str]) -> None:
    actors = [stage.cls.remote() for _ in range(8)]

    def look_at_all() -> dict[str, int]:
        told.clear()
        view = look(session_directory())
        rows, total = view.listing(TaskState, (), 20)
        assert len(rows) == min(total, 20)
        state.list_tasks(filters=[("name", "=", "Worker.quick")], limit=20)
        state.summarize_tasks()
        state.list_workers(detail=True)
        return dict(told)

    ray.get([actor.quick.remote(number) for actor in actors for number in range(20)])
    few = look_at_all()
    ray.get([actor.quick.remote(number) for actor in actors for number in range(600)])
    many = look_at_all()
    assert few["counts"] == many["counts"] == 16
    assert sum(few.values()) < 400 and sum(many.values()) < 400  # of 5,000 rows
    assert look(session_directory()).listing(TaskState, (), 20)[1] == 8 * 621


def test_the_newest_are_found_where_they_are(ray: ModuleType, stage: Stage, eventually: Eventually) -> None:
    actors = [stage.cls.remote() for _ in range(8)]
    ray.get([actor.quick.remote(number) for actor in actors for number in range(50)])
    eventually(lambda: len(state.list_tasks(limit=10_000)) == 8 * 51)  # a worker notes the end of a call after its answer
    last = [actors[3].quick.remote(number) for number in range(40)]
    ray.get(last)
    newest = [row.task_id for row in state.list_tasks(limit=30)]
    assert newest == [ref.task_id().hex() for ref in reversed(last)][:30]


def test_a_filter_finds_the_same_where_the_calls_are_kept_as_among_all(
    ray: ModuleType, stage: Stage, tmp_path: Path, eventually: Eventually
) -> None:
    @ray.remote(max_retries=0)
    def task(word: str) -> str:
        if word:
            raise KeyError(word)
        return word

    @ray.remote(num_cpus=0)
    class Outer:
        def call(self) -> None:
            ray.get([task.remote("") for _ in range(3)])

    class Named:
        def __repr__(self) -> str:
            return "its-name"

        def call(self) -> None:
            pass

    first, outer, named = stage.cls.remote(), Outer.remote(), ray.remote(num_cpus=0)(Named).remote()
    ray.get([task.remote(""), task.options(name="own").remote(""), outer.call.remote(), *(named.call.remote() for _ in range(3))])
    for failing in (task.remote("no"), first.fail.remote("no"), first.fail.options(name="own").remote("no")):
        with pytest.raises((KeyError, ValueError)):
            ray.get(failing)
    refs = [first.hold.remote(stage.go), first.quick.remote(1), first.fail.options(name="own").remote("later")]
    eventually(lambda: state.get_task(refs[0]).state == "RUNNING")  # type: ignore[union-attr]
    every = state.list_tasks(limit=10_000, detail=True)
    columns = (
        "name",
        "func_or_class_name",
        "state",
        "type",
        "actor_id",
        "error_type",
        "worker_pid",
        "parent_task_id",
        "owner_id",
        "task_id",
    )
    checked = 0
    for column in columns:
        for value in {row[column] for row in every}:
            for sign in ("=", "!=") if value is not None else ():
                wanted = [(column, sign, value)]
                expected = sorted(row.task_id for row in every if matches(row, wanted))
                found = state.list_tasks(filters=wanted, limit=10_000)
                assert (wanted, sorted(row.task_id for row in found)) == (wanted, expected)
                assert len(state.list_tasks(filters=[*wanted, ("attempt_number", "=", "0")], limit=2)) == min(len(expected), 2)
                checked += 1
    assert checked > 60
    counts = Counter((row.name, row.state) for row in every)
    summary = state.summarize_tasks()["cluster"]["summary"]
    assert {(name, word): number for name, each in summary.items() for word, number in each["state_counts"].items()} == counts
    Path(stage.go).touch()
    ray.get(refs[:2])
    assert outer and named


def test_the_summary_counts_failures_of_workers_that_are_gone(ray: ModuleType, stage: Stage, eventually: Eventually) -> None:
    @ray.remote(max_retries=0)
    def dies() -> None:
        os._exit(1)

    actor = stage.cls.remote()
    with pytest.raises(ray.exceptions.WorkerCrashedError):
        ray.get(dies.remote())
    with pytest.raises(ValueError, match="no"):
        ray.get(actor.fail.remote("no"))
    ray.get([actor.quick.remote(number) for number in range(5)])

    def counts() -> dict[str, dict[str, int]]:
        return {name: each["state_counts"] for name, each in state.summarize_tasks()["cluster"]["summary"].items()}

    expected = {"dies": {"FAILED": 1}, "Worker.fail": {"FAILED": 1}, "Worker.quick": {"FINISHED": 5}, "Worker.__init__": {"FINISHED": 1}}
    eventually(lambda: counts() == expected)
    (row,) = state.list_tasks(filters=[("name", "=", "dies")], detail=True)
    assert row.end_time_ms and row.error_type == "WORKER_DIED"
    assert [row.name for row in state.list_tasks(limit=2, filters=[("state", "=", "FAILED")])] == ["Worker.fail", "dies"]


def test_an_attempt_is_not_listed_beside_the_call_that_repeats_it(ray: ModuleType, tmp_path: Path, eventually: Eventually) -> None:
    @ray.remote(max_retries=3, retry_exceptions=True)
    def flaky(path: str) -> int:
        with open(path, "a") as file:
            file.write("x")
        if os.path.getsize(path) < 3:
            raise ValueError("again")
        return os.path.getsize(path)

    assert ray.get(flaky.remote(str(tmp_path / "tries"))) == 3
    eventually(lambda: [(row.name, row.state) for row in state.list_tasks()] == [("flaky", "FINISHED")])
    assert state.summarize_tasks()["cluster"]["total_tasks"] == 1


# ------------------------------------------------------------------------------------------------ names
def test_actors_are_told_apart_also_those_without_a_name_and_those_that_are_dead(
    ray: ModuleType, stage: Stage, eventually: Eventually
) -> None:
    named, first, second = stage.cls.options(name="joe").remote(), stage.cls.remote(), stage.cls.remote()
    dead, killed = stage.cls.options(name="jim").remote(), stage.cls.remote()
    ray.get([actor.quick.remote(1) for actor in (named, first, second, dead, killed)])
    ray.kill(killed)
    dead.__ray_terminate__.remote()

    def shown(is_alive: bool) -> set[tuple[str | None, str | None, str | None]]:
        rows = state.list_workers(filters=[("is_alive", "=", is_alive)], detail=True)
        return {(row.shown_as, row.occupant, row.name) for row in rows if row.occupant}

    def unnamed(actor: Any) -> tuple[str, str, str]:
        return f"Worker({actor._actor_id.hex()[:8]})", "Worker", ""

    eventually(lambda: shown(False) == {("jim: Worker", "Worker", "jim"), unnamed(killed)})
    assert shown(True) == {("joe: Worker", "Worker", "joe"), unnamed(first), unnamed(second)}
    (driver,) = state.list_workers(filters=[("worker_type", "=", "DRIVER")], detail=True)
    assert (driver.shown_as, driver.occupant) == ("driver", "")


def test_the_workers_of_a_session_show_less_memory_than_they_map(ray: ModuleType, stage: Stage) -> None:
    actors = [stage.cls.remote() for _ in range(4)]
    ray.get([actor.quick.remote(1) for actor in actors])
    rows = [row for row in state.list_workers(detail=True) if row.is_alive and row.worker_type == "WORKER"]
    assert len(rows) >= 4 and all(0 < (row.pss_bytes or 0) < (row.rss_bytes or 0) for row in rows)
