"""Streams of this process, lent to whoever copies or communicates on one.

They are never destroyed: what an edge has queued on its stream may be waited for long after the edge is closed, and allocators keep memory
by stream. Any thread, finalizers too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from mray._device.device import Device

_Thing = TypeVar("_Thing")


class _Lending(Generic[_Thing]):
    """Things of one kind, of every device."""

    def __init__(self, kind: str, create: Callable[[Device], _Thing]) -> None:
        self._name = f"idle {kind}"
        self._create = create

    def _idle(self, device: Device) -> deque[_Thing]:
        idle: deque[_Thing] = device.belongings.setdefault(self._name, deque())
        return idle

    def lend(self, device: Device) -> _Thing:
        """One that nobody else uses, until it is returned."""
        try:
            return self._idle(device).pop()
        except IndexError:
            return self._create(device)

    def take_back(self, device: Device, thing: _Thing) -> None:
        """Its borrower queues on it no more."""
        self._idle(device).append(thing)


_streams = _Lending[int]("streams", lambda device: device.create_stream())
#: For communicators: one stream to send and one to receive on. Two communicators share none: one could wait behind the other here, and the
#: other behind it elsewhere.
_pairs = _Lending[tuple[int, int]]("pairs of streams", lambda device: (device.create_stream(), device.create_stream()))

lend_stream, return_stream = _streams.lend, _streams.take_back
lend_streams, return_streams = _pairs.lend, _pairs.take_back
