"""Shared memory between processes, its fences and doorbells.

====================  ====================================================================================================
Ask                   The type of a function that gets the descriptor of a segment, given the segment's name.
Doorbell              The doorbell of one process, which wakes it.
GroupDoorbell         One doorbell for all readers of a ring.
PAGE                  The bytes of a page of memory.
publish_fence         The fence before a writer publishes.
round_up              Round a size up to a multiple of a unit, by default a page.
trust_fence           The fence before a reader trusts what it has read.
====================  ====================================================================================================
"""

from mray._ipc.doorbell import Doorbell, GroupDoorbell
from mray._ipc.memory_order import publish_fence, trust_fence
from mray._ipc.segment import PAGE, Ask, round_up

__all__ = [
    "PAGE",
    "Ask",
    "Doorbell",
    "GroupDoorbell",
    "publish_fence",
    "round_up",
    "trust_fence",
]
