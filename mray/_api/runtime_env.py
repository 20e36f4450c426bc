"""`RuntimeEnv`: how a process of user code is started, as a dict that checks itself.

Fields that mray cannot set up are refused by name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from mray._common.environment_rules import check_environment, packages_of
from mray._common.log import logger

#: Field -> its name in Ray's object.
_KEPT_AS = {"nsight": "_nsight", "rocprof_sys": "_rocprof_sys"}


class RuntimeEnvConfig(dict[str, Any]):
    """How an environment is set up.

    ``setup_timeout_seconds``: for packages, an int above 0, or -1 for no limit. ``eager_install``: whether the job's packages are installed
    as soon as the session starts. ``log_files`` has no effect.
    """

    known_fields = frozenset({"setup_timeout_seconds", "eager_install", "log_files"})

    def __init__(self, setup_timeout_seconds: int = 600, eager_install: bool = True, log_files: list[str] | None = None) -> None:
        super().__init__(setup_timeout_seconds=setup_timeout_seconds, eager_install=eager_install, log_files=log_files)
        check_environment({"config": self})
        self["log_files"] = list(log_files or ())

    @classmethod
    def default_config(cls) -> RuntimeEnvConfig:
        return cls()

    @classmethod
    def parse_and_validate_runtime_env_config(cls, config: Any) -> RuntimeEnvConfig:
        """The object of a dict; unknown entries are ignored with a warning."""
        if isinstance(config, cls):
            return config
        if not isinstance(config, Mapping):
            raise TypeError(f"runtime_env['config'] must be of type dict or RuntimeEnvConfig, got: {type(config)}")
        unknown = set(config) - cls.known_fields
        if unknown:
            logger.warning("The following unknown entries in the runtime_env_config dictionary will be ignored: %s.", unknown)
        return cls(**{name: value for name, value in config.items() if name in cls.known_fields})

    def to_dict(self) -> dict[str, Any]:
        return dict(deepcopy(self))


class RuntimeEnv(dict[str, Any]):
    """A runtime environment: ``RuntimeEnv(env_vars={"NAME": "value"}, pip=["package"])``, usable wherever a dict is.

    Raises TypeError and ValueError for invalid fields, NotImplementedError for fields that mray cannot set up. Packages are stored as a
    dict with ``packages``.
    """

    def __init__(self, *, _validate: bool = True, **fields: Any) -> None:
        super().__init__()
        given = {_KEPT_AS.get(name, name): value for name, value in fields.items() if value is not None}
        if not _validate:
            dict.update(self, given)
            return
        check_environment(given)
        for name, value in given.items():
            self[name] = value

    def __setitem__(self, name: str, value: Any) -> None:
        check_environment({name: value})
        if name in ("pip", "uv"):
            value = packages_of(name, value)
        elif name == "config":
            value = RuntimeEnvConfig.parse_and_validate_runtime_env_config(value)
        elif name in ("env_vars", "excludes") and not value:
            return
        if value is not None:
            super().__setitem__(name, value)

    def set(self, name: str, value: Any) -> None:
        self[name] = value

    def to_dict(self) -> dict[str, Any]:
        copied: dict[str, Any] = dict(deepcopy(self))
        if "config" in copied:
            copied["config"] = dict(copied["config"])
        return copied

    def serialize(self) -> str:
        return json.dumps(type(self)(**self), sort_keys=True)

    @classmethod
    def deserialize(cls, serialized_runtime_env: str) -> RuntimeEnv:
        return cls(_validate=False, **json.loads(serialized_runtime_env))

    def env_vars(self) -> dict[str, str]:
        """The variables."""
        return dict(self.get("env_vars") or {})

    def working_dir(self) -> str:
        """The folder or archive that workers start in, "" for none."""
        return str(self.get("working_dir", ""))

    def has_working_dir(self) -> bool:
        return self.get("working_dir") is not None

    def py_modules(self) -> list[Any]:
        """Modules that workers can import."""
        return list(self.get("py_modules") or ())

    def py_executable(self) -> str | None:
        """The command that starts workers' interpreter."""
        return self.get("py_executable")

    def has_pip(self) -> bool:
        return bool(self.get("pip"))

    def pip_config(self) -> dict[str, Any]:
        """The requirements for pip."""
        return dict(self.get("pip") or {})

    def has_uv(self) -> bool:
        return bool(self.get("uv"))

    def uv_config(self) -> dict[str, Any]:
        """The requirements for uv."""
        return dict(self.get("uv") or {})

    # A deserialized environment may have these; given ones are refused.
    def has_conda(self) -> bool:
        return bool(self.get("conda"))

    def conda_env_name(self) -> str | None:
        """The name of an existing environment."""
        conda = self.get("conda")
        return conda if isinstance(conda, str) else None

    def conda_config(self) -> str | None:
        """The environment to create, as JSON."""
        conda = self.get("conda")
        return json.dumps(conda, sort_keys=True) if isinstance(conda, dict) else None

    def has_py_container(self) -> bool:
        return bool(self.get("container"))

    def py_container_image(self) -> str | None:
        """The image of the container."""
        image: str | None = (self.get("container") or {}).get("image")
        return image

    def image_uri(self) -> str | None:
        """The image that workers run in."""
        image: str | None = self.get("image_uri")
        return image

    def java_jars(self) -> list[str]:
        """Code of workers in Java."""
        return list(self.get("java_jars") or ())

    def rocprof_sys(self) -> str | dict[str, str] | None:
        """How AMD's profiler profiles the worker."""
        options: str | dict[str, str] | None = self.get("_rocprof_sys")
        return options

    def nsight(self) -> str | dict[str, str] | None:
        """How Nsight Systems profiles the worker: ``"default"`` or options of ``nsys profile``; None when it does not."""
        options: str | dict[str, str] | None = self.get("_nsight")
        return options
