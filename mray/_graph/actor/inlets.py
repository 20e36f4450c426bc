"""Reading the values of one step from several channels, without waiting for values that no longer matter.

A failure among a step's values skips the step without waiting for the others; they are discarded when they arrive, and until then the
inlet *owes* messages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mray._channel.base import NOTHING, ChannelReader, Failed


class Inlet:
    """One channel of a step; `alone`: no other step of this actor uses its value, and its writer does not wait for readers."""

    __slots__ = ("alone", "came", "cell", "owed", "reader", "try_read")

    def __init__(self, reader: ChannelReader, cell: int, alone: bool) -> None:
        self.reader = reader
        self.try_read = reader.try_read
        self.cell = cell
        self.alone = alone
        #: Whether the current value is in its cell.
        self.came = False
        #: Messages to discard before the next value.
        self.owed = 0

    def take(self) -> Any:
        """The value of the current execution, or `NOTHING`."""
        if self.owed:
            self.settle()
            if self.owed:
                return NOTHING
        return self.try_read()

    def settle(self) -> None:
        while self.owed and self.try_read() is not NOTHING:
            self.owed -= 1

    def ready(self) -> bool:
        return not self.came and self.reader.ready()


def read_all(inlets: Sequence[Inlet], cells: list[Any], others: Sequence[int]) -> Callable[[], int]:
    """`others`: the cells of the step's other values, which are filled already."""
    count = len(inlets)

    def read() -> int:
        missing = False
        failed: Failed | None = None
        for inlet in inlets:
            if not inlet.came:
                value = inlet.take()
                if value is NOTHING:
                    missing = True
                    continue
                # POINT graph inlet read
                inlet.came = True
                cells[inlet.cell] = value
            if cells[inlet.cell].__class__ is Failed:
                failed = cells[inlet.cell]
        if missing:
            for cell in others:
                if cells[cell].__class__ is Failed:
                    failed = cells[cell]
            if failed is None or not all(inlet.came or inlet.alone for inlet in inlets):
                return 0
            for inlet in inlets:
                if not inlet.came:
                    inlet.owed += 1
                    cells[inlet.cell] = failed
        for inlet in inlets:
            inlet.came = False
        return count

    return read


def any_ready(inlets: Sequence[Inlet]) -> Callable[[], bool]:
    """Whether a READ would make progress. Every channel is asked: asking also frees room for a waiting writer."""
    return lambda: True in [inlet.ready() for inlet in inlets]
