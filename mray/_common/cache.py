"""The user's cache."""

from __future__ import annotations

from mray._common import settings
from mray._common.kept import os


def cache_folder(name: str) -> str:
    cache = settings.CACHE_DIR.get() or os.path.join(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "mray")
    return os.path.join(os.path.abspath(os.path.expanduser(cache)), name)
