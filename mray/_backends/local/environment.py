"""Runtime environments in one process: variables are possible, another interpreter is not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mray._common.kept import os
from mray._decide.scheduler.policy import PRIVATE_VARIABLES
from mray._ipc.process import expand_all

#: Fields that need no process of their own.
POSSIBLE = frozenset({"env_vars", "config"})


def check_environment(environment: Mapping[str, Any] | None) -> None:
    """Raise NotImplementedError for fields that need a process."""
    for name, value in (environment or {}).items():
        if value and name not in POSSIBLE and not name.startswith("_"):
            raise NotImplementedError(
                f"runtime_env[{name!r}] needs a process of its own, but init(local_mode=True) runs everything in one: use the native "
                "engine."
            )


class EnvironmentVariables:
    """Variables of a worker, set in the whole process while one of its threads runs."""

    def __init__(self, variables: dict[str, str]) -> None:
        self._variables = {name: value for name, value in variables.items() if not name.startswith(PRIVATE_VARIABLES)}
        self._before: dict[str, str | None] = {}

    def set(self, name: str, value: str) -> None:
        if self._variables.get(name) != value:
            self._variables[name] = value
            self._apply(name, value)

    def restore(self, name: str, value: str | None) -> None:
        """Set a variable to its previous value; None: unset it."""
        if value is not None:
            self.set(name, value)
            return
        self._variables.pop(name, None)
        self._before.setdefault(name, os.environ.get(name))
        os.environ.pop(name, None)

    def apply(self) -> None:
        for name, value in expand_all(self._variables, os.environ).items():
            self._apply(name, value)

    def _apply(self, name: str, value: str) -> None:
        self._before.setdefault(name, os.environ.get(name))
        os.environ[name] = value

    def revert(self) -> None:
        """Called when the thread stops; saves its changes."""
        for name, before in self._before.items():
            now = os.environ.get(name)
            if now is not None:
                self._variables[name] = now
            if before is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = before
        self._before.clear()
