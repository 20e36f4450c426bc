"""``tqdm`` for tasks and actors: bars of many processes, drawn together in the driver.

A bar reports its progress at most once a second; the driver draws it if the package ``tqdm`` is installed.
"""

from __future__ import annotations

from mray._inside.bars import instance, safe_print, tqdm

__all__ = ["instance", "safe_print", "tqdm"]
