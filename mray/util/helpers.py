"""Ray's module of `as_completed` and `map_unordered`."""

from __future__ import annotations

from mray.util._results import as_completed, map_unordered

__all__ = ["as_completed", "map_unordered"]
