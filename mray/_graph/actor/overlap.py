"""Communication that overlaps with computing: only the step that uses a value from NCCL or from another GPU waits for it.

With ``_overlap_gpu_communication=True`` a READ or a collective only begins; the first step that uses the value, or the WRITE that passes
it on, makes the current stream wait for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mray._api.communicator import Communicator
from mray._channel.base import ChannelReader
from mray._channel.communicator_edge import Deferred
from mray._graph.communicators import CommunicatorCall
from mray._graph.plan import Assignment, Route, Source, Step

#: Makes the current stream wait for a value.
Settle = Callable[[], None]


class Overlap:
    """The READs and collectives of a program that run ahead."""

    def __init__(
        self,
        assignment: Assignment,
        readers: Mapping[int, ChannelReader],
        methods: dict[int, Callable[..., Any]],
        constants: Sequence[Any],
        communicators: Mapping[int, Communicator],
    ) -> None:
        self.readers = dict(readers)
        self._settles: dict[Source, Settle] = {}
        if not assignment.overlap:
            return
        for channel in assignment.channels:
            reader = readers.get(channel.index)
            ahead = None if reader is None else reader.ahead()
            if ahead is not None:
                self.readers[channel.index], self._settles[channel.source] = ahead
        for step in assignment.steps:
            call = constants[step.function] if step.function >= 0 else None
            if isinstance(call, CommunicatorCall) and hasattr(communicators[call.number], "deferring"):
                begun = Deferred(methods[step.index], communicators[call.number])
                methods[step.index] = begun
                self._settles.update({Source(step.index, output): begun.settle for output in range(step.num_returns)})
        for step in assignment.steps:
            methods[step.index] = self._after(step, methods[step.index])

    def _after(self, step: Step, method: Callable[..., Any]) -> Callable[..., Any]:
        settles = [self._settles[source] for source in step.sources if source in self._settles]
        if not settles:
            return method

        def settled(*args: Any, **kwargs: Any) -> Any:
            for settle in settles:
                settle()
            return method(*args, **kwargs)

        return settled

    def before_write(self, channel: Route, write: Callable[[], int]) -> Callable[[], int]:
        settle = self._settles.get(channel.source)
        if settle is None:
            return write

        def settled() -> int:
            settle()
            return write()

        return settled
