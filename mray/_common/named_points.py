"""The entry to the named points of the runtime's protocols (`mray.testing.points`)."""

from __future__ import annotations

import importlib

from mray._common import settings


def switch_on() -> None:
    """Make modules imported later stop at their points, if MRAY_POINTS is set. Idempotent."""
    if settings.POINTS.get():
        importlib.import_module("mray.testing.points").switch_on()
