"""The question that programs ask Ray's client: whether they talk through it. They do not."""

from __future__ import annotations

__all__ = ["ClientObjectRef", "num_connected_contexts", "ray"]


class _Client:
    """Ray's client, which is never connected."""

    def is_connected(self) -> bool:
        return False

    def is_default(self) -> bool:
        return True


ray = _Client()


class ClientObjectRef:
    """The class of refs that have come through the client. There are none."""

    def __init__(self) -> None:
        raise TypeError("refs come from calls and put")


def num_connected_contexts() -> int:
    """How many clients of this process are connected: none."""
    return 0
