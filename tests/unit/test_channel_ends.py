"""The ends of a graph's channels in one process, all closed together."""

from __future__ import annotations

from typing import Any

import pytest

from mray._graph.channel_ends import ChannelEnds


class End:
    """An end, or anything else that is closed with the ends."""

    def __init__(self, name: str, order: list[str], error: Exception | None = None) -> None:
        self.name = name
        self.order = order
        self.error = error

    def close(self) -> None:
        self.order.append(self.name)
        if self.error is not None:
            raise self.error


def test_an_end_that_cannot_be_closed_keeps_no_other_open() -> None:
    order: list[str] = []
    segment: Any = End("segment", order)
    ends = ChannelEnds(segment)
    readers: Any = {0: End("reader 0", order, RuntimeError("the device is broken")), 1: End("reader 1", order)}
    writers: Any = {2: End("writer", order)}
    ends.readers, ends.writers = readers, writers
    ends.leave = [End("doorbell", order).close]
    with pytest.raises(RuntimeError, match="the device is broken"):
        ends.close()
    assert sorted(order[:2]) == ["reader 0", "reader 1"]
    assert order[2:] == ["writer", "doorbell", "segment"]
