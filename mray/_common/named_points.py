"""The entry to the named points of the runtime's protocols (`mray.testing.points`), for processes that begin with MRAY_POINTS."""

from __future__ import annotations

import importlib

from mray._common import settings


def switch_on() -> None:
    """Make modules that are imported later stop at their points, if the setting says so. Idempotent."""
    if settings.POINTS.get():
        importlib.import_module("mray.testing.points").switch_on()
