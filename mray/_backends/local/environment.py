"""Runtime environments in one process: variables can be had for a while, another interpreter cannot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: What a task or actor can be given without a process of its own.
POSSIBLE = frozenset({"env_vars", "config"})


def check_environment(environment: Mapping[str, Any] | None) -> None:
    """NotImplementedError for what needs a process."""
    for name, value in (environment or {}).items():
        if value and name not in POSSIBLE and not name.startswith("_"):
            raise NotImplementedError(
                f"runtime_env[{name!r}] needs a process of its own, and init(local_mode=True) has one for all: use the native engine."
            )
