"""``mray debug``: list the workers that wait at a `breakpoint`, and connect a terminal to one of them.

A worker listens at a socket in its session's directory; this process connects pdb there to its terminal.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from mray._common.clock import time
from mray._inside.debugging import BreakpointStop, attach, has_terminal, stops
from mray._inside.sessions import sessions
from mray.cli.terminal import DONE, NOT_FOUND, add_format, add_session, parser, run_command, show
from mray.util.state.api import session_directory

SUMMARY = "list the workers that wait at a breakpoint, and debug one"

_WIDEST = 50

_EPILOG = """\
WHICH is a number of the list, or the pid of a worker. Without it the list is printed, and in a terminal it is asked for.
In pdb, `continue` and Ctrl-D let the worker go on, `quit` ends its task with an exception."""


def main(words: list[str]) -> int:
    arguments = parser("debug", SUMMARY, _EPILOG)
    arguments.add_argument("which", nargs="?", type=int, metavar="WHICH", help="the worker to debug")
    add_session(arguments)
    add_format(arguments)
    return run_command(arguments, words, _debug)


def _debug(given: argparse.Namespace) -> int:
    directories = [session_directory(given.session)] if given.session else sessions()
    waiting = [stop for directory in directories for stop in stops(directory)]
    if given.which is None:
        rows = _rows(waiting)
        if given.format == "table":
            for row in rows:
                row["at"] = row["at"] if len(row["at"]) <= _WIDEST else "…" + row["at"][1 - _WIDEST :]
        show(rows, given.format)
        if not waiting or given.format != "table" or not has_terminal():
            return DONE
        given.which = _ask()
        if given.which is None:
            return DONE
    return _attach(waiting, given.which)


def _rows(waiting: Sequence[BreakpointStop]) -> list[dict[str, Any]]:
    return [
        {
            "number": number,
            "pid": stop.pid,
            "name": stop.name,
            "function": stop.function,
            "at": f"{stop.file}:{stop.line}",
            "waits_s": round(time() - stop.since, 1),
        }
        for number, stop in enumerate(waiting, 1)
    ]


def _ask() -> int | None:
    while True:
        try:
            typed = input("Debug which? [Enter: none] ").strip()
        except EOFError:
            return None
        if not typed:
            return None
        if typed.isdigit():
            return int(typed)


def _attach(waiting: Sequence[BreakpointStop], which: int) -> int:
    chosen = [stop for number, stop in enumerate(waiting, 1) if which in (number, stop.pid)]
    if not chosen:
        print(f"mray: no worker {which} waits at a breakpoint", file=sys.stderr)
        return NOT_FOUND
    sys.stdout.flush()
    if not attach(chosen[0].path):
        print(f"mray: worker {chosen[0].pid} does not wait any more", file=sys.stderr)
        return NOT_FOUND
    return DONE
