"""The runtime context: what ``ray.runtime_context`` has."""

from __future__ import annotations

from mray._api.context import RuntimeContext, get_runtime_context

__all__ = ["RuntimeContext", "get_runtime_context"]
