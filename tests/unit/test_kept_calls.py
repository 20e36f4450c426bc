"""Finished calls that a worker and the node keep: what they tell of them is filtered, ordered and cut where they are."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest

from mray._common.ids import NO_ACTOR
from mray._runtime.client import failed_calls
from mray._runtime.node.last_calls import LastCalls
from mray._runtime.worker.finished_calls import FinishedCalls
from mray._runtime.worker.main_thread import MainThread
from mray.util.state._select import newest
from mray.util.state.common import ActorState, TaskState

JOB = b"\1\0\0\0"


def task_id(number: int) -> bytes:
    return number.to_bytes(8, "big") + NO_ACTOR + JOB


class Stage:
    """A worker's records of calls that it has finished: call `n` lasts from second n to n + 0.5."""

    def __init__(self, names: list[str]) -> None:
        self.main = MainThread()
        self.packer = SimpleNamespace(failures=[], attempts=deque(), failed_calls=dict)
        actor = SimpleNamespace(repr="")
        executor: Any = SimpleNamespace(packer=self.packer, named=[], actor=actor, context=SimpleNamespace(class_name=None))
        self.executor = executor
        self.calls = FinishedCalls(self.main, executor)
        for number, name in enumerate(names):
            self.add(number, name)

    def add(self, number: int, name: str) -> None:
        self.main.recent.append((task_id(number), name, float(number), number + 0.5, None))

    def fail(self, *numbers: int) -> None:
        self.packer.failures = [(task_id(number), "TASK_EXECUTION_EXCEPTION", f"text {number}") for number in numbers]
        self.packer.failed_calls = lambda: {task_id(number): "TASK_EXECUTION_EXCEPTION" for number in numbers}

    def told(self, **how: Any) -> tuple[int, list[int], list[int]]:
        found = self.calls.rows(**how)
        numbers = [[int.from_bytes(row[0][:8], "big") for row in found[part]] for part in ("rows", "failures")]
        return found["total"], numbers[0], numbers[1]


def test_a_worker_tells_of_its_newest_calls_and_how_many_there_are() -> None:
    stage = Stage(["f"] * 30)
    assert stage.told(limit=3) == (30, [29, 28, 27], [])
    (row,) = stage.calls.rows(limit=1)["rows"]
    assert row[1:3] == ("f", "f") and row[4] - row[3] == pytest.approx(0.5)


def test_a_worker_filters_before_it_cuts() -> None:
    stage = Stage(["f", "g"] * 15)
    assert stage.told(limit=2, filters=[["name", "=", "F"]]) == (15, [28, 26], [])
    assert stage.told(limit=2, filters=[["name", "!=", "f"], ["type", "=", "NORMAL_TASK"]]) == (15, [29, 27], [])
    assert stage.told(limit=2, filters=[["task_id", "=", task_id(7).hex()]]) == (1, [7], [])
    assert stage.told(limit=2, filters=[["actor_id", "=", "00"]]) == (0, [], [])


def test_failures_stay_beyond_the_cut_and_those_that_callers_tell_of_are_left_out() -> None:
    stage = Stage(["f"] * 30)
    stage.fail(2, 4, 29)
    assert stage.told(limit=3) == (30, [29, 28, 27], [4, 2])
    assert stage.told(limit=3, known=[task_id(4), task_id(29)]) == (28, [28, 27, 26], [2])
    assert stage.told(limit=9, filters=[["state", "=", "FAILED"]]) == (3, [29, 4, 2], [])
    assert stage.calls.counts(known=[task_id(4)]) == [("f", "NORMAL_TASK", "FINISHED", 27), ("f", "NORMAL_TASK", "FAILED", 2)]


def test_an_attempt_that_was_repeated_is_no_call_that_is_over() -> None:
    stage = Stage(["f", "f", "f"])
    stage.packer.attempts += [task_id(1)]
    assert stage.told() == (2, [2, 0], [])  # it goes on elsewhere
    stage.add(1, "f")
    assert stage.told() == (3, [1, 2, 0], [])  # or it was repeated here
    assert stage.calls.counts() == [("f", "NORMAL_TASK", "FINISHED", 3)]


def test_a_call_with_a_name_of_its_own_is_found_by_its_function() -> None:
    stage = Stage(["f", "f"])
    stage.add(2, "own")
    stage.executor.named = [(task_id(2), "f")]
    assert stage.told(filters=[["func_or_class_name", "=", "f"]]) == (3, [2, 1, 0], [])
    assert stage.told(filters=[["name", "=", "own"]]) == (1, [2], [])


def test_the_node_finds_the_newest_of_many_workers_that_left() -> None:
    kept = LastCalls()
    for worker in range(20):
        kept.append(worker, "w", [(task_id(100 * worker + number), "f", 0.0, float(worker + 20 * number), None) for number in range(5)])
    found = kept.rows(3)
    assert (found["total"], [row[0] for row in found["rows"]]) == (100, [19, 18, 17])
    assert kept.rows(0)["total"] == 100
    found = kept.rows(2, filters=[["task_id", "=", task_id(3).hex()]], asked=[task_id(4), task_id(9)])
    assert (found["total"], [row[1] for row in found["rows"]], found["known"]) == (1, [task_id(3)], [task_id(4)])
    assert kept.rows(1, without=[task_id(1904)])["rows"][0][1] == task_id(1804)
    assert kept.counts(without=[task_id(3)])["counts"] == [("f", "NORMAL_TASK", "FINISHED", 99)]


def test_a_caller_tells_of_its_newest_failures() -> None:
    failed_calls.clear()
    try:
        for number in range(9):
            how = (f"f{number % 2}", "f", b"", "me" if number < 8 else "another", "worker", {}, "WORKER_DIED", "text", float(number))
            failed_calls.remember(failed_calls.FailedCall(task_id(number), *how))
        found = failed_calls.rows("me", limit=2, texts=False)
        assert (found["total"], [row["task_id"] for row in found["rows"]]) == (8, [task_id(7), task_id(6)])
        assert {row["error_message"] for row in found["rows"]} == {None}
        found = failed_calls.rows("me", filters=[["name", "=", "f1"]], without=[task_id(7)])
        assert [row["task_id"] for row in found["rows"]] == [task_id(5), task_id(3), task_id(1)]
        assert failed_calls.counts("another") == [("f0", "NORMAL_TASK", "FAILED", 1)]
    finally:
        failed_calls.clear()


def test_calls_that_run_are_listed_first_the_longest_before_the_others_and_a_cut_keeps_them() -> None:
    rows = [{"task_id": str(number), "state": "PENDING_NODE_ASSIGNMENT"} for number in (3, 1)]
    rows += [{"task_id": "run", "state": "RUNNING", "start_time_ms": 20}, {"task_id": "long", "state": "RUNNING", "start_time_ms": 10}]
    rows += [{"task_id": "over", "state": "FINISHED", "end_time_ms": 5}]
    assert [row["task_id"] for row in newest(TaskState, rows, 4)] == ["long", "run", "3", "1"]
    actors = [ActorState(actor_id=each, state="ALIVE") for each in "ba"]  # type: ignore[call-arg]
    assert [row.actor_id for row in newest(ActorState, actors, 2)] == ["a", "b"]
