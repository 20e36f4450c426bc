"""The API reference: Markdown from the names, signatures and docstrings of the public modules, generated when the page ``reference`` is
read. Modules of optional packages are left out where these are not installed.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any

MODULES = (
    "mray",
    "mray.runtime_context",
    "mray.dag",
    "mray.experimental.collective",
    "mray.experimental.channel",
    "mray.util",
    "mray.util.queue",
    "mray.util.executor",
    "mray.util.multiprocessing",
    "mray.util.shared",
    "mray.util.placement_group",
    "mray.util.scheduling_strategies",
    "mray.util.collective",
    "mray.util.metrics",
    "mray.util.state",
    "mray.util.testing",
    "mray.util.interleavings",
    "mray.proxy",
    "mray.exceptions",
)
#: terms of a docstring, each with its indented meaning
_TERM = re.compile(r"^(`[^\n]+`)\n((?: {4}[^\n]+\n?)+)", re.MULTILINE)
#: code blocks
_PROGRAM = re.compile(r"::\n\n((?: {4}[^\n]*\n|\n)+)")


def text() -> str:
    """A section for each module."""
    return "\n".join(line for name in MODULES for line in _module(importlib.import_module(name)))


def _module(module: ModuleType) -> Iterator[str]:
    yield f"\n## {module.__name__}\n"
    yield _markdown(module)
    for name in sorted(_exported(module), key=str.lower):
        value = getattr(module, name)
        if inspect.isclass(value) or callable(value):
            yield from _entry(name, value)


def _exported(module: ModuleType) -> list[str]:
    """The names in ``__all__``, or else the classes and functions that the module itself defines."""
    own = [name for name, value in vars(module).items() if name[0] != "_" and getattr(value, "__module__", None) == module.__name__]
    names: list[str] = getattr(module, "__all__", own)
    return names


def _entry(name: str, value: Any) -> Iterator[str]:
    yield f"\n**`{name}{_signature(value)}`**\n"
    yield _markdown(value)
    if inspect.isclass(value):
        for method, function in vars(value).items():
            function = getattr(function, "__func__", function)
            if method[0] != "_" and inspect.isfunction(function) and function.__doc__:
                yield f"\n`{name}.{method}{_signature(function)}`\n"
                yield _markdown(function)


def _signature(value: Any) -> str:
    if inspect.isclass(value) and issubclass(value, BaseException):
        return ""
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return ""
    parameters = [each.replace(annotation=inspect.Parameter.empty) for each in signature.parameters.values() if each.name != "self"]
    return str(signature.replace(parameters=parameters, return_annotation=inspect.Signature.empty))


def _markdown(value: Any) -> str:
    """Terms become list items, code blocks fenced ones. Empty for a class without a docstring of its own."""
    written = inspect.getdoc(value) or ""
    if inspect.isclass(value) and "__doc__" not in vars(value):
        return ""
    written = written.replace("``", "`") + "\n"
    written = _PROGRAM.sub(lambda found: ":\n\n```python\n" + inspect.cleandoc("\n" + found[1]) + "\n```\n\n", written)
    return _TERM.sub(lambda found: f"* {found[1]}: {' '.join(found[2].split())}\n", written)
