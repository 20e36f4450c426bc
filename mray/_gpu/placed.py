"""A reader that copies the tensors it reads to the device that the edge names.

For edges with ``device="cpu"`` or ``"cuda"``. Tensors are torch's, unless the process has a platform with its own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from mray._api.dag_scan import ObjectScanner
from mray._device.device import Platform
from mray._inside.transports import NOTHING, ChannelReader, Failed, WrappedReader

#: `mray._api.type_hint.Device` -> torch's name.
DEVICES = {"cpu": "cpu", "gpu": "cuda", "cuda": "cuda"}


class PlacedReader(WrappedReader):
    __slots__ = ("_device", "_failure", "_platform")

    def __init__(
        self, inner: ChannelReader, device: str, failure: Callable[[BaseException], bytes], platform: Platform | None = None
    ) -> None:
        super().__init__(inner)
        self._platform = platform
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
        if self._platform is not None and self._platform.name != "cuda":
            return self._placed(value, self._platform)
        torch = sys.modules.get("torch")  # a process with a tensor has loaded torch
        if torch is None:
            return value
        scanner = ObjectScanner(torch.Tensor)
        tensors = scanner.find_nodes(value)
        if all(tensor.device.type == self._device for tensor in tensors):
            return value
        if self._device == "cuda" and not torch.cuda.is_available():
            raise RuntimeError(
                f"The tensors of this edge must arrive on device={self._device!r}, but the process that reads them has no GPU: give its "
                'actor num_gpus, omit the device, or write device="cpu".'
            )
        return scanner.replace_nodes({tensor: tensor.to(self._device) for tensor in tensors})

    def _placed(self, value: Any, platform: Platform) -> Any:
        scanner = ObjectScanner(platform.tensor_types())
        moved = {tensor: platform.placed(tensor, self._device) for tensor in scanner.find_nodes(value)}
        return value if all(tensor is there for tensor, there in moved.items()) else scanner.replace_nodes(moved)
