"""Classes that users have their own ways of pickling for, and cloudpickle with these ways.

Any process, any thread. The ways hold for all that the process pickles: values, functions, classes, and what users pickle by
`mray.cloudpickle` themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from types import CodeType
from typing import TYPE_CHECKING, Any

from mray._common.kept import io

if TYPE_CHECKING:
    from cloudpickle import Pickler

Serializer = Callable[[Any], Any]

#: Class to what the pickler calls for an instance of it.
reducers: dict[type, Serializer] = {}
#: Of those that are given as a pair: serializer and deserializer.
_pairs: dict[type, tuple[Serializer, Serializer]] = {}
_pickler: type[Pickler] | None = None
#: cloudpickle 3.1.3 writes this in the place of the name of a code's file.
_NAMELESS = "<dynamic-code>"


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

        theirs = cloudpickle.Pickler.dispatch_table
        own = {CodeType: _code_reducer(theirs[CodeType]), cached_property: _reduce_cached_property}
        table = ChainMap(reducers, own, *theirs.maps)
        # Programs know the table by either name.
        _pickler = type(
            "CloudPickler", (cloudpickle.Pickler,), {"dispatch_table": table, "dispatch": table, "__module__": "mray.cloudpickle"}
        )
    return _pickler


def _reduce_cached_property(value: cached_property[Any]) -> Any:
    """Without the lock that it has before Python 3.12."""
    return cached_property, (value.func,), {"attrname": value.attrname}


def _code_reducer(reduce: Serializer) -> Serializer:
    """cloudpickle's reducer of code, with the name of the code's file.

    From 3.1.3 on cloudpickle leaves the name out, so that equal functions have equal pickles wherever they are defined. Without it no
    traceback shows the lines of a function that was sent to a worker, no debugger finds them and no coverage counts them.
    """

    def reduce_with_name(code: CodeType) -> Any:
        make, arguments, *more = reduce(code)
        named = tuple(code.co_filename if value.__class__ is str and value == _NAMELESS else value for value in arguments)
        return make, named, *more

    return reduce_with_name


def cloud_dumps(value: Any, protocol: int | None = None, buffer_callback: Callable[[Any], Any] | None = None) -> bytes:
    """As ``cloudpickle.dumps``, with `reducers`."""
    stream = io.BytesIO()
    cloud_pickler()(stream, protocol=protocol, buffer_callback=buffer_callback).dump(value)
    return stream.getvalue()
