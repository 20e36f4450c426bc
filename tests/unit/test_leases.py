"""Loans of a writer beside its ring: until every reader lets go, and no longer than they live."""

from __future__ import annotations

import contextlib
import os
import pickle
import resource
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from mray._channel.shm import ReaderEnd, WriterEnd
from mray._gpu.channel_leases import LeaseHolder, Lender, Note
from mray._ipc import layout as at
from mray._ipc.layout import MOST_NOTE, WORD, RingLayout
from mray._ipc.pidfd import is_dead
from mray._ipc.process import namespace_mark, start_of
from mray._ipc.ring_loans import sweep_closed
from mray._ipc.segment import Segment

LEASES = 3


class Thing:
    """Something lent."""

    def __init__(self) -> None:
        self.notes: list[Note] | None = None

    def returned(self, notes: list[Note]) -> None:
        assert self.notes is None, "it came back twice"
        self.notes = notes


class Boards:
    def __init__(self, readers: int, offset: int = 0) -> None:
        self.layout = RingLayout(2, 64, readers, 2, LEASES)
        self.segment = Segment.create(f"/mray-test-leases-{os.getpid()}", offset + self.layout.size)
        self.segment.unlink()
        self.lender = Lender(WriterEnd(self.segment, offset, self.layout, "", ()))
        doorbell: Any = None
        self.borrowers = [
            LeaseHolder(ReaderEnd(self.segment, offset, self.layout, reader, "", doorbell, pickle.dumps)) for reader in range(readers)
        ]

        self.out: list[tuple[Thing, int, int]] = []

    def give_out(self) -> tuple[Thing, int, int]:
        thing = Thing()
        lease = self.lender.lend(thing)
        assert lease is not None
        self.out.append((thing, *lease))
        return self.out[-1]

    def close(self) -> None:
        for thing, lease, use in self.out:
            if thing.notes is None:
                for borrower in self.borrowers:
                    borrower.end(lease, use, b"")
        for borrower in self.borrowers:
            with contextlib.suppress(ValueError):  # the test has done so
                borrower.gone()
        self.lender.close(lambda: None)
        assert sweep_closed()
        self.segment.close()


@pytest.fixture
def boards() -> Iterator[Boards]:
    made = Boards(2, offset=4096)
    yield made
    made.close()


def test_a_thing_comes_back_when_the_last_reader_has_let_go_with_everybodys_note(boards: Boards) -> None:
    thing, lease, use = boards.give_out()
    boards.borrowers[1].end(lease, use, b"one")
    boards.lender.sweep()
    assert thing.notes is None
    boards.borrowers[0].end(lease, use, b"")
    boards.lender.sweep()
    assert thing.notes == [(1, b"one", 0)]
    assert not boards.lender.out


def test_a_lease_is_used_again_and_an_old_end_does_not_end_the_new_use(boards: Boards) -> None:
    _thing, lease, use = boards.give_out()
    for borrower in boards.borrowers:
        borrower.end(lease, use, b"first")
    boards.lender.sweep()
    thing, again, later = boards.give_out()
    assert (again, later) == (lease, use + 1)
    boards.lender.sweep()
    assert thing.notes is None
    boards.borrowers[0].end(lease, later, b"second, and longer")
    boards.borrowers[1].end(lease, later, b"2")
    boards.lender.sweep()
    assert thing.notes == [(0, b"second, and longer", 0), (1, b"2", 0)]


def test_the_longest_note_arrives_and_its_neighbours_stay(boards: Boards) -> None:
    things = [boards.give_out() for _ in range(LEASES)]
    note = bytes(range(MOST_NOTE))
    for borrower in boards.borrowers:
        borrower.end(things[1][1], things[1][2], note)
    boards.lender.sweep()
    assert [thing.notes for thing, _lease, _use in things] == [None, [(0, note, 0), (1, note, 0)], None]


def test_nothing_is_lent_beyond_the_leases_and_a_message_not_sent_gives_its_lease_back(boards: Boards) -> None:
    things = [boards.give_out() for _ in range(LEASES)]
    assert boards.lender.lend(Thing()) is None
    thing, lease, _use = things[0]
    boards.lender.cancel_loan(lease)
    assert thing.notes == []
    assert boards.give_out()[1] == lease


def test_what_is_lent_when_the_lender_closes_comes_back_later(boards: Boards) -> None:
    thing, lease, use = boards.give_out()
    over: list[bool] = []
    boards.lender.close(lambda: over.append(True))
    boards.lender.close(lambda: over.append(True))
    assert not sweep_closed()
    for borrower in boards.borrowers:
        borrower.end(lease, use, b"late")
    assert not sweep_closed(), "readers still have memory open"
    assert thing.notes == [(0, b"late", 0), (1, b"late", 0)]
    for borrower in boards.borrowers:
        borrower.gone()
    assert sweep_closed()
    assert over == [True]


def test_the_dead_hold_nothing(boards: Boards) -> None:
    thing, lease, use = boards.give_out()
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    # The child is reader 1, as far as the board says.
    board = 4096 // WORD + boards.layout.board(1)
    words = boards.segment.words()
    words[board + at.PID], words[board + at.STARTED] = child.pid, start_of(child.pid)
    boards.lender.close(lambda: None)
    boards.borrowers[0].end(lease, use, b"")
    boards.borrowers[0].gone()
    assert not sweep_closed()
    assert thing.notes is None
    child.kill()
    child.communicate()
    # In another namespace a process with this number may live.
    words[board + at.PID] = child.pid | (namespace_mark() ^ 1) << 32
    assert not sweep_closed()
    words[board + at.PID] = child.pid | namespace_mark() << 32
    words.release()
    assert sweep_closed()
    assert thing.notes == []


def test_a_process_that_waits_to_be_reaped_is_dead() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert start_of(child.pid)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert start_of(child.pid) == 0
    child.communicate()
    assert start_of(child.pid) == 0


def test_whether_a_process_is_dead_is_known_with_thousands_of_open_files() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, before[1]), before[1]))
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    named = child.pid, start_of(child.pid)
    with contextlib.ExitStack() as opened:
        opened.callback(resource.setrlimit, resource.RLIMIT_NOFILE, before)
        for _ in range(1100):
            opened.enter_context(open(os.devnull, "rb"))
        assert not is_dead(named)
        child.kill()
        child.communicate()
        assert is_dead(named)


@pytest.mark.parametrize("readers", [1, 3])
def test_boards_overlap_nothing(readers: int) -> None:
    layout = RingLayout(4, 128, readers, 5, LEASES)
    taken = {layout.entry(layout.entries) // WORD - 1}
    for reader in range(readers):
        lines = [(layout.board(reader), at.LINE_WORDS)] + [(layout.lease(reader, lease), at.LEASE_WORDS) for lease in range(LEASES)]
        for first, count in lines:
            words = set(range(first, first + count))
            assert not words & taken
            taken |= words
    assert max(taken) < layout.size // WORD
