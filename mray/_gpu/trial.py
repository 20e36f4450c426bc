"""Whether a process can open memory and timelines of another one: tried before any edge depends on it.

    maker                                              opener
    offer: timelines and a little memory, exported --> try_offer: opens both and closes them; a failure is an `Obstacle`
    withdraw  <--------------------------------------- (by the process that has asked both)

CUDA's IPC calls fail in containers that share too little, on WSL, on some MIG parts, and where the compute mode allows one process;
only the calls show it. Both sides create a context.
"""

from __future__ import annotations

from typing import NamedTuple

from mray._channel.site import Obstacle
from mray._device.device import Device
from mray._device.mappings import leave, open_timelines
from mray._device.timelines import Where, mark


class Offer(NamedTuple):
    """Memory and a timeline to be opened."""

    #: A point, and the handle of memory; None and empty if they could not be created.
    point: Where | None = None
    memory: bytes = b""
    #: The error where one is empty. Memory is missing without a reason when the device is full.
    reason: str = ""


#: Each offer's asker, device and address.
_offered: list[tuple[str, Device, int]] = []


def offer(device: Device, asker: str) -> Offer:
    """Export timelines and memory of a device, until `withdraw`. A failure to export is reported, not raised."""
    try:
        point = mark(device, device.current_stream()).where
    except (RuntimeError, MemoryError) as error:
        return Offer(reason=_clause(error))
    memory, reason = b"", ""
    try:
        address = device.allocate(1)
        _offered.append((asker, device, address))
        memory = device.export_memory(address)
    except MemoryError:
        pass
    except RuntimeError as error:
        reason = _clause(error)
    return Offer(point, memory, reason)


def withdraw(asker: str) -> None:
    """Free what is on offer for this asker. No process may have it open. Idempotent."""
    for each in [each for each in _offered if each[0] == asker]:
        _offered.remove(each)
        _asker, device, address = each
        device.free(address)


def try_offer(device: Device, offered: Offer, *, with_memory: bool) -> Obstacle | None:
    """Open another process's offer and close it again. Returns the obstacle, or None."""
    if offered.point is None:
        return Obstacle(offered.reason, of_timelines=True)
    reason = device.why_unordered()
    if reason:
        return Obstacle(reason.rstrip("."), of_timelines=True)
    key, handle, *_ = offered.point
    try:
        open_timelines(device, key, handle)
    except RuntimeError as error:
        return Obstacle(_clause(error), of_timelines=True)
    leave(device, key)
    if not with_memory:
        return None
    if offered.reason:
        return Obstacle(offered.reason, of_timelines=False)
    if offered.memory:
        try:
            device.close_memory(device.open_memory(offered.memory))
        except RuntimeError as error:
            return Obstacle(_clause(error), of_timelines=False)
    return None


def _clause(error: Exception) -> str:
    return str(error).rstrip(".")
