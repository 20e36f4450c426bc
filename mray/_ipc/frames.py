"""Frames of peers that nobody has introduced yet: checked before `marshal` reads them.

`marshal` believes the counts that it reads: five bytes that announce a tuple of two thousand million items make it allocate, and touch,
sixteen gigabytes. So the frames that a process gets over a connection that it has accepted are looked through first, until the owner of the
connection knows the peer: everything announced must be there, nothing may be nested deeply, and only values that messages are made of may
occur. From then on the peer is one of ours, and its frames are read as they come.
"""

from __future__ import annotations

import marshal
from struct import Struct
from typing import Any

#: Bytes of such a frame at most.
MOST_BYTES = 4 * 1024 * 1024
_MOST_DEPTH = 64

_U32 = Struct("<I")
_REFERENCED = 0x80
_PLAIN = frozenset(b"NTF")
#: Bytes that follow the type, where that says how many.
_FIXED = {ord("i"): 4, ord("r"): 4, ord("g"): 8}
#: Bytes of the count of the bytes that follow it.
_COUNTED = {ord("z"): 1, ord("Z"): 1, ord("a"): 4, ord("A"): 4, ord("u"): 4, ord("t"): 4, ord("s"): 4}
#: Bytes of the count of the values that follow it.
_NESTED = {ord(")"): 1, ord("("): 4, ord("["): 4, ord("<"): 4, ord(">"): 4}
_LONG = ord("l")
_DICT = ord("{")
_END = ord("0")


def decode_unknown(body: bytes) -> tuple[Any, ...]:
    """The message of a frame of a peer that is not known yet; ValueError, or what else marshal raises, if it is none."""
    if len(body) > MOST_BYTES:
        raise ValueError(f"{len(body)} bytes are too much for a first message")
    end = _check(body)
    if end != len(body):
        raise ValueError(f"{len(body) - end} bytes follow the message")
    message = marshal.loads(body)
    if message.__class__ is not tuple or not message:
        raise ValueError("a message is a tuple")
    return message


def _check(body: bytes) -> int:
    """Look through one value; where it ends. ValueError."""
    size = len(body)
    at = 0
    # How many values are still to come at each depth; -1: a dict, which ends with a mark.
    open_values = [1]
    while open_values:
        left = open_values[-1]
        if not left:
            open_values.pop()
            continue
        if at >= size:
            raise ValueError("cut off")
        kind = body[at] & ~_REFERENCED
        at += 1
        if left > 0:
            open_values[-1] = left - 1
        elif kind == _END:
            open_values.pop()
            continue
        if kind in _PLAIN:
            continue
        if kind == _DICT:
            open_values.append(-1)
        elif (width := _FIXED.get(kind)) is not None:
            at += width
        elif (width := _COUNTED.get(kind)) is not None:
            count, at = _count(body, at, width)
            at += count
        elif (width := _NESTED.get(kind)) is not None:
            count, at = _count(body, at, width)
            if count > size - at:
                raise ValueError(f"{count} values are announced, and {size - at} bytes follow")
            open_values.append(count)
        elif kind == _LONG:
            count, at = _count(body, at, 4)
            at += 2 * (count if count < 1 << 31 else (1 << 32) - count)
        else:
            raise ValueError(f"no value of messages: {kind}")
        if at > size:
            raise ValueError("cut off")
        if len(open_values) > _MOST_DEPTH:
            raise ValueError("nested too deeply")
    return at


def _count(body: bytes, at: int, width: int) -> tuple[int, int]:
    end = at + width
    if end > len(body):
        raise ValueError("cut off")
    return (body[at] if width == 1 else _U32.unpack_from(body, at)[0]), end
