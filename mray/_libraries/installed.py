"""Ray's own files, of the installed package: its libraries, and the pure Python modules of its core.

They are loaded by Ray's names, unchanged; what they import of Ray's core is mray's.
"""

from __future__ import annotations

import importlib
import re
import sys
from importlib.abc import Loader
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from mray._common import settings
from mray._common.version import RAY_VERSION
from mray._libraries import head_start, ray_names
from mray._libraries.names import INTERNAL

#: whether this process takes from Ray what mray does not have
wanted = False
_folder: Path | None = None


def use() -> None:
    """Raises ImportError when no Ray is installed, or one of another version."""
    global wanted, _folder
    if wanted:
        return
    spec = PathFinder.find_spec("ray", sys.path)
    if spec is None or spec.origin is None:
        raise ImportError(
            f'Ray\'s libraries come from the package ray, which is not installed: pip install "mray[libraries]" ({_demand()})', name="ray"
        )
    folder = Path(spec.origin).parent
    found = re.search(r'^version = "([^"]+)"', (folder / "_version.py").read_text(), re.MULTILINE)
    version = "unknown" if found is None else found[1]
    if version.split(".")[:2] != RAY_VERSION.split(".")[:2]:
        raise ImportError(
            f'Ray {version} is installed, and its libraries run on mray in version {_demand()} only: pip install "mray[libraries]"',
            name="ray",
        )
    _folder = folder
    wanted = True
    # Otherwise an actor and a thread that asks a web server would collect usage statistics.
    settings.propose_to_library("RAY_USAGE_STATS_ENABLED", "0")
    bundled = folder / "thirdparty_files"
    if bundled.is_dir() and str(bundled) not in sys.path:
        sys.path.append(str(bundled))


def _demand() -> str:
    return ".".join((*RAY_VERSION.split(".")[:2], "*"))


def find(name: str) -> ModuleSpec | None:
    assert _folder is not None
    spec = PathFinder.find_spec(name, [str(_folder.joinpath(*name.split(".")[1:-1]))])
    if spec is not None and spec.loader is not None and (spec.submodule_search_locations is not None or ray_names.is_module(name)):
        spec.loader = _OwnFileLoader(spec.loader)
    return spec


class _OwnFileLoader(Loader):
    """Loads a package of Ray whose submodules are attributes of it without having been imported, or a module of its core from Ray's own
    file.

    A file of the core may need what mray does not have, or packages that are not installed: the names that it has not reached exist all
    the same, and raise when they are used.
    """

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        reason = INTERNAL
        if ".".join(module.__name__.split(".")[:2]) in head_start.LIBRARIES:
            with head_start.beside(module.__name__):
                self._loader.exec_module(module)
        else:
            try:
                self._loader.exec_module(module)
            except (ImportError, AttributeError) as error:
                if not ray_names.is_module(module.__name__):
                    raise
                reason = f"Ray's own file of it does not work with mray here ({error})"
        own = vars(module).get("__getattr__")

        def find_attribute(name: str) -> Any:
            if own is not None:
                try:
                    return own(name)
                except AttributeError:
                    pass
            if "__path__" in vars(module):
                try:
                    return importlib.import_module(f"{module.__name__}.{name}")
                except ModuleNotFoundError:
                    pass
            if name in ray_names.forms(module.__name__):
                return ray_names.value_of(module.__name__, name, reason)
            raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}", name=name)

        vars(module)["__getattr__"] = find_attribute
