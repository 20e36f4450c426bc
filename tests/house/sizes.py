"""How large the rooms of the package are: lines of code and statements, beside the figures on record.

    python -m tests.house.sizes             print them (as the test command does); exit status 1 if the record does not hold
    python -m tests.house.sizes --record    write what has become less into the record
    python -m tests.house.sizes --grown     write the figures as they are, also of rooms that have grown: the commit says what for

A room is a folder of mray with the files that lie in it. A line of code is neither blank, nor a comment, nor in a docstring; a statement is
an `ast.stmt`. The record, ``sizes.txt``, is an upper bound that falls.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.house.source import ROOT, modules, nodes

RECORD = Path(__file__).with_name("sizes.txt")
#: Lines, or statements, by which a room may be smaller than its record says.
SLACK = 15
#: Rooms that programs with tasks, actors, objects and graphs on CPUs do without; those in them, too.
BESIDE_THE_KERNEL = (
    "_backends/local",
    "_backends/ray",
    "_device",
    "_gpu",
    "_libraries",
    "_picture",
    "_joining",
    "_observe",
    "cli",
    "dag",
    "examples",
    "experimental",
    "proxy",
    "pytest_plugin",
    "testing",
    "util",
)


class Size(NamedTuple):
    """Of a room, or several."""

    lines: int = 0
    statements: int = 0

    def __add__(self, other: tuple[int, ...]) -> Size:
        return Size(self.lines + other[0], self.statements + other[1])


def size(tree: ast.Module, source: str) -> Size:
    """Of one file."""
    silent: set[int] = set()
    statements = 0
    for node in nodes(tree):
        statements += isinstance(node, ast.stmt)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and ast.get_docstring(node) is not None:
            text = node.body[0]
            silent.update(range(text.lineno, (text.end_lineno or text.lineno) + 1))
    spoken = enumerate(source.split("\n"), 1)
    return Size(sum(1 for number, line in spoken if number not in silent and line.strip() and line.lstrip()[0] != "#"), statements)


def rooms() -> dict[str, Size]:
    """The size of each room, by its path below mray."""
    found: dict[str, Size] = {}
    for name, tree in modules().items():
        room = name.removeprefix("mray/").rpartition("/")[0] or "."
        found[room] = found.get(room, Size()) + size(tree, (ROOT / name).read_text())
    return dict(sorted(found.items()))


def recorded() -> dict[str, Size]:
    """The size of each room on record."""
    rows = (line.split() for line in RECORD.read_text().splitlines() if line and not line.startswith("#"))
    return {room: Size(int(lines), int(statements)) for room, lines, statements in rows}


def faults(found: dict[str, Size], record: dict[str, Size]) -> Iterator[str]:
    """A line for each room whose record does not hold."""
    for room in sorted(found.keys() | record.keys()):
        now, most = found.get(room, Size()), record.get(room, Size())
        for figure, limit, unit in zip(now, most, Size._fields, strict=True):
            if figure > limit:
                yield f"{room} has grown: {figure} {unit}, and {limit} on record"
            elif figure < limit - SLACK:
                yield f"{room} has shrunk: {figure} {unit}, and {limit} on record; `python -m tests.house.sizes --record` notes it"


def in_kernel(room: str) -> bool:
    """Whether a room is part of the kernel."""
    return not any(room == each or room.startswith(f"{each}/") for each in BESIDE_THE_KERNEL)


def table(found: dict[str, Size]) -> Iterator[str]:
    """The lines that are printed."""
    yield f"{'room of mray':<40} {'lines':>7} {'statements':>11}"
    whole = sum(found.values(), Size())
    kernel = sum((each for room, each in found.items() if in_kernel(room)), Size())
    for name, each in (*found.items(), ("all", whole), ("the kernel", kernel)):
        yield f"{name:<40} {each.lines:>7,} {each.statements:>11,}"


def lower(found: dict[str, Size], record: dict[str, Size]) -> dict[str, Size]:
    """The record with what has become less."""
    least = {room: Size(*map(min, found.get(room, Size()), most)) for room, most in record.items()}
    return {room: each for room, each in least.items() if any(each)}


def write(record: dict[str, Size]) -> None:
    """Put a record in the place of the one there is."""
    comment = "# Room of mray, lines of code, statements: upper bounds (see sizes.py).\n"
    RECORD.write_text(comment + "".join(f"{room:<40} {each.lines:>6} {each.statements:>6}\n" for room, each in record.items()))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--record", action="store_true", help="write what has become less into the record")
    parser.add_argument("--grown", action="store_true", help="write what has become more, too")
    options = parser.parse_args()
    found = rooms()
    if options.record or options.grown:
        write(found if options.grown else lower(found, recorded()))
    print(*table(found), sep="\n")
    wrong = list(faults(found, recorded()))
    print(*wrong, sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
