"""Transport of user code into a process of Ray: first the backend, then the code.

A `Shipped` pickles as a small function by value (`mray._backends.ray.ray_backend.ARRIVAL`) that needs nothing installed, so that a
node without mray, or with another version, reports that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mray._api.blueprint import bound_method
from mray._backends.ray.values import RAYS_VALUES, value_of
from mray._common.version import __version__

#: Takes a version of mray and a pickle; a function of no module.
Arrival = Callable[[str, bytes], "Shipped"]


class Shipped:
    """`target` is the user's object; `arrival` travels by value."""

    __slots__ = ("arrival", "payload", "target")

    def __init__(self, target: Any, payload: bytes, arrival: Arrival) -> None:
        self.target = target
        self.payload = payload
        self.arrival = arrival

    @staticmethod
    def arrived(args: tuple[Any, ...]) -> Any:
        """Arguments for user code, with values of Ray's classes converted."""
        for arg in args:
            if type(arg) in RAYS_VALUES:
                return [value_of(arg) for arg in args]
        return args

    def bound_method(self, instance: Any, name: str) -> Callable[..., Any]:
        """A method of the target, for wrappers, which have no globals."""
        return bound_method(instance, name, self.target)

    def __reduce__(self) -> tuple[Any, ...]:
        return self.arrival, (__version__, self.payload)
