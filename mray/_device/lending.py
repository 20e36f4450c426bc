"""Streams of this process, lent to edges and communicators.

They are never destroyed: another process may wait for an edge's queued work long after the edge is closed, and allocators keep memory by
stream. Any thread, finalizers too.

`user` names the purpose: edges and communicators share no stream. Nor do two communicators, each of which has one to send and one to
receive on: one could wait behind the other here, and the other behind it elsewhere.
"""

from __future__ import annotations

from collections import deque

from mray._device.device import Device
from mray._device.timelines import keep_stream


def _idle(device: Device, user: str) -> deque[int]:
    idle: deque[int] = device.belongings.setdefault(f"idle streams of {user}", deque())
    return idle


def lend_stream(device: Device, user: str = "edges") -> int:
    """A stream without another user, until it is returned."""
    try:
        return _idle(device, user).pop()
    except IndexError:
        stream = device.create_stream()
        keep_stream(device, stream)
        return stream


def return_stream(device: Device, stream: int, user: str = "edges") -> None:
    """The caller queues no more work on it."""
    _idle(device, user).append(stream)
