"""Chains of tasks of which each has started the next, without a process."""

from __future__ import annotations

from mray._decide.scheduler import events
from mray._decide.scheduler.task_trees import deepest_chain, sentence
from tests.unit.test_scheduler import Stage


def descend(stage: Stage, process: str, depth: int, **resources: float) -> str:
    """Each task starts the next one and waits for it; returns the last one's process."""
    for _ in range(depth):
        stage.ask(process, **resources)
        [(_, _lease, worker, *_)] = stage.grants(process)
        if process != "driver":
            assert worker != process
        stage(events.TaskBlocked(worker))
        process = worker
    return process


def test_tasks_that_wait_for_the_next_make_a_chain() -> None:
    stage = Stage({"CPU": 1})
    descend(stage, "driver", 7, CPU=1)
    chain = deepest_chain(stage.scheduler)
    assert len(chain) == 7
    assert chain[0].client.process == "driver"
    pids = [f"task f (pid {lease.worker.pid})" for lease in chain if lease.worker is not None]
    assert sentence(chain, 8) == (
        "Tasks start tasks and wait for them, 7 deep, each in a process of its own; there are 8 workers by now: "
        f"{', which started '.join([*pids[:3], '... (2 more)', *pids[-2:]])}."
    )


def test_tasks_without_cpus_make_one_too() -> None:
    stage = Stage({"CPU": 1})
    descend(stage, "driver", 5)
    assert len(deepest_chain(stage.scheduler)) == 5


def test_a_task_that_goes_on_while_its_tasks_run_ends_a_chain() -> None:
    stage = Stage({"CPU": 4})
    last = descend(stage, "driver", 3, CPU=1)
    stage(events.TaskUnblocked(last))
    stage.ask(last, CPU=1)
    stage.grants(last)
    assert len(deepest_chain(stage.scheduler)) == 3


def test_many_tasks_beside_each_other_are_no_chain() -> None:
    stage = Stage({"CPU": 8})
    for _ in range(8):
        stage.ask(CPU=1)
    stage.grants()
    assert len(deepest_chain(stage.scheduler)) == 1


def test_a_session_without_tasks_has_none() -> None:
    assert deepest_chain(Stage().scheduler) == []
