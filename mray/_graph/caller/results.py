"""The results of a graph on the caller's side: arrived, kept, or unwanted. No method waits.

Executions finish in order: when every output has arrived or one is a failure, which stands for all; later values are skipped on
arrival.
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
    "A finalizer that the garbage collector has run may not use a compiled graph in the middle of a call of the same graph. Let it leave "
    "that to the program, for example through a queue that the program polls."
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
        """`reads_itself`: the graph's method that also reads results."""
        self._reading = frozenset({type(self).advance.__code__, reads_itself or type(self).advance.__code__})
        self.readers = tuple(readers)
        self._reads = tuple(reader.try_read for reader in readers)
        self._lost = lost
        #: Whether an asynchronous exception may have come between reading a message and counting it.
        self.is_cut = False
        #: Each output's function of the readers' values.
        self._picks = tuple(picks)
        self.finished = 0
        #: Messages read, by reader; values of the first unfinished execution.
        self._came = [0] * len(readers)
        self._partial: list[Any] = [None] * len(readers)
        #: Finished executions with untaken outputs; `TAKEN` where one was taken or dropped.
        self.kept: dict[int, list[Any]] = {}
        #: (execution, output) of refs that were dropped unread; finalizers only append.
        self.dropped: deque[tuple[int, int | None]] = deque()
        #: Unread outputs of unfinished executions whose refs were dropped.
        self.unwanted: dict[int, set[int | None]] = {}

    def read_by(self, reads: Sequence[Callable[[], Any]]) -> None:
        self._reads = tuple(reads)

    def advance(self) -> bool:
        """Returns whether arrived values finished the first unfinished execution."""
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
        if is_amidst(self._reading, self):
            raise RuntimeError(AMIDST)
        for number, reader in enumerate(self.readers):
            came, there = self._came[number], reader.position()
            if came <= self.finished < there and self._lost is not None:
                self._partial[number] = self._lost()
            self._came[number] = there
        self.is_cut = False

    def missing(self) -> list[int]:
        finished = self.finished
        return [number for number, came in enumerate(self._came) if came <= finished]

    def any_ready(self) -> bool:
        try:
            # Asking every reader frees room for waiting writers.
            return True in [reader.ready() for reader in self.readers]
        except ValueError:  # torn down meanwhile
            return True

    def may_finish(self) -> bool:
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
        """The caller has taken the only output of the first unfinished execution."""
        self._came[0] += 1
        self.finished += 1

    def take(self, index: int, output: int | None) -> Any:
        value = self._take(index, output or 0)
        assert value is not TAKEN, "a ref gives its result once"
        return value

    def _take(self, index: int, position: int) -> Any:
        outputs = self.kept.get(index)
        if outputs is None:
            return TAKEN
        value = outputs[position]
        outputs[position] = TAKEN
        if len(outputs) == 1 or all(each is TAKEN for each in outputs):
            del self.kept[index]
        return value

    def put_back(self, index: int, output: int | None, value: Any) -> None:
        self.kept.setdefault(index, [TAKEN] * len(self._picks))[output or 0] = value

    def note_dropped(self) -> None:
        while self.dropped:
            index, output = self.dropped.popleft()
            if index >= self.finished:
                self.unwanted.setdefault(index, set()).add(output)
            else:
                self._take(index, output or 0)

    def next_is_unwanted(self) -> bool:
        unwanted = self.unwanted.get(self.finished)
        return unwanted is not None and (None in unwanted or len(unwanted) == len(self._picks))
