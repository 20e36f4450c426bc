"""Channel whose tensors go through the user's communicator, and everything else through a ring in shared memory.

    writer                                                            reader
    value ── its tensors taken out ── ring ── value with gaps ──────▶ (shapes and dtypes are in the gaps)
                 tensors, in order ── Communicator.send ────────────▶ Communicator.recv, into the gaps

A writer waits for its readers, so the schedule reads at the same point (`mray._channel.select.BLOCKING`). An error of the communicator
is fatal to the graph, because its members no longer agree on the next call.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from mray._api.communicator import Communicator
from mray._api.dag_scan import ObjectScanner
from mray._channel.base import NOTHING, ChannelReader, ChannelWriter, Failed, WrappedReader, WrappedWriter


class Gap:
    """Replaces a tensor in a value."""

    __slots__ = ("dtype", "shape")

    def __init__(self, shape: tuple[int, ...], dtype: Any) -> None:
        self.shape = shape
        self.dtype = dtype

    def __reduce__(self) -> tuple[type[Gap], tuple[tuple[int, ...], Any]]:
        return Gap, (self.shape, self.dtype)


class EdgeRules:
    """The user's promises about an edge's tensors: a static shape, direct return."""

    def __init__(self, static_shape: bool, direct_return: bool) -> None:
        self._static_shape = static_shape
        self._direct_return = direct_return
        self._first: list[tuple[tuple[int, ...], Any]] | None = None

    def check(self, value: Any, tensors: Sequence[Any]) -> None:
        """Raise ValueError when a value breaks a promise."""
        if self._direct_return and not (len(tensors) == 1 and value is tensors[0]):
            raise ValueError(
                f"Task annotated with _direct_return=True must return a torch.Tensor, instead found value `{value!r:.200}`. "
                "DAG will shut down."
            )
        if self._static_shape:
            info = [(tuple(tensor.shape), tensor.dtype) for tensor in tensors]
            if self._first is None:
                self._first = info
            elif info != self._first:
                raise ValueError(f"Expected torch.Tensors with shapes and dtypes: {self._first}, found: {info}. DAG will shut down.")


class Deferred:
    """A function whose communicator calls only begin, on their own streams; for communicators with `deferring`."""

    def __init__(self, function: Callable[..., Any], communicator: Communicator) -> None:
        self._function = function
        self._communicator: Any = communicator
        self._later: Any = None

    def __call__(self, *args: Any) -> Any:
        self.settle()
        with self._communicator.deferring() as self._later:
            return self._function(*args)

    def settle(self) -> None:
        """Make the current stream wait for what the last call received; the caller does not wait."""
        if self._later is not None:
            self._later.wait()
            self._later = None


class CommunicatorWriter(WrappedWriter):
    """The sending actor's end; `ranks` are its readers'."""

    __slots__ = ("_communicator", "_failure", "_ranks", "_rules")

    def __init__(
        self,
        inner: ChannelWriter,
        communicator: Communicator,
        ranks: Sequence[int],
        rules: EdgeRules,
        failure: Callable[[BaseException], bytes],
    ) -> None:
        super().__init__(inner)
        self._communicator = communicator
        self._ranks = tuple(ranks)
        self._rules = rules
        self._failure = failure

    def try_write(self, value: Any) -> bool:
        if value.__class__ is Failed:
            return self._inner.try_write(value)
        if not self._inner.has_room():
            return False
        tensors, gaps, rest = self._take_out(value)
        try:
            self._rules.check(value, tensors)
        except ValueError as error:
            return self._inner.try_write(Failed.fatally(self._failure(error)))
        if not self._inner.try_write((len(gaps), rest)):
            return False
        for rank in self._ranks:
            for tensor in tensors:
                self._communicator.send(tensor, rank)
        return True

    def _take_out(self, value: Any) -> tuple[list[Any], list[Gap], Any]:
        """Tensors for the communicator, a gap for each, the value with the gaps."""
        torch = sys.modules.get("torch")
        if torch is None:
            return [], [], value
        scanner = ObjectScanner(torch.Tensor)
        tensors = scanner.find_nodes(value)
        gaps = [Gap(tuple(tensor.shape), tensor.dtype) for tensor in tensors]
        return tensors, gaps, scanner.replace_nodes(dict(zip(tensors, gaps, strict=True))) if tensors else value


class CommunicatorReader(WrappedReader):
    """A receiving actor's end; `rank` is the writer's."""

    __slots__ = ("_communicator", "_failure", "_rank")

    def __init__(self, inner: ChannelReader, communicator: Communicator, rank: int, failure: Callable[[BaseException], bytes]) -> None:
        super().__init__(inner)
        self._communicator = communicator
        self._rank = rank
        self._failure = failure

    def try_read(self) -> Any:
        message = self._inner.try_read()
        if message is NOTHING or message.__class__ is Failed:
            return message
        count, rest = message
        if not count:
            return rest
        scanner = ObjectScanner(Gap)
        try:
            received = {gap: self._receive(gap) for gap in scanner.find_nodes(rest)}
        except Exception as error:
            return Failed.fatally(self._failure(error))
        return scanner.replace_nodes(received)

    def _receive(self, gap: Gap) -> Any:
        return self._communicator.recv(gap.shape, gap.dtype, self._rank, _allocate)


def _allocate(shape: Sequence[int], dtype: Any) -> Any:
    import torch  # noqa: PLC0415

    return torch.empty(tuple(shape), dtype=dtype)
