"""`cloudpickle`, under Ray's name of the module: pickles functions, classes and other values that plain pickle cannot."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import IO, Any

from cloudpickle import (
    load,
    loads,
    pickle,
    register_pickle_by_value,
    unregister_pickle_by_value,
)

from mray._common import settings
from mray._common.reducers import cloud_dumps as dumps
from mray._common.reducers import cloud_pickler
from mray._common.serializability import explain

__all__ = [
    "CloudPickler",
    "Pickler",
    "dump",
    "dump_debug",
    "dumps",
    "dumps_debug",
    "load",
    "loads",
    "pickle",
    "register_pickle_by_value",
    "unregister_pickle_by_value",
]


#: Includes the serializers of `mray.util.serialization.register_serializer`.
CloudPickler = Pickler = cloud_pickler()


def dump(obj: Any, file: IO[bytes], protocol: int | None = None, buffer_callback: Callable[[Any], Any] | None = None) -> None:
    """As `dumps`, into a file."""
    CloudPickler(file, protocol=protocol, buffer_callback=buffer_callback).dump(obj)


def dumps_debug(obj: Any, *args: Any, **kwargs: Any) -> bytes:
    """As `dumps`, with a TypeError or PicklingError that says how to find what cannot be pickled.

    With ``RAY_PICKLE_VERBOSE_DEBUG=1`` it finds and prints it.
    """
    return bytes(_debugged(dumps, obj, *args, **kwargs))


def dump_debug(obj: Any, file: IO[bytes], *args: Any, **kwargs: Any) -> None:
    """`dump`, with the errors of `dumps_debug`."""
    _debugged(dump, obj, file, *args, **kwargs)


def _debugged(pickled: Callable[..., Any], obj: Any, *args: Any, **kwargs: Any) -> Any:
    try:
        return pickled(obj, *args, **kwargs)
    except (TypeError, pickle.PicklingError) as error:
        if settings.PICKLE_VERBOSE_DEBUG.get():
            sys.stdout.write(f"{explain(obj, name=str(getattr(obj, '__name__', '')))}\n")
            raise
        raise type(error)(
            f"cloudpickle.{pickled.__name__}({obj}) failed: {error}\nRAY_PICKLE_VERBOSE_DEBUG=1 prints which parts cannot be pickled."
        ) from error
