"""Channel whose tensors go through NCCL: `mray._channel.communicator_edge` on the device of this process's rank.

Tensors elsewhere stay in the value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mray._api.communicator import Communicator
from mray._api.dag_scan import ObjectScanner
from mray._device.device import Platform
from mray._inside.transports import ChannelReader, ChannelWriter, ReaderBy
from mray._inside.transports import communicator_edge as edge


class NcclWriter(edge.CommunicatorWriter):
    __slots__ = ("_platform",)

    def __init__(
        self,
        inner: ChannelWriter,
        communicator: Communicator,
        ranks: Sequence[int],
        rules: edge.EdgeRules,
        failure: Callable[[BaseException], bytes],
        platform: Platform,
    ) -> None:
        super().__init__(inner, communicator, ranks, rules, failure)
        self._platform = platform

    def _take_out(self, value: Any) -> tuple[list[Any], list[edge.Gap], Any]:
        scanner = ObjectScanner(self._platform.tensor_types())
        table: dict[Any, Any] = {}
        tensors, gaps = [], []
        for tensor in scanner.find_nodes(value):
            table[tensor] = tensor
            if self._platform.is_tensor(tensor) and getattr(tensor.device, "index", tensor.device) == 0:
                tensors.append(tensor)
                table[tensor] = gap = edge.Gap(tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))
                gaps.append(gap)
        return tensors, gaps, scanner.replace_nodes(table) if tensors else value


class NcclReader(edge.CommunicatorReader):
    __slots__ = ()

    def ahead(self) -> tuple[ChannelReader, Callable[[], None]]:
        deferred = edge.Deferred(self.try_read, self._communicator)
        return ReaderBy(self, deferred), deferred.settle

    def _receive(self, gap: edge.Gap) -> Any:
        return self._communicator.recv(gap.shape, gap.dtype, self._rank, None)
