"""The checkout that the tests are of, and where the processes that a test starts find it."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def python_path(before: str | None = None) -> str:
    """A PYTHONPATH: the checkout, then the given one or this process's own, whose folders may have what the interpreter lacks."""
    return os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH") if before is None else before]))
