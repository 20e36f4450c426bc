"""The parts of the single-process engine below the runtime, without a session: messages, blocked threads, variables of an environment."""

from __future__ import annotations

import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from mray._backends.local import patches
from mray._backends.local.environment import EnvironmentVariables, check_environment
from mray._backends.local.run_token import RunToken, here
from mray._backends.local.transport import LocalConnection, LocalReactor, connect
from mray._runtime.connections.transport import Callbacks
from mray.exceptions import RaySystemError

NAME = "MRAY_TEST_VARIABLE"


@pytest.fixture
def run_token() -> Iterator[RunToken]:
    token = RunToken(0, real_time=False)
    token.guests.clear()
    here.sim_thread = token.driver
    yield token
    token.close()


@pytest.fixture
def patched(run_token: RunToken) -> Iterator[dict[int, Any]]:
    """The processes of a session whose functions are in place of the standard library's."""
    processes: dict[int, Any] = {}
    patches.install(run_token, processes)
    yield processes
    patches.uninstall()


# ------------------------------------------------------------------------------------------ messages
class End:
    """One end of a connection: the messages that have arrived."""

    def __init__(self, on: Callable[[Any], None] = lambda _message: None) -> None:
        self.received: list[Any] = []
        self.hung_up = 0
        self._on = on

    def callbacks(self) -> Callbacks:
        return Callbacks(self._on_message, self._on_hangup)

    def _on_message(self, _link: LocalConnection, message: Any) -> None:
        self.received.append((message, here.process))
        self._on(message)

    def _on_hangup(self, _link: LocalConnection) -> None:
        self.hung_up += 1


def test_messages_arrive_in_order_in_the_process_of_the_receiver(run_token: RunToken) -> None:
    mine, others = End(), End()
    connection = connect(run_token, mine.callbacks(), "me", others.callbacks(), "other")
    connection.send(("first",))
    connection.post(("second",))
    assert others.received == []
    run_token.run_callbacks()
    assert others.received == [(("first",), "other"), (("second",), "other")]
    assert here.process is None


def test_messages_before_the_end_of_a_connection_arrive_and_later_ones_do_not(run_token: RunToken) -> None:
    mine, others = End(), End()
    connection = connect(run_token, mine.callbacks(), None, others.callbacks(), None)
    connection.send(("before",))
    connection.close()
    connection.send(("after",))
    connection.close()
    run_token.run_callbacks()
    assert [message for message, _process in others.received] == [("before",)]
    assert others.hung_up == 1


def test_a_handler_that_fails_does_not_lose_the_messages_behind_it(run_token: RunToken, caplog: pytest.LogCaptureFixture) -> None:
    def fails(message: Any) -> None:
        if message == (1,):
            raise KeyError("no")

    others = End(fails)
    connection = connect(run_token, End().callbacks(), None, others.callbacks(), None)
    for number in (1, 2):
        connection.send((number,))
    run_token.run_callbacks()
    assert [message for message, _process in others.received] == [(1,), (2,)]
    assert "message (1,)" in caplog.text


def test_a_callback_of_a_condition_is_called_once_unless_it_is_cancelled(run_token: RunToken) -> None:
    reactor = LocalReactor(run_token, None)
    came: list[int] = []
    called: list[str] = []
    reactor.then(lambda: came, lambda: called.append("first"))
    cancel = reactor.then(lambda: came, lambda: called.append("cancelled"))
    run_token.sleep(1.0)
    assert called == []
    cancel()
    came.append(1)
    run_token.sleep(1.0)
    run_token.sleep(1.0)
    assert called == ["first"]


# ------------------------------------------------------------------------------------------ blocked threads
def test_sleeping_advances_the_clock_of_the_session(run_token: RunToken, patched: object) -> None:
    time.sleep(1000.0)
    assert 1000.0 <= run_token.clock < 1001.0


def test_a_thread_that_waits_for_a_lock_lets_its_holder_run(run_token: RunToken, patched: object) -> None:
    lock = threading.Lock()
    steps: list[str] = []

    def holds() -> None:
        with lock:
            steps.append("holds")
            run_token.sleep(5.0)
            steps.append("releases")

    run_token.spawn("holder", holds, None)
    run_token.wait_until(lock.locked, None)
    assert not lock.acquire(timeout=1.0)
    with lock:
        steps.append("acquires")
    assert steps == ["holds", "releases", "acquires"]


def test_a_lock_that_no_thread_can_release_is_a_deadlock(run_token: RunToken, patched: object) -> None:
    lock = threading.Lock()
    lock.acquire()
    with pytest.raises(RaySystemError, match="deadlock: every thread waits"):
        lock.acquire()


def test_conditions_and_queues_pass_the_run_token_on(run_token: RunToken, patched: object) -> None:
    items: queue.Queue[int] = queue.Queue()
    simple: queue.SimpleQueue[int] = queue.SimpleQueue()
    event = threading.Event()

    def produces() -> None:
        for each in (items.put, simple.put):
            run_token.sleep(1.0)
            each(int(run_token.clock))
        event.set()

    run_token.spawn("producer", produces, None)
    with pytest.raises(queue.Empty):
        simple.get(timeout=0.5)
    assert (items.get(), simple.get()) == (1, 2)
    assert event.wait(10.0)
    event.clear()
    assert not event.wait(10.0)
    assert 12.0 <= run_token.clock < 13.0


def test_a_wait_that_timed_out_takes_no_later_notification(run_token: RunToken, patched: object) -> None:
    condition = threading.Condition()
    notified: list[bool] = []

    def waits() -> None:
        with condition:
            notified.append(condition.wait(100.0))

    with condition:
        assert not condition.wait(1.0)
    run_token.spawn("waiter", waits, None)
    run_token.sleep(1.0)
    with condition:
        condition.notify()
    run_token.sleep(1.0)
    assert notified == [True]


# ------------------------------------------------------------------------------------------ processes
class Process:
    """A process of a worker: lists its signals."""

    worker = True

    def __init__(self) -> None:
        self.done: list[Any] = []
        self.at_exit: list[Any] = []
        self.pid = patches.FIRST_PID + 1

    def interrupt(self) -> None:
        self.done.append("interrupt")

    def terminate(self) -> None:
        self.done.append("terminate")

    def end(self, status: int) -> None:
        self.done.append(status)


@pytest.mark.parametrize(
    ("number", "done"),
    [(0, []), (signal.SIGINT, ["interrupt"]), (signal.SIGTERM, ["terminate"]), (signal.SIGKILL, [-signal.SIGKILL])],
)
def test_a_signal_reaches_the_process_with_that_pid(patched: dict[int, Any], number: int, done: list[Any]) -> None:
    process = patched[patches.FIRST_PID + 1] = Process()
    os.kill(process.pid, number)
    assert process.done == done
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid + 1, number)


def test_a_signal_that_stops_a_process_is_refused(patched: dict[int, Any]) -> None:
    process = patched[patches.FIRST_PID + 1] = Process()
    with pytest.raises(NotImplementedError, match="SIGSTOP needs a process of its own"):
        os.kill(process.pid, signal.SIGSTOP)


def test_pids_and_variables_are_those_of_the_process_whose_thread_runs(
    run_token: RunToken, patched: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(NAME, "driver")
    seen: list[tuple[str, int, str | None]] = []
    driver = os.getpid()

    def body(value: str) -> None:
        for _ in range(2):
            seen.append((value, os.getpid(), os.environ.get(NAME)))
            os.environ[NAME] = f"{value} changed"
            run_token.sleep(1.0)

    for number, value in enumerate(("a", "b")):
        process = SimpleNamespace(pid=patches.FIRST_PID + number, worker=True, env_vars=EnvironmentVariables({NAME: value}))
        run_token.spawn(value, lambda value=value: body(value), process)  # type: ignore[misc]
    run_token.sleep(10.0)
    pids = {"a": patches.FIRST_PID, "b": patches.FIRST_PID + 1}
    assert sorted(seen) == [(value, pids[value], text) for value in "ab" for text in (value, f"{value} changed")]
    assert (os.getpid(), os.environ[NAME]) == (driver, "driver")


def test_a_variable_that_was_set_is_removed_or_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(NAME, raising=False)
    variables = EnvironmentVariables({})
    variables.apply()
    variables.set(NAME, "set")
    assert os.environ[NAME] == "set"
    variables.revert()
    assert NAME not in os.environ
    variables.apply()
    assert os.environ[NAME] == "set"
    variables.restore(NAME, None)
    assert NAME not in os.environ
    variables.revert()
    variables.apply()
    assert NAME not in os.environ
    variables.revert()


def test_fields_of_an_environment_that_need_a_process_are_refused() -> None:
    check_environment({"env_vars": {"A": "1"}, "config": {}, "pip": []})
    with pytest.raises(NotImplementedError, match=r"runtime_env\['pip'\] needs a process of its own"):
        check_environment({"pip": ["package"]})
