"""What workers print: bytes from a pipe to lines with the name of who printed them.

The node reads; workers write. The name changes inside a worker (a task, then another one, then an actor with a ``repr``), so the
worker says it in the stream itself: a marker, the name, a line end (`name_marker`), which are taken out. A marker may stand in the
middle of a line.
"""

from __future__ import annotations

MARKER = b"\x00\x01mray-name:"

#: A line longer than this is passed on in pieces.
LONGEST_LINE = 1 << 20


def name_marker(name: str) -> bytes:
    """What a worker writes, in one piece, before its first output under a new name."""
    return MARKER + name.replace("\n", " ").encode("utf-8", "replace")[:3000] + b"\n"


class LineSplitter:
    """The lines of one stream."""

    __slots__ = ("_rest", "name")

    def __init__(self) -> None:
        self.name = ""
        self._rest = b""

    def feed(self, data: bytes) -> list[tuple[str, bytes]]:
        """The whole lines that are there now, as (name, text with its line ends); equal names come as one text."""
        data = self._rest + data
        if MARKER[:1] not in data:
            end = data.rfind(b"\n") + 1
            if len(data) - end > LONGEST_LINE:
                end = len(data)
            self._rest = data[end:]
            return [(self.name, data[:end])] if end else []
        return self._feed_marked(data)

    def _feed_marked(self, data: bytes) -> list[tuple[str, bytes]]:
        lines: list[tuple[str, bytes]] = []
        while True:
            at = data.find(MARKER)
            if at < 0:
                break
            name, newline, after = data[at + len(MARKER) :].partition(b"\n")
            if not newline:
                # The marker's end has not arrived; what stands before it is complete.
                if at:
                    lines.append((self.name, data[:at]))
                self._rest = data[at:]
                return lines
            if at:
                lines.append((self.name, data[:at]))
            self.name = name.decode("utf-8", "replace")
            data = after
        end = data.rfind(b"\n") + 1
        if len(data) - end > LONGEST_LINE:
            end = len(data)
        if end:
            lines.append((self.name, data[:end]))
        self._rest = data[end:]
        return lines

    def finish(self) -> list[tuple[str, bytes]]:
        """What is left at the end of the stream: a line without an end, or a piece of a marker."""
        rest, self._rest = self._rest, b""
        if rest.startswith(MARKER) or (len(rest) > 1 and MARKER.startswith(rest)):
            return []
        return [(self.name, rest + b"\n")] if rest else []
