"""``import ray`` in the processes that a program starts with `multiprocessing`, by the methods spawn and forkserver.

Such a child is a new interpreter that runs the program's file again, under another name, before its target; the ``import ray`` at the
top of the file must mean there what it means here.

The child is sent a dictionary of what to set up first, and unpickles it whole before it uses any of it. One more value of that
dictionary imports `mray.as_ray` where it is unpickled. Rejected: an environment variable, which would reach every program that this one
starts.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from mray._libraries import installed

#: prepares a child; imported with the first process that is spawned
SPAWN = "multiprocessing.spawn"
AS_RAY = "mray.as_ray"
LIBRARIES = "mray.libraries"


class _Imported:
    """Unpickles as a module, which that imports."""

    def __reduce__(self) -> tuple[Callable[[str], ModuleType], tuple[str]]:
        return importlib.import_module, (LIBRARIES if installed.wanted else AS_RAY,)


class _SpawnFinder(MetaPathFinder):
    """Waits for the import of `SPAWN`, which is slow and rarely needed."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname != SPAWN:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_tell(module: ModuleType) -> None:
                execute(module)
                _tell(module)

            vars(spec.loader)["exec_module"] = execute_and_tell
        return spec


def _tell(spawn: Any) -> None:
    prepare = spawn.get_preparation_data

    def get_preparation_data(name: str) -> dict[str, Any]:
        return {**prepare(name), AS_RAY: _Imported()}

    spawn.get_preparation_data = get_preparation_data


def tell_spawned() -> None:
    """Make ``import ray`` mean mray in the children as well. Called once."""
    if SPAWN in sys.modules:
        _tell(sys.modules[SPAWN])
    else:
        sys.meta_path.insert(0, _SpawnFinder())
