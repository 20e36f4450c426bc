"""mray behind the name ``ray``, and `mray.proxy` behind ``ray_proxy``: an import hook.

Runs in the driver of ``mray run`` and in each of its workers. ``ray`` and ``ray.a.b`` become second names in
``sys.modules`` of the very modules ``mray`` and ``mray.a.b``, so that a class has one identity however it was
imported, and what is pickled names mray. The topmost alone is a module of its own, because it has a version of its own: programs ask
whether their Ray is new enough, and so does whoever looks for the installed package of that name.

A module that mray lacks raises `ModuleNotFoundError` that says so, even when the real Ray is installed: half of each would fail later and
in stranger ways.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING

from mray._common.version import RAY_VERSION

if TYPE_CHECKING:
    from importlib.metadata import Distribution, DistributionFinder

ALIAS = "ray"
OURS = "mray"
#: What stands for which package of mray.
ALIASES = {ALIAS: OURS, "ray_proxy": "mray.proxy"}


class MissingModuleError(ModuleNotFoundError):
    """A part of Ray that mray does not have."""

    def __init__(self, name: str) -> None:
        super().__init__(f"No module named {name!r}: this part of Ray is not in mray", name=name)


class _Face(ModuleType):
    """The package under one of its two names. What is set under one is there under both, the version apart.

    Each has all of it in a dictionary of its own, so that reading costs what it costs in any module.
    """

    @classmethod
    def beside(cls, ours: ModuleType) -> _Face:
        """What has the name ``ray`` while `ours` has that of mray."""
        face = cls(OURS)
        vars(face).update(vars(ours), __version__=RAY_VERSION)
        ours.__class__ = cls
        return face

    def __setattr__(self, name: str, value: object) -> None:
        for face in self._faces(name):
            vars(face)[name] = value

    def __delattr__(self, name: str) -> None:
        ModuleType.__delattr__(self, name)
        for face in self._faces(name):
            vars(face).pop(name, None)

    def _faces(self, name: str) -> list[ModuleType]:
        both = [sys.modules[each] for each in (OURS, ALIAS) if each in sys.modules]
        return [self] if name == "__version__" or self not in both else both

    def __reduce__(self) -> tuple[Callable[[str], ModuleType], tuple[str]]:
        return _face, (ALIAS if self is sys.modules.get(ALIAS) else OURS,)


def _face(name: str) -> ModuleType:
    """A pickled face; mray's where the alias is not installed."""
    return importlib.import_module(name if _is_installed() else OURS)


class _AliasLoader(Loader):
    """Puts the module of mray in the place that the import system made for the alias."""

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        # The import system hands out what it finds here after `exec_module`. Returning the module from `create_module`
        # instead would overwrite its `__spec__` with the alias's.
        ours = importlib.import_module(_ours(module.__name__))
        sys.modules[module.__name__] = _Face.beside(ours) if module.__name__ == ALIAS else ours


class AliasFinder(MetaPathFinder):
    """Finds the aliases and everything below them. Stands first, before an installed Ray is found."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname.partition(".")[0] not in ALIASES:
            return None
        if importlib.util.find_spec(_ours(fullname)) is None:
            raise MissingModuleError(fullname)
        return ModuleSpec(fullname, _AliasLoader(), origin=OURS)

    def find_distributions(self, context: DistributionFinder.Context | None = None) -> Iterable[Distribution]:
        """For `importlib.metadata`: the package ``ray``, as if it were installed."""
        if context is not None and ("path" in vars(context) or (context.name or ALIAS).lower() != ALIAS):
            return []
        from mray.cli.as_installed import InstalledRay  # noqa: PLC0415  (whoever asks has paid for what it imports)

        return [InstalledRay()]


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
    if not _is_installed():
        sys.meta_path.insert(0, AliasFinder())
        sys.meta_path.append(LackFinder())


def _is_installed() -> bool:
    return any(isinstance(finder, AliasFinder) for finder in sys.meta_path)
