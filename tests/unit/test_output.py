"""Lines and names come out of a stream of bytes, however it is cut."""

from __future__ import annotations

import pytest

from mray._ipc.output import LONGEST_LINE, LineSplitter, name_marker

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
