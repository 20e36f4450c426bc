"""The results of a graph on the caller's side: those that have come, are kept, or are unwanted. No method waits.

Executions finish in order. One is finished when every output has come, or as soon as one of them is a failure: then all its outputs are
that failure, and later values of the others are skipped when they come.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from types import CodeType
from typing import Any

from mray._channel.base import NOTHING, ChannelReader, Failed
from mray._common.places import is_amidst

TAKEN = object()
AMIDST = (
    "A finalizer that the garbage collector has run may not use a compiled graph in the middle of a call of the same graph. Let it hand "
    "that to the program: by a queue that the program looks into, say."
)


class Results:
    """Not locked: the graph's lock guards everything but `dropped`."""

    def __init__(
        self,
        readers: Sequence[ChannelReader],
        picks: Sequence[Callable[[list[Any]], Any]],
        lost: Callable[[], Failed] | None = None,
        reads_itself: CodeType | None = None,
    ) -> None:
        """`lost` makes what is in the place of a message that is lost.

        `reads_itself`: the method of the graph that reads results by itself.
        """
        self._reading = frozenset({type(self).advance.__code__, reads_itself or type(self).advance.__code__})
        self.readers = tuple(readers)
        self._reads = tuple(reader.try_read for reader in readers)
        self._lost = lost
        #: An exception from outside may have come between a message and its count (see `_mend`).
        self.is_cut = False
        #: For each output, the function that makes it from the readers' values.
        self._picks = tuple(picks)
        #: The number of finished executions: all their outputs have come, or they have failed.
        self.finished = 0
        #: The number of messages that each reader has brought, and the values of the first unfinished execution so far.
        self._came = [0] * len(readers)
        self._partial: list[Any] = [None] * len(readers)
        #: Finished executions with outputs that were not taken; `TAKEN` where one was (or was dropped).
        self.kept: dict[int, list[Any]] = {}
        #: (execution, output) of refs that died unread; finalizers only append.
        self.dropped: deque[tuple[int, int | None]] = deque()
        #: The same for executions that are not finished, by execution.
        self.unwanted: dict[int, set[int | None]] = {}

    def read_by(self, reads: Sequence[Callable[[], Any]]) -> None:
        """Read the results through these functions from now on; they return the same values."""
        self._reads = tuple(reads)

    def advance(self) -> bool:
        """Read values that have come for the first unfinished execution; whether it is finished now."""
        if self.is_cut:
            self._mend()
        self.is_cut = True
        values = self._partial
        missing = False
        failed: Failed | None = None
        for number, read in enumerate(self._reads):
            came = self._came[number]
            while came <= self.finished:
                value = read()
                if value is NOTHING:
                    break
                if came == self.finished:
                    values[number] = value
                came += 1
            self._came[number] = came
            if came <= self.finished:
                missing = True
            elif values[number].__class__ is Failed and failed is None:
                failed = values[number]
        is_finished = not missing or failed is not None
        if is_finished:
            self._finish(values, failed)
        self.is_cut = False
        return is_finished

    def _mend(self) -> None:
        """Count the messages that the readers have brought: an exception from outside came before they were."""
        if is_amidst(self._reading, self):
            raise RuntimeError(AMIDST)
        for number, reader in enumerate(self.readers):
            came, there = self._came[number], reader.position()
            if came <= self.finished < there and self._lost is not None:
                self._partial[number] = self._lost()
            self._came[number] = there
        self.is_cut = False

    def missing(self) -> list[int]:
        """The readers that have not brought their value of the first unfinished execution."""
        finished = self.finished
        return [number for number, came in enumerate(self._came) if came <= finished]

    def any_ready(self) -> bool:
        """Whether any message has come."""
        try:
            # Every reader is asked: asking also frees room for a waiting writer.
            return True in [reader.ready() for reader in self.readers]
        except ValueError:  # another thread has just torn the graph down and let go of the memory
            return True

    def may_finish(self) -> bool:
        """Whether the first unfinished execution can finish: all its missing results have come, or a failure has.

        Every output wakes the thread, which goes back to sleep at once for all but the last.
        """
        try:
            finished, lacks, there = self.finished, False, []
            for came, reader in zip(self._came, self.readers, strict=True):
                if not reader.ready():
                    lacks = lacks or came <= finished
                elif came <= finished:
                    there.append(reader)
            return not lacks or True in [reader.failed() for reader in there]
        except ValueError:  # as above
            return True

    def _finish(self, values: list[Any], failed: Failed | None) -> None:
        outputs = [failed] * len(self._picks) if failed is not None else [pick(values) for pick in self._picks]
        self._partial = [None] * len(self._reads)
        index = self.finished
        self.kept[index] = outputs
        self.finished = index + 1
        if self.dropped:
            self.note_dropped()
        for output in self.unwanted.pop(index, ()):
            for position in range(len(outputs)) if output is None else (output,):
                self._take(index, position)

    def skip_one(self) -> None:
        """Count the first unfinished execution as finished: the caller itself has read and taken its only output."""
        self._came[0] += 1
        self.finished += 1

    def take(self, index: int, output: int | None) -> Any:
        """One output of a finished execution."""
        value = self._take(index, output or 0)
        assert value is not TAKEN, "a ref gives its result once"
        return value

    def _take(self, index: int, position: int) -> Any:
        """Its value, or `TAKEN`."""
        outputs = self.kept.get(index)
        if outputs is None:
            return TAKEN
        value = outputs[position]
        outputs[position] = TAKEN
        if len(outputs) == 1 or all(each is TAKEN for each in outputs):
            del self.kept[index]
        return value

    def put_back(self, index: int, output: int | None, value: Any) -> None:
        """Undo `take`."""
        self.kept.setdefault(index, [TAKEN] * len(self._picks))[output or 0] = value

    def note_dropped(self) -> None:
        """Drop the results of refs that have died."""
        while self.dropped:
            index, output = self.dropped.popleft()
            if index >= self.finished:
                self.unwanted.setdefault(index, set()).add(output)
            else:
                self._take(index, output or 0)

    def next_is_unwanted(self) -> bool:
        """Whether no ref to the first unfinished execution is left."""
        unwanted = self.unwanted.get(self.finished)
        return unwanted is not None and (None in unwanted or len(unwanted) == len(self._picks))
