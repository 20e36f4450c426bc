"""Output of workers: bytes from a pipe become lines with the name of the task or actor that printed them.

A worker writes the name into the stream where it changes: a marker, the name, a line end, perhaps in the middle of a line; the node
removes it. Notes travel the same way: messages to the driver about a progress bar or a breakpoint.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from mray._common.clock import time
from mray._common.kept import io
from mray._common.settings import FULL_TRACEBACKS
from mray._common.whose_code import OWN, USERS, kind_of_file

_START = b"\x00\x01mray-"
MARKER = _START + b"name:"
_NOTE = _START + b"note:"

#: Longer lines are passed on in pieces.
LONGEST_LINE = 1 << 20
#: Bytes; with its marker it is written atomically (PIPE_BUF).
LONGEST_NOTE = 4000
#: The end of a worker's output that the error of its crash shows.
TAIL_BYTES = 4096
_TAIL_LINES = 40
#: Parts of log files whose time is known: the last ones. Parts of one file that follow each other within these seconds are one.
MOST_PARTS = 4096
_ONE_PART = 0.05


def name_marker(name: str) -> bytes:
    """The marker to write in one piece before the first output under a new name."""
    return MARKER + name.replace("\n", " ").encode("utf-8", "replace")[:3000] + b"\n"


def note(text: str) -> bytes:
    """The marker that sends the driver a text, to be written in one piece. Raises ValueError when it is too long or has several lines."""
    raw = text.encode("utf-8", "replace")
    if len(raw) > LONGEST_NOTE or b"\n" in raw:
        raise ValueError(f"a note is one line of at most {LONGEST_NOTE} bytes")
    return _NOTE + raw + b"\n"


def last_lines(tail: bytes) -> bytes:
    lines = tail.splitlines()
    if len(tail) == TAIL_BYTES and len(lines) > 1:
        del lines[0]
    return b"\n".join(lines[-_TAIL_LINES:])


class FatalError:
    """The lines that faulthandler writes when C code crashes, in a worker's stderr.

    The driver shows the first line and the innermost line of the user; the error of the calls has the stack, without mray's frames.
    """

    _FIRST = b"Fatal Python error: "
    _FRAME = b'  File "'
    _LEFT_OUT = (b"Extension modules: ", b"\n")
    _HEADS = (b"Stack (", b"Current thread ", b"Thread ", b"  ", b"Python runtime state: ", *_LEFT_OUT)
    #: The code that starts the process.
    _START = b'  File "<string>", line '

    __slots__ = ("_frames", "_head", "_is_open")

    def __init__(self) -> None:
        self._is_open = False
        self._head: list[bytes] = []
        #: Innermost first, with their owners.
        self._frames: list[tuple[str, bytes]] = []

    def feed(self, text: bytes) -> tuple[bytes, bytes]:
        """Take whole lines; returns the text to show, and the text that belongs to the last output."""
        if not self._is_open and self._FIRST not in text:
            return text, text
        shown, last = [], []
        for line in text.splitlines(keepends=True):
            if line.startswith(self._FIRST):
                last.append(self.finish())
                self._is_open = True
                self._head.append(line)
                shown.append(line)
            elif self._is_open and line.startswith(self._HEADS):
                if not line.startswith(self._FRAME):
                    if not line.startswith(self._LEFT_OUT):
                        self._head.append(line)
                else:
                    kind = kind_of_file(line[len(self._FRAME) :].partition(b'"')[0].decode("utf-8", "replace"))
                    if kind == USERS and not any(each == USERS for each, _line in self._frames):
                        shown.append(line)
                    self._frames.append((kind, line))
            else:
                last += [self.finish(), line]
                shown.append(line)
        return b"".join(shown), b"".join(last)

    def finish(self) -> bytes:
        """The lines for the error."""
        head, frames = self._head, self._frames
        self._is_open, self._head, self._frames = False, [], []
        if frames and frames[-1][1].startswith(self._START):
            del frames[-1]
        if any(kind == USERS for kind, _line in frames) and not FULL_TRACEBACKS.get():
            frames = [(kind, line) for kind, line in frames if kind != OWN]
        return b"".join([*head, *(line for _kind, line in frames)])


def end_of_file(path: str, lines: int) -> str:
    """The last lines; "" when the file cannot be read."""
    try:
        with io.open(path, encoding="utf-8", errors="replace") as file:
            return "\n".join(file.read().splitlines()[-lines:])
    except OSError:
        return ""


class WrittenParts:
    """Which part of which log file was written when: the last parts of all files, which have no times of their own.

    With them the files are read as one stream. In the node, on its one thread.
    """

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        #: [time, file, name of the task or actor, where it begins, where it ends, whether a line ends in it], oldest first. A progress bar
        #: is megabytes in which no line ends, and which readers skip.
        self._parts: deque[list[Any]] = deque(maxlen=MOST_PARTS)

    def note(self, file: str, name: str, begin: int, end: int, ends_line: bool) -> None:
        now = time()
        if self._parts:
            last = self._parts[-1]
            if last[1] == file and last[4] == begin and last[2] == name and last[5] == ends_line and now - last[0] < _ONE_PART:
                last[4] = end
                return
        self._parts.append([now, file, name, begin, end, ends_line])

    def rows(self) -> list[list[Any]]:
        return list(self._parts)


class LineSplitter:
    __slots__ = ("_is_open", "_rest", "name", "notes")

    def __init__(self) -> None:
        self.name = ""
        #: Notes not taken yet.
        self.notes: list[bytes] = []
        self._rest = b""
        #: Whether the beginning of the current line was passed on.
        self._is_open = False

    @property
    def holds(self) -> bool:
        return bool(self._rest)

    def feed(self, data: bytes) -> list[tuple[str, bytes]]:
        """Finished lines as (name, text with line ends); consecutive lines of one name are one text."""
        data = self._rest + data
        lines: list[tuple[str, bytes]] = []
        if _START[:1] in data:
            data = self._take_marks(data, lines)
        # An unfinished marker has no line end behind it either, so it stays.
        end = data.rfind(b"\n") + 1
        if len(data) - end > LONGEST_LINE:
            end = len(data)
        if end:
            lines.append((self.name, data[:end]))
            self._is_open = False
        self._rest = data[end:]
        return lines

    def piece(self) -> list[tuple[str, bytes]]:
        """The beginning of an overlong line, without an unfinished marker or character."""
        end = _whole_characters(self._rest[: _mark_at(self._rest)])
        text, self._rest = self._rest[:end], self._rest[end:]
        if not text:
            return []
        self._is_open = True
        return [(self.name, text)]

    def _take_marks(self, data: bytes, lines: list[tuple[str, bytes]]) -> bytes:
        """Remove the markers, and return the text behind them; text before a change of name goes to `lines`."""
        start = 0
        while True:
            at = data.find(_START, start)
            end = data.find(b"\n", at) if at >= 0 else -1
            if end < 0:
                return data
            mark = data[at:end]
            if mark.startswith(MARKER):
                if at:
                    lines.append((self.name, data[:at]))
                self.name = mark[len(MARKER) :].decode("utf-8", "replace")
                self._is_open = False
                data, start = data[end + 1 :], 0
            elif mark.startswith(_NOTE):
                self.notes.append(mark[len(_NOTE) :])
                data, start = data[:at] + data[end + 1 :], at
            else:
                start = at + 1

    def finish(self) -> list[tuple[str, bytes]]:
        """The rest at the end of the stream, with a line end."""
        rest, self._rest = self._rest[: _mark_at(self._rest)], b""
        is_open, self._is_open = self._is_open, False
        return [(self.name, rest + b"\n")] if rest or is_open else []


def _mark_at(rest: bytes) -> int:
    """The start of an unfinished marker; the length of the text if there is none."""
    at = rest.rfind(_START[:1])
    if at >= 0 and (rest[at:].startswith((MARKER, _NOTE)) or (len(rest) - at > 1 and MARKER.startswith(rest[at:]))):
        return at
    return len(rest)


def _whole_characters(text: bytes) -> int:
    for back in range(1, min(len(text), 3) + 1):
        byte = text[-back]
        if byte >= 0xC0:  # the first of two, three or four
            return len(text) - back if back < (2 if byte < 0xE0 else 3 if byte < 0xF0 else 4) else len(text)
        if byte < 0x80:
            break
    return len(text)
