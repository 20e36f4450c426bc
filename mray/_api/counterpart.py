"""Ray's own module in the place of one of mray's, where real Ray is the engine.

Modules that use mray's own processes (collectives, listings, metrics) ask Ray there.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from mray._api.current import backend_if_started

P = ParamSpec("P")
R = TypeVar("R")


def counterpart_of(module: str) -> Any:
    """Ray's module for ``mray.<module>`` where Ray is the engine; else None."""
    backend = backend_if_started()
    return None if backend is None else backend.counterpart(module)


def asked_of_ray(module: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorates a function of ``mray.<module>``: where Ray is the engine, Ray's function of that name is called."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            counterpart = counterpart_of(module)
            if counterpart is None:
                return function(*args, **kwargs)
            answer: R = getattr(counterpart, function.__name__)(*args, **kwargs)
            return answer

        return call

    return decorate
