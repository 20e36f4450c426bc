"""Decorators that declare how stable a name is, for libraries that mark their own API with Ray's.

They add a paragraph to the docstring and set the kind on the object.
"""

from __future__ import annotations

import functools
import inspect
import sys
import warnings
from collections.abc import Callable
from enum import Enum
from typing import Any

__all__ = ["AnnotationType", "Deprecated", "DeveloperAPI", "PublicAPI", "RayDeprecationWarning"]

_DEPRECATED = "This API is deprecated and may be removed in a future release."


class AnnotationType(Enum):
    """The mark of an object."""

    PUBLIC_API = "PublicAPI"
    DEVELOPER_API = "DeveloperAPI"
    DEPRECATED = "Deprecated"
    UNKNOWN = "Unknown"


class RayDeprecationWarning(DeprecationWarning):
    """Something marked with `Deprecated` is used."""


if not sys.warnoptions:
    # Shown once per module; Python shows a plain `DeprecationWarning` in ``__main__`` only.
    warnings.filterwarnings("module", category=RayDeprecationWarning)


def PublicAPI(*args: Any, stability: str = "stable", api_group: str = "Others") -> Any:  # noqa: N802  (Ray's name)
    """Mark a class or function that users may rely on: ``stability`` is "stable", "beta" or "alpha"."""
    assert stability in ("stable", "beta", "alpha"), stability

    def mark(marked: Any) -> Any:
        if stability != "stable":
            _say(marked, f"**PublicAPI ({stability}):** This API is in {stability} and may change before becoming stable.")
        return _note(marked, AnnotationType.PUBLIC_API, api_group)

    return mark(args[0]) if args else mark


def DeveloperAPI(*args: Any) -> Any:  # noqa: N802  (Ray's name)
    """Mark a class or function for authors of libraries; it may change in a minor release."""

    def mark(marked: Any) -> Any:
        _say(marked, "**DeveloperAPI:** This API may change across minor releases.")
        return _note(marked, AnnotationType.DEVELOPER_API, "Others")

    return mark(args[0]) if args else mark


def Deprecated(*args: Any, message: str | None = None, warning: bool = False) -> Any:  # noqa: N802  (Ray's name)
    """Mark a class or function that will be removed; `message` names the replacement, and with `warning` each use warns."""

    def mark(marked: Any) -> Any:
        text = _DEPRECATED if message is None else f"{_DEPRECATED}\n{message}"
        _say(marked, f"**DEPRECATED:** {text}")
        return _note(_warning_of(marked, text) if warning else marked, AnnotationType.DEPRECATED, "Others")

    return mark(args[0]) if args else mark


def _warning_of(marked: Any, text: str) -> Any:
    """The object, wrapped to warn when used."""
    called: Callable[..., Any] = marked.__init__ if inspect.isclass(marked) else marked

    @functools.wraps(called)
    def warn(*args: Any, **kwargs: Any) -> Any:
        warnings.warn(text, RayDeprecationWarning, stacklevel=2)
        return called(*args, **kwargs)

    if not inspect.isclass(marked):
        return warn
    marked.__init__ = warn  # type: ignore[method-assign]
    return marked


def _say(marked: Any, message: str) -> None:
    marked.__doc__ = f"{inspect.cleandoc(marked.__doc__ or '')}\n\n{message}\n".lstrip("\n")


def _note(marked: Any, kind: AnnotationType, group: str) -> Any:
    if hasattr(marked, "__name__"):
        marked._annotated, marked._annotated_type, marked._annotated_api_group = marked.__name__, kind, group  # noqa: SLF001  (Ray's marks)
    return marked
