"""Foreseen imports: heavy packages that the workers of a program's previous session imported.

::

    zygote   takes the note ─▶ imports its packages ─▶ hides the new modules from sys.modules
                 │ fork
    worker       └─ import torch ─▶ Foresight.find_spec: hidden? shown again, and noted
                                                         else imported as usual, and noted if that took long

A program can tell the difference, so `init(preload="auto")` must be requested: a package has read environment variables when the zygote
imported it. A package is not noted if a worker has changed its variables before the import.

The note is an empty file per package, which a worker creates and the next session's zygote removes: so a package that is no longer
imported is forgotten, and one that crashes the zygote is not retried.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from mray._common.clock import monotonic
from mray._common.kept import os
from mray._decide.scheduler.policy import READ_AT_IMPORT
from mray._runtime.processes.native_threads import VARIABLE, native_threads

#: Packages whose import is slow, leaves no thread and opens no device.
HEAVY = ("numpy", "pyarrow", "pandas", "scipy", "sklearn", "torch", "transformers")
#: Packages without compiled parts, and variables that they read at import: they are imported again if those have changed.
_PLAIN = dict.fromkeys(("huggingface_hub", "transformers"), ("HF_", "HUGGINGFACE_", "TRANSFORMERS_"))
#: Seconds; shorter imports are not noted.
LONG = 0.1


def note_of_program(folder: str) -> str:
    """The path prefix of the note of this process's program."""
    import hashlib  # noqa: PLC0415

    program = (os.path.abspath(sys.argv[0] if sys.argv else ""), sys.executable, sys.version, *sys.path)
    return os.path.join(folder, hashlib.sha256("\0".join(program).encode(errors="surrogateescape")).hexdigest()[:32])


def take_note(note: str) -> Iterator[str]:
    """Yield the noted packages, each removed from the note first."""
    for name in HEAVY:
        try:
            os.unlink(f"{note}.{name}")
        except OSError:
            continue
        yield name


def seed_anew(modules: Mapping[str, Any]) -> None:
    """Seed the modules' random numbers again: they were seeded once for all workers."""
    for owner in (modules.get("numpy.random"), getattr(modules.get("torch"), "default_generator", None)):
        if owner is not None:
            owner.seed()


def _newer(variables: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if variables.get(name) != value}


class Foresight:
    """The packages that a zygote has imported and hidden; the first entry of `sys.meta_path`."""

    def __init__(self, note: str) -> None:
        self._note = note
        #: Modules by full name, until the program imports one of their package.
        self._hidden: dict[str, Any] = {}
        #: Package -> the modules that its import loads.
        self._together: dict[str, tuple[str, ...]] = {}
        #: Package -> the variables that its import sets.
        self._set: dict[str, dict[str, str]] = {}
        self._zygote = os.getpid()
        #: The environment, including variables that imports have set in this process.
        self._environment = dict(os.environ)
        sys.meta_path.insert(0, self)

    def import_noted(self) -> None:
        """Import the noted packages. Failures are left to the program."""
        for name in take_note(self._note):
            before, variables = set(sys.modules), dict(os.environ)
            with contextlib.suppress(BaseException):
                importlib.import_module(name)
                own = tuple(each for each in sys.modules if each not in before and each.partition(".")[0] not in sys.stdlib_module_names)
                self._together[name] = own
                self._hidden.update({each: sys.modules.pop(each) for each in own})
            self._set[name] = _newer(variables)
            for each in self._set[name]:
                del os.environ[each]
            os.environ.update(variables)
            self._environment = variables

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """As the next finder that knows the module, with its import timed."""
        hidden = self._hidden.get(name)
        if hidden is not None and (package := name.partition(".")[0]) in _PLAIN and self._has_changed(package):
            hidden = None
        if hidden is None and name not in HEAVY:
            return None
        others = (finder.find_spec(name, path, target) for finder in tuple(sys.meta_path) if finder is not self)
        spec = next((each for each in others if each is not None), None)
        if spec is None or not hasattr(spec.loader, "exec_module"):
            return None
        own = getattr(hidden, "__spec__", None)
        loader: Any = spec.loader
        with contextlib.suppress(AttributeError):  # a loader that takes no attributes
            if hidden is not None and own is not None and own.origin == spec.origin:
                loader.create_module = lambda _spec: hidden
                loader.exec_module = lambda _module: self._show(name, hidden, own)
            elif name in HEAVY:
                loader.exec_module = lambda module: self._watch(name, loader, module)
        return spec

    def _show(self, name: str, module: Any, spec: ModuleSpec) -> None:
        module.__spec__ = spec
        is_to_be_noted = name in HEAVY and not self._has_changed(name)
        for variable, value in self._set.get(name, {}).items():
            self._environment[variable] = os.environ.setdefault(variable, value)
        package = name.partition(".")[0]
        own = self._together.get(name) or [each for each in self._hidden if each.partition(".")[0] == package]
        shown = {each: self._hidden.pop(each) for each in own if each in self._hidden}
        sys.modules.update(shown)
        if os.getpid() == self._zygote:
            return
        seed_anew(shown)
        native_threads.adopt()
        if is_to_be_noted:
            self._write(name)

    def _watch(self, name: str, loader: Any, module: ModuleType) -> None:
        del loader.exec_module
        is_to_be_noted = not self._has_changed(name) and os.getpid() != self._zygote
        threads, variables = set(sys._current_frames()), dict(os.environ)
        begin = monotonic()
        loader.exec_module(module)
        self._environment.update(_newer(variables))
        if is_to_be_noted and monotonic() - begin > LONG and not set(sys._current_frames()) - threads:
            self._write(name)

    def _write(self, name: str) -> None:
        with contextlib.suppress(OSError):
            os.close(os.open(f"{self._note}.{name}", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))

    def _has_changed(self, package: str) -> bool:
        late = READ_AT_IMPORT + _PLAIN.get(package, ())
        return any(
            os.environ.get(name) != self._environment.get(name)
            for name in {*os.environ, *self._environment}
            if name.startswith(late) and name != VARIABLE
        )
