"""Print, as JSON, the public modules of the package ``ray`` in this process, whoever is behind it, with names and signatures.

Run by `test_names`: with ``mray`` as its argument it asks for the modules that are given on standard input, by a facade.
"""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
import sys
import typing
import warnings
from types import ModuleType
from typing import Any

# As where Ray's core alone is installed: with pydantic a record of its state API has pydantic's methods.
sys.modules["pydantic"] = None  # type: ignore[assignment]

#: Packages that are libraries, generated, or no business of programs.
NOT_CORE = {"setup-dev", "thirdparty_files", "jars", "scripts", "includes"}
#: Below these nobody looks: the table names them whole.
CLOSED = {
    *("data", "tune", "train", "rllib", "serve", "llm", "air", "workflow"),
    *("dashboard", "autoscaler", "core", "job_submission", "widgets"),
}
#: A program, which asks for a server for half a minute as it is imported.
PROGRAM = "ray.util.client.client_app"


def public_modules(ray: ModuleType) -> list[str]:
    """All, by what lies in the package's folders."""
    found = ["ray"]
    folders = [(list(ray.__path__), "ray.")]
    while folders:
        path, prefix = folders.pop()
        for entry in pkgutil.iter_modules(path, prefix):
            words = entry.name.split(".")[1:]
            if words[0] in NOT_CORE or any(word.startswith("_") or word == "conftest" for word in words):
                continue
            found.append(entry.name)
            if entry.ispkg and words[0] not in CLOSED:
                folders.append(([f"{path[0]}/{words[-1]}"], f"{entry.name}."))
    return sorted(found)


def is_own(module: ModuleType, name: str, value: Any) -> bool:
    """Whether a name belongs to a module, rather than being something that its code has imported."""
    if name.startswith("_") or isinstance(value, (ModuleType, typing.TypeVar)) or name == "TYPE_CHECKING":
        return False
    if name in getattr(module, "__all__", ()):
        return True
    home = str(getattr(value, "__module__", ""))
    if inspect.isclass(value) or inspect.isroutine(value):
        return home == module.__name__ or (home.startswith("ray") and hasattr(module, "__path__"))
    return name.isupper()


def signature(value: Any) -> list[list[Any]] | None:
    """Names, kinds and defaults of the parameters; None where Python cannot tell."""
    try:
        parameters = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        return None
    return [[each.name, each.kind.name, default(each)] for each in parameters]


def default(parameter: inspect.Parameter) -> str | None:
    """As text that is the same in every process; None where there is none."""
    value = parameter.default
    if value is parameter.empty:
        return None
    return type(value).__name__ if callable(value) else repr(value)


def describe(value: Any) -> dict[str, Any]:
    """The signatures of a function, or of a class and its public methods."""
    if not callable(value):
        return {}
    found = {"": signature(value)}
    if inspect.isclass(value) and not issubclass(value, BaseException):
        methods = {name: getattr(value, name, None) for name in dir(value) if not name.startswith("_") and not hasattr(object, name)}
        found |= {name: signature(method) for name, method in methods.items() if callable(method)}
    return found


def of_ray() -> dict[str, Any]:
    """Module to names to signatures; None for modules that need what is not installed, or a server."""
    found: dict[str, Any] = {}
    for name in public_modules(importlib.import_module("ray")):
        words = name.split(".")
        if (len(words) > 1 and words[1] in CLOSED) or name == PROGRAM:
            found[name] = None
            continue
        try:
            module = importlib.import_module(name)
        except Exception:
            found[name] = None
            continue
        values = {each: getattr(module, each) for each in dir(module) if hasattr(module, each)}
        found[name] = {each: describe(value) for each, value in values.items() if is_own(module, each, value)}
    return found


def of_mray(wanted: dict[str, list[str]]) -> dict[str, Any]:
    """The same of facades, for these modules and names: a text for what is lacking."""
    importlib.import_module("mray.as_ray")
    from mray._libraries.absent import Absent

    found: dict[str, Any] = {}
    for name, names in wanted.items():
        try:
            module = importlib.import_module(name)
        except ImportError as error:
            found[name] = str(error)
            continue
        found[name] = {}
        for each in names:
            if hasattr(module, each):
                value = getattr(module, each)
                found[name][each] = str(value.__doc__) if isinstance(value, Absent) else describe(value)
    return found


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print(json.dumps(of_mray(json.load(sys.stdin)) if sys.argv[1:] == ["mray"] else of_ray()))
