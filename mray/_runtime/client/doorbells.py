"""`Doorbells`: how a process wakes others through graphs, and gets the memory that they offer.

`mray._runtime.client.wakeups` has the kernel's; the single-process engine has its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from mray._runtime.connections.part import Part

if TYPE_CHECKING:
    from mray._ipc.doorbell import Doorbell, GroupDoorbell
    from mray._ipc.segment import Ask


class Doorbells(Part, ABC):
    @abstractmethod
    def of(self, process: str) -> Doorbell:
        """Wait until that process answers; OSError if it has exited."""

    @abstractmethod
    def ask_of(self, process: str) -> Ask:
        """A function that gets segments from the process that offers them."""

    @abstractmethod
    def group(self, ring: str, doorbells: Sequence[Doorbell]) -> GroupDoorbell | None:
        """One doorbell for all readers of a ring, for its writer; None if they are rung one by one."""

    @abstractmethod
    def join_group(self, writer: str, ring: str) -> Callable[[], None]:
        """Be woken by a group doorbell of another process. Returns the function that ends this."""

    @abstractmethod
    def end_group(self, ring: str) -> None:
        """The writer has closed the ring."""

    def end_relays(self) -> None:
        """Stop the threads that ring this process's doorbell."""
