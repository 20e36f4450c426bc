"""Questions of programs about Ray's client, which mray does not have: it is never connected."""

from __future__ import annotations

from typing import NoReturn

from mray._libraries.absent import NotInMrayError
from mray._libraries.names import CLIENT

__all__ = ["ClientObjectRef", "num_connected_contexts", "ray"]


class _Client:
    def is_connected(self) -> bool:
        return False

    def is_default(self) -> bool:
        return True

    def get_context(self) -> _Client:
        return self

    def is_initialized(self) -> bool:
        return False

    def disconnect(self) -> None:
        """Do nothing."""

    shutdown = disconnect

    def __getattr__(self, name: str) -> NoReturn:
        raise NotInMrayError(f"ray.util.client.ray.{name} is not in mray: {CLIENT}")


ray = _Client()


class ClientObjectRef:
    """A ref of a client; there are none."""

    def __init__(self) -> None:
        raise TypeError("refs come from calls and put")


def num_connected_contexts() -> int:
    return 0
