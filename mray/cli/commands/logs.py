"""``mray logs``: the log files of a session, or the lines of one."""

from __future__ import annotations

import argparse
import os
import select
import sys

from mray._inside.sessions import is_alive
from mray.cli.columns import begins, is_meant
from mray.cli.terminal import DONE, NOT_FOUND, add_format, add_session, parser, run_command, show
from mray.util.state.api import list_logs, look, session_directory
from mray.util.state.common import ActorState

SUMMARY = "list the log files of a session, or print one"

_LOOK = 0.2


def main(words: list[str]) -> int:
    arguments = parser("logs", SUMMARY, "Logs go with their session. A worker that has printed nothing has no files.")
    arguments.add_argument("which", nargs="?", metavar="WHICH", help="a file, a worker's pid, an actor's id or name; without: list files")
    arguments.add_argument("--err", action="store_true", help="what the worker printed to stderr (default: stdout)")
    arguments.add_argument(
        "--tail", type=int, default=1000, metavar="LINES", help="how many of the last lines to print (default 1000; -1: all)"
    )
    arguments.add_argument("--follow", action="store_true", help="go on printing what comes, until the session ends")
    add_session(arguments)
    add_format(arguments)
    return run_command(arguments, words, _logs)


def _logs(given: argparse.Namespace) -> int:
    directory = session_directory(given.session)
    folder = os.path.join(directory, "logs")
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
        lines = file.readlines()
        _write(b"".join(lines if given.tail < 0 else lines[max(0, len(lines) - given.tail) :]))
        while given.follow and is_alive(directory):
            more = file.read()
            if more:
                _write(more)
            else:
                select.select([], [], [], _LOOK)
        _write(file.read())
    return DONE


def _path(given: argparse.Namespace, directory: str, folder: str) -> str | None:
    names = [name for found in list_logs(directory).values() for name in found]
    if given.which in names:
        return os.path.join(folder, given.which)
    meant: dict[str, None] = {}
    for actor in look(directory, given.timeout, detail=False).records(ActorState):
        if is_meant(given.which, actor.name or "") or begins(given.which, actor.actor_id):
            meant[str(actor.pid)] = None
    if len(meant) > 1:
        raise ValueError(f"several actors are meant by {given.which!r}: choose one by its id or pid ({', '.join(meant)})")
    pid = next(iter(meant), given.which)
    suffix = "err" if given.err else "out"
    return next((os.path.join(folder, name) for name in names if name.endswith(f"-{pid}.{suffix}")), None)


def _write(data: bytes) -> None:
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
