"""Lines and names come out of a stream of bytes, however it is cut."""

from __future__ import annotations

import pytest

from mray._ipc.output import LONGEST_LINE, LONGEST_NOTE, LineSplitter, name_marker, note

STREAM = b"before\n" + name_marker("f") + b"one\ntwo\npart" + name_marker("g\nh") + b" of a line\n\x00\x01 not ours\nlast"
LINES = [("", b"before\n"), ("f", b"one\ntwo\n"), ("f", b"part"), ("g h", b" of a line\n\x00\x01 not ours\n"), ("g h", b"last\n")]


def joined(pieces: list[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
    """Text of equal names put together."""
    out: list[tuple[str, bytes]] = []
    for name, text in pieces:
        if out and out[-1][0] == name:
            out[-1] = (name, out[-1][1] + text)
        else:
            out.append((name, text))
    return out


@pytest.mark.parametrize("size", [1, 2, 3, 7, 19, 1000])
def test_names_and_lines_survive_any_cut(size: int):
    splitter = LineSplitter()
    pieces = [piece for start in range(0, len(STREAM), size) for piece in splitter.feed(STREAM[start : start + size])]
    assert joined(pieces + splitter.finish()) == joined(LINES)


def test_a_line_is_kept_until_its_end_comes():
    splitter = LineSplitter()
    assert splitter.feed(b"half") == []
    assert splitter.feed(b" and half\nmore") == [("", b"half and half\n")]
    assert splitter.finish() == [("", b"more\n")]
    assert splitter.finish() == []


def test_an_endless_line_does_not_fill_the_memory():
    splitter = LineSplitter()
    for _ in range(40):
        splitter.feed(b"x" * 65536)
    assert len(splitter._rest) <= LONGEST_LINE


def test_a_marker_cut_off_by_death_is_not_shown():
    splitter = LineSplitter()
    assert splitter.feed(name_marker("f")[:-3]) == []
    assert splitter.finish() == []


@pytest.mark.parametrize("size", [1, 2, 3, 7, 19, 1000])
def test_notes_are_taken_out_of_lines_however_they_are_cut(size: int):
    stream = note("first") + b"a line " + note("second") + b"goes on\n" + name_marker("f") + note("{}")
    stream += b"x\x00\x01mray-other:y\nend" + note("last")
    splitter = LineSplitter()
    notes: list[bytes] = []
    pieces: list[tuple[str, bytes]] = []
    for start in range(0, len(stream), size):
        pieces += splitter.feed(stream[start : start + size])
        notes += splitter.notes
        splitter.notes.clear()
    assert notes == [b"first", b"second", b"{}", b"last"]
    assert joined(pieces + splitter.finish()) == [("", b"a line goes on\n"), ("f", b"x\x00\x01mray-other:y\nend\n")]


def test_a_note_cut_off_by_death_is_not_shown_and_what_stands_before_it_is():
    splitter = LineSplitter()
    assert splitter.feed(b"half a line" + note("f")[:-1]) == []
    assert splitter.finish() == [("", b"half a line\n")]


def test_a_note_is_one_short_line():
    assert len(note("x" * LONGEST_NOTE)) <= 4096  # PIPE_BUF: written in one piece
    for wrong in ("x" * (LONGEST_NOTE + 1), "two\nlines"):
        with pytest.raises(ValueError, match="one line"):
            note(wrong)
