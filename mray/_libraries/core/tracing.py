"""``ray.util.tracing.tracing_helper``: mray has no trace contexts, so its decorators change nothing."""

from __future__ import annotations

from typing import Any


def _is_tracing_enabled() -> bool:
    return False


def _unchanged(value: Any) -> Any:
    return value


_inject_tracing_into_function = _inject_tracing_into_class = _unchanged
_tracing_task_invocation = _tracing_actor_creation = _tracing_actor_method_invocation = _unchanged
