"""The modules named ``ray``, and the finder that the import system asks for them.

Any thread may import and read. A facade is filled from its module of mray when it is loaded; names that would load more are found on
first use, and cached.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any

from mray._api.log_handlers import use_rays_logger
from mray._common import settings
from mray._common.version import RAY_COMMIT
from mray._common.whose_code import is_in_site_packages
from mray._libraries import installed, launch_hooks, library_names, ray_names
from mray._libraries.absent import Absent, NotInMrayImportError, make_absent
from mray._libraries.names import INTERNAL, LIBRARY, MODULES, RAY, Lack, Stand
from mray._libraries.ray_names import load, target

if TYPE_CHECKING:
    from importlib.metadata import Distribution, DistributionFinder

OURS = "mray"
#: packages by other names that are wholly mray's
ROOTS = {RAY: OURS, "ray_proxy": "mray.proxy"}
#: modules that only mray has
NOT_RAYS = frozenset({"as_ray", "cli", "examples", "libraries", "proxy", "pytest_plugin", "testing"})
#: The prefix of an entry of a facade's ``__path__``, which is no path of the file system.
_PLACE = "mray as "
_OF_RAY = {"__version__": settings.AS_VERSION.get(), "__commit__": RAY_COMMIT}


class Facade(ModuleType):
    def __getattr__(self, name: str) -> Any:
        own = vars(self)
        stand = _stand(self.__name__)
        if name == "__all__" and isinstance(stand, Stand):
            return sorted(each for each in names_of(self.__name__, stand) if not each.startswith("_"))
        if name in own.get("_removed", ()):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}", name=name)
        changing: dict[str, ModuleType] = own.get("_changing", {})
        if name in changing:
            return getattr(changing[name], name)
        value = _find(self.__name__, name)
        if isinstance(value, Absent) and isinstance(stand, Stand) and stand.reason == LIBRARY:
            _warn_importer(value)
        elif not _changes(self.__name__, name):
            own[name] = value
        elif not isinstance(value, ModuleType) and value is getattr(source := _source(self.__name__), name, None):
            # Cached, since Ray's libraries read some of them in their innermost loops.
            own["_changing"] = {**changing, name: source}
        return value

    def __setattr__(self, name: str, value: object) -> None:
        # The import system sets each submodule in its package. Where Ray has a function of that name, the function stays.
        found = sys.modules.get(f"{self.__name__}.{name}")
        if found is not None and value is found and not isinstance(getattr(self, name, value), ModuleType):
            return
        vars(self).get("_removed", set()).discard(name)
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        getattr(self, name)
        vars(self).pop(name, None)
        vars(self).setdefault("_removed", set()).add(name)  # or it would be found again

    def __dir__(self) -> Iterable[str]:
        stand = _stand(self.__name__)
        return sorted({*vars(self), *(names_of(self.__name__, stand) if isinstance(stand, Stand) else ()), *ray_names.forms(self.__name__)})

    def __reduce__(self) -> tuple[Callable[[str], ModuleType], tuple[str]]:
        return load_facade, (self.__name__,)


def _warn_importer(name: Absent) -> None:
    """Warn a program that imports a name of a library by ``from``: the import succeeds for packages that only annotate with such names."""
    at = sys._getframe(2)
    if at.f_globals.get("__name__") != "importlib._bootstrap":
        return
    while at.f_back is not None and at.f_globals.get("__name__") == "importlib._bootstrap":
        at = at.f_back
    if not is_in_site_packages(at.f_code.co_filename):
        warnings.warn(f"{name.__doc__}. The import succeeds, its use raises an error.", stacklevel=3)


def load_facade(name: str) -> ModuleType:
    """Unpickle a facade; in a process without facades mray's own module."""
    return load(name if is_installed() else ours_of(name))


def names_of(name: str, stand: Stand) -> set[str]:
    """A module's names without those that Ray itself imports there, and the submodules."""
    ours = _public_names(load(stand.ours)) if stand.ours else set()
    return {*ours, *stand.also, *stand.absent, *(each for each, (form, _rest) in ray_names.forms(name).items() if form != "from")}


def _public_names(ours: ModuleType) -> set[str]:
    names = getattr(ours, "__all__", None)
    return {name for name in vars(ours) if not name.startswith("_")} if names is None else set(names)


def ours_of(name: str) -> str:
    root, dot, rest = name.partition(".")
    return ROOTS[root] + dot + rest


def _is_ours(name: str) -> bool:
    root, _dot, rest = name.partition(".")
    if any(part.startswith("_") for part in name.split(".")) or (root == RAY and rest.partition(".")[0] in NOT_RAYS):
        return False
    return _find_ours(ours_of(name)) is not None


def _find_ours(name: str) -> ModuleSpec | None:
    """Find a module of mray without importing its packages.

    The import system holds its one lock while it asks a finder. A thread that imported there would wait for a module that another thread
    loads, and that thread for the lock.
    """
    spec = sys.modules[OURS].__spec__
    at, *rest = name.split(".")
    for part in rest:
        if spec is None or spec.submodule_search_locations is None:
            return None
        at += f".{part}"
        spec = PathFinder.find_spec(at, spec.submodule_search_locations)
    return spec


def _stand(name: str) -> Stand | Lack | None:
    """None if there is none, or it is Ray's own file."""
    if installed.wanted:
        if name in library_names.CORE:
            return library_names.CORE[name]
        if library_names.is_rays(name):
            return None
    found = MODULES.get(name)
    if found is None and _is_ours(name):
        return Stand(ours_of(name))
    parent = name
    while found is None and "." in parent:  # everything below a lacking module lacks
        parent = parent.rpartition(".")[0]
        above = MODULES.get(parent)
        found = above if isinstance(above, Lack) else None
        if above is not None and above.reason == LIBRARY and not installed.wanted:
            found = Lack(LIBRARY)
    if (found.mentioned if isinstance(found, Lack) else found is None and not installed.wanted) and ray_names.is_module(name):
        return Stand(reason=INTERNAL if found is None else found.reason, private=True)
    return None if isinstance(found, Lack) and found.mentioned else found


def _find(module: str, name: str) -> Any:
    """Raises AttributeError for an unknown name."""
    stand = _stand(module)
    if isinstance(stand, Stand) and not name.startswith("__"):
        if name in stand.also:
            return target(stand.also[name])
        if name in stand.absent:
            return make_absent(module, name, stand.absent[name])
        ours = load(stand.ours) if stand.ours and (not name.startswith("_") or stand.private) else None
        value = getattr(ours, name, None)
        below = _stand(f"{module}.{name}")
        # Where Ray has a function and a module of one name, the function is the attribute.
        if isinstance(below, Stand) and (value is None or isinstance(value, ModuleType)):
            return load(f"{module}.{name}")
        if hasattr(ours, name) and not isinstance(below, Lack):
            return _face_of(value) if isinstance(value, ModuleType) else value
        if name in ray_names.forms(module):
            return ray_names.value_of(module, name, stand.reason)
        if isinstance(below, Lack) and not installed.wanted:
            raise AttributeError(f"module {module!r} has no attribute {name!r}: this part of Ray is not in mray; {below.reason}", name=name)
    if installed.wanted and library_names.is_rays(f"{module}.{name}") and installed.find(f"{module}.{name}") is not None:
        return load(f"{module}.{name}")
    raise AttributeError(f"module {module!r} has no attribute {name!r}", name=name)


def _changes(module: str, name: str) -> bool:
    """Whether a name is looked up at each use."""
    stand = _stand(module)
    if not (isinstance(stand, Stand) and stand.private and stand.ours):
        return False
    ours = load(stand.ours)
    return name not in vars(ours) and hasattr(ours, name)


def _source(module: str) -> ModuleType:
    stand = _stand(module)
    assert isinstance(stand, Stand)
    return load(stand.ours)


def _face_of(module: ModuleType) -> ModuleType:
    package, dot, rest = module.__name__.partition(".")
    return load(RAY + dot + rest) if package == OURS else module


class _FacadeLoader(Loader):
    """Fills a facade, whatever created it: a lazy loader creates the module itself."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return Facade(spec.name)

    def get_code(self, name: str) -> CodeType | None:
        """For ``python -m``: the code of the module of mray."""
        stand = _stand(name)
        spec = _find_ours(stand.ours) if isinstance(stand, Stand) and stand.ours else None
        get_code: Callable[[str], CodeType | None] | None = getattr(None if spec is None else spec.loader, "get_code", None)
        return None if spec is None or get_code is None else get_code(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        module.__class__ = Facade
        name = module.__name__
        stand = _stand(name)
        assert isinstance(stand, Stand)
        own = vars(module)
        if stand.ours:
            ours = load(stand.ours)
            taken = _public_names(ours) - {*stand.also, *stand.absent}
            own.update((each, vars(ours)[each]) for each in taken if not isinstance(vars(ours).get(each, ours), ModuleType))
            own.update(__doc__=ours.__doc__, __file__=ours.__file__)
        else:
            own["__file__"] = str(ray_names.FILE)
        own.update(_OF_RAY if name == RAY else {})


class _LackLoader(Loader):
    def __init__(self, reason: str) -> None:
        self._reason = reason

    def create_module(self, spec: ModuleSpec) -> None:
        raise NotInMrayImportError(spec.name, self._reason)

    def exec_module(self, module: ModuleType) -> None:
        """Not called: `create_module` raises."""


class FacadeFinder(MetaPathFinder):
    """Finds the packages of `ROOTS`. The first finder, before an installed Ray is found."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname.partition(".")[0] not in ROOTS:
            return None
        stand = _stand(fullname)
        if stand is None:
            return installed.find(fullname) if installed.wanted else None
        if isinstance(stand, Lack):
            return ModuleSpec(fullname, _LackLoader(stand.reason), origin=OURS)
        spec = ModuleSpec(fullname, _FacadeLoader(), origin=OURS, is_package=_is_package(fullname, stand))
        if spec.submodule_search_locations is not None:
            spec.submodule_search_locations.append(_PLACE + fullname)
        return spec

    def find_distributions(self, context: DistributionFinder.Context | None = None) -> Iterable[Distribution]:
        """For `importlib.metadata`."""
        if context is not None and ("path" in vars(context) or (context.name or RAY).lower() != RAY):
            return []
        from mray._libraries.as_installed import InstalledRay  # noqa: PLC0415  (the caller has already imported what it imports)

        return [InstalledRay()]


def _is_package(name: str, stand: Stand) -> bool:
    if stand.reason == LIBRARY or any(each.startswith(f"{name}.") for each in MODULES):
        return True
    if not stand.ours or stand.private:
        return ray_names.is_package(name)
    root = stand.ours.partition(".")[0]
    if root == RAY:
        behind = _stand(stand.ours)
        return isinstance(behind, Stand) and _is_package(stand.ours, behind)
    spec = _find_ours(stand.ours) if root == OURS else None
    return spec is not None and spec.submodule_search_locations is not None


class _PlaceFinder:
    """The importer of an entry of a facade's ``__path__``: finds nothing, but lets `pkgutil` list the modules."""

    def __init__(self, entry: str) -> None:
        if not entry.startswith(_PLACE):
            raise ImportError(f"{entry} is no place of a facade")
        self._package = entry.removeprefix(_PLACE)

    def find_spec(self, fullname: str, target: ModuleType | None = None) -> None:
        return None

    def iter_modules(self, prefix: str = "") -> Iterator[tuple[str, bool]]:
        import pkgutil  # noqa: PLC0415  (who asks is pkgutil)

        above = f"{self._package}."
        stand = _stand(self._package)
        names = {each.removeprefix(above).partition(".")[0] for each in MODULES if each.startswith(above)} | ray_names.below(self._package)
        if isinstance(stand, Stand) and stand.ours.partition(".")[0] == OURS:
            names.update(each.name for each in pkgutil.iter_modules(getattr(load(stand.ours), "__path__", ())))
        for name in sorted(names):
            found = _stand(above + name)
            if isinstance(found, Stand):
                yield prefix + name, _is_package(above + name, found)


def install() -> None:
    """Make ``import ray`` mean mray in this process. Idempotent.

    Raises `ImportError` when the real Ray is imported already: its classes cannot be taken back.
    """
    present = sys.modules.get(RAY)
    # A lazy loader has put its own kind of module there; its spec is the facade's.
    if present is not None and not isinstance(getattr(present.__spec__, "loader", None), _FacadeLoader):
        raise ImportError(f"the package {RAY!r} is imported already, from {getattr(present, '__file__', 'somewhere')}", name=RAY)
    if not is_installed():
        sys.meta_path.insert(0, FacadeFinder())
        sys.path_hooks.append(_PlaceFinder)
        use_rays_logger()
        launch_hooks.install()


def is_installed() -> bool:
    return any(isinstance(finder, FacadeFinder) for finder in sys.meta_path)
