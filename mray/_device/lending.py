"""Streams of this process, lent to whoever copies or communicates on one.

They are never destroyed: what an edge has queued on its stream may be waited for long after the edge is closed, and allocators keep memory
by stream. Any thread, finalizers too.

`user` says for what: edges and communicators share none. Nor do two communicators, each of which has one stream to send and one to receive
on: one could wait behind the other here, and the other behind it elsewhere.
"""

from __future__ import annotations

from collections import deque

from mray._device.device import Device
from mray._device.timelines import keep_stream


def _idle(device: Device, user: str) -> deque[int]:
    idle: deque[int] = device.belongings.setdefault(f"idle streams of {user}", deque())
    return idle


def lend_stream(device: Device, user: str = "edges") -> int:
    """One that nobody else uses, until it is returned."""
    try:
        return _idle(device, user).pop()
    except IndexError:
        stream = device.create_stream()
        keep_stream(device, stream)
        return stream


def return_stream(device: Device, stream: int, user: str = "edges") -> None:
    """Its borrower queues on it no more."""
    _idle(device, user).append(stream)
