"""Channel whose tensors go through NCCL: `mray._channel.communicator_edge` on the device of this process's rank.

The communicator carries the tensors on its own device only; all others stay in the value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mray._api.communicator import Communicator
from mray._api.dag_scan import ObjectScanner
from mray._channel.base import ChannelReader, ChannelWriter, WrappedReader
from mray._channel.communicator_edge import CommunicatorReader, CommunicatorWriter, EdgeRules, Gap
from mray._device.device import Platform


class NcclWriter(CommunicatorWriter):
    """In the actor that sends."""

    __slots__ = ("_platform",)

    def __init__(
        self,
        inner: ChannelWriter,
        communicator: Communicator,
        ranks: Sequence[int],
        rules: EdgeRules,
        failure: Callable[[BaseException], bytes],
        platform: Platform,
    ) -> None:
        super().__init__(inner, communicator, ranks, rules, failure)
        self._platform = platform

    def _take_out(self, value: Any) -> tuple[list[Any], list[Gap], Any]:
        scanner = ObjectScanner(self._platform.tensor_types())
        table: dict[Any, Any] = {}
        tensors, gaps = [], []
        for tensor in scanner.find_nodes(value):
            table[tensor] = tensor
            if self._platform.is_tensor(tensor) and getattr(tensor.device, "index", tensor.device) == 0:
                tensors.append(tensor)
                table[tensor] = gap = Gap(tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))
                gaps.append(gap)
        return tensors, gaps, scanner.replace_nodes(table) if tensors else value


class NcclReader(CommunicatorReader):
    """In an actor that receives."""

    __slots__ = ("_later",)

    def __init__(self, inner: ChannelReader, communicator: Communicator, rank: int, failure: Callable[[BaseException], bytes]) -> None:
        super().__init__(inner, communicator, rank, failure)
        #: Sends that have begun, which `settle` waits for.
        self._later: Any = None

    def ahead(self) -> tuple[ChannelReader, Callable[[], None]]:
        return _AheadReader(self), self.settle

    def settle(self) -> None:
        """Have the current stream wait for the tensors of the message that was read last by `read_ahead`; the caller does not wait."""
        if self._later is not None:
            self._later.wait()
            self._later = None

    def read_ahead(self) -> Any:
        """As `try_read`, but nothing may use the tensors before `settle`."""
        self.settle()
        communicator: Any = self._communicator
        with communicator.deferring() as self._later:
            return self.try_read()

    def _receive(self, gap: Gap) -> Any:
        return self._communicator.recv(gap.shape, gap.dtype, self._rank, None)


class _AheadReader(WrappedReader):
    """Reads values whose transfer has only begun."""

    __slots__ = ("_read_ahead",)

    def __init__(self, inner: NcclReader) -> None:
        super().__init__(inner)
        self._read_ahead = inner.read_ahead

    def try_read(self) -> Any:
        return self._read_ahead()
