"""Stand-ins for names of Ray that mray does not have.

Programs import more names than they use, write them into annotations, and check whether a value is of some class. All of that works.
Calling such a name, or reading an attribute of it, raises an error that says why it is missing.
"""

from __future__ import annotations

from abc import ABCMeta
from typing import Any, NoReturn


class NotInMrayError(NotImplementedError, AttributeError):
    """A part of Ray that mray does not have was used."""


class NotInMrayImportError(ImportError):
    """A module of Ray that mray does not have was imported."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"No module named {name!r}: this part of Ray is not in mray; {reason}", name=name)


class Absent(ABCMeta):
    """The metaclass of absent names: classes, so that `isinstance`, annotations and subclassing accept them."""

    _says: str

    def __call__(cls, *_arguments: Any, **_options: Any) -> NoReturn:
        raise NotInMrayError(cls._says)

    __iter__ = __contains__ = __enter__ = __exit__ = __lt__ = __call__

    def __getitem__(cls, _parameters: object) -> Absent:
        return cls  # of an annotation

    def __getattr__(cls, name: str) -> NoReturn:
        raise NotInMrayError(f"{cls._says} (its attribute {name!r} was asked for)")


def make_absent(module: str, name: str, reason: str) -> Absent:
    # A program must be able to catch it.
    bases = (Exception,) if name.endswith(("Error", "Exception")) else ()
    says = f"{module}.{name} is not in mray: {reason}"
    return Absent(name, bases, {"__module__": module, "__doc__": says, "_says": says})
