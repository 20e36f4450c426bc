"""Values in transit between interpreters: as they were at the step that passed them on, and GPU tensors on their GPU.

The source's stream continues while the value travels, so that very step stores a value that later steps could write to, and its ref
travels instead (`TransferRef`). The engine would copy device memory to the host for that, so it is copied on the device, and passed on
by the engine's transport of device tensors (``"cuda_ipc"``). Copy and loan end with the receiver's last view.

Only tensors in lists, tuples and dicts are found. Other objects with tensors go through the host, as all do on Ray.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

#: engines with tensors that others open in place
_TRANSFERS_TENSORS = frozenset({"mray"})
#: types that no later step can write to
_CONSTANT = frozenset({int, float, complex, str, bytes, bool, type(None)})


class TransferRef(NamedTuple):
    ref: Any


def passed(engine: Any, value: Any) -> Any:
    """The value as it is now, unaffected by later steps: `TransferRef`, or itself."""
    if type(value) in _CONSTANT or isinstance(value, engine.ObjectRef):
        return value
    found = transferred(engine, value)
    return found if type(found) is TransferRef else TransferRef(engine.put(value))


def transferred(engine: Any, value: Any) -> Any:
    """`TransferRef`, if the value holds device tensors that can be lent; else the value."""
    if engine.__name__ not in _TRANSFERS_TENSORS or not engine.get_gpu_ids():
        return value
    try:
        copied = _with(value, _copied)
        if copied is value:
            return value
        return TransferRef(engine.put(copied, _tensor_transport="cuda_ipc"))
    except (ValueError, RuntimeError):
        # It has host tensors too, or one that requires grad, or is a list that holds itself.
        return value


def brought(engine: Any, answer: Any) -> Any:
    """Waits without limit; raises the engine's errors."""
    if type(answer) is not TransferRef:
        return answer
    try:
        return engine.get(answer.ref)
    except ValueError:
        if engine.__name__ not in _TRANSFERS_TENSORS:
            raise
        # No GPU of this process reaches that one's memory.
        return engine.get(answer.ref, _use_object_store=True)


def kept(value: Any) -> Any:
    """A received value with writable arrays, since engines' messages bring read-only ones.

    Its lists and dicts keep their identity, as do shared objects.
    """
    return value if "numpy" not in sys.modules else _writable(value, {})


def _writable(value: Any, done: dict[int, tuple[Any, Any]]) -> Any:
    """A copy of a read-only array, or of a tuple with one; else the value. `done`: the result for each part, by id."""
    kind = type(value)
    is_tuple = isinstance(value, tuple) and (kind is tuple or hasattr(kind, "_make"))
    if not (is_tuple or kind is dict or kind is list or kind is sys.modules["numpy"].ndarray):
        return value
    known = done.get(id(value))
    if known is not None:
        return known[1]
    changed = value
    done[id(value)] = value, changed  # it may hold itself
    if is_tuple:
        items = [_writable(item, done) for item in value]
        if any(new is not item for new, item in zip(items, value, strict=True)):
            changed = kind(items) if kind is tuple else kind._make(items)
    elif kind is dict or kind is list:
        for key, item in [*(value.items() if kind is dict else enumerate(value))]:
            new = _writable(item, done)
            if new is not item:
                value[key] = new
    elif not value.flags.writeable:
        changed = value.copy("K")
    done[id(value)] = value, changed
    return changed


def _with(value: Any, change: Callable[[Any], Any]) -> Any:
    """Apply `change` to the items of lists, tuples and dicts; the value itself if nothing changes."""
    kind = type(value)
    if kind is dict:
        items = {key: _with(item, change) for key, item in value.items()}
        return value if all(items[key] is item for key, item in value.items()) else items
    if kind is list or kind is tuple:
        copies = [_with(item, change) for item in value]
        return value if all(copy is item for copy, item in zip(copies, value, strict=True)) else kind(copies)
    if isinstance(value, tuple) and hasattr(kind, "_make"):
        copies = [_with(item, change) for item in value]
        return value if all(copy is item for copy, item in zip(copies, value, strict=True)) else kind._make(copies)
    return change(value)


def _copied(value: Any) -> Any:
    return value.clone() if _is_on_device(value) else value


def _is_on_device(value: Any) -> bool:
    if not hasattr(type(value), "clone"):
        return False
    device = getattr(value, "device", None)
    return type(device) is int or getattr(device, "type", None) == "cuda"
