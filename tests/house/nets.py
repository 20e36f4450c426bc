"""Figures of the package that may only fall: a table of its rooms, and figures of the whole, beside those on record.

    python -m tests.house.nets             print them (as the test command does); exit status 1 if the record does not hold
    python -m tests.house.nets --list      print also what the figures count: names past the doors, texts of errors, ideas
    python -m tests.house.nets --walks     count also the files that calls enter (`tests.house.walks`), which takes some seconds
    python -m tests.house.nets --record    write what has become less into the record
    python -m tests.house.nets --grown     write the figures as they are, also those that have grown: the commit says what for

A room is a folder of mray with the files that lie in it, or a file that the contract of the kernel names beside it. The record,
``nets.txt``, is an upper bound that falls.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.house import code, doors, ideas, prose, raises
from tests.house.rooms import files, guest_of, room_of
from tests.house.source import ROOT, modules, parsed

RECORD = Path(__file__).with_name("nets.txt")
#: The width of names in the table and in the record.
_NAME = 40


class Row(NamedTuple):
    """The figures of a room."""

    #: Lines of code, and statements.
    lines: int = 0
    statements: int = 0
    #: Of docstrings and comments.
    words: int = 0
    #: That a room beside the kernel takes from private modules past the doors; of its outermost folder.
    names: int = 0
    #: Texts of errors that no test has.
    errors: int = 0

    def __add__(self, other: tuple[int, ...]) -> Row:
        return Row(*(mine + its for mine, its in zip(self, other, strict=True)))


#: By how much a figure may be smaller than its record says.
SLACK = Row(lines=15, statements=15, words=100)
#: By how much a figure of the whole may be larger or smaller: a walk that something else happens beside is longer.
TOLERANCE = {"files of all walks": 4, "lines of all walks": 700, "files of warm walks": 4, "lines of warm walks": 600}


class Found(NamedTuple):
    """Everything that is counted."""

    rooms: dict[str, Row]
    whole: dict[str, int]
    #: The things that figures count, by the figure's name.
    lists: dict[str, list[str]]
    #: How many names the door of the kernel exports; `tests.house.test_inside` has their bound.
    door: int


@cache
def sources() -> dict[str, str]:
    """The text of every file of Python of the package."""
    return {path: (ROOT / path).read_text() for path in modules()}


@cache
def found() -> Found:
    """The figures as they are."""
    rooms: dict[str, Row] = {}

    def add(path: str, row: Row) -> None:
        room = room_of(path)
        rooms[room] = rooms.get(room, Row()) + row

    trees, texts = modules(), sources()
    for path, tree in trees.items():
        add(path, Row(*code.size(tree, texts[path]), words=prose.words(tree, texts[path])))
    for path, tree in parsed(ROOT / path for path in files(".pyi")).items():
        source = (ROOT / path).read_text()
        add(path, Row(*code.size(tree, source), words=prose.words(tree, source)))
    for path in files(".js", ".css", ".html"):
        add(path, Row(*code.size_of_page((ROOT / path).read_text(), Path(path).suffix)))
    deep = doors.deep_names(trees)
    for room, names in deep.items():
        rooms[room] = rooms.get(room, Row()) + Row(names=len(names))
    errors = list(raises.untested(trees, raises.texts_of_tests()))
    for path, _statement in errors:
        add(path, Row(errors=1))
    terms = ideas.TERMS.read_text()
    lists = {
        "names": [f"{room}: {name}" for room, names in sorted(deep.items()) for name in sorted(names)],
        "errors": [f"{path}:{statement.line}: {statement.parts[0][:100]}" for path, statement in errors],
        "ideas": ideas.double(trees, ideas.ideas()),
        "retired words": ideas.retired(trees, ideas.retired_words(terms)),
        "retired phrases": ideas.phrases(trees, texts, ideas.pages(), ideas.retired_phrases(terms)),
        "stale names": list(prose.stale(trees, texts, prose.Names(trees))),
    }
    whole = {name: len(lists[name]) for name in ("stale names", "ideas", "retired words", "retired phrases")}
    door = doors.exports(tree for path, tree in trees.items() if path.startswith("mray/_inside/"))
    return Found(dict(sorted(rooms.items())), whole, lists, len(door))


def walks() -> dict[str, int]:
    """The figures of the seven walks, counted in a program of its own."""
    command = [sys.executable, "-m", "tests.house.walks"]
    counted: dict[str, int] = json.loads(subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout)
    return counted


class Record(NamedTuple):
    """The figures on record."""

    rooms: dict[str, Row]
    whole: dict[str, int]


def recorded() -> Record:
    """The contents of ``nets.txt``."""
    rooms, whole = {}, {}
    for line in RECORD.read_text().splitlines():
        name, figures = line[:_NAME].strip(), line[_NAME:].split()
        if len(figures) == 1:
            whole[name] = int(figures[0])
        elif name and not name.startswith("#"):
            rooms[name] = Row(*map(int, figures))
    return Record(rooms, whole)


def faults(rooms: Mapping[str, Row], record: Mapping[str, Row]) -> Iterator[str]:
    """A line for each figure of a room whose record does not hold."""
    for room in sorted(rooms.keys() | record.keys()):
        now, most = rooms.get(room, Row()), record.get(room, Row())
        for figure, limit, slack, unit in zip(now, most, SLACK, Row._fields, strict=True):
            yield from fault(f"{room}: {unit}", figure, limit, slack)


def faults_of_whole(whole: Mapping[str, int], record: Mapping[str, int]) -> Iterator[str]:
    """A line for each figure of the whole whose record does not hold."""
    for name, figure in whole.items():
        tolerance = TOLERANCE.get(name, 0)
        limit = record.get(name, 0)
        if abs(figure - limit) > tolerance:
            yield from fault(name, figure, limit, tolerance)


def fault(name: str, figure: int, limit: int, slack: int) -> Iterator[str]:
    """A line if a figure is more than its limit, or less by more than the slack."""
    if figure > limit:
        yield f"{name} grew: {figure}, and {limit} on record"
    elif figure < limit - slack:
        yield f"{name} fell: {figure}, and {limit} on record; `python -m tests.house.nets --record` writes it down"


def table(rooms: Mapping[str, Row]) -> Iterator[str]:
    """The lines that are printed of rooms."""
    yield f"{'room of mray':<{_NAME}}" + "".join(f"{unit:>11}" for unit in Row._fields)
    kernel = sum((row for room, row in rooms.items() if guest_of(room) is None), Row())
    for name, row in (*rooms.items(), ("all", sum(rooms.values(), Row())), ("the kernel", kernel)):
        yield f"{name:<{_NAME}}" + "".join(f"{figure:>11,}" for figure in row)


def lower(rooms: Mapping[str, Row], record: Mapping[str, Row]) -> dict[str, Row]:
    """The record of rooms with what has become less."""
    least = {room: Row(*map(min, rooms.get(room, Row()), most)) for room, most in record.items()}
    return {room: row for room, row in least.items() if any(row)}


def write(record: Record) -> None:
    """Put a record in the place of the present one."""
    units = "".join(f"{unit:>11}" for unit in Row._fields)
    rooms = (f"{room:<{_NAME}}" + "".join(f"{figure:>11}" for figure in row) for room, row in record.rooms.items())
    whole = (f"{name:<{_NAME}}{figure:>11}" for name, figure in record.whole.items())
    comment = "# Upper bounds (see nets.py): of each room of mray, then of the whole."
    RECORD.write_text("\n".join((comment, f"{'# room':<{_NAME}}{units}", *rooms, *whole, "")))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--list", action="store_true", help="print what the figures count")
    parser.add_argument("--walks", action="store_true", help="count the files that calls enter, too")
    parser.add_argument("--record", action="store_true", help="write what has become less into the record")
    parser.add_argument("--grown", action="store_true", help="write what has become more, too")
    options = parser.parse_args()
    rooms, whole, lists, door = found()
    whole = {**whole, **(walks() if options.walks else {})}
    if options.record or options.grown:
        before = recorded()
        least = {name: min(figure, before.whole.get(name, figure)) for name, figure in whole.items()}
        write(Record(rooms if options.grown else lower(rooms, before.rooms), {**before.whole, **(whole if options.grown else least)}))
    print(*table(rooms), sep="\n")
    print(*(f"{name:<{_NAME}}{figure:>11,}" for name, figure in {**whole, "names of the door": door}.items()), sep="\n")
    shown = lists if options.list else {"stale names": lists["stale names"]}
    print(*(f"{name}: {line}" for name, lines in shown.items() for line in lines), sep="\n")
    record = recorded()
    wrong = [*faults(rooms, record.rooms), *faults_of_whole(whole, record.whole)]
    print(*wrong, sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
