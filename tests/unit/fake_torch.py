"""torch with CUDA devices, on a pretended driver: tensors for the CPU whose memory is a device's."""

from __future__ import annotations

import gc
from collections.abc import Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from mray._device import cuda_tensors
from mray._device.cuda import CudaPlatform
from mray._device.cuda_tensors import CudaTensors, ForeignMemory
from mray._device.timelines import sweep_retired
from mray.testing import null_memory
from tests.unit.fake_cuda import FakeCuda, FakeMachine


def platform_of(cuda: FakeCuda) -> CudaPlatform:
    """mray's platform in that process, with tensors."""
    return FakePlatform(cuda.platform()._cuda, FakeTensors(cuda))


class FakePlatform(CudaPlatform):
    """Knows by their addresses on which devices tensors are."""

    def look(self, tensor: Any) -> tuple[Hashable, int] | None:
        if not self.is_tensor(tensor):
            return None
        found = super().look(tensor)
        return None if found is None else ((self._tensors.device_of(tensor), found[0]), found[1])


class _Array:
    """Holds the memory's object, as the deleter of torch's storage does."""

    def __init__(self, memory: ForeignMemory) -> None:
        self.memory = memory
        self.__array_interface__ = memory.__cuda_array_interface__


class FakeTensors(CudaTensors):
    """Tensors of torch for the CPU whose memory is a device's: what `torch.cuda` would do."""

    def __init__(self, cuda: FakeCuda) -> None:
        super().__init__()
        self.cuda = cuda
        #: Whether torch is initialized, and knows which device is current.
        self.tells_current = False

    def where(self, index: int) -> Any:
        import torch

        return torch.device("cpu")

    def is_on_device(self, tensor: Any) -> bool:
        return null_memory.find(tensor.data_ptr()) is not None

    def device_of(self, tensor: Any) -> int:
        found = null_memory.find(tensor.data_ptr())
        return 0 if found is None else self.cuda.visible.index(found.device)

    def empty(self, index: int, dtype: str, shape: Any, strides: Any) -> Any:
        import torch

        if self.cuda.refuses_unsafe():
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing")
        tensor = super().empty(index, dtype, shape, strides)
        if not tensor.nbytes:
            return tensor
        try:
            storage = self.cuda.null.devices[index].heap.take(tensor.nbytes)
        except MemoryError:
            raise torch.OutOfMemoryError(f"CUDA out of memory. Tried to allocate {tensor.nbytes} bytes.") from None
        storage.stream = self.cuda.stream_of(index, self.current_stream(index))
        self.cuda.storages[storage.region.base] = storage
        return self.view(index, storage.region.base, dtype, tuple(shape), tensor.stride(), storage)

    def is_current(self, index: int) -> bool:
        # As the runtime: without a context, the first device.
        return self.tells_current and (self.cuda.current or 1) == index + 1

    def is_plain(self, index: int, stream: int) -> bool:
        return self.is_current(index) and self.current_stream(index) == stream and stream not in self.cuda.captured

    def current_stream(self, index: int) -> int:
        return cuda_tensors._current.streams.get(index, 0)

    def on_stream(self, index: int, stream: int) -> AbstractContextManager[None]:
        return self._on_own_stream(index, stream)

    def use_on(self, tensor: Any, stream: int) -> None:
        region = null_memory.find(tensor.data_ptr())
        storage = self.cuda.storages.get(region.base) if region is not None else None
        if storage is not None:
            storage.use_on(self.cuda.stream_of(storage.heap.index, stream))

    def wrap(self, index: int, memory: ForeignMemory) -> Any:
        import numpy
        import torch

        found = null_memory.find(memory.__cuda_array_interface__["data"][0])
        assert found is not None, "torch asks the driver which device the address belongs to"
        assert self.cuda.visible.index(found.device) == index, "torch would copy to the other device"
        return torch.from_numpy(numpy.asarray(_Array(memory)))


# ------------------------------------------------------------------------------------------------------- two processes
class Pair:
    """Two processes on one machine."""

    def __init__(self, machine: FakeMachine, other: list[int] | None = None) -> None:
        """`other`: which devices the other one sees; None: all."""
        self.machine = machine
        self.one, self.other = FakeCuda(machine), FakeCuda(machine, other)
        self.platform, self.other_platform = platform_of(self.one), platform_of(self.other)
        self.device, self.other_device = self.platform.devices[0], self.other_platform.devices[0]


@contextmanager
def late_pair(other: list[int] | None = None) -> Iterator[Pair]:
    """A machine whose streams work when waited for. Fails if anything is left in the end. `other`: see `Pair`."""
    made = Pair(FakeMachine(2, late=True), other)
    yield made
    processes = (made.one, made.other)
    for each in processes:
        each.finish()
    sweep_retired()
    for platform in (made.platform, made.other_platform):
        platform.close()
    gc.collect()
    assert [each.left() for each in processes] == [{}, {}]
    for each in processes:
        each.close()
    assert made.machine.undefined == []
    assert made.one.current == made.other.current == 0, "contexts are put back"
