"""Values to bytes and back.

One pickler serves all values (`mray._common.reducers`): the C pickler, which calls back for objects that are not of builtin types and
pickles each function and class by name or, as cloudpickle does, by value. Each object is asked for its state only once, and the first
error of a reducer is raised: plain pickle first, and cloudpickle when that fails, would ask twice, and objects that give their contents
away arrive empty.

Buffers of arrays go out of band (pickle protocol 5) and follow the pickle, aligned to 64 bytes, so that a reader that maps the bytes
gets arrays that are views of them::

    PACKED = u32 number of buffers, u32 whether any is a tensor's, u64 length of the pickle, spans, pickle, buffers
    span   = u64 offset, u64 length, u32 where: 0 here, n in the n-th piece of others' memory, u32 whether it is a tensor's

Readers may write to tensors, but not to arrays.
"""

from __future__ import annotations

import copyreg
import pickle
import struct
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn

from mray._common.device_tensors import carriers, restore_device_tensor
from mray._common.kept import io, os
from mray._common.messages import PACKED, PICKLED
from mray._common.reducers import cloud_pickler, reducers
from mray._ipc.copying import copy_into
from mray._ipc.handlers import is_of_handler
from mray._ipc.mapped import OwnBytes
from mray._objects.arrays import array_type, reduce_array
from mray._objects.data_frames import frame_reducers
from mray._objects.tables import arrow_reducers
from mray._objects.tensors import is_tensor_memory, reduce_tensor, reduce_tensor_without_grad
from mray.exceptions import RayError, RaySystemError

if TYPE_CHECKING:
    from cloudpickle import Pickler

Table = dict[type, Callable[[Any], Any]]

_PREFIX = struct.Struct("<IIQ")
_SPAN = struct.Struct("<QQII")
_ALIGN = 64
#: The piece of memory that holds the value itself (`Serialized.divert`).
HERE = -1

#: Values of exactly these types need neither cloudpickle nor a scan.
PLAIN_TYPES = frozenset({str, int, float, bool, type(None), bytes, complex})
#: The longest list, tuple or dict whose items are checked for plain types.
_MOST_PLAIN = 32


def is_plain(value: Any) -> bool:
    """Whether a value is of a plain type, or a short list, tuple or dict of such values."""
    kind = type(value)
    if kind in PLAIN_TYPES:
        return True
    if kind is list or kind is tuple:
        return len(value) <= _MOST_PLAIN and PLAIN_TYPES.issuperset(map(type, value))
    if kind is dict:
        return len(value) <= _MOST_PLAIN and PLAIN_TYPES.issuperset(map(type, value)) and PLAIN_TYPES.issuperset(map(type, value.values()))
    return False


#: Longer bytes travel out of band.
_LARGE_BYTES = 64 * 1024


class _Bytes:
    """Pickles as ``bytes(<the first buffer>)``."""

    def __reduce__(self) -> tuple[Any, ...]:
        return bytes, (pickle.PickleBuffer(b""),)


_PICKLED_BYTES = pickle.dumps(_Bytes(), 5, buffer_callback=lambda _buffer: False)


class _Noted(threading.local):
    refs: list[Any] | None = None


_noted = _Noted()


def note_ref(ref: Any) -> None:
    """Collect a ref or handle inside the value that is being pickled; called by their reducers."""
    if _noted.refs is not None:
        _noted.refs.append(ref)


def is_noting() -> bool:
    """Whether this thread is inside `serialize`; a ref that is pickled elsewhere travels out of band."""
    return _noted.refs is not None


class Serialized:
    """A value as bytes, not yet laid out."""

    __slots__ = ("_elsewhere", "buffers", "pickled", "refs", "size")

    def __init__(self, pickled: bytes, buffers: list[memoryview], refs: list[Any] | None) -> None:
        self.pickled = pickled
        self.buffers = buffers
        #: Refs inside the value; must live as long as the bytes do.
        self.refs = refs
        #: Buffer number -> (piece of memory, offset in it).
        self._elsewhere: dict[int, tuple[int, int]] = {}
        self.size = self._measure() if buffers else len(pickled)

    def _measure(self) -> int:
        size = _PREFIX.size + _SPAN.size * len(self.buffers) + len(self.pickled)
        for number, buffer in enumerate(self.buffers):
            if number not in self._elsewhere:
                size = (size + _ALIGN - 1) // _ALIGN * _ALIGN + buffer.nbytes
        return size

    def divert(self, elsewhere: dict[int, tuple[int, int]]) -> None:
        """Leave these buffers out: the reader finds buffer n in piece ``elsewhere[n][0]`` (from 0) of `deserialize`'s `others`.

        `HERE` stands for the memory of the value, with an offset from its start.
        """
        self._elsewhere = elsewhere
        self.size = self._measure()

    @property
    def has_tensors(self) -> bool:
        return any(is_tensor_memory(buffer.obj) for buffer in self.buffers)

    @property
    def form(self) -> int:
        """The layout of `to_bytes` and `write_into`: PICKLED or PACKED."""
        return PACKED if self.buffers else PICKLED

    def to_bytes(self) -> bytes:
        if not self.buffers:
            return self.pickled
        out = bytearray(self.size)
        self.write_into(memoryview(out))
        return bytes(out)

    def write_into(self, target: memoryview, base: int = 0) -> None:
        """Write to the start of `target` (writable, at least `size` bytes), which readers find at offset `base`."""
        for start, part in self._parts(base):
            copy_into(target[start : start + len(part)], part)

    def write_to(self, fd: int) -> None:
        """Write the layout to the start of a file. OSError if there is no room."""
        for start, part in self._parts(0):
            rest = memoryview(part)
            while rest:
                written = os.pwrite(fd, rest, start)
                rest = rest[written:]
                start += written

    def _parts(self, base: int) -> list[tuple[int, bytes | memoryview]]:
        pickled = self.pickled
        buffers = self.buffers
        if not buffers:
            return [(0, pickled)]
        start = _PREFIX.size + _SPAN.size * len(buffers)
        end = start + len(pickled)
        parts: list[tuple[int, bytes | memoryview]] = [(start, pickled)]
        spans = []
        has_tensors = False
        elsewhere = self._elsewhere
        for number, buffer in enumerate(buffers):
            length = buffer.nbytes
            is_tensor = is_tensor_memory(buffer.obj)
            has_tensors = has_tensors or is_tensor
            if number in elsewhere:
                piece, offset = elsewhere[number]
                spans.append(_SPAN.pack(offset, length, piece + 1, is_tensor))
            else:
                start = (end + _ALIGN - 1) // _ALIGN * _ALIGN
                spans.append(_SPAN.pack(base + start, length, 0, is_tensor))
                end = start + length
                parts.append((start, buffer))
        parts.append((0, b"".join((_PREFIX.pack(len(buffers), has_tensors, len(pickled)), *spans))))
        return parts


def serialize(value: Any, *, refuse_grad: bool = False, leave: list[Any] | None = None, leave_type: type | None = None) -> Serialized:
    """Pickle a value. Each object in it is asked for its state once.

    With `leave`, tensors (or instances of `leave_type`) are left out and appended to that list; the unpickling process must supply them
    through a carrier (`mray._common.device_tensors`).

    Raises RuntimeError for a tensor that requires grad, if `refuse_grad`; any error of the user's reducers; TypeError or PicklingError
    for what cannot be pickled.
    """
    if type(value) is bytes and len(value) > _LARGE_BYTES:
        # A pickle would be a second copy, in freshly allocated memory.
        return Serialized(_PICKLED_BYTES, [memoryview(value)], None)
    if is_plain(value):
        return Serialized(pickle.dumps(value, 5), [], None)
    outer = _noted.refs, carriers.take
    refs: list[Any] = []
    _noted.refs = refs
    buffers: list[memoryview] = []

    def keep(buffer: pickle.PickleBuffer) -> bool:
        try:
            raw = buffer.raw()
        except BufferError:  # not contiguous
            return True
        buffers.append(raw)
        return False

    stream = io.BytesIO()
    try:
        kind = _value_pickler(refuse_grad)
        if leave is not None:
            kind = type("ValuePickler", (kind,), {"dispatch_table": {**kind.dispatch_table, **_left_out(leave, leave_type)}})
        kind(stream, 5, buffer_callback=keep).dump(value)
    finally:
        _noted.refs, carriers.take = outer
    return Serialized(stream.getvalue(), buffers, refs or None)


def dumps(value: Any) -> bytes:
    """A self-contained pickle by the rules of `serialize`, for `pickle.loads`."""
    outer = _noted.refs
    _noted.refs = []
    stream = io.BytesIO()
    try:
        _value_pickler(False)(stream, 5).dump(value)
    finally:
        _noted.refs = outer
    return stream.getvalue()


def _left_out(tensors: list[Any], kind: type | None) -> Table:

    def leave(tensor: Any) -> tuple[Any, ...]:
        tensors.append(tensor)
        return (len(tensors) - 1,)

    if kind is not None:
        return {kind: lambda tensor: (restore_device_tensor, leave(tensor))}
    carriers.take = leave
    torch = sys.modules.get("torch")
    tensor_type = getattr(torch, "Tensor", None) if torch is not None else None
    return {} if tensor_type is None else {tensor_type: lambda tensor: (restore_device_tensor, leave(tensor))}


# ----------------------------------------------------------------------------------------- the pickler
def _value_pickler(refuse_grad: bool) -> type[Pickler]:
    """cloudpickle's pickler with the reducers of arrays, tensors, tables and frames whose modules are imported."""
    made = _picklers.get(refuse_grad)
    base = cloud_pickler() if made is None else made[0]
    torch = sys.modules.get("torch")
    tensor_type = getattr(torch, "Tensor", None) if torch is not None else None
    has_numpy = "numpy" in sys.modules
    of_arrow = arrow_reducers() if "pyarrow" in sys.modules else {}
    of_polars = frame_reducers() if "polars" in sys.modules else {}
    # Of these tables only additions are detected: a comparison costs as much as pickling a small value.
    parts = (copyreg.dispatch_table, reducers, len(base.dispatch_table.maps[2]), len(of_arrow), len(of_polars), tensor_type, has_numpy)
    kind = base if made is None else made[2]
    if made is None or made[1] != parts:
        table: Table = {**base.dispatch_table, **of_arrow, **of_polars}
        if has_numpy:
            table[array_type()] = reduce_array
        if tensor_type is not None:
            table[tensor_type] = reduce_tensor_without_grad if refuse_grad else reduce_tensor
        table.update(reducers)
        # A flat table, and no Python code in the constructor, for speed.
        body = {"dispatch_table": table, "globals_ref": cached_property(_no_globals), "proto": 5}
        kind = type("ValuePickler", (base,), {**body, "__init__": pickle.Pickler.__init__, "dump": pickle.Pickler.dump})
        _picklers[refuse_grad] = base, (dict(copyreg.dispatch_table), dict(reducers), *parts[2:]), kind
    return kind


def _no_globals(_pickler: Pickler) -> dict[int, dict[str, Any]]:
    """cloudpickle stores here what functions of one module share."""
    return {}


#: Whether grad is refused, to (its base, the parts of its table, the last pickler).
_picklers: dict[bool, tuple[type[Pickler], tuple[Any, ...], type[Pickler]]] = {}


# ------------------------------------------------------------------------------------------ back
def deserialize(form: int, payload: Any, pin: Any = None, others: Sequence[Any] = (), *, copy_tensors: bool = False, at: int = 0) -> Any:
    """The value of a PICKLED or PACKED payload (any bytes-like object), a PACKED one beginning at offset `at`.

    With `pin`, an exporter of the same bytes, arrays and tensors are views that hold it; without, they are views of a private copy of
    `payload`. `others` export the memory of diverted buffers.

    Arrays are read-only. Tensors are writable: those in read-only memory are copied, and with `copy_tensors` all are.

    Raises RaySystemError for a value whose own code fails.
    """
    if form == PICKLED:
        try:
            return pickle.loads(payload)
        except Exception as error:
            refuse(error)
    if form != PACKED:
        raise ValueError(f"no value has form {form!r}")
    whole = [OwnBytes.aligned(payload, _ALIGN) if pin is None else memoryview(pin), *[memoryview(other) for other in others]]
    fixed = [view.toreadonly() for view in whole]
    count, _tensors, length = _PREFIX.unpack_from(whole[0], at)
    buffers = []
    at += _PREFIX.size
    for _ in range(count):
        start, size, where, is_tensor = _SPAN.unpack_from(whole[0], at)
        at += _SPAN.size
        if where >= len(whole) or start + size > whole[where].nbytes:
            raise ValueError(f"a value is damaged: its bytes {start} to {start + size} of piece {where} are not there")
        buffers.append((whole if is_tensor and not copy_tensors else fixed)[where][start : start + size])
    try:
        return pickle.loads(fixed[0][at : at + length], buffers=buffers)
    except Exception as error:
        refuse(error)


def refuse(error: Exception) -> NoReturn:
    """Raise RaySystemError for a value that cannot be unpickled here; a `RayError` and a handler's error unchanged."""
    if isinstance(error, RayError) or is_of_handler(error):
        raise error
    raise RaySystemError(error, traceback.format_exc()) from error


def has_tensors(packed: Any, at: int = 0) -> bool:
    """Whether a PACKED payload has tensors: since they are writable, no two readers may share its memory."""
    return bool(_PREFIX.unpack_from(packed, at)[1])
