"""Communication beside computing: the step that uses a value from NCCL or from another GPU waits for it, and no earlier step does.

In an actor whose graph was compiled with ``_overlap_gpu_communication=True``. A READ or a collective only begins; the first step that uses
the value, or the WRITE that passes it on, has the current stream wait for it. The steps between the two compute
meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mray._api.communicator import Communicator
from mray._channel.base import ChannelReader, WrappedReader
from mray._channel.communicator_edge import CommunicatorReader
from mray._channel.cuda_ipc import CudaIpcReader
from mray._channel.select import NCCL
from mray._graph.communicators import CommunicatorCall
from mray._graph.plan import Assignment, Route, Source, Step

#: Has the current stream wait for a value.
Settle = Callable[[], None]


class _AheadReader(WrappedReader):
    """Reads values whose transfer has only begun."""

    __slots__ = ("_read_ahead",)

    def __init__(self, inner: CommunicatorReader) -> None:
        super().__init__(inner)
        self._read_ahead = inner.read_ahead

    def try_read(self) -> Any:
        return self._read_ahead()


class _AheadCall:
    """A collective that has only begun."""

    def __init__(self, call: Callable[..., Any], communicator: Communicator) -> None:
        self._call = call
        self._communicator: Any = communicator
        self._later: Any = None

    def __call__(self, *args: Any) -> Any:
        with self._communicator.deferring() as self._later:
            return self._call(*args)

    def settle(self) -> None:
        if self._later is not None:
            self._later.wait()
            self._later = None


class Overlap:
    """The READs and collectives of a program that run ahead; none unless the graph was compiled so."""

    def __init__(
        self,
        assignment: Assignment,
        readers: Mapping[int, ChannelReader],
        methods: dict[int, Callable[..., Any]],
        constants: Sequence[Any],
        communicators: Mapping[int, Communicator],
    ) -> None:
        #: The readers of the actor's channels, as the program reads them.
        self.readers = dict(readers)
        self._settles: dict[Source, Settle] = {}
        if not assignment.overlap:
            return
        for channel in assignment.channels:
            reader = readers.get(channel.index)
            # A value that is moved to another device is used at once.
            if channel.transport == NCCL and isinstance(reader, CommunicatorReader):
                self.readers[channel.index] = _AheadReader(reader)
                self._settles[channel.source] = reader.settle
            elif isinstance(reader, CudaIpcReader):
                reader.be_ahead()
                self._settles[channel.source] = reader.settle
        for step in assignment.steps:
            call = constants[step.function] if step.function >= 0 else None
            if isinstance(call, CommunicatorCall) and hasattr(communicators[call.number], "deferring"):
                ahead = _AheadCall(methods[step.index], communicators[call.number])
                methods[step.index] = ahead
                self._settles.update({Source(step.index, output): ahead.settle for output in range(step.num_returns)})
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
        """The action that writes a channel, after its value is waited for."""
        settle = self._settles.get(channel.source)
        if settle is None:
            return write

        def settled() -> int:
            settle()
            return write()

        return settled
