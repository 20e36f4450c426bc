"""Common parts of the commands: arguments, exit statuses, and the printing of rows."""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from mray._common import settings
from mray._inside.messages import is_exhausted
from mray._inside.sessions import EndedSession
from mray._observe.observer import SessionGoneError
from mray.cli import completion
from mray.cli.columns import Column, cut, left_out, lines
from mray.util.state.api import is_named, session_directory
from mray.util.state.exception import RayStateApiException, ServerUnavailable

# exit statuses of all commands
DONE = 0
#: The requested thing does not exist, or `doctor` has found something wrong.
NOT_FOUND = 1
#: The command line is wrong.
USAGE = 2
#: no session, or several and none was chosen
NO_SESSION = 3
#: an optional package
MISSING = 4

EXITS = """\
exit status: 0 done, 1 not found or something is wrong, 2 wrong usage, 3 no session (or several: choose one with --session),
4 an optional package is missing, 130 interrupted"""

FORMATS = ("table", "json", "yaml")
#: digits that a table shows of an id that is not the row's own
_SHORT_ID = 8
_WIDEST = 60
#: Widths that ids and other texts may shrink to on a narrow terminal: this many digits identify an id.
_LEAST_KEY, _LEAST = 13, 10
#: columns that never shrink, and those that a narrow terminal shows before others
_WHOLE = ("state", "pid", "worker_pid", "is_alive")
_NEEDED = ("name", "class_name", "state")
#: with a unit or without
_NUMBER = re.compile(r"-?[\d.,]+(e[+-]?\d+)?( ?(B|KiB|MiB|GiB|us|ms|s|%))?")
#: words that YAML reads as booleans or null
_YAML_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})


def parser(command: str, summary: str, epilog: str = "") -> argparse.ArgumentParser:
    """The argument parser of one command."""
    return argparse.ArgumentParser(
        prog=f"mray {command}",
        description=summary[0].upper() + summary[1:] + ".",
        epilog=(epilog + "\n\n" if epilog else "") + EXITS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def parse(arguments: argparse.ArgumentParser, words: list[str]) -> argparse.Namespace:
    """Parse a command's words. For a shell that asks for completions, print them instead, and end the process."""
    if completion.is_asked():
        completion.completed(arguments)
    return arguments.parse_args(words)


def add_session(arguments: argparse.ArgumentParser, timeout: float = 5.0) -> None:
    """Add the options of commands that query one session."""
    arguments.add_argument(
        "--session",
        "--address",
        metavar="SESSION",
        default=settings.named_address(),
        help="the session: host:port, its directory, its name or the end of it, or the pid of its driver; needless when only one is "
        "running, or RAY_ADDRESS names one",
    )
    arguments.add_argument(
        "--timeout", type=float, default=timeout, metavar="SECONDS", help=f"how long to wait for its processes (default {timeout:g})"
    )


def add_last(arguments: argparse.ArgumentParser) -> None:
    """Add the option of commands that also answer about sessions that have ended."""
    last = "of the session that ended last, or of the ended one that --session names (`mray status` has the names)"
    arguments.add_argument("--last", action="store_true", help=last)


def chosen_session(given: argparse.Namespace) -> str:
    """The directory of the session that the arguments name, a running or an ended one. ServerUnavailable if there is none."""
    ended = EndedSession.all()
    if not given.last:
        try:
            return session_directory(given.session)
        except ServerUnavailable as error:
            if not ended or given.session is not None:
                raise
            raise ServerUnavailable(f"{error} --last shows the one that ended last, {ended[-1].name}.") from None
    found = [each for each in ended if given.session is None or is_named(each.directory, given.session)]
    if not found:
        which = "of this user" if given.session is None else repr(given.session)
        raise ServerUnavailable(f"No session {which} has left anything ({settings.KEPT_SESSIONS.name} says how many do).")
    return found[-1].directory


def port(text: str) -> int:
    """The type of an argument that names a port; 0: any free one."""
    number = int(text)
    if not 0 <= number < 1 << 16:
        raise argparse.ArgumentTypeError(f"expected 0 to 65535, got {number}")
    return number


def add_format(arguments: argparse.ArgumentParser) -> None:
    """Add the option of commands that print rows."""
    arguments.add_argument("--format", "-f", choices=FORMATS, default="table", help="how to print (default table)")


def run_command(arguments: argparse.ArgumentParser, words: list[str], action: Callable[[argparse.Namespace], int]) -> int:
    """Run a command; errors of the session or query become a line on stderr and an exit status."""
    given = parse(arguments, words)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_rest: print(f"mray: warning: {message}", file=sys.stderr)
            warnings.simplefilter("always")
            status = action(given)
            sys.stdout.flush()
            return status
    except (ServerUnavailable, SessionGoneError, TimeoutError) as error:
        print(f"mray: {error}", file=sys.stderr)
        return NO_SESSION
    except RayStateApiException as error:
        print(f"mray: {error}", file=sys.stderr)
        return NOT_FOUND
    except ValueError as error:
        print(f"mray: {error}", file=sys.stderr)
        return USAGE
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader (head, less) has closed the pipe. Buffered text must not fail at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except OSError as error:
        if not is_exhausted(error):
            raise
        print(f"mray: {error.strerror}", file=sys.stderr)
        return NOT_FOUND


def lacks(package: str, extra: str, what: str) -> int:
    """Print that a package is missing; returns the exit status."""
    print(f"mray: {what} needs the package {package}: pip install {package!r}, or mray[{extra}].", file=sys.stderr)
    return MISSING


# ------------------------------------------------------------------------------------------- printing
def show(rows: Any, form: str, key: str = "") -> None:
    """Print rows (a list of dicts, or any value for JSON and YAML) in a format; `key` names the column whose ids are never shortened.

    A table is no wider than the terminal. Through a pipe nothing is shortened.
    """
    if form == "json":
        print(json.dumps(rows, indent=2, default=str))
    elif form == "yaml":
        print("\n".join(yaml_lines(rows)))
    else:
        print(table(rows, key, terminal_width()))


def terminal_width() -> int | None:
    """None if stdout is no terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def table(rows: Sequence[dict[str, Any]], key: str = "", width: int | None = None) -> str:
    """A table without the columns that are empty in every row.

    With a `width`, ids and names are shortened until the rows fit. Columns that still have no room are named below the table.
    """
    if not rows:
        return "(none)"
    names = [name for name in rows[0] if any(row.get(name) not in (None, "", [], {}) for row in rows)]
    cells = [[_cell(name, row.get(name), name == key, width is None) for name in names] for row in rows]
    made = [
        Column(name.upper(), not name.endswith("_id") and _is_number(cells, index), _least(name, name == key))
        for index, name in enumerate(names)
    ]
    out: list[int] = []
    if width is not None:
        needed = [index for index, name in enumerate(names) if made[index].is_right or name in (key, *_NEEDED)]
        out = left_out(made, cells, width, needed)
    kept = [index for index in range(len(names)) if index not in out]
    shown = lines([made[index] for index in kept], [[row[index] for index in kept] for row in cells], width)
    if out:
        shown.append(f"(no room for {', '.join(made[index].title for index in out)}: --format yaml has all)")
    return "\n".join(shown)


def _is_number(cells: Sequence[Sequence[str]], index: int) -> bool:
    said = [row[index] for row in cells if row[index] not in ("", "-")]
    return bool(said) and all(_NUMBER.fullmatch(text) for text in said)


def _least(name: str, is_key: bool) -> int | None:
    return None if name in _WHOLE else _LEAST_KEY if is_key else _LEAST


def _cell(name: str, value: Any, is_key: bool, is_whole: bool = False) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, dict):
        text = ", ".join(f"{_cut(name_of)}: {_cell('', each, False)}" for name_of, each in value.items())
    elif isinstance(value, (list, tuple)):
        text = ", ".join(_cell("", each, False) for each in value)
    else:
        text = str(value).replace("\n", " ")
        if name.endswith("_id") and not is_key:
            text = _cut(text)
    # Names can be queried, so programs that read them get them whole.
    return text if is_key or (is_whole and (name == "name" or name.endswith("_name"))) else cut(text, _WIDEST)


def _cut(name: Any) -> str:
    text = str(name)
    return text[:_SHORT_ID] if len(text) >= 2 * _SHORT_ID and all(digit in "0123456789abcdef" for digit in text) else text


def yaml_lines(value: Any, indent: str = "") -> list[str]:
    """Yield lines of YAML. Scalars are written as in JSON, which YAML accepts."""
    if isinstance(value, dict) and value:
        lines = []
        for name, each in value.items():
            lines += _yaml_item(f"{indent}{_yaml_name(name)}:", each, indent + "  ")
        return lines
    if isinstance(value, (list, tuple)) and value:
        lines = []
        for each in value:
            inner = yaml_lines(each, indent + "  ")
            lines += [f"{indent}- {inner[0].lstrip()}", *inner[1:]]
        return lines
    return [indent + json.dumps(value, default=str)]


def _yaml_item(head: str, value: Any, indent: str) -> list[str]:
    if isinstance(value, (dict, list, tuple)) and value:
        return [head, *yaml_lines(value, indent)]
    return [f"{head} {json.dumps(value, default=str)}"]


def _yaml_name(name: Any) -> str:
    text = str(name)
    return text if text.isidentifier() and text.lower() not in _YAML_WORDS else json.dumps(text)
