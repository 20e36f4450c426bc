"""The rooms of mray and their tests, as the table of the manual's page design.md has them."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "mray" / "_manual" / "design.md"
HEADING = "## Rooms"


class Room(NamedTuple):
    """A room: its rows in the table, added up."""

    name: str
    owns: str
    #: As the table writes them: paths below tests, without ``test_`` and suffix.
    tests: tuple[str, ...]
    #: Of a processor, roughly.
    seconds: int

    def files(self) -> list[str]:
        """The files of its tests, by paths in the checkout."""
        found: list[str] = []
        for test in self.tests:
            folder, _slash, name = test.rpartition("/")
            found += sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests" / folder).glob(f"test_{name}.py"))
        return found


def rooms() -> dict[str, Room]:
    """Each room by its path below mray; ``.`` is the package's own folder."""
    section = PAGE.read_text().partition(f"\n{HEADING}\n")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line.startswith("|")][2:]
    found: dict[str, Room] = {}
    for cell, owns, tests, seconds in rows:
        name = cell.strip("`")
        row = Room(name, owns, tuple(tests.split(", ")), int(seconds))
        before = found.get(name)
        if before is not None:
            row = Room(name, f"{before.owns}; {owns}", before.tests + row.tests, before.seconds + row.seconds)
        found[name] = row
    return found


def room_of(path: str) -> Room | None:
    """The innermost room in which a path below mray lies."""
    known = rooms()
    while path and path not in known:
        path = path.rpartition("/")[0]
    return known.get(path)
