"""How the node looks for waits that cannot end, with scripted processes and without a clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mray._common import messages as m
from mray._runtime.node.deadlocks import Deadlocks
from tests.unit.test_scheduler import Stage

Rows = tuple[list[Any], list[Any], int]
PLACE = ("f.py", 1, "f", "get()")


class Timers:
    """The reactor of the node: what is to be called later is called by hand."""

    def __init__(self) -> None:
        self.due: list[Callable[[], None]] = []

    def call_later(self, _seconds: float, callback: Callable[[], None]) -> None:
        self.due.append(callback)

    def pass_time(self) -> None:
        due, self.due = self.due, []
        for callback in due:
            callback()


class Process:
    def __init__(self, pid: int, role: str) -> None:
        self.pid = pid
        self.role = role
        self.closed = False
        self.received: list[tuple[Any, ...]] = []

    def send(self, message: tuple[Any, ...]) -> None:
        self.received.append(message)


class Session:
    def __init__(self) -> None:
        self.timers = Timers()
        self.processes = {name: Process(number, m.ROLE_WORKER) for number, name in enumerate("abc", 11)}
        self.processes["driver"] = Process(10, m.ROLE_DRIVER)
        self.said: list[str] = []
        self.logged: list[tuple[str, str]] = []
        self.looks: Any = Deadlocks(
            self.timers,  # type: ignore[arg-type]
            Stage().scheduler,
            self.processes,  # type: ignore[arg-type]
            lambda text, _process: self.said.append(text),
            lambda process, text: self.logged.append((process, text)),
        )
        #: The answers of the processes.
        self.rows: dict[str, Rows] = {}
        self.silent: set[str] = set()

    def answer(self) -> int:
        """All processes answer; returns how many questions there were."""
        count = 0
        while questions := [
            (name, message)
            for name, process in self.processes.items()
            for message in process.received
            if message[0] == m.WAITS_ASKED and name not in self.silent
        ]:
            for name, message in questions:
                self.processes[name].received.remove(message)
                count += 1
                self.looks.on_message(name, m.WAITS_TOLD, message[1], *self.rows.get(name, ([], [], 0)))
        return count

    def look(self) -> int:
        self.timers.pass_time()
        return self.answer()

    def stuck(self, name: str) -> list[tuple[Any, ...]]:
        return [message for message in self.processes[name].received if message[0] == m.STUCK]


def ring(number: int = 1, task: bytes = b"t") -> dict[str, Rows]:
    """`a` waits for `b`, which waits for `a`."""
    return {
        "a": (
            [(number, task + b"a", "A.ping", PLACE, [(task + b"b", "a")], 0)],
            [(task + b"b", "B.pong", "b", b"", [], [], 0), (task + b"c", "", "", b"", [], [number], 0)],
            1,
        ),
        "b": (
            [(number, task + b"b", "B.pong", PLACE, [(task + b"c", "b")], 0)],
            [(task + b"c", "A.size", "a", b"", [], [], 0), (task + b"b", "", "", b"", [], [number], 0)],
            1,
        ),
    }


@pytest.fixture
def session() -> Session:
    session = Session()
    session.rows = ring()
    return session


def report(session: Session, *names: str) -> None:
    for name in names:
        session.looks.on_message(name, m.LONG_WAIT)


def test_what_is_stuck_in_two_looks_is_reported_once(session: Session) -> None:
    report(session, "a", "b")
    assert session.look() > 0
    assert session.said == []
    session.look()
    (text,) = session.said
    assert [process for process, logged in session.logged if text.startswith(logged)] == ["a", "b"]
    assert text.startswith("These calls wait for each other, and none of them can end:\nA.ping (pid 11) waits for B.pong (pid 12)\n")
    assert "B.pong (pid 12) waits for A.size, which is queued behind A.ping (pid 11)" in text
    assert [message[1:4] for message in session.stuck("b")] == [(1, False, [b"tb", b"tc"])]
    ((_, number, raises, tasks, chain),) = session.stuck("driver")
    assert (number, raises, tasks, len(chain)) == (0, False, [b"tb", b"tc"], 2)
    report(session, "a")
    session.look()
    session.look()
    assert len(session.said) == len(session.stuck("a")) == 1


@pytest.mark.parametrize("again", [{}, {"a": ring()["a"]}, ring(2)], ids=["both ended", "one ended", "they wait anew"])
def test_what_has_changed_between_two_looks_is_not_reported(session: Session, again: dict[str, Rows]) -> None:
    report(session, "a", "b")
    session.look()
    session.rows = again
    session.look()
    assert session.said == []
    assert not session.stuck("a")


def test_reports_during_a_look_share_the_next_one(session: Session) -> None:
    session.rows = {}
    report(session, *"ab")
    session.timers.pass_time()
    report(session, *"abc")
    assert session.answer() == 2
    assert session.look() == 1  # the others have answered that they do not wait
    assert session.look() == 0


def test_a_process_that_does_not_answer_is_no_obstacle_and_no_reason(session: Session) -> None:
    session.silent.add("b")
    report(session, "a", "b")
    session.look()
    session.look()  # the time for answers is over
    assert session.said == []
    session.silent.clear()
    session.processes["b"].received.clear()
    report(session, "a")
    for _ in range(4):
        session.look()
    assert len(session.said) == 1


def test_a_process_that_has_ended_is_not_asked(session: Session) -> None:
    report(session, "a", "b")
    del session.processes["b"]
    session.look()
    session.look()
    assert session.said == []


def test_the_same_calls_that_wait_anew_are_not_reported_again_but_others_are(session: Session) -> None:
    for number, task in ((1, b"t"), (2, b"t"), (3, b"u")):
        session.rows = ring(number, task)
        report(session, "a", "b")
        for _ in range(4):
            session.look()
    assert len(session.said) == 2
    assert [number for _, number, *_ in session.stuck("a")] == [1, 2, 3]


def test_a_cycle_of_coroutines_alone_is_reported_also_where_waits_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MRAY_RAISE_DEADLOCKS", "1")
    for numbers, count in (((-1, -2), 1), ((1, -2), 0)):
        session = Session()
        session.rows = {name: ring(number)[name] for name, number in zip("ab", numbers, strict=True)}
        report(session, "a", "b")
        session.look()
        session.look()
        assert len(session.said) == count
        assert len(session.stuck("a")) == 1


def test_a_wait_that_leads_into_a_cycle_is_told_and_does_not_raise(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MRAY_RAISE_DEADLOCKS", "1")
    session = Session()
    session.rows = {
        **ring(),
        "driver": ([(4, b"", "The driver", PLACE, [(b"ta", "driver")], 0)], [(b"ta", "A.ping", "a", b"", [], [], 0)], 0),
    }
    waits, calls, main = session.rows["a"]
    session.rows["a"] = (waits, [*calls, (b"ta", "", "", b"", [], [1], 0)], main)
    report(session, "driver", "a", "b")
    session.look()
    session.look()
    assert session.said == []  # the errors say it
    assert len(session.logged) == 2
    assert [message[1:3] for message in session.stuck("driver")] == [(0, False), (4, False)]
    assert [message[1:3] for message in session.stuck("a")] == [(1, True)]
