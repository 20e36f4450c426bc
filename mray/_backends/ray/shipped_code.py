"""How user code comes into a process of Ray's: first the backend, then the code.

In workers of Ray, in the driver, and in the server of Ray's client. A `Shipped` crosses; pickled, it is a small function by value
that needs nothing installed, so that a node without mray, or with another version of it, says so instead of failing somewhere inside.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import ray.cloudpickle

from mray._api.blueprint import bound_method
from mray._api.current import backend_if_started, set_backend
from mray._backends.ray.values import RAYS_VALUES, value_of
from mray._common.version import __version__


class Shipped:
    """A function or a class, and the bytes that it travels as. `target` is what the user wrote."""

    __slots__ = ("payload", "target")

    def __init__(self, target: Any, payload: bytes) -> None:
        self.target = target
        self.payload = payload

    @staticmethod
    def arrived(args: tuple[Any, ...]) -> Any:
        """Arguments as the user is to see them: a ref may stand for a value of a class of Ray's."""
        for arg in args:
            if type(arg) in RAYS_VALUES:
                return [value_of(arg) for arg in args]
        return args

    #: For wrappers, which have no globals.
    bound_method = staticmethod(bound_method)

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpack, (__version__, self.payload)


def arrive(payload: bytes) -> Shipped:
    """Install the backend if there is none, then unpickle."""
    if backend_if_started() is None:
        from mray._backends.ray.backend import RayBackend  # noqa: PLC0415  (it knows this)

        set_backend(RayBackend.attach())
    return Shipped(ray.cloudpickle.loads(payload), payload)


def _unpack_by_value() -> Callable[[str, bytes], Shipped]:
    """A function of no module, which therefore pickles by value."""

    def unpack_mray(version: str, payload: bytes) -> Any:
        try:
            from mray._common.version import __version__ as here  # noqa: PLC0415
        except ImportError as error:
            raise RuntimeError(
                f"this node of the Ray cluster has no mray ({error}), and the driver has mray {version}: install the same version on every "
                "node, or name it in runtime_env."
            ) from None
        if here != version:
            raise RuntimeError(
                f"this node of the Ray cluster has mray {here}, and the driver has mray {version}: install the same version on every node."
            )
        from mray._backends.ray.shipped_code import arrive  # noqa: PLC0415

        return arrive(payload)

    made = types.FunctionType(unpack_mray.__code__, {"__builtins__": __builtins__, "__name__": "mray_arrival"}, "unpack_mray")
    made.__module__ = "mray_arrival"
    made.__qualname__ = "unpack_mray"
    return made


_unpack = _unpack_by_value()
