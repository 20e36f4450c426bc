"""`JobConfig`: what a driver declares about its job, for programs that pass it to `init`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from mray._api.logging_config import LoggingConfig

#: Ray's values.
_LIFETIMES = ("non_detached", "detached")


class JobConfig:
    """A job's namespace, environment and metadata. `init` uses them where its own arguments are not given.

    `metadata` has no effect. Raises ValueError for a `default_actor_lifetime` that mray does not have: actors are detached one by one,
    with ``lifetime="detached"``.
    """

    def __init__(
        self,
        jvm_options: list[str] | None = None,
        code_search_path: list[str] | None = None,
        runtime_env: dict[str, Any] | None = None,
        _client_job: bool = False,
        metadata: dict[str, Any] | None = None,
        ray_namespace: str | None = None,
        default_actor_lifetime: str = "non_detached",
        _disable_job_level_lineage_reconstruction: bool = False,
        _py_driver_sys_path: list[str] | None = None,
    ) -> None:
        self.jvm_options = jvm_options or []
        self.code_search_path = code_search_path or []
        self.metadata = metadata or {}
        self.ray_namespace = ray_namespace
        self.py_logging_config: LoggingConfig | None = None
        self.set_runtime_env(runtime_env)
        self.set_default_actor_lifetime(default_actor_lifetime)

    def set_metadata(self, key: str, value: str) -> None:
        self.metadata[key] = value

    def set_runtime_env(self, runtime_env: Mapping[str, Any] | None, validate: bool = False) -> None:
        """Replace the environment. `init` checks it."""
        self.runtime_env = dict(runtime_env or {})

    def set_ray_namespace(self, ray_namespace: str) -> None:
        self.ray_namespace = ray_namespace

    def set_py_logging_config(self, logging_config: LoggingConfig | None = None) -> None:
        self.py_logging_config = logging_config

    def set_default_actor_lifetime(self, default_actor_lifetime: str) -> None:
        """Raise ValueError for anything but "non_detached"."""
        if default_actor_lifetime not in _LIFETIMES:
            raise ValueError(f"Default actor lifetime must be one of `detached`, `non_detached`, got {default_actor_lifetime}")
        if default_actor_lifetime == "detached":
            raise ValueError('mray has no default_actor_lifetime="detached"; give each actor lifetime="detached" in its options.')

    @classmethod
    def from_json(cls, job_config_json: Mapping[str, Any]) -> JobConfig:
        """From a dictionary with the arguments' names; others are ignored, as on Ray."""
        return cls(
            jvm_options=job_config_json.get("jvm_options"),
            code_search_path=job_config_json.get("code_search_path"),
            runtime_env=job_config_json.get("runtime_env", {"env_vars": job_config_json.get("worker_env", {})}),
            metadata=job_config_json.get("metadata"),
            ray_namespace=job_config_json.get("ray_namespace"),
        )

    def __repr__(self) -> str:
        return f"JobConfig(ray_namespace={self.ray_namespace!r}, runtime_env={json.dumps(self.runtime_env, default=str)})"
