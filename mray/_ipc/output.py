"""Output of workers: bytes from a pipe become lines with the name of the task or actor that printed them.

The node reads; workers write. The name changes inside a worker (a task, then another one, then an actor with a ``repr``), so the
worker says it in the stream itself: a marker, the name, a line end (`name_marker`), which are taken out. A marker may stand in the
middle of a line. Notes travel the same way (`note`): what a worker tells the driver beside what it prints, about a progress bar or a
breakpoint; they end no line.
"""

from __future__ import annotations

from mray._common.kept import io

_START = b"\x00\x01mray-"
MARKER = _START + b"name:"
_NOTE = _START + b"note:"

#: A line longer than this is passed on in pieces.
LONGEST_LINE = 1 << 20
#: Bytes of the longest note: with its marker it is written in one piece (PIPE_BUF).
LONGEST_NOTE = 4000
#: The part of a worker's output that is kept for the error of its crash: bytes, and of them lines.
TAIL_BYTES = 4096
_TAIL_LINES = 40


def name_marker(name: str) -> bytes:
    """The mark that a worker writes, in one piece, before its first output under a new name."""
    return MARKER + name.replace("\n", " ").encode("utf-8", "replace")[:3000] + b"\n"


def note(text: str) -> bytes:
    """The mark that a worker writes, in one piece, to send the driver a text; ValueError when it is too long or has several lines."""
    raw = text.encode("utf-8", "replace")
    if len(raw) > LONGEST_NOTE or b"\n" in raw:
        raise ValueError(f"a note is one line of at most {LONGEST_NOTE} bytes")
    return _NOTE + raw + b"\n"


def last_lines(tail: bytes) -> bytes:
    """The end of a worker's output, as long as an error may show it."""
    lines = tail.splitlines()
    if len(tail) == TAIL_BYTES and len(lines) > 1:
        del lines[0]  # its beginning is cut off
    return b"\n".join(lines[-_TAIL_LINES:])


def end_of_file(path: str, lines: int) -> str:
    """The last lines of a log; "" when it cannot be read."""
    try:
        with io.open(path, encoding="utf-8", errors="replace") as file:
            return "\n".join(file.read().splitlines()[-lines:])
    except OSError:
        return ""


class LineSplitter:
    """The lines of one stream."""

    __slots__ = ("_is_open", "_rest", "name", "notes")

    def __init__(self) -> None:
        self.name = ""
        #: Notes that have arrived and that nobody has taken yet.
        self.notes: list[bytes] = []
        self._rest = b""
        #: Whether the beginning of the present line has been passed on.
        self._is_open = False

    @property
    def holds(self) -> bool:
        """Whether there is the beginning of a line that has no end yet."""
        return bool(self._rest)

    def feed(self, data: bytes) -> list[tuple[str, bytes]]:
        """The whole lines that are there now, as (name, text with its line ends); equal names come as one text."""
        data = self._rest + data
        lines: list[tuple[str, bytes]] = []
        if _START[:1] in data:
            data = self._take_marks(data, lines)
        # A mark that has no end yet has no line end behind it either: it stays.
        end = data.rfind(b"\n") + 1
        if len(data) - end > LONGEST_LINE:
            end = len(data)
        if end:
            lines.append((self.name, data[:end]))
            self._is_open = False
        self._rest = data[end:]
        return lines

    def piece(self) -> list[tuple[str, bytes]]:
        """The beginning of a line whose end does not come, as far as it is no mark and no piece of a character."""
        end = _whole_characters(self._rest[: _mark_at(self._rest)])
        text, self._rest = self._rest[:end], self._rest[end:]
        if not text:
            return []
        self._is_open = True
        return [(self.name, text)]

    def _take_marks(self, data: bytes, lines: list[tuple[str, bytes]]) -> bytes:
        """Take the marks out of the text; what stands before a change of name goes to `lines`. Returns the text behind."""
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
        """The rest at the end of the stream: a line without an end, without the piece of a mark that may stand behind it."""
        rest, self._rest = self._rest[: _mark_at(self._rest)], b""
        is_open, self._is_open = self._is_open, False
        return [(self.name, rest + b"\n")] if rest or is_open else []


def _mark_at(rest: bytes) -> int:
    """Where a mark begins that has not come to its end; the length of the text if none does."""
    at = rest.rfind(_START[:1])
    if at >= 0 and (rest[at:].startswith((MARKER, _NOTE)) or (len(rest) - at > 1 and MARKER.startswith(rest[at:]))):
        return at
    return len(rest)


def _whole_characters(text: bytes) -> int:
    """The length without the first bytes of a character in UTF-8 whose others have not come."""
    for back in range(1, min(len(text), 3) + 1):
        byte = text[-back]
        if byte >= 0xC0:  # the first of two, three or four
            return len(text) - back if back < (2 if byte < 0xE0 else 3 if byte < 0xF0 else 4) else len(text)
        if byte < 0x80:
            break
    return len(text)
