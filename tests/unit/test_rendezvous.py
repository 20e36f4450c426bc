"""The data that members of a group show each other before and while they are one, without a process."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import pytest

from mray._channel.board import ALIGN, BLOCK, NONCE, RING, VERSION, Board
from mray._channel.rendezvous import GroupMember, Meeting, new_nonce
from mray._ipc.segment import PAGE


def member(rank: int, nonce: int, **info: object) -> GroupMember:
    return GroupMember(rank, 2, nonce, "process", 7, "", "task f", f"/mray-x-{rank}")._replace(**info)  # type: ignore[arg-type]


def test_a_member_that_announces_itself_is_seen_with_all_its_info(tmp_path):
    meeting = Meeting(str(tmp_path / "groups"), "g")
    assert meeting.present() == {}
    own = member(1, new_nonce())
    meeting.announce(own)
    ((rank, (nonce, name)),) = meeting.present().items()
    assert (rank, nonce) == (1, own.nonce)
    assert meeting.read(name) == own
    meeting.withdraw(own)
    meeting.withdraw(own)
    assert meeting.present() == {}
    assert meeting.read(name) is None
    assert not os.listdir(tmp_path / "groups")


def test_the_latest_attempt_of_a_rank_counts(tmp_path):
    meeting = Meeting(str(tmp_path), "g")
    first, second = new_nonce(), new_nonce() + 1000
    assert first < second
    meeting.announce(member(0, second))
    meeting.announce(member(0, first))
    assert meeting.present()[0][0] == second


def test_groups_of_other_names_do_not_meet(tmp_path):
    for name in ("a", "A", "a.0", "../a", "ä" * 300):
        Meeting(str(tmp_path), name).announce(member(0, new_nonce()))
    assert list(Meeting(str(tmp_path), "a").present()) == [0]
    assert Meeting(str(tmp_path), "b").present() == {}


def test_what_the_dead_leave_is_looked_at_once(tmp_path):
    meeting = Meeting(str(tmp_path), "g")
    dead = member(0, 1)
    meeting.announce(dead)
    meeting.discard(meeting.present()[0][1])
    assert meeting.present() == {}
    assert not os.listdir(tmp_path)


def test_a_member_is_named_by_rank_and_process():
    assert str(member(3, 1, label="actor Worker")) == "rank 3 (actor Worker, pid 7)"


@pytest.fixture(params=[1, 2, 3, 7, 64])
def board(request: pytest.FixtureRequest) -> Iterator[Board]:
    board = Board.create(f"/mray-test-{os.getpid()}-board", request.param, 99)
    yield board
    board.segment.unlink()
    board.close()


def test_the_parts_of_a_board_lie_apart(board):
    world_size = board.world_size
    parts = [(0, (16 + world_size) * 8)]
    parts += [(board.ring(rank), RING.size) for rank in range(world_size)]
    parts += [(board.half(number), BLOCK) for number in (0, 1)]
    parts += [(board.computed(number), BLOCK // world_size + 16) for number in (0, 1)]
    ends = sorted((start, start + size) for start, size in parts)
    assert all(end <= start for (_start, end), (start, _end) in itertools.pairwise(ends))
    assert ends[-1][1] <= board.segment.size
    assert all(board.half(number) % PAGE == 0 and board.computed(number) % ALIGN == 0 for number in (0, 1))


def test_a_board_is_opened_by_those_who_know_its_nonce(board):
    again = Board.open(board.segment.name, board.world_size, 99)
    again.view(again.half(1), 4, "f4", "numpy")[:] = [1, 2, 3, 4]
    assert board.view(board.half(1), 4, "f4", "numpy").tolist() == [1, 2, 3, 4]
    again.close()
    with pytest.raises(ValueError, match="has another layout"):
        Board.open(board.segment.name, board.world_size, 98)
    board.words[VERSION] += 1
    with pytest.raises(ValueError, match="has another layout"):
        Board.open(board.segment.name, board.world_size, board.words[NONCE])
    with pytest.raises(ValueError, match=f"has {board.segment.size} bytes, expected .* for a world of {board.world_size + 1000}"):
        Board.open(board.segment.name, board.world_size + 1000, 99)
    with pytest.raises(FileNotFoundError):
        Board.open(board.segment.name + "x", board.world_size, 99)
