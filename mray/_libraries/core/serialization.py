"""``ray._private.serialization``: how this process pickles values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mray._common import reducers
from mray._inside.values import Serialized, arrow_reducers, serialize

__all__ = ["SerializationContext", "StandaloneSerializationContext"]

Reducer = Callable[[Any], Any]


class SerializedObject:
    def __init__(self, packed: Serialized) -> None:
        self._packed = packed

    @property
    def total_bytes(self) -> int:
        return self._packed.size

    def to_bytes(self) -> bytes:
        return self._packed.to_bytes()


class SerializationContext:
    """The serializer of this process, with the users' own serializers for classes."""

    def serialize(self, value: Any) -> SerializedObject:
        """Raises TypeError when a value cannot be pickled."""
        return SerializedObject(serialize(value))

    def _register_cloudpickle_reducer(self, cls: type, reducer: Reducer) -> None:
        if cls not in arrow_reducers():  # Ray's libraries bring a reducer that refuses some types of columns
            reducers.register_reducer(cls, reducer)

    def _unregister_cloudpickle_reducer(self, cls: type) -> None:
        reducers.deregister_serializer(cls)

    def _register_cloudpickle_serializer(self, cls: type, custom_serializer: Reducer, custom_deserializer: Reducer) -> None:
        reducers.register_serializer(cls, custom_serializer, custom_deserializer)


StandaloneSerializationContext = SerializationContext
