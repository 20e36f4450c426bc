"""Processes that have joined a session, and the rows of its table that they write to."""

from __future__ import annotations

import os
from typing import Any

import pytest

from mray._ipc.table import BYTES, LENT, ROW_WORDS, SPILLED_EVER, SessionTable
from mray._runtime.node.members import Members

NOBODY: Any = None


@pytest.fixture
def members():
    table = SessionTable.create(f"/mray-test-{os.getpid()}-members")
    table.segment.unlink()
    yield Members(table)
    table.close()


def test_a_row_is_given_again_when_its_process_is_forgotten(members):
    assert [members.join(name, NOBODY) for name in "abc"] == [1, 2, 3]
    members.table.words[2 * ROW_WORDS + BYTES] = 7
    assert (members.word("b", BYTES), members.total(BYTES)) == (7, 7)
    members.forget("b")
    assert "b" not in members
    assert (members.word("b", BYTES), members.total(BYTES)) == (0, 0)
    assert members.join("d", NOBODY) == 2
    assert members.table.rows_in_use() == 4


def test_what_the_dead_have_spilled_counts_on(members):
    row = members.join("a", NOBODY)
    members.table.words[row * ROW_WORDS + SPILLED_EVER] = 5
    members.forget("a")
    members.forget("a")
    assert members.total(SPILLED_EVER) == 5


def test_who_has_not_joined_lends_nothing(members):
    row = members.join("a", NOBODY)
    members.table.words[row * ROW_WORDS + LENT] = 1
    assert [members.is_lending(name) for name in "ab"] == [True, False]
