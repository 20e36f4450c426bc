"""``mray logs``: the log files of a session, the lines of one, or those of all as one stream."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import select
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import BinaryIO

from mray._inside.sessions import EndedSession, is_alive
from mray._observe.log_files import LogLine, ask_parts, folded, read_logs, tail_of
from mray._observe.observer import SessionGoneError
from mray.cli.columns import begins, is_meant
from mray.cli.terminal import DONE, NOT_FOUND, add_format, add_last, add_session, chosen_session, parser, run_command, show
from mray.util.state.api import list_logs, look
from mray.util.state.common import ActorState

SUMMARY = "list the log files of a session, print one, or all as one stream"

_LOOK = 0.2
_ALL = "all"
#: Bytes that are copied at a time.
_BLOCK = 1 << 20
_NO_TIME = " " * len("00:00:00.000")


def main(words: list[str]) -> int:
    arguments = parser(
        "logs",
        SUMMARY,
        "The logs of the last sessions stay when these have ended: --last. A worker that has printed nothing has no files. Of a line that\n"
        "carriage returns overwrite, as those of progress bars, --tail prints the last text; --tail -1 prints a file as it was written.",
    )
    which = "a file, a worker's pid, an actor's id or name, or all: the lines of all files by time; without: list files"
    arguments.add_argument("which", nargs="?", metavar="WHICH", help=which)
    arguments.add_argument("--err", action="store_true", help="what the worker printed to stderr (default: stdout; with all: both)")
    arguments.add_argument("--grep", metavar="PATTERN", help="only lines with this regular expression; without WHICH: of all files")
    arguments.add_argument(
        "--tail", type=int, default=1000, metavar="LINES", help="how many of the last lines to print (default 1000; -1: all)"
    )
    arguments.add_argument("--follow", action="store_true", help="go on printing what comes, until the session ends")
    add_session(arguments)
    add_last(arguments)
    add_format(arguments)
    return run_command(arguments, words, _logs)


def _logs(given: argparse.Namespace) -> int:
    directory = chosen_session(given)
    folder = os.path.join(directory, "logs")
    is_wanted = _filter(given.grep)
    if given.which == _ALL or (given.which is None and is_wanted is not None):
        _print_all(given, directory, is_wanted)
        return DONE
    if given.which is None:
        rows = [
            {"kind": kind, "file": name, "bytes": os.path.getsize(os.path.join(folder, name))}
            for kind, names in list_logs(directory).items()
            for name in names
        ]
        show(rows, given.format)
        return DONE
    path = _path(given, directory, folder)
    if path is None:
        print(f"mray: no log of {given.which!r}: there is no such file, worker or actor, or it has printed nothing there", file=sys.stderr)
        return NOT_FOUND
    with open(path, "rb") as file:
        if given.tail < 0 and is_wanted is None:
            while block := file.read(_BLOCK):
                _write(block)
        else:
            end = file.seek(0, os.SEEK_END)
            for line in tail_of(path, given.tail, end, is_wanted):
                _write(line)
            file.seek(end)
        if given.follow:
            growing = _Growing(file)
            for is_over in _looks(directory):
                if is_wanted is None:
                    for block in growing.blocks():
                        _write(block)
                else:
                    _write(b"".join(line + b"\n" for line in growing.lines(is_over=is_over) if is_wanted(line)))
    return DONE


def _filter(pattern: str | None) -> Callable[[bytes], bool] | None:
    if pattern is None:
        return None
    try:
        search = re.compile(os.fsencode(pattern)).search
    except re.error as error:
        raise ValueError(f"--grep {pattern}: {error}") from None
    return lambda line: search(line) is not None


def _path(given: argparse.Namespace, directory: str, folder: str) -> str | None:
    names = _names(directory)
    if given.which in names:
        return os.path.join(folder, given.which)
    meant: dict[str, None] = {}
    for name, actor_id, actor_pid in _actors(directory, given.timeout):
        if is_meant(given.which, name) or begins(given.which, actor_id):
            meant[str(actor_pid)] = None
    if len(meant) > 1:
        raise ValueError(f"several actors are meant by {given.which!r}: choose one by its id or pid ({', '.join(meant)})")
    pid = next(iter(meant), given.which)
    suffix = "err" if given.err else "out"
    return next((os.path.join(folder, name) for name in names if name.endswith(f"-{pid}.{suffix}")), None)


def _actors(directory: str, timeout: float) -> Iterator[tuple[str, str, int | None]]:
    """Name, id and pid of each actor."""
    session = EndedSession.at(directory)
    if session is not None:
        for row in session.node.get("actors", ()):
            yield row["name"], row["actor_id"].hex(), row["pid"]
    else:
        yield from ((each.name or "", each.actor_id, each.pid) for each in look(directory, timeout, detail=False).records(ActorState))


def _names(directory: str) -> list[str]:
    return [name for found in list_logs(directory).values() for name in found]


# ----------------------------------------------------------------------------------------------- all files
def _print_all(given: argparse.Namespace, directory: str, is_wanted: Callable[[bytes], bool] | None) -> None:
    def files() -> list[str]:
        return [name for name in _names(directory) if not given.err or name.endswith(".err")]

    with contextlib.ExitStack() as stack:
        growing: dict[str, _Growing] = {}
        names = files()
        if given.follow:
            _open(growing, directory, names, stack, is_new=False)
        for line in read_logs(directory, names, given.tail, is_wanted=is_wanted, timeout=given.timeout).lines:
            _show(line)
        if not given.follow:
            return
        printers: dict[str, str] = {}
        for is_over in _looks(directory):
            if not is_over:
                new = [name for name in files() if name not in growing]
                _open(growing, directory, new, stack, is_new=True)
                if new or not printers:
                    with contextlib.suppress(SessionGoneError, TimeoutError):
                        printers |= {file: name for _time, file, name, *_ in ask_parts(directory, given.timeout)}
            for name, each in growing.items():
                for text in each.lines(is_over=is_over):
                    if is_wanted is None or is_wanted(text):
                        _show(LogLine(datetime.now().timestamp(), name, printers.get(name, ""), text))


def _open(growing: dict[str, _Growing], directory: str, names: Sequence[str], stack: contextlib.ExitStack, *, is_new: bool) -> None:
    """Open files, new ones at their beginnings. They stay open, so that nothing is lost when the session removes them."""
    for name in names:
        with contextlib.suppress(FileNotFoundError):
            file = open(os.path.join(directory, "logs", name), "rb")  # noqa: SIM115  (the stack closes it)
            stack.callback(file.close)
            if not is_new:
                file.seek(0, os.SEEK_END)
            growing[name] = _Growing(file)


def _show(line: LogLine) -> None:
    time = _NO_TIME if line.time is None else f"{datetime.fromtimestamp(line.time):%H:%M:%S.%f}"[: len(_NO_TIME)]
    _write(f"{time} ({line.printer()}) ".encode() + line.text + b"\n")


# ------------------------------------------------------------------------------------------------- follow
class _Growing:
    """A file that others write."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._rest = b""

    def blocks(self) -> Iterator[bytes]:
        """The bytes written since the last call."""
        while block := self._file.read(_BLOCK):
            yield block

    def lines(self, *, is_over: bool) -> Iterator[bytes]:
        """The lines finished since, without their ends; once the session is over also an unfinished one."""
        for block in self.blocks():
            *lines, rest = (self._rest + block).split(b"\n")
            self._rest = folded(rest)
            yield from map(folded, lines)
        if is_over and self._rest:
            yield self._rest


def _looks(directory: str) -> Iterator[bool]:
    """Whether the session is over: again and again, and once more when it is."""
    while is_alive(directory):
        yield False
        select.select([], [], [], _LOOK)
    yield True


def _write(data: bytes) -> None:
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
