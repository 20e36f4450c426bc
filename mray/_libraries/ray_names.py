"""The names that Ray has, module by module, and the constants among them: ``ray_names.txt``, which `tools/names` writes.

The file is read on the first use of a name that `names` does not have. A module's block is its name and indented lines, each of one
form:

===========================  ================================================================================
``names A B``                functions, classes and others, of which mray has only the names
``from M:A,B=C N``           names of other modules, and modules; ``B=C`` is C of M by the name B
``= A 5``                    a constant
``$ A VARIABLE int 5``       a constant from an environment variable, its type, and its default
``logger A ray.x``           a logger
``tuple A x y``              a named tuple and its fields
``enum A str {'X': 'x'}``    an enumeration, the base type of its members, and these
===========================  ================================================================================
"""

from __future__ import annotations

import importlib
import logging
import re
from ast import literal_eval
from collections import namedtuple
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from mray._common import settings
from mray._libraries.absent import NotInMrayError, make_absent

FILE = Path(__file__).with_suffix(".txt")


@cache
def _text() -> str:
    return "\n" + FILE.read_text()


def is_module(module: str) -> bool:
    return f"\n{module}\n" in _text()


def is_package(module: str) -> bool:
    return f"\n{module}." in _text()


def below(package: str) -> set[str]:
    return set(re.findall(rf"^{re.escape(package)}\.(\w+)", _text(), re.MULTILINE))


@cache
def forms(module: str) -> Mapping[str, tuple[str, str]]:
    """Each name of a module -> its form, and the rest of its line."""
    _before, _name, after = _text().partition(f"\n{module}\n")
    found: dict[str, tuple[str, str]] = {}
    for line in after.split("\n"):
        if not line.startswith(" "):
            break
        form, _blank, rest = line[1:].partition(" ")
        if form == "names":
            found.update(dict.fromkeys(rest.split(), (form, "")))
        elif form == "from":
            found.update((name, (form, place)) for each in rest.split() for name, place in _imported(each))
        else:
            name, _blank, rest = rest.partition(" ")
            found[name] = form, rest
    return found


def _imported(text: str) -> list[tuple[str, str]]:
    if ":" not in text:
        ours, _equals, module = text.rpartition("=")
        return [(ours or module, module)]
    module, _colon, names = text.partition(":")
    pairs = (each.partition("=") for each in names.split(","))
    return [(ours, f"{module}:{theirs or ours}") for ours, _equals, theirs in pairs]


@cache
def value_of(module: str, name: str, reason: str) -> Any:
    """The value as far as the name's form defines it; else a stand-in that raises with this reason when it is used."""
    form, rest = forms(module)[name]
    if form == "from":
        try:
            return target(rest)
        except (ImportError, AttributeError):  # of a package that is not installed
            form = "names"
    return make_absent(module, name, reason) if form == "names" else _make(module, name, form, rest)


def target(text: str) -> Any:
    """``module`` or ``module:attribute``."""
    module, colon, name = text.partition(":")
    found = load(module)
    return getattr(found, name) if colon else found


def load(module: str) -> ModuleType:
    """Import a module, its packages first.

    Python takes the lock of the module before those of its packages, so two threads that import them in different orders may wait for
    each other.
    """
    for end in (at for at, each in enumerate(module) if each == "."):
        importlib.import_module(module[:end])
    return importlib.import_module(module)


class _Enumeration(Enum):
    """Only the members are mray's."""

    def __getattr__(self, name: str) -> NoReturn:
        raise NotInMrayError(f"{type(self).__module__}.{type(self).__name__}.{name} is not in mray, which has the members alone")


def _make(module: str, name: str, form: str, rest: str) -> Any:
    if form == "=":
        return literal_eval(rest)
    if form == "logger":
        return logging.getLogger(rest)
    if form == "tuple":
        return namedtuple(name, rest.split(), module=module)
    if form == "enum":
        kind, _blank, members = rest.partition(" ")
        base = {"str": str, "int": int}.get(kind)
        make: Any = _Enumeration
        return make(name, literal_eval(members), module=module, type=base)
    variable, kind, default = rest.split(" ", 2)
    text = settings.of_library(variable)
    return literal_eval(default) if text is None else _READ[kind](text)


_READ: dict[str, Callable[[str], Any]] = {"int": int, "float": float, "str": str, "bool": lambda text: text.lower() in ("1", "true")}
