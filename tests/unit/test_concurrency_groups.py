"""The concurrency groups of an actor: how many calls run, which begins next, and which are dropped."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from mray._backends.local.loops import Loops
from mray._common import messages as m
from mray._common.concurrency import AT_ONCE
from mray._runtime.worker.exits import EXITED, TERMINATED
from mray.exceptions import TaskCancelledError
from tests.unit.stage import WorkerStage

SCOPE = (m.CAUSE_SCOPE, "no handle is left")


@pytest.fixture
def stage() -> Iterator[WorkerStage]:
    stage = WorkerStage()
    loops = Loops(stage.run_token)
    yield stage
    stage.close()
    loops.give_back()


class Gates:
    """An actor whose calls wait until a test opens their gates."""

    def __init__(self, stage: WorkerStage) -> None:
        self.stage = stage
        self.began: list[str] = []
        self.open: set[str] = set()

    def cls(self) -> type:
        gates = self

        class Waits:
            def wait(self, name: str) -> str:
                gates.began.append(name)
                gates.stage.run_token.wait_until(lambda: name in gates.open, None)
                return name

            def is_cancelled(self, name: str) -> tuple[str, bool, bytes | None]:
                self.wait(name)
                return name, gates.stage.worker.is_cancelled(), gates.stage.worker.context.task_id

            def leave(self) -> None:
                raise gates.stage.worker.exit_actor()

            def fail(self) -> None:
                raise KeyError("no")

            def fail_hard(self) -> None:
                raise GeneratorExit

        return Waits

    def start(self, most: int = 1, **groups: int) -> None:
        self.stage.start_actor(self.cls(), concurrency=(False, most, groups))
        self.stage.node.take()

    def call(self, method: str, *args: Any, group: str = "") -> bytes:
        task_id = self.stage.call(method, *args, options={"group": group} if group else None)
        self.stage.deliver()
        return task_id

    def let(self, *names: str) -> None:
        """Open gates, and let every thread run until it waits."""
        self.open.update(names)
        self.stage.pass_time(1.0)

    def answered(self) -> list[Any]:
        return [value for _task_id, value in self.stage.answers()]


@pytest.fixture
def gates(stage: WorkerStage) -> Gates:
    return Gates(stage)


# ------------------------------------------------------------------------------------------ threads
def test_a_group_begins_as_many_calls_as_its_size_and_the_others_in_order(gates: Gates) -> None:
    gates.start(most=2)
    for name in "abcd":
        gates.call("wait", name)
        gates.let()
    assert gates.began == ["a", "b"]
    assert gates.stage.worker.groups.queued() == 2
    gates.let("b")
    assert gates.began == ["a", "b", "c"]
    gates.let("a", "c", "d")
    assert gates.began == ["a", "b", "c", "d"]
    assert sorted(gates.answered()) == ["a", "b", "c", "d"]
    assert gates.stage.worker.main_thread.served == 4


def test_an_idle_thread_runs_the_next_call_and_no_further_one_starts(gates: Gates) -> None:
    gates.start(most=3)
    for name in "abc":
        gates.call("wait", name)
        gates.let(name)
    assert gates.stage.process.threads == ["mray-default-1"]
    for name in "de":
        gates.call("wait", name)
        gates.let()
    assert gates.stage.process.threads == ["mray-default-1", "mray-default-2"]
    assert gates.answered() == ["a", "b", "c"]


def test_a_group_whose_calls_wait_does_not_block_another(gates: Gates) -> None:
    gates.start(most=1, io=1)
    gates.call("wait", "a")
    gates.call("wait", "b")
    gates.call("wait", "c", group="io")
    gates.let("c")
    assert sorted(gates.began) == ["a", "c"]
    assert gates.answered() == ["c"]


def test_a_call_to_a_group_that_the_class_does_not_declare_is_refused(gates: Gates) -> None:
    gates.start(most=2, io=1)
    gates.call("wait", "a", group="disk")
    (error,) = gates.answered()
    assert isinstance(error, ValueError)
    assert "no concurrency group 'disk'; its class declares ['io']" in str(error)
    assert gates.began == []


def test_an_error_is_answered_and_frees_the_place_of_its_call(gates: Gates) -> None:
    gates.start(most=1)
    gates.call("fail")
    gates.call("wait", "a")
    gates.let("a")
    error, value = gates.answered()
    assert isinstance(error, KeyError) and value == "a"
    assert gates.stage.worker.groups.running == {}


# ------------------------------------------------------------------------------------------ cancelling
def cancel(gates: Gates, task_id: bytes) -> None:
    gates.stage.other.link.send((m.CANCEL, task_id, False, False))
    gates.let()


def test_a_queued_call_that_is_cancelled_never_begins(gates: Gates) -> None:
    gates.start(most=1)
    _a, b, _c = (gates.call("wait", name) for name in "abc")
    gates.let()
    cancel(gates, b)
    ((task_id, error),) = gates.stage.answers()
    assert task_id == b and isinstance(error, TaskCancelledError)
    gates.let("a", "b", "c")
    assert gates.began == ["a", "c"]


def test_a_running_call_that_is_cancelled_alone_knows_it(gates: Gates) -> None:
    gates.start(most=2)
    first, second = (gates.call("is_cancelled", name) for name in "ab")
    gates.let()
    cancel(gates, first)
    gates.let("a", "b")
    answers = dict(gates.stage.answers())
    assert isinstance(answers[first], TaskCancelledError)
    assert answers[second] == ("b", False, second)


# ------------------------------------------------------------------------------------------ ends
def test_the_end_of_an_actor_drops_queued_calls_and_waits_for_running_ones(gates: Gates) -> None:
    gates.start(most=2)
    gates.stage.serve()
    gates.call("wait", "a")
    gates.call("leave")
    gates.call("wait", "b")
    gates.let()
    assert gates.began == ["a"]
    assert gates.stage.process.status is None
    gates.let("a")
    assert gates.answered() == ["a"]
    assert [(kind, text) for _code, kind, text, *_more in gates.stage.node.take(m.EXITING)] == [EXITED]
    assert gates.stage.process.status == 0
    assert gates.began == ["a"]


def test_an_actor_whose_last_handle_was_dropped_runs_its_queued_calls_first(gates: Gates) -> None:
    gates.start(most=1)
    gates.stage.serve()
    for name in "abc":
        gates.call("wait", name)
    gates.stage.tell(m.EXIT, *SCOPE)
    gates.let()
    gates.let("a", "b")
    assert gates.answered() == ["a", "b"]
    assert gates.stage.process.status is None
    gates.let("c")
    assert gates.answered() == ["c"]
    assert gates.stage.process.status == 0


def test_calls_that_arrive_while_the_actor_ends_do_not_begin(gates: Gates) -> None:
    gates.start(most=2)
    gates.stage.serve()
    gates.call("wait", "a")
    gates.let()
    gates.stage.worker.groups.leave(*EXITED)
    gates.call("wait", "b")
    gates.let("a", "b")
    assert gates.began == ["a"]
    assert gates.answered() == ["a"]


def test_sigterm_ends_the_actor_when_its_calls_have_ended(gates: Gates) -> None:
    assert gates.stage.worker.groups.terminate() is False
    gates.start(most=2)
    gates.stage.serve()
    gates.call("wait", "a")
    gates.let()
    assert gates.stage.worker.terminate() is None
    gates.let()
    assert gates.stage.process.status is None
    gates.let("a")
    assert [(kind, text) for _code, kind, text, *_more in gates.stage.node.take(m.EXITING)] == [TERMINATED]
    assert gates.stage.process.status == 1
    assert ("finalize", True) in gates.stage.process.done


# ------------------------------------------------------------------------------------------ event loops
class Turns:
    """An actor whose coroutines list their steps."""

    def __init__(self, stage: WorkerStage, most: int, **groups: int) -> None:
        import asyncio

        self.stage = stage
        self.done: list[str] = []
        self.events: dict[str, asyncio.Event] = {}
        turns = self

        class Async:
            async def wait(self, name: str) -> str:
                turns.done.append(f"{name} begins")
                event = turns.events[name] = asyncio.Event()
                try:
                    await event.wait()
                except asyncio.CancelledError:
                    turns.done.append(f"{name} is cancelled")
                    raise
                turns.done.append(f"{name} ends")
                return name

            async def set(self, name: str) -> None:
                turns.events[name].set()

            def brief(self) -> str:
                turns.done.append("brief")
                return "brief"

        setattr(Async.brief, AT_ONCE, True)
        stage.start_actor(Async, concurrency=(True, most, groups))
        stage.node.take()
        stage.serve()

    def call(self, method: str, *args: Any, group: str = "") -> bytes:
        return self.stage.call(method, *args, options={"group": group} if group else None)

    def answered(self) -> dict[bytes, Any]:
        self.stage.pass_time(1.0)
        return dict(self.stage.answers())


def test_coroutines_begin_in_order_and_at_most_as_many_as_the_size(stage: WorkerStage) -> None:
    turns = Turns(stage, 2)
    a, b, c = (turns.call("wait", name) for name in "abc")
    assert turns.answered() == {}
    assert turns.done == ["a begins", "b begins"]
    stage.worker.groups.main.loop.call_soon(turns.events["a"].set)  # type: ignore[union-attr]
    stage.worker.groups.main.notify()  # type: ignore[union-attr]
    assert turns.answered() == {a: "a"}
    assert turns.done == ["a begins", "b begins", "a ends", "c begins"]
    assert {b, c} == set(stage.worker.groups.running)


def test_a_cancelled_coroutine_gets_the_error_where_it_waits(stage: WorkerStage) -> None:
    turns = Turns(stage, 3)
    a = turns.call("wait", "a")
    b = turns.call("wait", "b")
    assert turns.answered() == {}
    stage.other.link.send((m.CANCEL, a, False, False))
    (answer,) = turns.answered().items()
    assert answer[0] == a and isinstance(answer[1], TaskCancelledError)
    assert turns.done == ["a begins", "b begins", "a is cancelled"]
    turns.call("set", "b")
    assert turns.answered()[b] == "b"


def test_a_queued_coroutine_that_is_cancelled_never_begins(stage: WorkerStage) -> None:
    turns = Turns(stage, 1)
    turns.call("wait", "a")
    b = turns.call("wait", "b")
    assert turns.answered() == {}
    stage.other.link.send((m.CANCEL, b, False, False))
    ((task_id, error),) = turns.answered().items()
    assert task_id == b and isinstance(error, TaskCancelledError)
    assert turns.done == ["a begins"]


def test_a_brief_method_runs_without_a_task_and_behind_calls_before_it(stage: WorkerStage) -> None:
    turns = Turns(stage, 2)
    a = turns.call("wait", "a")
    brief = turns.call("brief")
    assert turns.answered() == {brief: "brief"}
    assert turns.done == ["a begins", "brief"]
    assert set(stage.worker.groups.running) == {a}


def test_a_group_of_an_async_actor_has_a_loop_on_its_own_thread(stage: WorkerStage) -> None:
    turns = Turns(stage, 1, io=1)
    turns.call("wait", "a")
    b = turns.call("wait", "b", group="io")
    turns.call("wait", "c", group="io")
    assert turns.answered() == {}
    assert turns.done == ["a begins", "b begins"]
    assert stage.process.threads == ["mray-loop-io"]
    stage.other.link.send((m.CANCEL, b, False, False))
    ((task_id, error),) = turns.answered().items()
    assert task_id == b and isinstance(error, TaskCancelledError)
    assert turns.done == ["a begins", "b begins", "b is cancelled", "c begins"]
