"""The commands: ``mray run script.py``, ``mray list actors`` and others that are typed in a terminal.

A command is a module of `mray.cli.commands`: its name is the command's, ``SUMMARY`` describes it in a line, and ``main(words)`` runs it
and returns an exit status. Adding the file adds the command; the help text is made by reading the files, and only the module of the
command that is typed is imported.

::

    terminal      mray.cli.main ──▶ run.main ──▶ import mray.as_ray ──▶ the user's __main__
                                                        │
    each worker   zygote imports the session's preload: mray.as_ray, before any user code
"""

from __future__ import annotations

import argparse
import ast
import importlib
import pkgutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from mray._common.version import __version__
from mray.cli import commands
from mray.cli.completion import command_of, completed, is_asked


def names() -> list[str]:
    """The names of the commands."""
    return sorted(module.name for module in pkgutil.iter_modules(commands.__path__) if not module.name.startswith("_"))


def load(name: str) -> Any:
    """Import the module of the command with this name."""
    return importlib.import_module(f"{commands.__name__}.{name}")


def usage() -> str:
    """The help text of ``mray``."""
    return "\n".join(["usage: mray [--help] [--version] command ...", "", "commands:", *_summaries(), "", "mray COMMAND --help says more."])


def _summaries() -> Iterator[str]:
    known = names()
    width = max(map(len, known)) + 2
    for name in known:
        yield f"  {name:<{width}}{_summary(name)}"


def _summary(name: str) -> str:
    """From its source, since importing all commands imports most of mray."""
    mark = "SUMMARY = "
    lines = Path(commands.__path__[0], f"{name}.py").read_text(encoding="utf-8").splitlines()
    return str(ast.literal_eval(next(line for line in lines if line.startswith(mark)).removeprefix(mark)))


def _complete() -> NoReturn:
    """Print what a shell offers for its line, and end the process."""
    name = command_of(names())
    if name is not None:
        sys.exit(load(name).main([]))
    top = argparse.ArgumentParser(prog="mray", add_help=False)
    for option in ("--help", "--version"):
        top.add_argument(option, action="store_true")
    top.add_subparsers().choices = dict.fromkeys(names(), top)
    completed(top)


def main(arguments: list[str] | None = None) -> int:
    """Run the command that the arguments (``sys.argv[1:]`` by default) name; returns its exit status, 2 for wrong usage."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if is_asked():
        _complete()
    first = arguments[0] if arguments else ""
    if first in ("--version", "-V"):
        print(f"mray {__version__}")
        return 0
    if first in ("--help", "-h"):
        print(usage())
        return 0
    if first not in names():
        if first:
            print(f"mray: no command {first!r}", file=sys.stderr)
        print(usage(), file=sys.stderr)
        return 2
    return int(load(first).main(arguments[1:]))
