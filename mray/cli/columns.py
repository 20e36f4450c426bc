"""Rows of text in columns that fit a width: numbers and states are whole, names are shortened. Pure.

A shortened text loses its middle, since names differ at their beginnings or ends; an id loses its end.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

CUT = "…"
_ID = re.compile(r"[0-9a-f]{16,}")
GAP = 2


@dataclass(frozen=True)
class Column:
    """`least`: the width that it may shrink to; None: it does not."""

    title: str
    is_right: bool = False
    least: int | None = None


def cut(text: str, width: int) -> str:
    """Shorten to `width` characters."""
    if len(text) <= width:
        return text
    if width < 2:
        return CUT[:width]
    tail = 0 if _ID.fullmatch(text) else (width - 1) * 2 // 5
    return text[: width - 1 - tail] + CUT + text[len(text) - tail :]


def counted(number: int, noun: str, plural: str = "") -> str:
    """``1 worker``, ``2 workers``."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def is_meant(word: str, name: str) -> bool:
    """Whether a word typed by the user is this name, whole or as shortened by `cut`."""
    head, mark, tail = word.partition(CUT)
    if not mark or word == name:
        return bool(name) and word == name
    return bool(head) and len(head) + len(tail) < len(name) and name.startswith(head) and name.endswith(tail)


def begins(word: str, whole: str) -> bool:
    """Whether a word of at least four digits is the beginning of an id."""
    beginning = word.lower().rstrip(CUT)
    return len(beginning) >= 4 and whole.startswith(beginning)


def fit(natural: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    """Widths of columns that together fit the room, if possible: the widest of those that may shrink are shortened first."""
    widths = list(natural)
    while (over := sum(widths) - room) > 0:
        able = [number for number, width in enumerate(widths) if width > least[number]]
        if not able:
            break
        widest = max(widths[number] for number in able)
        first = [number for number in able if widths[number] == widest]
        below = max([width for number, width in enumerate(widths) if number in able and width < widest], default=0)
        # Shrink all of the widest together, to the width of the next one, to their minimum, or as far as needed.
        step = min(widest - below, *(widest - least[number] for number in first), -(-over // len(first)))
        for number in first:
            widths[number] -= step
    return widths


def lines(columns: Sequence[Column], cells: Sequence[Sequence[str]], width: int | None, *, gap: int = GAP) -> list[str]:
    """The titles and the rows. None for `width`: unlimited."""
    natural, least = _widths(columns, cells)
    widths = natural
    if width is not None:
        widths = fit(natural, least, width - gap * (len(columns) - 1))
    titles = [column.title for column in columns]
    return [_line(columns, row, widths, gap) for row in (titles, *cells)]


def left_out(columns: Sequence[Column], cells: Sequence[Sequence[str]], width: int, needed: Iterable[int]) -> list[int]:
    """Columns that have no room even when all shrink: the last ones, and none of the needed."""
    _natural, least = _widths(columns, cells)
    kept, out = list(range(len(columns))), []
    spare = [number for number in kept if number not in set(needed)]
    while spare and sum(least[number] for number in kept) + GAP * (len(kept) - 1) > width:
        out.append(spare.pop())
        kept.remove(out[-1])
    return sorted(out)


def _widths(columns: Sequence[Column], cells: Sequence[Sequence[str]]) -> tuple[list[int], list[int]]:
    natural = [max([len(column.title), *(len(row[number]) for row in cells)]) for number, column in enumerate(columns)]
    return natural, [wide if column.least is None else min(column.least, wide) for column, wide in zip(columns, natural, strict=True)]


def _line(columns: Sequence[Column], row: Sequence[str], widths: Sequence[int], gap: int) -> str:
    parts = []
    for column, text, width in zip(columns, row, widths, strict=True):
        shown = cut(text, width)
        parts.append(shown.rjust(width) if column.is_right else shown.ljust(width))
    return (" " * gap).join(parts).rstrip()
