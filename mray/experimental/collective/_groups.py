"""The collectives of groups, which stand above this package: they are reached by name.

`mray.util.collective` is written against the public API, as all of `mray.util` is, and imports go down only: what is here must not
import it.
"""

from __future__ import annotations

import importlib
from typing import Any


def group_collectives() -> Any:
    """The module `mray.util.collective`."""
    return importlib.import_module("mray.util.collective")


def backend_of(name: str) -> str:
    """The backend that a user means. Raises ValueError when there is none of that name."""
    backend: str = importlib.import_module("mray.util.collective.types").Backend(name)
    return backend
