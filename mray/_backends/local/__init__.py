"""The engine in one process."""

from __future__ import annotations

from mray._backends.local.backend import LocalBackend

__all__ = ["LocalBackend"]
