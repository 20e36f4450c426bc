"""A reader that puts the tensors it reads on the device that the edge names.

Around any other reader, for edges with ``device="cpu"`` or ``"cuda"``. Tensors that are there already stay what they are.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from mray._api.dag_scan import ObjectScanner
from mray._channel.base import NOTHING, ChannelReader, Failed

#: The words of `mray._api.type_hint.Device` that name a device, and torch's for them.
DEVICES = {"cpu": "cpu", "gpu": "cuda", "cuda": "cuda"}


class PlacedReader(ChannelReader):
    """Reads through `inner`."""

    __slots__ = ("_device", "_failure", "_inner")

    def __init__(self, inner: ChannelReader, device: str, failure: Callable[[BaseException], bytes]) -> None:
        self._inner = inner
        self._device = DEVICES[device]
        self._failure = failure

    def try_read(self) -> Any:
        value = self._inner.try_read()
        if value is NOTHING or value.__class__ is Failed:
            return value
        try:
            return self._place(value)
        except Exception as error:
            return Failed(self._failure(error))

    def _place(self, value: Any) -> Any:
        torch = sys.modules.get("torch")  # who has got a tensor has it
        if torch is None:
            return value
        scanner = ObjectScanner(torch.Tensor)
        moving = [tensor for tensor in scanner.find_nodes(value) if tensor.device.type != self._device]
        if not moving:
            return value
        if self._device == "cuda" and not torch.cuda.is_available():
            raise RuntimeError(
                f"The tensors of this edge shall arrive on device={self._device!r}, but the process that reads them has no GPU: give its "
                'actor num_gpus, or leave the device out, or say device="cpu".'
            )
        placed = {tensor: tensor.to(self._device) for tensor in moving}
        return scanner.replace_nodes({tensor: placed.get(tensor, tensor) for tensor in scanner.find_nodes(value)})

    def ready(self) -> bool:
        return self._inner.ready()

    def failed(self) -> bool:
        return self._inner.failed()

    def close(self) -> None:
        self._inner.close()
