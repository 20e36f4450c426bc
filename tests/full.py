"""What takes too long for every run of the tests: MRAY_TEST_FULL=1."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

import pytest

FULL = os.environ.get("MRAY_TEST_FULL", "0") not in ("", "0")

Row = TypeVar("Row")

#: A mark.
full = pytest.mark.skipif(not FULL, reason="takes long: with MRAY_TEST_FULL=1")


def some(rows: Sequence[Row], *keys: Callable[[Row], Hashable]) -> list[Row]:
    """A small part of the rows of a table, in their order, in which every value of every key occurs; all of them with MRAY_TEST_FULL=1."""
    if FULL:
        return list(rows)
    values = [{(number, key(row)) for number, key in enumerate(keys)} for row in rows]
    missing = set().union(*values)
    chosen: set[int] = set()
    while missing:
        best = max(range(len(rows)), key=lambda number: len(values[number] & missing))
        chosen.add(best)
        missing -= values[best]
    return [rows[number] for number in sorted(chosen)]
