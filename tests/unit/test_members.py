"""Processes that have joined a session, and the rows of its table that they write to."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest

from mray._common import messages as m
from mray._ipc.connection import ProtocolViolationError
from mray._ipc.reactor import Reactor
from mray._ipc.table import BYTES, DOZING, HIGHEST, LENT, ROW_WORDS, ROWS, SPILLED_EVER, STATE, SessionTable
from mray._runtime.node import snapshot
from mray._runtime.node.introducer import Introducer
from mray._runtime.node.members import Members
from mray._runtime.node.node import Node

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


@pytest.mark.parametrize(
    ("word", "value"), [(STATE, DOZING + 1), (BYTES, (1 << 64) - 1), (SPILLED_EVER, 0x7F00_0000_1234), (LENT, 0x3FF0_0000_0000_0000)]
)
def test_impossible_words_in_a_row_are_told_and_count_as_nothing(members, word, value):
    rows = [members.join(name, NOBODY) for name in "abc"]
    for row in rows:
        members.table.words[row * ROW_WORDS + word] = 2
    members.table.words[rows[1] * ROW_WORDS + word] = value
    assert [bool(members.impossible(name)) for name in "abcd"] == [False, True, False, False]
    assert f"is {value:#x}" in members.impossible("b")
    if word != STATE:
        assert (members.word("b", word), members.total(word)) == (0, 4)
    members.forget("b")
    assert members.join("d", NOBODY) == rows[1]
    assert not members.impossible("d")


def test_the_dead_whose_counts_are_impossible_leave_none_behind(members):
    row = members.join("a", NOBODY)
    members.table.words[SPILLED_EVER] = 5
    members.table.words[row * ROW_WORDS + SPILLED_EVER] = (1 << 64) - 1
    members.forget("a")
    assert members.total(SPILLED_EVER) == 5


def test_there_are_never_more_rows_than_the_table_has(members):
    members.table.words[HIGHEST] = (1 << 64) - 1
    assert members.table.rows_in_use() == ROWS
    with pytest.raises(OSError, match="a session has at most"):
        members.table.add_row(ROWS)


def test_a_driver_that_finds_no_row_leaves_nothing_with_the_node(members, monkeypatch):
    monkeypatch.setattr(members.table, "rows", 1)
    reactor = Reactor()
    node = Node.__new__(Node)
    node._only_job, node._members, node._introducer = None, members, Introducer(reactor, NOBODY)
    told: list[Any] = []
    driver: Any = SimpleNamespace(process="", send=told.append, close=lambda: None)
    before = set(os.listdir("/proc/self/fd"))
    node._hello(driver, m.ROLE_DRIVER, "d", 7, {})
    assert (told[0][0], "table" in told[0][2]) == (m.REFUSED, True)
    assert set(os.listdir("/proc/self/fd")) == before
    reactor.close()


def test_an_observer_sends_queries_only_and_of_what_there_is():
    with pytest.raises(ProtocolViolationError, match="an observer cannot ask for 'secrets'"):
        snapshot.answer(NOBODY, "secrets")
    with pytest.raises(ProtocolViolationError, match="an observer may only send queries"):
        Node._look_on(NOBODY, NOBODY, m.DONE)
