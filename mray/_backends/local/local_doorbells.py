"""Doorbells that wake no thread: each decision checks every waiting thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from mray._common.bridge import nothing
from mray._common.kept import os
from mray._inside.memory import Doorbell, GroupDoorbell
from mray._inside.platform import Doorbells, offered

if TYPE_CHECKING:
    from mray._inside.memory import Ask


class NoDoorbell(Doorbell):
    """Wakes no thread; a `Doorbell` because writers of rings take one."""

    __slots__ = ()

    def __init__(self) -> None:
        self.fd = -1

    def ring(self) -> None:
        """Do nothing: no thread sleeps."""


_doorbell = NoDoorbell()


class LocalDoorbells(Doorbells):
    def __init__(self, _client: object) -> None:
        """Create nothing."""

    def of(self, process: str) -> Doorbell:
        return _doorbell

    def ask_of(self, process: str) -> Ask:
        return lambda name: os.dup(offered(name).fd)  # all offers are in one table

    def group(self, ring: str, doorbells: Sequence[Doorbell]) -> GroupDoorbell | None:
        return None

    def join_group(self, writer: str, ring: str) -> Callable[[], None]:
        return nothing

    def end_group(self, ring: str) -> None:
        """Do nothing: groups do not exist."""
