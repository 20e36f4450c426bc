"""Serializers for classes that pickle cannot handle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mray._api.counterpart import counterpart_of
from mray._common import reducers as _reducers

__all__ = ["deregister_serializer", "register_serializer"]


def register_serializer(cls: type, *, serializer: Callable[[Any], Any], deserializer: Callable[[Any], Any]) -> None:
    """Make this process pickle instances of `cls` as ``deserializer(serializer(instance))``. Call it in every process that sends such
    instances.
    """
    counterpart = counterpart_of("util.serialization")
    if counterpart is not None:
        counterpart.register_serializer(cls, serializer=serializer, deserializer=deserializer)
    _reducers.register_serializer(cls, serializer, deserializer)


def deregister_serializer(cls: type) -> None:
    """Undo `register_serializer`. Idempotent."""
    counterpart = counterpart_of("util.serialization")
    if counterpart is not None:
        counterpart.deregister_serializer(cls)
    _reducers.deregister_serializer(cls)
