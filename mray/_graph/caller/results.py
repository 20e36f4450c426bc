"""The results of a graph on the caller's side: arrived, kept, or unwanted. No method waits.

Each output comes through one reader, and is readable as soon as its message has arrived, before other outputs of its execution. Readers
without an output bring the ends of steps that nothing consumes: all outputs wait for them, and have their failures. An execution is
finished when a message of every reader has been read for it; executions finish in order.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
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
    """Not locked: the graph's lock guards everything but `dropped`.

    A list of outputs has `NOTHING` where none has come and `TAKEN` where it was taken or dropped.
    """

    def __init__(
        self,
        readers: Sequence[ChannelReader],
        outputs: Sequence[tuple[int, Callable[[Any], Any] | None]],
        lost: Callable[[], Failed] | None = None,
        reads_itself: CodeType | None = None,
    ) -> None:
        """`outputs`: the number of the reader that brings each, and the function of its value (None: the value itself).

        `reads_itself`: the graph's method that also reads results.
        """
        read = type(self).read_from.__code__
        self._reading = frozenset({read, reads_itself or read})
        self.readers = tuple(readers)
        self._reads = tuple(reader.try_read for reader in readers)
        self._lost = lost
        #: Whether an asynchronous exception may have come between reading a message and counting it.
        self.is_cut = False
        self._outputs_of = [
            [(position, pick) for position, (number, pick) in enumerate(outputs) if number == own] for own in range(len(readers))
        ]
        self._hidden = [number for number, own in enumerate(self._outputs_of) if not own]
        #: By output, the readers that it waits for: first its own.
        self._needs = [(number, *self._hidden) for number, _pick in outputs]
        self.finished = 0
        #: Messages read, by reader.
        self._came = [0] * len(readers)
        #: Outputs of unfinished executions, of which some have come; and of finished ones, of which some are untaken.
        self._early: dict[int, list[Any]] = {}
        self.kept: dict[int, list[Any]] = {}
        #: (execution, output) of refs that were dropped unread; finalizers only append.
        self.dropped: deque[tuple[int, int | None]] = deque()
        #: Outputs that have not come, whose refs were dropped.
        self.unwanted: dict[int, set[int]] = {}

    def read_by(self, reads: Sequence[Callable[[], Any]]) -> None:
        self._reads = tuple(reads)

    # ------------------------------------------------------------------------------------ reading
    def advance(self) -> bool:
        """Read what the first unfinished execution lacks. Returns whether that finished it."""
        index = self.finished
        for number in range(len(self._reads)):
            while self._came[number] <= index and self.read_from(number):
                pass
        return self.finished > index

    def bring(self, index: int, output: int | None, most_kept: float = math.inf) -> bool | None:
        """Read up to this output of an execution. False if it has not come; None if that takes more kept executions than `most_kept`."""
        came, found = self._came, True
        for number in self._needs[output or 0]:  # all, so that none is due forever
            while came[number] <= index:
                if len(self.kept) >= most_kept:
                    return None
                if not self.read_from(number):
                    found = False
                    break
        return found

    def read_from(self, number: int) -> bool:
        if self.is_cut:
            self._mend()
        self.is_cut = True
        value = self._reads[number]()
        if value is not NOTHING:
            self._came_by(number, value)
        self.is_cut = False
        return value is not NOTHING

    def _came_by(self, number: int, value: Any) -> None:
        if self.dropped:
            self.note_dropped()
        index = self._came[number]
        outputs = self._early.get(index)
        if outputs is None:
            outputs = self._early[index] = [NOTHING] * len(self._needs)
        unwanted = self.unwanted.get(index, ())
        for position, pick in self._outputs_of[number]:
            if position in unwanted:
                outputs[position] = TAKEN
            elif outputs[position] is NOTHING:
                outputs[position] = value if pick is None or value.__class__ is Failed else pick(value)
        if value.__class__ is Failed and number in self._hidden:
            outputs[:] = [output if output is TAKEN else value for output in outputs]
        self._came[number] = index + 1
        if index == self.finished:
            self._finish()

    def _finish(self) -> None:
        """Finish the executions of which everything has come. May be cut at any step, and called again."""
        least = min(self._came)
        while self.finished < least:
            index = self.finished
            for output in self._early.get(index, ()):
                if output is not TAKEN:
                    self.kept[index] = self._early[index]
                    break
            self.finished = index + 1
            self.unwanted.pop(index, None)
            self._early.pop(index, None)

    def _mend(self) -> None:
        if is_amidst(self._reading, self):
            raise RuntimeError(AMIDST)
        for number, reader in enumerate(self.readers):
            while self._came[number] < reader.position():
                self._came_by(number, None if self._lost is None else self._lost())
        self._finish()
        for index in [index for index in self._early if index < self.finished]:
            del self._early[index]
        self.is_cut = False

    # ------------------------------------------------------------------------------------ questions
    def has(self, index: int, output: int | None) -> bool:
        """Whether this output of an execution has been read. Takes no lock."""
        for number in self._needs[output or 0]:
            if self._came[number] <= index:
                return False
        return True

    def is_due(self, index: int, output: int | None) -> bool:
        """Whether this output has been read, or `bring` finds a message. Takes no lock."""
        try:
            due = True
            for number in self._needs[output or 0]:
                if self._came[number] <= index:
                    if self.readers[number].ready():
                        return True
                    due = False
            return due
        except ValueError:  # torn down meanwhile
            return True

    def are_due(self, claims: Iterable[tuple[int, int | None]]) -> bool:
        """Whether `bring` finds messages for all of these, or a failure, or messages before them. Takes no lock."""
        try:
            is_lacking, there = False, []
            for index, output in claims:
                for number in self._needs[output or 0]:
                    came, reader = self._came[number], self.readers[number]
                    if came <= index:
                        if not reader.ready():
                            is_lacking = True
                        elif came < index:
                            return True
                        else:
                            there.append(reader)
            return not is_lacking or True in [reader.failed() for reader in there]
        except ValueError:  # torn down meanwhile
            return True

    def reader_of(self, output: int | None) -> int:
        return self._needs[output or 0][0]

    def output_of(self, number: int) -> int:
        """An output that this reader brings."""
        return self._outputs_of[number][0][0]

    def came(self, number: int) -> int:
        """Executions whose outputs through this reader have been read."""
        return min(self._came[each] for each in (number, *self._hidden))

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
        """Whether `advance` may finish an execution."""
        try:
            finished = self.finished
            return False not in [reader.ready() or came > finished for came, reader in zip(self._came, self.readers, strict=True)]
        except ValueError:  # as above
            return True

    # ------------------------------------------------------------------------------------ taking
    def skip_one(self) -> None:
        """The caller has taken the only output of the first unfinished execution."""
        self._came[0] += 1
        self.finished += 1

    def take(self, index: int, output: int | None) -> Any:
        value = self._take(index, output or 0)
        assert value is not TAKEN, "a ref gives its result once"
        return value

    def peek(self, index: int, output: int | None) -> Any:
        """The value, which stays; `NOTHING` if it has not come, `TAKEN` if it was taken."""
        outputs = self._outputs(index)
        return NOTHING if outputs is None else outputs[output or 0]

    def _outputs(self, index: int) -> list[Any] | None:
        return (self.kept if index < self.finished else self._early).get(index)

    def _take(self, index: int, position: int) -> Any:
        outputs = self._outputs(index)
        if outputs is None:
            return TAKEN
        value = outputs[position]
        outputs[position] = TAKEN
        if index < self.finished and (len(outputs) == 1 or all(each is TAKEN for each in outputs)):
            del self.kept[index]
        return value

    def put_back(self, index: int, output: int | None, value: Any) -> None:
        outputs = self._outputs(index)
        if outputs is None:
            outputs = self.kept[index] = [TAKEN] * len(self._needs)
        outputs[output or 0] = value

    def note_dropped(self) -> None:
        while self.dropped:
            index, output = self.dropped.popleft()
            for position in range(len(self._needs)) if output is None else (output,):
                if index < self.finished or self.peek(index, position) is not NOTHING:
                    self._take(index, position)
                else:
                    self.unwanted.setdefault(index, set()).add(position)

    def next_is_unwanted(self) -> bool:
        """Whether nothing of the first unfinished execution would be kept."""
        unwanted, early = self.unwanted.get(self.finished, ()), self._early.get(self.finished)
        if not unwanted and early is None:
            return False
        return all(position in unwanted or (early is not None and early[position] is TAKEN) for position in range(len(self._needs)))
