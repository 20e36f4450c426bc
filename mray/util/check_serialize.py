"""`inspect_serializability`: find what prevents a value from being pickled."""

from __future__ import annotations

import sys
from typing import Any

from mray._common.serializability import FailTuple, explain, find_unpicklable

__all__ = ["inspect_serializability"]


def inspect_serializability(base_obj: Any, name: str | None = None, depth: int = 3, print_file: Any = None) -> tuple[bool, set[FailTuple]]:
    """Print a report of the parts of a value that cannot be pickled; returns (whether the value can be pickled, the parts).

    The parts are `FailTuple`s: ``obj``, ``name``, ``parent``, ``path``, ``reason``. The report goes to `print_file`, by default stdout.
    """
    if name is None:
        name = str(getattr(base_obj, "__name__", ""))
    found = find_unpicklable(base_obj, name)
    print(explain(base_obj, name=name), file=print_file or sys.stdout)
    return not found, set(found)
