"""Questions of programs about Ray's client, which mray does not have."""

from __future__ import annotations

from typing import NoReturn

from mray._libraries.absent import NotInMrayError
from mray._libraries.names import CLIENT

__all__ = ["ClientObjectRef", "num_connected_contexts", "ray"]


class _Client:
    """Ray's client, which is never connected."""

    def is_connected(self) -> bool:
        return False

    def is_default(self) -> bool:
        return True

    def get_context(self) -> _Client:
        """The connection of the thread."""
        return self

    def is_initialized(self) -> bool:
        return False

    def disconnect(self) -> None:
        """Do nothing, as on Ray without a connection."""

    shutdown = disconnect

    def __getattr__(self, name: str) -> NoReturn:
        raise NotInMrayError(f"ray.util.client.ray.{name} is not in mray: {CLIENT}")


ray = _Client()


class ClientObjectRef:
    """The class of refs that have come through the client. There are none."""

    def __init__(self) -> None:
        raise TypeError("refs come from calls and put")


def num_connected_contexts() -> int:
    """The number of connected clients of this process: 0."""
    return 0
