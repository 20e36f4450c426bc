"""Interprocess events and streams of this process, lent to whoever marks something with one, or copies or communicates on one.

They are never destroyed. Another process may still have an event open, and waiting for one whose maker has destroyed it is undefined; what
an edge has queued on its stream may be waited for long after the edge is closed, and allocators keep memory by stream. An event or a stream
that is lent again only makes somebody who waits late wait a little longer. Any thread, finalizers too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from mray._device.base import Device, Event

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
            # The one returned last: peers have that open already.
            return self._idle(device).pop()
        except IndexError:
            return self._create(device)

    def take_back(self, device: Device, thing: _Thing) -> None:
        """Its borrower records it, or queues on it, no more."""
        self._idle(device).append(thing)


_events = _Lending[Event]("events", lambda device: device.create_event())
_streams = _Lending[int]("streams", lambda device: device.create_stream())
#: For communicators: one stream to send and one to receive on. Two communicators share none: one could wait behind the other here, and the
#: other behind it elsewhere.
_pairs = _Lending[tuple[int, int]]("pairs of streams", lambda device: (device.create_stream(), device.create_stream()))

lend_event, return_event = _events.lend, _events.take_back
lend_stream, return_stream = _streams.lend, _streams.take_back
lend_streams, return_streams = _pairs.lend, _pairs.take_back


def recorded(device: Device, stream: int) -> Event:
    """A lent event that marks the end of the stream. Raises RuntimeError, and lends none, when the stream cannot be marked."""
    event = lend_event(device)
    try:
        event.record(stream)
    except BaseException:
        return_event(device, event)
        raise
    return event
