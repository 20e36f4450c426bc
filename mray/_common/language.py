"""Languages of workers, of which there is one."""

from __future__ import annotations

from typing import Any, ClassVar


class Language:
    """Ray's numbers of worker languages."""

    PYTHON: ClassVar[Language]
    JAVA: ClassVar[Language]
    CPP: ClassVar[Language]

    def __init__(self, name: str, number: int) -> None:
        self._name = name
        self._number = number

    def value(self) -> int:
        return self._number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Language) and self._number == other._number

    def __hash__(self) -> int:
        return self._number

    def __repr__(self) -> str:
        return self._name


Language.PYTHON = Language("PYTHON", 0)
Language.JAVA = Language("JAVA", 1)
Language.CPP = Language("CPP", 2)


def java_function(class_name: str, function_name: str) -> Any:
    """Raise NotImplementedError."""
    raise NotImplementedError("java_function() needs workers in Java; mray's are Python.")


def java_actor_class(class_name: str) -> Any:
    """Raise NotImplementedError."""
    raise NotImplementedError("java_actor_class() needs workers in Java; mray's are Python.")
