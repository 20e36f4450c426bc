"""Streams on which edges copy, lent one by one.

They are never destroyed: what an edge has queued there may be waited for long after it is closed. The next borrower only waits a
little longer. Any thread.
"""

from __future__ import annotations

from collections import deque

from mray._device.base import Device


def _idle(device: Device) -> deque[int]:
    idle: deque[int] = device.belongings.setdefault("idle streams", deque())
    return idle


def lend_stream(device: Device) -> int:
    """A stream of the device that no other edge queues anything on; give it back by `return_stream`."""
    try:
        return _idle(device).pop()
    except IndexError:
        return device.create_stream()


def return_stream(device: Device, stream: int) -> None:
    """Its borrower queues nothing on it any more."""
    _idle(device).append(stream)
