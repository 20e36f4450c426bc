"""mray behind the name ``ray``, and `mray.proxy` behind ``ray_proxy``: an import hook.

Runs in the driver of ``mray run`` and in each of its workers. ``ray`` and ``ray.a.b`` become second names in
``sys.modules`` of the very modules ``mray`` and ``mray.a.b``, so that a class has one identity however it was
imported, and what is pickled names mray. A module that mray lacks raises `ModuleNotFoundError` that says so, even when
the real Ray is installed: half of each would fail later and in stranger ways.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

ALIAS = "ray"
OURS = "mray"
#: What stands for which package of mray.
ALIASES = {ALIAS: OURS, "ray_proxy": "mray.proxy"}


class MissingModuleError(ModuleNotFoundError):
    """A part of Ray that mray does not have."""

    def __init__(self, name: str) -> None:
        super().__init__(f"No module named {name!r}: this part of Ray is not in mray", name=name)


class _AliasLoader(Loader):
    """Puts the module of mray in the place that the import system made for the alias."""

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        # The import system hands out what it finds here after `exec_module`. Returning the module from `create_module`
        # instead would overwrite its `__spec__` with the alias's.
        sys.modules[module.__name__] = importlib.import_module(_ours(module.__name__))


class AliasFinder(MetaPathFinder):
    """Finds the aliases and everything below them. Stands first, before an installed Ray is found."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname.partition(".")[0] not in ALIASES:
            return None
        if importlib.util.find_spec(_ours(fullname)) is None:
            raise MissingModuleError(fullname)
        return ModuleSpec(fullname, _AliasLoader(), origin=OURS)


class LackFinder(MetaPathFinder):
    """Names what is missing in ``from ray import tune``. Stands last: it is asked only for what does not exist.

    The import system looks for ``mray.tune`` then, and ignores a `ModuleNotFoundError` for exactly that name; the error
    raised here carries the name that the user wrote.
    """

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        if fullname.startswith(f"{OURS}."):
            raise MissingModuleError(ALIAS + fullname[len(OURS) :])


def _ours(fullname: str) -> str:
    alias, dot, rest = fullname.partition(".")
    return ALIASES[alias] + dot + rest


def install() -> None:
    """Install the hook in this process. Doing it twice is doing it once.

    Raises `ImportError` when the real Ray is imported already: its classes cannot be taken back.
    """
    present = sys.modules.get(ALIAS)
    if present is not None and present.__name__ != OURS:
        raise ImportError(f"the package {ALIAS!r} is imported already, from {getattr(present, '__file__', 'somewhere')}", name=ALIAS)
    if not any(isinstance(finder, AliasFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, AliasFinder())
        sys.meta_path.append(LackFinder())
