"""`RuntimeEnv`: what a process of the user's is started with, as a dict that checks itself.

Pure; any process. Parts that mray cannot set up are refused with their name: a program that asks for packages and runs without them fails
later and worse.
"""

from __future__ import annotations

from typing import Any

from mray._common.options import RUNTIME_ENVIRONMENT, check_runtime_env


class RuntimeEnvConfig(dict[str, Any]):
    """How an environment is set up: ``setup_timeout_seconds`` (an int above 0, or -1 for no limit) and ``eager_install``.

    Nothing has to be installed for what `RuntimeEnv` takes, so both are kept and have no effect.
    """

    def __init__(self, setup_timeout_seconds: int = 600, eager_install: bool = True, log_files: list[str] | None = None) -> None:
        if not isinstance(setup_timeout_seconds, int):
            raise TypeError(f"setup_timeout_seconds must be of type int, got: {type(setup_timeout_seconds)}")
        if setup_timeout_seconds <= 0 and setup_timeout_seconds != -1:
            raise ValueError(f"setup_timeout_seconds must be greater than zero or equals to -1, got: {setup_timeout_seconds}")
        if not isinstance(eager_install, bool):
            raise TypeError(f"eager_install must be a boolean. got {type(eager_install)}")
        super().__init__(setup_timeout_seconds=setup_timeout_seconds, eager_install=eager_install, log_files=list(log_files or ()))


class RuntimeEnv(dict[str, Any]):
    """A runtime environment: ``RuntimeEnv(env_vars={"NAME": "value"})``, usable wherever a dict is.

    TypeError for variables that are not text, NotImplementedError for parts that mray cannot set up.
    """

    def __init__(self, *, config: dict[str, Any] | None = None, **parts: Any) -> None:
        super().__init__()
        for name, value in parts.items():
            if value is None:
                continue
            if name not in RUNTIME_ENVIRONMENT and not name.startswith("_"):
                raise NotImplementedError(f"runtime_env[{name!r}] is not supported by mray; supported are {list(RUNTIME_ENVIRONMENT)}.")
            self["_nsight" if name == "nsight" else name] = value
        if config is not None:
            self["config"] = config if isinstance(config, RuntimeEnvConfig) else RuntimeEnvConfig(**config)
        check_runtime_env(self)

    def env_vars(self) -> dict[str, str]:
        """The variables."""
        return dict(self.get("env_vars") or {})

    def nsight(self) -> str | dict[str, str] | None:
        """How Nsight Systems profiles the worker: ``"default"`` or options of ``nsys profile``; None when it does not."""
        options: str | dict[str, str] | None = self.get("_nsight")
        return options
