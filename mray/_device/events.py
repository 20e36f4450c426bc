"""Interprocess events of this process, lent to whoever marks something with one.

They are never destroyed: another process may still have one open, and waiting for an event whose maker has destroyed it is undefined. An
event that is lent again only makes somebody who waits late wait a little longer. Any thread, finalizers too.
"""

from __future__ import annotations

from collections import deque

from mray._device.base import Device, Event


def _idle(device: Device) -> deque[Event]:
    idle: deque[Event] = device.belongings.setdefault("idle events", deque())
    return idle


def lend_event(device: Device) -> Event:
    """An event of this process that nobody uses; give it back by `return_event`."""
    try:
        # The one returned last: peers have that open already.
        return _idle(device).pop()
    except IndexError:
        return device.create_event()


def recorded(device: Device, stream: int) -> Event:
    """A lent event that marks the end of the stream. Raises RuntimeError, and lends none, when the stream cannot be marked."""
    event = lend_event(device)
    try:
        event.record(stream)
    except BaseException:
        return_event(device, event)
        raise
    return event


def return_event(device: Device, event: Event) -> None:
    """It is not recorded any more by who borrowed it."""
    _idle(device).append(event)
