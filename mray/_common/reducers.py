"""Classes that users have their own ways of pickling for, and cloudpickle with these ways.

Any process, any thread. The ways hold for all that the process pickles: values, functions, classes, and what users pickle by
`mray.cloudpickle` themselves.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cloudpickle import Pickler

Serializer = Callable[[Any], Any]

#: Class to what the pickler calls for an instance of it.
reducers: dict[type, Serializer] = {}
#: Of those that are given as a pair: serializer and deserializer.
_pairs: dict[type, tuple[Serializer, Serializer]] = {}
_pickler: type[Pickler] | None = None


def register_serializer(cls: type, serializer: Serializer, deserializer: Serializer) -> None:
    """Pickle instances of `cls` in this process as ``deserializer(serializer(instance))`` from now on."""
    _pairs[cls] = (serializer, deserializer)
    reducers[cls] = lambda value: (_restore, (deserializer, serializer(value)))


def register_reducer(cls: type, reducer: Serializer) -> None:
    """Pickle instances of `cls` in this process by what `reducer` answers, as ``__reduce__`` does, from now on."""
    _pairs.pop(cls, None)
    reducers[cls] = reducer


def deregister_serializer(cls: type) -> None:
    """Undo `register_serializer` or `register_reducer`; harmless when there is nothing to undo."""
    _pairs.pop(cls, None)
    reducers.pop(cls, None)


def registered_serializers() -> dict[type, tuple[Serializer, Serializer]]:
    """Class to its serializer and deserializer."""
    return dict(_pairs)


def _restore(deserializer: Serializer, state: Any) -> Any:
    return deserializer(state)


def cloud_pickler() -> type[Pickler]:
    """cloudpickle's pickler with `reducers`, of which it follows every change."""
    global _pickler
    if _pickler is None:
        from collections import ChainMap  # noqa: PLC0415  (with cloudpickle 10 ms: only for values that need it)

        import cloudpickle  # noqa: PLC0415

        table = ChainMap(reducers, *cloudpickle.Pickler.dispatch_table.maps)
        # Programs know the table by either name.
        _pickler = type(
            "CloudPickler", (cloudpickle.Pickler,), {"dispatch_table": table, "dispatch": table, "__module__": "mray.cloudpickle"}
        )
    return _pickler


def cloud_dumps(value: Any, protocol: int | None = None, buffer_callback: Callable[[Any], Any] | None = None) -> bytes:
    """As ``cloudpickle.dumps``, with `reducers`."""
    stream = io.BytesIO()
    cloud_pickler()(stream, protocol=protocol, buffer_callback=buffer_callback).dump(value)
    return stream.getvalue()
