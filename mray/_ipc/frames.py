"""Checks of marshalled frames from other processes, before `marshal` reads them.

`marshal` believes the counts that it reads: five bytes make it allocate gigabytes. So everything announced must be present, nothing may
be nested deeply, and only values that messages consist of may occur. Frames are checked

* by a process that has accepted a connection, until it knows the peer, and always by the node (`SocketConnection.is_unknown`,
  `checks_frames`);
* for everything else that is read rarely: packets of the zygote, answers to observers, variables of workers, descriptions of arrays.

Frames between a driver and its workers are not checked, for speed. A damaged stream is detected since every message begins as a short
tuple (`MESSAGE_STARTS`), and its code and fields are checked when its handler fails (`mray._common.protocol`).
"""

from __future__ import annotations

import base64
import marshal
from struct import Struct
from typing import Any

#: Type codes of a tuple of less than 256 fields.
MESSAGE_STARTS = frozenset({ord(")"), ord(")") | 0x80})
#: Limit of an unknown peer's frame.
MOST_BYTES = 4 * 1024 * 1024
_MOST_DEPTH = 64
#: Limit of a fully expanded message: few bytes can refer to each other so that walking them never ends.
_MOST_VALUES = 16 * 1024 * 1024

_U32 = Struct("<I")
_REFERENCED = 0x80
_PLAIN = frozenset(b"NTF")
#: Bytes after a type of fixed size.
_FIXED = {ord("i"): 4, ord("r"): 4, ord("g"): 8}
#: Bytes of a count of bytes.
_COUNTED = {ord("z"): 1, ord("Z"): 1, ord("a"): 4, ord("A"): 4, ord("u"): 4, ord("t"): 4, ord("s"): 4}
#: Bytes of a count of values.
_NESTED = {ord(")"): 1, ord("("): 4, ord("["): 4, ord("<"): 4, ord(">"): 4}
_LONG = ord("l")
_REFERENCE = ord("r")
_DICT = ord("{")
_END = ord("0")


def decode_unknown(body: bytes) -> tuple[Any, ...]:
    if len(body) > MOST_BYTES:
        raise ValueError(f"{len(body)} bytes are too much for a first message")
    return decode_message(body)


def decode_message(body: bytes) -> tuple[Any, ...]:
    message = decode(body)
    if message.__class__ is not tuple or not message:
        raise ValueError("a message is a tuple")
    return message


def first_message(data: bytes | bytearray) -> tuple[tuple[Any, ...], bytes] | None:
    """The first frame's message and the bytes behind it; None while it is incomplete. Raises ValueError."""
    if len(data) <= _U32.size:
        return None
    if data[_U32.size] not in MESSAGE_STARTS:
        raise ValueError("that is no message")
    end = _U32.size + _U32.unpack_from(data)[0]
    if len(data) < end:
        return None
    return decode_message(bytes(data[_U32.size : end])), bytes(data[end:])


def decode(body: bytes) -> Any:
    """Check and unmarshal. Raises ValueError. Takes memory in proportion to the length."""
    end = _check(body)
    if end != len(body):
        raise ValueError(f"{len(body) - end} bytes follow the value")
    try:
        return marshal.loads(body)
    except (EOFError, TypeError, MemoryError) as error:
        raise ValueError(f"marshal cannot read it: {error}") from None


def decode_short(body: bytes) -> tuple[Any, ...]:
    """Decode a tuple of less than 256 items without the check. Raises ValueError, EOFError or TypeError if it is damaged. (Only longer
    tuples reserve memory that they do not fill.)
    """
    if not body or body[0] not in MESSAGE_STARTS:
        raise ValueError("that is no short tuple")
    return marshal.loads(body)  # type: ignore[no-any-return]


def to_text(value: Any) -> str:
    """As the value of an environment variable, for `from_text`."""
    return base64.b85encode(marshal.dumps(value)).decode()


def from_text(name: str, text: str, kind: type | tuple[type, ...]) -> Any:
    """Decode a value of this type, or a tuple of these types. Raises ValueError, naming the variable."""
    try:
        value = decode(base64.b85decode(text))
    except ValueError as error:
        raise ValueError(f"the environment variable {name} is damaged: {error}") from None
    if isinstance(kind, tuple):
        fits = isinstance(value, tuple) and len(value) == len(kind) and all(map(isinstance, value, kind))
    else:
        fits = isinstance(value, kind)
    if not fits:
        raise ValueError(f"the environment variable {name} is damaged: it has another content")
    return value


def _check(body: bytes) -> int:
    """Check one value and return its end. Raises ValueError."""
    size = len(body)
    at = 0
    # Values still to come at each depth; -1: a dict, which ends with a mark.
    open_values = [1]
    # Values within, references expanded; the reference number, or -1.
    weights = [0]
    numbers = [-1]
    # By number: 1, or a container's weight; 0 until its end.
    referred: list[int] = []
    while open_values:
        left = open_values[-1]
        if not left:
            _close(open_values, weights, numbers, referred)
            continue
        if at >= size:
            raise ValueError("cut off")
        first = body[at]
        kind = first & ~_REFERENCED
        at += 1
        if left > 0:
            open_values[-1] = left - 1
        elif kind == _END:
            _close(open_values, weights, numbers, referred)
            continue
        weights[-1] += 1
        nested = _NESTED.get(kind)
        if first != kind and kind != _REFERENCE:
            referred.append(0 if nested is not None or kind == _DICT else 1)
        if kind == _DICT:
            count = -1
        elif nested is not None:
            count, at = _count(body, at, nested)
            if count > size - at:
                raise ValueError(f"{count} values are announced, and {size - at} bytes follow")
        else:
            if kind == _REFERENCE:
                weights[-1] += _weight(body, at, referred)
                if weights[-1] > _MOST_VALUES:
                    raise ValueError("the same is referred to again and again")
            at = _end(body, at, kind)
            continue
        open_values.append(count)
        weights.append(1)
        numbers.append(len(referred) - 1 if first != kind else -1)
        if len(open_values) > _MOST_DEPTH:
            raise ValueError("nested too deeply")
    return at


def _end(body: bytes, at: int, kind: int) -> int:
    """The end of a value that contains no others."""
    if kind in _PLAIN:
        return at
    if (width := _FIXED.get(kind)) is not None:
        at += width
    elif (width := _COUNTED.get(kind)) is not None:
        count, at = _count(body, at, width)
        at += count
    elif kind == _LONG:
        count, at = _count(body, at, 4)
        at += 2 * (count if count < 1 << 31 else (1 << 32) - count)
    else:
        raise ValueError(f"no value of messages: {kind}")
    if at > len(body):
        raise ValueError("cut off")
    return at


def _weight(body: bytes, at: int, referred: list[int]) -> int:
    number, _end = _count(body, at, 4)
    if number >= len(referred) or not referred[number]:
        raise ValueError("refers to a value that has not been read yet")
    return referred[number]


def _close(open_values: list[int], weights: list[int], numbers: list[int], referred: list[int]) -> None:
    open_values.pop()
    weight, number = weights.pop(), numbers.pop()
    if number >= 0:
        referred[number] = weight
    if weights:
        weights[-1] += weight


def _count(body: bytes, at: int, width: int) -> tuple[int, int]:
    end = at + width
    if end > len(body):
        raise ValueError("cut off")
    return (body[at] if width == 1 else _U32.unpack_from(body, at)[0]), end
