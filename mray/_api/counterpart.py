"""Ray's own module in place of one of mray's, where real Ray runs behind.

In every process. Most of what users import stands on the verbs and so runs on any engine. Modules that stand on mray's own processes
instead (collectives, listings, metrics) ask Ray there: the backend knows how (`Backend.counterpart`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from mray._api.current import backend_if_started

P = ParamSpec("P")
R = TypeVar("R")


def counterpart_of(module: str) -> Any:
    """The module that answers for ``mray.<module>`` in this process, if it is not mray: Ray's module of that name; else None."""
    backend = backend_if_started()
    return None if backend is None else backend.counterpart(module)


def asked_of_ray(module: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorates a function of ``mray.<module>``: where Ray runs behind, Ray's function of that name is called with the same arguments."""

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
