"""Lines and names come out of a stream of bytes, however it is cut."""

from __future__ import annotations

import ctypes
import sys
import threading
import types
from typing import Any

import pytest

from mray._ipc.output import LONGEST_LINE, LONGEST_NOTE, MOST_PARTS, FatalError, LineSplitter, WrittenParts, name_marker, note
from mray._runtime.session import driver_output
from mray._runtime.worker import running

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


def test_the_beginning_of_a_line_may_be_taken_without_its_end():
    splitter = LineSplitter()
    assert not splitter.holds
    assert splitter.feed(b"one\n10 %") == [("", b"one\n")]
    assert splitter.holds
    assert splitter.piece() == [("", b"10 %")]
    assert splitter.piece() == []
    assert splitter.feed(b" 20 %\n") == [("", b" 20 %\n")]
    assert splitter.finish() == []


def test_a_line_whose_beginning_was_taken_gets_its_end_at_the_latest_with_the_stream():
    splitter = LineSplitter()
    splitter.feed(b"10 %")
    splitter.piece()
    assert splitter.finish() == [("", b"\n")]
    assert splitter.finish() == []


@pytest.mark.parametrize(
    ("data", "piece"),
    [
        ("né".encode(), "né".encode()),
        ("né".encode()[:-1], b"n"),
        ("n😀".encode()[:-1], b"n"),
        ("n😀".encode()[:-3], b"n"),
        (b"\xff\xfe", b"\xff"),
        (b"\x80\x80\x80\x80", b"\x80\x80\x80\x80"),
        (b"text" + name_marker("f")[:-1], b"text"),
        (b"text" + note("10 %")[:3], b"text"),
    ],
)
def test_pieces_of_characters_and_marks_stay(data: bytes, piece: bytes):
    splitter = LineSplitter()
    splitter.feed(data)
    assert splitter.piece() == [("", piece)]
    assert b"".join(text for _name, text in splitter.finish()).startswith(data[len(piece) : len(piece) + (b"\x00" not in data)])


def test_another_name_begins_another_line():
    splitter = LineSplitter()
    splitter.feed(b"10 %")
    splitter.piece()
    assert splitter.feed(name_marker("f")) == []
    assert splitter.finish() == []


class Printed:
    """The texts that a printer of lines puts on the driver's streams."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, prefix: str, folds: str = "0", client: Any = None) -> None:
        monkeypatch.setenv("MRAY_LOG_PREFIX", prefix)
        monkeypatch.setenv("MRAY_DEDUP_LOGS", folds)
        self.said = {1: "", 2: ""}
        monkeypatch.setattr(driver_output, "_print", self._print)
        self.printer = driver_output.OutputPrinter(client)

    def _print(self, stream: int, text: str) -> None:
        self.said[stream] += text

    def of(self, *spoken: tuple[int, int, str, str]) -> dict[int, str]:
        for each in spoken:
            self.printer.on_output(None, *each)
        self.printer.flush()
        return self.said


def test_pieces_of_lines_come_as_they_were_written(monkeypatch):
    said = Printed(monkeypatch, "0").of(
        (7, 1, "f", "a "), (7, 2, "f", "error\n"), (7, 1, "f", "b"), (8, 1, "f", "other\n"), (7, 1, "f", "c\nd "), (7, 1, "g", "e")
    )
    assert said == {1: "a b\nother\nc\nd \ne\n", 2: "error\n"}


def test_with_a_prefix_each_piece_has_a_line(monkeypatch):
    said = Printed(monkeypatch, "1").of((7, 1, "f", "a"), (7, 1, "f", "b"), (7, 1, "f", "\n"), (7, 1, "f", "\n"), (7, 1, "f", "c"))
    assert said[1] == "(f pid=7) a\n(f pid=7) b\n(f pid=7) \n(f pid=7) c\n"


def test_of_lines_of_several_workers_only_equal_ones_are_folded(monkeypatch):
    spoken = [(pid, 1, "f", f"{text}\n") for pid in (7, 8, 9) for text in ("step 1", f"step {pid}", f"0x{pid}")]
    said = Printed(monkeypatch, "0", "1").of(*spoken, (9, 2, "f", "step 1\n"))
    assert said[1].splitlines()[:-1] == ["step 1", "step 7", "0x7", "step 8", "0x8", "step 9", "0x9"]
    assert said[1].splitlines()[-1].startswith("step 1 [repeated 2x] (Equal lines of several workers are printed once.")
    assert said[2] == "step 1\n"


def test_lines_that_are_remembered_for_folding_are_few(monkeypatch):
    printed = Printed(monkeypatch, "0", "1")
    most = driver_output._MOST_SEEN
    lines = [f"line {number}" for number in range(most + 10)]
    long = "x" * (driver_output._LONGEST_SEEN + 1)
    said = printed.of((7, 1, "f", "\n".join([*lines, long]) + "\n"), (8, 1, "f", f"line {most}\n{long}\nline 0\n"))
    assert said[1].splitlines() == [*lines, long, long, "line 0", f"line {most}"]


def test_a_notebook_cannot_tie_the_lines_to_the_cell_that_began_the_session(monkeypatch):
    """ipykernel wraps `Thread.run`: what a thread prints stands under the cell that started the thread."""
    wrapped = []
    run = threading.Thread.run
    monkeypatch.setattr(threading.Thread, "run", lambda thread: (wrapped.append(thread.name), run(thread)))
    assert Printed(monkeypatch, "0").of((7, 1, "f", "a\n"))[1] == "a\n"
    assert wrapped == []


def test_a_cell_of_a_notebook_has_all_that_its_workers_have_printed_and_the_next_one_begins_anew(monkeypatch):
    hooks: list[Any] = []
    events = types.SimpleNamespace(register=lambda _name, hook: hooks.append(hook), unregister=lambda _name, hook: hooks.remove(hook))
    shell = types.SimpleNamespace(events=events)
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    late = [(9, 1, "f", "step\n")]

    def ask(_code: int, what: str, _arguments: list[Any]) -> None:
        assert what == "printed"
        for each in late:
            printed.printer.on_output(None, *each)

    printed = Printed(monkeypatch, "0", "1", types.SimpleNamespace(ask=ask, objects=types.SimpleNamespace()))
    for pid in (7, 8):
        printed.printer.on_output(None, pid, 1, "f", "step\n")
    hooks[0](None)
    first, second = printed.said[1].splitlines()
    assert (first, second.partition(" (")[0]) == ("step", "step [repeated 2x]")
    late.clear()
    printed.printer.on_output(None, 7, 1, "f", "step\n")
    hooks[0](None)
    assert printed.said[1].splitlines()[2:] == ["step"]
    printed.of()
    assert hooks == []


@pytest.mark.parametrize("text", ["two\nlines", "x" * (LONGEST_NOTE + 1)])
def test_a_note_of_several_lines_or_too_many_bytes_is_refused(text):
    with pytest.raises(ValueError, match=f"a note is one line of at most {LONGEST_NOTE} bytes"):
        note(text)


# ------------------------------------------------------------------------------------------------- fatal errors
DUMP = f"""\
Fatal Python error: Segmentation fault

Stack (most recent call first):
  File "{ctypes.__file__}", line 519 in string_at
  File "/home/me/train.py", line 5 in crashes
  File "/home/me/train.py", line 9 in step
  File "{running.__file__}", line 105 in begin
  File "<string>", line 19 in <module>

Extension modules: posix_ipc, numpy (total: 2)
""".encode()
SHOWN = b'Fatal Python error: Segmentation fault\n  File "/home/me/train.py", line 5 in crashes\n'
LAST = b"".join(DUMP.splitlines(keepends=True)[at] for at in (0, 2, 3, 4, 5))


@pytest.mark.parametrize("size", [1, 3, 100])
def test_of_a_fatal_error_the_driver_sees_a_line_of_the_user_and_the_error_has_the_stack(size):
    fatal, lines = FatalError(), [b"before\n", *DUMP.splitlines(keepends=True)]
    found = [fatal.feed(b"".join(lines[at : at + size])) for at in range(0, len(lines), size)]
    assert b"".join(shown for shown, _last in found) == b"before\n" + SHOWN
    assert b"".join(last for _shown, last in found) + fatal.finish() == b"before\n" + LAST


def test_output_after_the_words_of_a_fatal_error_is_passed_on():
    fatal = FatalError()
    assert fatal.feed(DUMP + b"and goes on\n") == (SHOWN + b"and goes on\n", LAST + b"and goes on\n")
    assert fatal.feed(b"  more\n") == (b"  more\n", b"  more\n")
    assert fatal.finish() == b""


def test_a_fatal_error_in_mray_itself_keeps_its_frames():
    fatal = FatalError()
    fatal.feed(DUMP.replace(b"/home/me/train.py", running.__file__.encode()))
    assert fatal.finish().count(b'running.py", line') == 3


def test_the_times_of_parts_are_bounded_and_text_that_follows_is_one_part() -> None:
    written = WrittenParts()
    written.note("a.out", "f", 0, 10, True)
    written.note("a.out", "f", 10, 30, True)
    written.note("a.out", "f", 30, 31, False)
    written.note("a.err", "g", 0, 5, True)
    rows = [["a.out", "f", 0, 30, True], ["a.out", "f", 30, 31, False], ["a.err", "g", 0, 5, True]]
    assert [row[1:] for row in written.rows()] == rows
    for number in range(MOST_PARTS):
        written.note(("a.out", "a.err")[number % 2], "f", number, number + 1, True)
    assert len(written.rows()) == MOST_PARTS
