"""Whether a process can open memory and events of another one: tried before anything counts on it.

    maker                                              opener
    offer: an event and a little memory, exported ---> try_offer: opens both and closes them; what it failed at is an `Obstacle`
    withdraw  <--------------------------------------- (by whoever has asked both)

CUDA's calls of IPC fail where the processes are in containers that share too little, on WSL, on some parts of GPUs (MIG), and where the
compute mode of a GPU allows one process. Nothing says so beforehand but the calls themselves. Both sides make a context for them.
"""

from __future__ import annotations

from typing import NamedTuple

from mray._device.base import Device, Event
from mray._device.lending import lend_event, return_event


class Offer(NamedTuple):
    """Something to open. Plain data."""

    #: The handle of an event, and of memory; empty: could not be made.
    event: bytes = b""
    memory: bytes = b""
    #: The error, where one of them is empty. Memory may be missing without a reason: the device is full.
    reason: str = ""


class Obstacle(NamedTuple):
    """The reason why tensors of one process cannot be opened in another one."""

    #: A clause without a full stop.
    reason: str
    #: Whether events cannot be opened either; without them nothing orders copies through host memory.
    of_events: bool


#: The offers that are not withdrawn: their asker, the device, its event, the address of its memory (0: none).
_offered: list[tuple[str, Device, Event, int]] = []


def offer(device: Device, asker: str) -> Offer:
    """Export an event and memory of a device, until `withdraw`. A failure to export is told, not raised."""
    try:
        event = lend_event(device)
    except RuntimeError as error:
        return Offer(reason=_clause(error))
    address, memory, reason = 0, b"", ""
    try:
        address = device.allocate(1)
        memory = device.export_memory(address)
    except MemoryError:
        pass
    except RuntimeError as error:
        reason = _clause(error)
    _offered.append((asker, device, event, address))
    return Offer(event.handle, memory, reason)


def withdraw(asker: str) -> None:
    """Free what is on offer for this asker; nobody has it open any more. Idempotent."""
    for each in [each for each in _offered if each[0] == asker]:
        _offered.remove(each)
        _asker, device, event, address = each
        return_event(device, event)
        if address:
            device.free(address)


def try_offer(device: Device, offered: Offer, *, with_memory: bool) -> Obstacle | None:
    """Open an offer of another process on a device of this one, and close it again; None: that works."""
    if not offered.event:
        return Obstacle(offered.reason, of_events=True)
    try:
        device.open_event(offered.event).close()
    except RuntimeError as error:
        return Obstacle(_clause(error), of_events=True)
    if not with_memory:
        return None
    if offered.reason:
        return Obstacle(offered.reason, of_events=False)
    if offered.memory:
        try:
            device.close_memory(device.open_memory(offered.memory))
        except RuntimeError as error:
            return Obstacle(_clause(error), of_events=False)
    return None


def _clause(error: Exception) -> str:
    return str(error).rstrip(".")
