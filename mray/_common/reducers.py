"""The pickler of everything that the process pickles: values, functions, classes, and user pickles by `mray.cloudpickle`. Any thread.

It is the C pickler with cloudpickle's rules: a function or class that its module has under its name is pickled by that name, every other
(of ``__main__``, local, of a module given to `register_pickle_by_value`) by value. Each object is asked for its state once.

In addition there are the users' own `reducers`, and `set_state` for instances whose ``__getattr__`` depends on state that is not
restored yet when pickle looks for a ``__setstate__``.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from functools import cached_property
from types import CodeType, FunctionType, WrapperDescriptorType
from typing import TYPE_CHECKING, Any

from mray._common.kept import io

if TYPE_CHECKING:
    from cloudpickle import Pickler

Serializer = Callable[[Any], Any]

reducers: dict[type, Serializer] = {}
#: Serializer and deserializer.
_pairs: dict[type, tuple[Serializer, Serializer]] = {}
_pickler: type[Pickler] | None = None
#: cloudpickle 3.1.3 writes this as the file name of a code object.
_NAMELESS = "<dynamic-code>"


def register_serializer(cls: type, serializer: Serializer, deserializer: Serializer) -> None:
    """Pickle instances of `cls` in this process as ``deserializer(serializer(instance))``."""
    _pairs[cls] = (serializer, deserializer)
    reducers[cls] = lambda value: (_restore, (deserializer, serializer(value)))


def register_reducer(cls: type, reducer: Serializer) -> None:
    """Pickle instances of `cls` in this process by what `reducer` returns, as ``__reduce__`` does."""
    _pairs.pop(cls, None)
    reducers[cls] = reducer


def deregister_serializer(cls: type) -> None:
    """Undo `register_serializer` or `register_reducer`; idempotent."""
    _pairs.pop(cls, None)
    reducers.pop(cls, None)


def registered_serializers() -> dict[type, tuple[Serializer, Serializer]]:
    return dict(_pairs)


def _restore(deserializer: Serializer, state: Any) -> Any:
    return deserializer(state)


def cloud_pickler() -> type[Pickler]:
    """cloudpickle's pickler with `reducers`, including later changes."""
    global _pickler
    if _pickler is None:
        _pickler = _make_pickler()
    return _pickler


#: Types whose instances need no inspection. Only types that modules have under their names, since others would be kept alive.
_ordinary: set[type] = set()
_MOST_ORDINARY = 4096


def _make_pickler() -> type[Pickler]:
    from collections import ChainMap  # noqa: PLC0415  (with cloudpickle 10 ms: only for values that need it)

    import cloudpickle  # noqa: PLC0415

    theirs = cloudpickle.Pickler.dispatch_table
    own = {CodeType: _code_reducer(theirs[CodeType]), cached_property: _reduce_cached_property}
    table = ChainMap(reducers, own, *theirs.maps)
    ordinary = _ordinary
    decide: Callable[[Any, Any], Any] = cloudpickle.Pickler.reducer_override
    by_value: set[str] = vars(cloudpickle.cloudpickle)["_PICKLE_BY_VALUE_MODULES"]
    modules = sys.modules

    class CloudPickler(cloudpickle.Pickler):  # type: ignore[misc]
        __module__ = "mray.cloudpickle"
        #: Programs know the table by either name.
        dispatch_table = dispatch = table
        #: As `_ordinary`, for this pickle.
        _seen: Any = frozenset()

        def reducer_override(self, value: Any) -> Any:
            """Called for every object except those of builtin types."""
            kind = type(value)
            if kind in ordinary or kind in self._seen:
                return NotImplemented
            if kind is FunctionType or issubclass(kind, type):
                name = value.__module__
                if name.__class__ is str and not by_value and name not in _SCRIPTS:
                    there = getattr(modules.get(name), "__dict__", None)
                    if there is not None and there.get(value.__qualname__) is value:
                        return NotImplemented
                return decide(self, value)
            if not _shows_its_class(kind):
                # A proxy of a function is pickled as that function.
                return decide(self, value) if isinstance(value, FunctionType) and hasattr(value, "__code__") else NotImplemented
            if _answers_for_others(kind) and kind not in self.dispatch_table:
                return _reduce_with_setter(value)
            if len(ordinary) < _MOST_ORDINARY and getattr(modules.get(kind.__module__), kind.__name__, None) is kind:
                ordinary.add(kind)
            elif self._seen:
                self._seen.add(kind)
            else:
                self._seen = {kind}
            return NotImplemented

    return CloudPickler


#: Names of the user's script, which is another module in other processes.
_SCRIPTS = ("__main__", "__mp_main__")


def _shows_its_class(kind: type) -> bool:
    """Whether ``__class__`` of instances is their type: a proxy may have another's."""
    if type(kind.__getattribute__) is not WrapperDescriptorType:
        return False  # a function
    return next(base for base in kind.__mro__ if "__class__" in base.__dict__) is object


def _answers_for_others(kind: type) -> bool:
    """Whether pickle's own rules would call ``__getattr__`` when they restore an instance's state."""
    has: set[str] = set()
    has.update(*(base.__dict__ for base in kind.__mro__[:-1]))
    return "__getattr__" in has and has.isdisjoint(("__setstate__", "__reduce__", "__reduce_ex__"))


def _reduce_with_setter(value: Any) -> Any:
    """The value's own reduction, with a setter of its state that calls none of its methods."""
    reduced = value.__reduce_ex__(pickle.HIGHEST_PROTOCOL)
    if not isinstance(reduced, tuple) or len(reduced) != 5:
        return reduced
    state = reduced[2]
    parts = state if type(state) is tuple and len(state) == 2 else (state,)
    if state is None or not all(part is None or type(part) is dict for part in parts):
        return reduced
    return *reduced, set_state


def set_state(value: Any, state: Any) -> None:
    """Restore state as pickle does without a ``__setstate__``, bypassing ``__getattr__`` and ``__setattr__``."""
    fields, slots = state if type(state) is tuple else (state, None)
    if fields:
        object.__getattribute__(value, "__dict__").update(
            {sys.intern(name) if type(name) is str else name: part for name, part in fields.items()}
        )
    for name, part in (slots or {}).items():
        object.__setattr__(value, name, part)


def _reduce_cached_property(value: cached_property[Any]) -> Any:
    """Without the lock that it has before Python 3.12."""
    return cached_property, (value.func,), {"attrname": value.attrname}


def _code_reducer(reduce: Serializer) -> Serializer:
    """cloudpickle's reducer of code, with the name of the code's file, which it omits from 3.1.3 on.

    Without it tracebacks, debuggers and coverage do not find the lines of a function that was sent to a worker.
    """

    def reduce_with_name(code: CodeType) -> Any:
        make, arguments, *more = reduce(code)
        named = tuple(code.co_filename if value.__class__ is str and value == _NAMELESS else value for value in arguments)
        return make, named, *more

    return reduce_with_name


def cloud_dumps(value: Any, protocol: int | None = None, buffer_callback: Callable[[Any], Any] | None = None) -> bytes:
    stream = io.BytesIO()
    cloud_pickler()(stream, protocol=protocol, buffer_callback=buffer_callback).dump(value)
    return stream.getvalue()
