"""Bytes that decoders once misread, or did not survive: the decoder, and the bytes. Found by `tools/fuzz` and by thinking."""

from __future__ import annotations

import struct

from mray._ipc.slots import PLACE

FOUND: list[tuple[str, bytes]] = [
    # A tuple of two thousand million fields is announced: a driver or a worker reserved sixteen gigabytes for it.
    ("stream of a peer", b"\x05\x00\x00\x00(\xff\xff\xff\x7f"),
    ("answer of the node", b"\x05\x00\x00\x00(\xff\xff\xff\x7f"),
    # Text in the stream: it was taken for the beginning of a frame of a gigabyte, and waited for.
    ("stream of a peer", b"Hello world, how are you?"),
    # A wild write into its own row: the node added it to its own count when the worker died, and ended.
    ("row of the session's table", b"\xff" * 56),
    # No tuple: it reached the owner of the connection.
    ("stream of a peer", b"\x01\x00\x00\x00N"),
    # The release of this slot would have written into the words of another reader.
    ("place of a slot", PLACE.pack(9, 1, 1, 10)),
    ("place of a slot", PLACE.pack((1 << 64) - 1, 1, 1, 10)),
    # The array was shorter, or made of other bytes, than the one that was sent.
    ("array", struct.pack("<II", 0, 0)),
    ("file of a member", b"{}"),
    ("file of a member", b"[1, 2"),
    ("note of a worker", b"[]"),
    ("note of a worker", b'{"kind": "progress", "state": 5}'),
]
