"""Things that others take away from a session that lives: every request gets a true answer, and nothing is left."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.faults.crash.taken import RIGHTS, ROWS, Row
from tests.faults.surroundings.users import NOBODY, NOBODY_ID, as_root_beside_nobody
from tests.full import some

PROGRAM = Path(__file__).with_name("taken_program.py")


@pytest.mark.parametrize("row", some(ROWS, lambda row: row.what, lambda row: row.moment, lambda row: row.error), ids=str)
def test_whoever_waits_is_answered(run, row: Row) -> None:
    before: tuple[str, ...] = ()
    if row.what == RIGHTS and os.getuid() == 0:  # whom rights do not stop
        before = (*as_root_beside_nobody(), *NOBODY)
        os.chown(run.sessions, NOBODY_ID, NOBODY_ID)
    run.start(row.what, row.moment, program=PROGRAM, before=before)
    status = run.wait()
    said = run.said()
    assert status == 0 and "ENDED" in said, run.output()
    if row.error:
        kind, _, text = said.get("ERROR", "").partition(" ")
        assert (kind, row.text in text) == (row.error, True), run.output()
    else:
        assert "VALUE" in said, run.output()
    run.assert_nothing_left()
