"""Two processes whose streams use one block in turn, and look how far the other has come (`mray._device.timelines`).

    writer: write the block, mark ── word ──▶ reader: is it there? read the block, mark ── word ──▶ writer: is it done? write the block

Points, looks and the pretended device's way to set a word are real; each stream does at once what is queued on it. An actor that finds a
point not reached comes to its end: its stream waits, and a device that waits for a word looks as the process does.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Iterator
from typing import Any

import pytest

from mray._device import mappings, timelines
from mray._device.mappings import PeerTimelines
from mray._device.timelines import Peers, Timeline
from mray.testing import null
from mray.testing.null import NullDevice
from tests.interleavings import explorer
from tests.interleavings.explorer import READ, SEQUENTIAL, WRITE, Explored, Explorer, Outcome, Plain, Run
from tests.interleavings.stand_ins import Words

BLOCK = Plain(("block", 0))


class _Word:
    """A word of a process's region, as its device sees it."""

    def __init__(self, words: Words) -> None:
        self._words = words

    @property
    def value(self) -> int:
        return int(self._words[0])

    @value.setter
    def value(self, number: int) -> None:
        self._words[0] = number


class _Device:
    """Of one process: its stream sets words of the own region, and waits for those of the other one."""

    def __init__(self, words: Words) -> None:
        self._words = words
        self.waits = False

    def _word(self, _address: int) -> _Word:
        return _Word(self._words)

    def set_word(self, address: int, number: int, _stream: int) -> None:
        own: Any = self
        NullDevice._set(own, address, number)

    def await_word(self, _address: int, _number: int, _stream: int) -> None:
        self.waits = True


class Marking:
    """`is_own`: the reader is another thread of the writer's process, and looks at its own process's word."""

    def __init__(self, *, is_own: bool = False) -> None:
        self.is_own = is_own

    def _sides(self, run: Run, own: str, other: str) -> tuple[Any, Timeline, Any]:
        """The device, the own timeline, and a look at the other's point of a number: whether it is reached."""
        device: Any = _Device(Words(run, own))
        region: Any = types.SimpleNamespace(address=0, words=Words(run, own), key=own.encode(), handle=b"")
        timeline = Timeline(device, region, 0, is_lasting=True)
        peers = Peers.__new__(Peers)
        theirs: Any = PeerTimelines.__new__(PeerTimelines)
        theirs.address, theirs.device, theirs.words = 0, device, Words(run, other)
        peers._opened = {(other.encode(), device): theirs}
        peers.streams = {}

        def look(number: int) -> bool:
            if self.is_own and own == "reader":
                there: Any = types.SimpleNamespace(address=0, words=theirs.words, key=b"", handle=b"")
                return Timeline(device, there, 0, is_lasting=True).reached(number)
            peers.wait(device, 0, other.encode(), b"", 0, number)
            return not device.waits

        return device, timeline, look

    def write(self, run: Run) -> str:
        """How far it came."""
        _device, timeline, look = self._sides(run, "writer", "reader")
        run.access(WRITE, BLOCK, 1)
        assert timeline.reached(timeline.mark(0))
        if not look(1):
            return "waits"
        run.access(WRITE, BLOCK, 2)
        return "wrote again"

    def read(self, run: Run) -> str:
        """How far it came."""
        _device, timeline, look = self._sides(run, "reader", "writer")
        if not look(1):
            return "waits"
        assert run.access(READ, BLOCK) == 1, "not the value that was marked"
        timeline.mark(0)
        return "read"

    # ------------------------------------------------------------------------------------------ exploring
    def check(self, outcome: Outcome) -> None:
        if not any(end.how == "crashed" for end in outcome.actors.values()) and outcome.value("writer") == "wrote again":
            assert outcome.value("reader") == "read"

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """The modules use the explorer's fences."""
        with pytest.MonkeyPatch.context() as patch:
            for module in (timelines, mappings):
                patch.setattr(module, "trust_fence", explorer.fence_if_weak)
            patch.setattr(null, "publish_fence", explorer.fence_if_weak)
            yield

    def explore(self, order: str = SEQUENTIAL, victim: str | None = None) -> Explored:
        """Raises Violation."""
        with self.in_place():
            return Explorer({"writer": self.write, "reader": self.read}, initial={}, order=order, victim=victim, check=self.check).explore()
