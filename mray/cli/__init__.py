"""The commands: ``mray run script.py`` and what else is typed in a terminal.

A command is a function of its arguments that returns an exit status; `COMMANDS` is the only list of them, and the
help text is made from it. The process that runs a command is an ordinary driver: nothing here starts a session.

``run`` executes a program written for Ray with mray behind the name ``ray``:

    terminal      mray.cli.main ──▶ script.run ──▶ alias.install() ──▶ the user's __main__
                                                        │
    each worker   zygote imports the session's preload: as_ray ──▶ alias.install(), before any user code

Rejected: generating a package called ``ray`` on a path (every class would exist twice, unless the package were only
links), and rewriting the imports of the user's source (tracebacks and pickles would speak of other code).
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from mray._common.version import __version__
from mray.cli import script

COMMANDS: dict[str, tuple[str, Callable[[list[str]], int]]] = {
    "run": ("run a script written for Ray on mray", script.run),
}


def usage() -> str:
    """The help text of ``mray``."""
    lines = [f"  {name:<10}{summary}" for name, (summary, _) in COMMANDS.items()]
    return "\n".join(["usage: mray [--help] [--version] command ...", "", "commands:", *lines, "", "mray COMMAND --help says more."])


def main(arguments: list[str] | None = None) -> int:
    """Run the command that the arguments (``sys.argv[1:]`` by default) name; returns its exit status, 2 for a wrong usage."""
    arguments = sys.argv[1:] if arguments is None else arguments
    first = arguments[0] if arguments else ""
    if first in ("--version", "-V"):
        print(f"mray {__version__}")
        return 0
    if first in ("--help", "-h"):
        print(usage())
        return 0
    if first not in COMMANDS:
        if first:
            print(f"mray: no command {first!r}", file=sys.stderr)
        print(usage(), file=sys.stderr)
        return 2
    return COMMANDS[first][1](arguments[1:])
