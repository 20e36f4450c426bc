"""The common parts of the commands: their arguments, exit statuses, and how rows are printed."""

from __future__ import annotations

import argparse
import json
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from mray._ipc.limits import is_exhausted
from mray._runtime.observe.observer import SessionGoneError
from mray.util.state.exception import RayStateApiException, ServerUnavailable

# Exit statuses, the same for all commands.
DONE = 0
#: The requested thing does not exist, or `doctor` has found something wrong.
NOT_FOUND = 1
#: The command line is wrong.
USAGE = 2
#: No session is running, or several and none was chosen.
NO_SESSION = 3
#: An optional package is missing.
MISSING = 4

EXITS = """\
exit status: 0 done, 1 not found or something is wrong, 2 wrong usage, 3 no session (or several: choose one with --session),
4 an optional package is missing, 130 interrupted"""

FORMATS = ("table", "json", "yaml")
#: Digits that a table shows of an id that is not the row's own.
_SHORT_ID = 8
_WIDEST = 60
#: Words that YAML takes for truth values or nothing.
_YAML_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})


def parser(command: str, summary: str, epilog: str = "") -> argparse.ArgumentParser:
    """The parser of one command."""
    return argparse.ArgumentParser(
        prog=f"mray {command}",
        description=summary[0].upper() + summary[1:] + ".",
        epilog=(epilog + "\n\n" if epilog else "") + EXITS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def add_session(arguments: argparse.ArgumentParser, timeout: float = 5.0) -> None:
    """The options of commands that look at one session."""
    arguments.add_argument(
        "--session",
        "--address",
        metavar="SESSION",
        help="the session: its directory, its name or the end of it, or the pid of its driver; needless when only one is running",
    )
    arguments.add_argument(
        "--timeout", type=float, default=timeout, metavar="SECONDS", help=f"how long to wait for its processes (default {timeout:g})"
    )


def add_format(arguments: argparse.ArgumentParser) -> None:
    """The option of commands that print rows."""
    arguments.add_argument("--format", "-f", choices=FORMATS, default="table", help="how to print (default table)")


def guarded(action: Callable[[], int]) -> int:
    """Do it; errors of the session or the question become a line on stderr and an exit status."""
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_rest: print(f"mray: warning: {message}", file=sys.stderr)
            warnings.simplefilter("always")
            status = action()
            sys.stdout.flush()
            return status
    except ServerUnavailable as error:
        print(f"mray: {error}", file=sys.stderr)
        return NO_SESSION
    except RayStateApiException as error:
        print(f"mray: {error}", file=sys.stderr)
        return NOT_FOUND
    except ValueError as error:
        print(f"mray: {error}", file=sys.stderr)
        return USAGE
    except (SessionGoneError, TimeoutError) as error:
        print(f"mray: {error}", file=sys.stderr)
        return NO_SESSION
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader (head, less) has what it wanted. Text that is still buffered must not fail at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except OSError as error:
        if not is_exhausted(error):
            raise
        print(f"mray: {error.strerror}", file=sys.stderr)
        return NOT_FOUND


def lacks(package: str, extra: str, what: str) -> int:
    """Say that a package is missing; the exit status."""
    print(f"mray: {what} needs the package {package}: pip install {package!r}, or mray[{extra}].", file=sys.stderr)
    return MISSING


# ------------------------------------------------------------------------------------------- printing
def show(rows: Any, form: str, key: str = "") -> None:
    """Print rows (a list of dicts, or any value for JSON and YAML) in a form; `key` names the column whose ids stay whole."""
    if form == "json":
        print(json.dumps(rows, indent=2, default=str))
    elif form == "yaml":
        print("\n".join(yaml_lines(rows)))
    else:
        print(table(rows, key))


def table(rows: Sequence[dict[str, Any]], key: str = "") -> str:
    """Columns as wide as they must be; those that are empty in every row are left out."""
    if not rows:
        return "(none)"
    columns = [name for name in rows[0] if any(row.get(name) not in (None, "", [], {}) for row in rows)]
    cells = [[_cell(name, row.get(name), name == key) for name in columns] for row in rows]
    widths = [max(len(name), *(len(row[index]) for row in cells)) for index, name in enumerate(columns)]
    numeric = [all(isinstance(row.get(name), (int, float)) and not isinstance(row.get(name), bool) for row in rows) for name in columns]

    def line(texts: Sequence[str]) -> str:
        parts = [text.rjust(width) if right else text.ljust(width) for text, width, right in zip(texts, widths, numeric, strict=True)]
        return "  ".join(parts).rstrip()

    return "\n".join([line([name.upper() for name in columns]), *map(line, cells)])


def _cell(name: str, value: Any, is_key: bool) -> str:
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
    return text if len(text) <= _WIDEST or is_key else text[: _WIDEST - 1] + "…"


def _cut(name: Any) -> str:
    text = str(name)
    return text[:_SHORT_ID] if len(text) >= 2 * _SHORT_ID and all(digit in "0123456789abcdef" for digit in text) else text


def yaml_lines(value: Any, indent: str = "") -> list[str]:
    """A value of dicts, lists and scalars as YAML. Scalars are written as JSON has them, which YAML understands."""
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
