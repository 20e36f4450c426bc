"""A process dies, in any way, at any point of its work: waiting threads get an error with its name and end, other work goes on, nothing
is left.

The rows are in `matrix.py`. Rows whose session goes on share a session with the other rows of their kind.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.faults.crash.matrix import ALL, EXCLUDED, ROWS, Row, Told, covering, end_of
from tests.faults.crash.matrix_scene import Drive, Nursery, is_gone, until
from tests.full import FULL
from tests.full import covering as choose


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    """The process that drivers are forked from."""
    nursery = Nursery({})
    yield nursery
    nursery.close()


class Shared:
    """The driver whose session goes on from row to row; another one when a row has failed."""

    def __init__(self, nursery: Nursery) -> None:
        self._nursery = nursery
        self.drive: Drive | None = None

    def get(self) -> Drive:
        if self.drive is None:
            self.drive = Drive(self._nursery, "numpy", "tests.faults.crash.matrix_program")
            self.drive.ask("prepare")
        return self.drive

    def give_up(self) -> None:
        if self.drive is not None:
            self.drive.close()
            self.drive = None


@pytest.fixture(scope="module")
def shared(nursery: Nursery, shared_session: Any) -> Iterator[Shared]:
    shared = Shared(nursery)
    shared_session.running = True
    yield shared
    shared_session.running = False
    if shared.drive is not None:
        try:
            left = shared.drive.end()
            assert left == {"threads": [], "files": []}
        finally:
            shared.drive.close()


def check(told: Told, wait: dict[str, Any], pids: dict[str, int]) -> None:
    """Check that a waiting thread got the expected outcome."""
    if not told.error:
        assert "error" not in wait, f"{wait['trace']}\nfor {told}"
        assert wait["value"] == told.value
        return
    if told.value is not None and "error" not in wait:
        assert wait["value"] == told.value
        return
    assert "error" in wait, f"the value {wait['value']!r} for {told}"
    assert told.error in wait["error"], wait["trace"]
    for word in told.words:
        said = word.format(pid=pids["seat"], node=pids["node"])
        assert said in wait["text"], f"{said!r} is not in\n{wait['text']}"


def play(drive: Drive, row: Row) -> dict[str, Any]:
    """Have it happen, and check what those were told who waited."""
    info, answer = drive.play(row.seat, row.phase, row.manner, row.victims, opens=not (row.told and row.told[0].error))
    if row.status is not None:
        assert answer is None, answer
        assert drive.wait() == row.status, drive.event_log()
        return info
    assert answer is not None, drive.event_log()
    for told, wait in zip(row.told, answer["waits"], strict=True):
        check(told, wait, info["pids"])
    return info


def test_every_combination_is_a_row_or_excluded_for_a_reason() -> None:
    rows = {(row.victim, row.phase, row.manner) for row in ROWS}
    assert len(rows) == len(ROWS)
    assert rows.isdisjoint(EXCLUDED)
    assert rows | set(EXCLUDED) == set(ALL)
    assert all(len(why.split()) > 3 for why in EXCLUDED.values())


SHARED = [row for row in ROWS if not row.session_is_over]


def test_what_is_played_by_default_has_each_phase_with_each_kind_of_end_and_each_victim_in_each_phase_and_manner() -> None:
    """Of the rows that share a session; as far as there is such a row at all."""
    part = covering(SHARED)
    assert 2 * len(part) < len(SHARED)
    for pair in (lambda row: (row.phase, end_of(row)), lambda row: (row.victim, row.phase), lambda row: (row.victim, row.manner)):
        assert {pair(row) for row in part} == {pair(row) for row in SHARED}


@pytest.mark.parametrize("row", SHARED if FULL else covering(SHARED), ids=str)
def test_a_death_is_told_and_the_session_goes_on(shared: Shared, row: Row) -> None:
    drive = shared.get()
    try:
        info = play(drive, row)
        if is_gone(info["pid"]) and info["process"]:
            until(lambda: not drive.left_of(info["process"]), "nothing is left of the dead", drive.event_log)
        drive.ask("rest", info["process"] if is_gone(info["pid"]) else "")
    except BaseException:
        shared.give_up()
        raise


#: Rows with a session of their own are dear: each victim with each manner and from each seat, and each phase. With MRAY_TEST_FULL=1 all.
ALONE = choose(
    [row for row in ROWS if row.session_is_over],
    lambda row: ((row.victim, row.manner), ("from", row.victim, row.seat), row.phase),
)


@pytest.mark.parametrize("row", ALONE, ids=str)
def test_a_death_is_told_and_nothing_is_left_of_the_session(nursery: Nursery, row: Row) -> None:
    drive = Drive(nursery)
    try:
        play(drive, row)
        if row.status is None:
            drive.ask("again" if "node" in row.victims or row.phase == "shutdown" else "look")
            drive.end(ends=row.manner != "thread")
        else:
            drive.assert_nothing_left()
    finally:
        drive.close()
