"""The directory of spilled objects. In the driver, at `init`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mray._common import settings
from mray._common.kept import os


def spill_directory(given: str | None, system_config: Mapping[str, Any] | None) -> str | None:
    """The directory that the user names, as an absolute path; None: the session's own.

    In this order: the argument, ``_system_config`` and the variable for a directory, then those for a configuration, ``{"type":
    "filesystem", "params": {"directory_path": path}}`` or the same as JSON. Raises ValueError for an invalid configuration, TypeError
    for an invalid path.
    """
    config = system_config or {}
    path = given or config.get("object_spilling_directory") or settings.OBJECT_SPILLING_DIRECTORY.get()
    if not path:
        path = _path_of(config.get("object_spilling_config") or settings.OBJECT_SPILLING_CONFIG.get())
    if path is None:
        return None
    if not isinstance(path, str):
        raise TypeError(f"object_spilling_directory must be a path, got {type(path)}")
    return os.path.abspath(os.path.expanduser(path))


def _path_of(config: Any) -> Any:
    if not config:
        return None
    if isinstance(config, str):
        import json  # noqa: PLC0415

        try:
            config = json.loads(config)
        except ValueError as error:
            raise ValueError(f"object_spilling_config is not valid JSON: {error}") from None
    if not isinstance(config, Mapping) or config.get("type") != "filesystem":
        raise ValueError(f"object_spilling_config must be of type 'filesystem', got {config!r}")
    path = (config.get("params") or {}).get("directory_path")
    if isinstance(path, (list, tuple)) and path:
        path = path[0]  # Ray alternates between several
    if not path:
        raise ValueError(f"object_spilling_config names no directory_path: {config!r}")
    return path


def is_spilling(system_config: Mapping[str, Any] | None) -> bool:
    return bool((system_config or {}).get("automatic_object_spilling_enabled", settings.AUTOMATIC_OBJECT_SPILLING.get()))
