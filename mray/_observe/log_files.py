"""The last lines of a session's log files, read from their ends: a look at gigabytes costs as much as one at a page.

A line of a progress bar, which carriage returns begin anew, is what was written last on it. Lines of several files are one stream in the
order in which the node wrote them (`mray._ipc.output.WrittenParts`); lines from before those parts come as one part of each file.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from mray._common.kept import io, os
from mray._inside.sessions import EndedSession
from mray._observe.observer import ask_node

#: Bytes that are read at a time.
_BLOCK = 64 << 10
#: Of a longer line this much of its end is shown.
_LONGEST = 1 << 20
#: Pid and stream in the name of a worker's file.
_OF_WORKER = re.compile(r"worker-.*-(\d+)\.(out|err)")


class LogLine(NamedTuple):
    """A line without its end."""

    #: Seconds since the epoch at which it was written; None for one of long ago.
    time: float | None
    file: str
    #: The task or actor that printed it; "" if that is not known.
    name: str
    text: bytes

    def printer(self) -> str:
        """The process that printed it, as in the driver's output; the file if it is no process's."""
        pid, stream = process_of(self.file)
        if not pid:
            return self.file
        return f"{self.name} pid={pid}".lstrip() + (" err" if stream == "err" else "")


def process_of(file: str) -> tuple[int, str]:
    """The pid of the worker whose file this is, and "out" or "err"; 0 and "" for another file."""
    found = _OF_WORKER.fullmatch(file)
    return (int(found[1]), found[2]) if found else (0, "")


@dataclass
class LastLines:
    """The result of a search."""

    #: The oldest first.
    lines: list[LogLine]
    #: Of all these files, and how many of them were read.
    size: int
    read: int
    #: Whether there is more before the first one.
    is_cut: bool


class _Part(NamedTuple):
    """The lines of a file that end between these offsets."""

    time: float
    file: str
    name: str
    begin: int
    end: int
    #: Whether the time is that of its lines, whether text behind the last line end is a line of it, and whether any line ends in it.
    is_known: bool
    is_last: bool
    has_line_end: bool = True


class Allowance:
    """How many bytes may still be read; None: all."""

    def __init__(self, most: int | None) -> None:
        self._most = most
        self.read = 0

    def of(self, wanted: int) -> int:
        return wanted if self._most is None else min(wanted, self._most - self.read)

    def is_spent(self) -> bool:
        return self._most is not None and self.read >= self._most


def read_logs(
    directory: str,
    files: Sequence[str],
    count: int,
    most: int | None = None,
    is_wanted: Callable[[bytes], bool] | None = None,
    timeout: float = 5.0,
) -> LastLines:
    """The last `count` wanted lines of these files of a session, as one stream, from at most `most` bytes; `count` -1: all.

    Raises as `ask_node`, and OSError.
    """
    parts = ask_parts(directory, timeout)
    return find_last_lines(os.path.join(directory, "logs"), files, parts, count, most, is_wanted)


def ask_parts(directory: str, timeout: float) -> list[list[Any]]:
    """The parts of the log files of a session (see `WrittenParts`), also of one that has ended."""
    session = EndedSession.at(directory)
    if session is None:
        return ask_node(directory, "written parts", timeout)  # type: ignore[no-any-return]
    parts = session.node.get("written", [])
    # Of a large file the end is kept.
    ends = {file: end for _time, file, _name, _begin, end, _ends_line in parts}
    lost = {file: max(0, end - _size(os.path.join(directory, "logs", file))) for file, end in ends.items()}
    return [
        [time, file, name, max(0, begin - lost[file]), end - lost[file], ends_line]
        for time, file, name, begin, end, ends_line in parts
        if end > lost[file]
    ]


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def find_last_lines(
    folder: str,
    files: Sequence[str],
    parts: Sequence[Sequence[Any]],
    count: int,
    most: int | None = None,
    is_wanted: Callable[[bytes], bool] | None = None,
) -> LastLines:
    """As `read_logs`. `parts`: see `WrittenParts`."""
    allowance = Allowance(most)
    sizes = {file: os.stat(os.path.join(folder, file)) for file in files}
    found: list[LogLine] = []
    for part in reversed(_in_order(parts, sizes)):
        if not part.has_line_end and not part.is_last:
            continue
        with contextlib.closing(_read_backwards(os.path.join(folder, part.file), part, allowance)) as lines:
            for ended in lines:
                line = ended.removesuffix(b"\n")
                if is_wanted is None or is_wanted(line):
                    found.append(LogLine(part.time if part.is_known else None, part.file, part.name, line))
                    if len(found) > count >= 0:
                        break
        if allowance.is_spent() or len(found) > count >= 0:
            break
    is_cut = allowance.is_spent() or len(found) > count >= 0
    if len(found) > count >= 0:
        found.pop()
    found.reverse()
    return LastLines(found, sum(each.st_size for each in sizes.values()), allowance.read, is_cut)


def lines_of(path: str) -> Iterator[bytes]:
    """All lines of a file, as they were written."""
    with io.open(path, "rb") as file:
        yield from file


def tail_of(path: str, count: int, end: int | None = None, is_wanted: Callable[[bytes], bool] | None = None) -> Iterator[bytes]:
    """The last `count` wanted lines of a file, or of its beginning up to `end`, with their ends; -1: all."""
    end = os.stat(path).st_size if end is None else end
    found: list[bytes] = []
    with contextlib.closing(_read_backwards(path, _Part(0.0, path, "", 0, end, False, True), Allowance(None))) as lines:
        for line in lines if count else ():
            if is_wanted is None or is_wanted(line.removesuffix(b"\n")):
                found.append(line)
                if len(found) == count:
                    break
    yield from reversed(found)


def _in_order(parts: Sequence[Sequence[Any]], sizes: dict[str, os.stat_result]) -> list[_Part]:
    """The parts of these files, the oldest first; what lies before a file's first known part is one part."""
    known = [part for part in parts if part[1] in sizes]
    last = {part[1]: index for index, part in enumerate(known)}
    found: list[_Part] = []
    begun: set[str] = set()
    for index, (time, file, name, begin, end, ends_line) in enumerate(known):
        if file not in begun and begin > 0:
            found.append(_Part(time, file, "", 0, begin, False, False))
        begun.add(file)
        is_last = last[file] == index
        size = sizes[file].st_size if is_last else end
        found.append(_Part(time, file, name, begin, size, True, is_last, ends_line or size > end))
    for file, info in sizes.items():
        if file not in begun and info.st_size:
            found.append(_Part(info.st_mtime, file, "", 0, info.st_size, False, True))
    return sorted(found, key=lambda part: part.time)


def _read_backwards(path: str, part: _Part, allowance: Allowance) -> Generator[bytes]:
    """The lines that end in this part, the last one first, with their ends. The beginning of a line may lie before the part."""
    # None: no line that ends in the part is being read. Known: its beginning is (the rest of the line is overwritten, or too long).
    line: bytes | None = b"" if part.is_last else None
    is_known = has_end = is_any = False
    at = part.end
    with io.open(path, "rb", buffering=0) as file:
        while at > 0 and (line is not None or at > part.begin) and not allowance.is_spent():
            # One byte before the part says whether its first line begins there.
            start = at - allowance.of(min(_BLOCK, at - max(0, part.begin - 1) if at > part.begin else at))
            block = os.pread(file.fileno(), at - start, start)
            allowance.read += len(block)
            stop = len(block)
            while (cut := block.rfind(b"\n", 0, stop)) >= 0:
                if line is not None:
                    line = line if is_known else folded(block[cut + 1 : stop] + line)
                    if line or has_end:
                        is_any = True
                        yield line + b"\n" * has_end
                if start + cut < part.begin:
                    return
                line, is_known, has_end, stop = b"", False, True, cut
            if line is not None and not is_known:
                line, is_known = _shortened(block[:stop] + line)
            at = start
            if is_known and (at <= part.begin or not part.has_line_end):
                break  # the rest of the line is of no interest, and there is no other line
    # The file begins with this line; or the allowance is spent, and the end of a line is better than nothing.
    if line is not None and (at == 0 or is_known or not is_any):
        line = folded(line)
        if line or has_end:
            yield line + b"\n" * has_end


def folded(line: bytes) -> bytes:
    """The text that carriage returns have left on a line."""
    text = line.rstrip(b"\r")
    return text[text.rfind(b"\r") + 1 :]


def _shortened(line: bytes) -> tuple[bytes, bool]:
    """The end of a line whose beginning is not read yet, and whether its beginning does not matter."""
    text = line.rstrip(b"\r")
    at = text.rfind(b"\r")
    return (text[at + 1 :], True) if at >= 0 else (line[-_LONGEST:], len(line) > _LONGEST)
