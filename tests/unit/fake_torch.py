"""torch with CUDA devices, on a pretended driver: tensors for the CPU whose memory is a device's."""

from __future__ import annotations

import ctypes
import gc
import threading
import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from mray._device.cuda import CudaPlatform
from mray._device.cuda_tensors import CudaTensors, ForeignMemory
from mray._device.libcuda import AccessDescription
from tests.unit.fake_cuda import GRAIN, FakeCuda, FakeMachine


def platform_of(cuda: FakeCuda) -> CudaPlatform:
    """mray's platform in that process, with tensors."""
    return CudaPlatform(cuda.platform()._cuda, FakeTensors(cuda))


class FakePool:
    """A `torch.cuda.MemPool`."""

    def __init__(self, number: int) -> None:
        self.id = (0, number)
        self.segments: list[tuple[int, int]] = []
        #: Of the segments, those that no tensor lies in: size -> addresses.
        self.unused: dict[int, list[int]] = {}
        self.expandable: ExpandableSegment | None = None

    def snapshot(self) -> list[dict[str, int]]:
        segments = [*self.segments, *([] if self.expandable is None else [(self.expandable.start, self.expandable.mapped)])]
        return [{"address": address, "total_size": size} for address, size in segments]


class ExpandableSegment:
    """A segment of torch's that grows by pieces. Unmapped when its pool is gone, and the last tensor there."""

    PIECE, MOST = 2 * GRAIN, 128

    def __init__(self, cuda: FakeCuda, index: int, *, for_descriptors: bool) -> None:
        self.cuda = cuda
        self.index = index
        self.for_descriptors = for_descriptors
        self.taken = self.mapped = 0
        start = ctypes.c_uint64()
        self._call("cuMemAddressReserve", ctypes.byref(start), self.MOST * self.PIECE, 0, 0, 0)
        self.start = start.value

    def _call(self, name: str, *arguments: Any) -> None:
        before, self.cuda.current = self.cuda.current, self.index + 1
        try:
            assert getattr(self.cuda, name).body(*arguments_of(arguments)) == 0, name
        finally:
            self.cuda.current = before

    def take(self, size: int) -> int:
        while self.mapped < self.taken + size:
            handle = self.cuda.create_piece(self.cuda.visible[self.index], self.PIECE, for_descriptors=self.for_descriptors)
            place = self.start + self.mapped
            self._call("cuMemMap", place, self.PIECE, 0, handle, 0)
            self._call("cuMemSetAccess", place, self.PIECE, AccessDescription(1, self.index, 3), 1)
            self._call("cuMemRelease", handle)
            self.mapped += self.PIECE
        self.taken += size
        return self.start + self.taken - size

    def __del__(self) -> None:
        for place in range(self.start, self.start + self.mapped, self.PIECE):
            self._call("cuMemUnmap", place, self.PIECE)
        self._call("cuMemAddressFree", self.start, self.MOST * self.PIECE)


def arguments_of(arguments: tuple[Any, ...]) -> list[Any]:
    return [getattr(argument, "_obj", argument) for argument in arguments]


class _Segment:
    """The memory of a tensor of the pretended allocator. Freed with it, or kept for the next one while its pool is there."""

    def __init__(self, cuda: FakeCuda, address: int, size: int, pool: FakePool | None, cached: dict[int, list[int]] | None) -> None:
        self.cached = cached
        self.cuda = cuda
        self.address = address
        self.size = size
        self.pool = pool if pool is None else weakref.ref(pool)
        self.expandable = pool and pool.expandable

    def __del__(self) -> None:
        pool = self.pool and self.pool()
        if pool is not None:
            pool.unused.setdefault(self.size, []).append(self.address)
        elif self.cached is not None:
            self.cached.setdefault(self.size, []).append(self.address)
        elif self.expandable is None:
            free(self.cuda, self.address)


def free(cuda: FakeCuda, address: int) -> None:
    memory, mapped = cuda.memory.pop(address)
    cuda.machine.devices[memory.device].free += memory.size
    memory.close()
    mapped.anchor = None  # the mapping goes with the last tensor that views it


class _Entered(threading.local):
    def __init__(self) -> None:
        self.pools: list[FakePool] = []


class _Array:
    """Holds the memory's object, as the deleter of torch's storage does."""

    def __init__(self, memory: ForeignMemory) -> None:
        self.memory = memory
        self.__array_interface__ = memory.__cuda_array_interface__


class FakeTensors(CudaTensors):
    """Tensors of torch for the CPU whose memory is a device's: what `torch.cuda` would do."""

    #: Whether allocations can be exported.
    exportable = True
    #: Whether tensors of pools lie in expandable segments, and whether their pieces may be exported by descriptors.
    expandable = False
    for_descriptors = True
    #: Whether torch has pools at all.
    has_pools = True

    def __init__(self, cuda: FakeCuda) -> None:
        super().__init__()
        self.cuda = cuda
        self._entered_by_thread = _Entered()
        #: Tensors that were freed while another stream used them, until somebody looks.
        self.recorded: list[Any] = []
        #: Ordinary memory that no tensor lies in, by size, where it is kept at all.
        self.cached: dict[int, list[int]] | None = None

    @property
    def entered(self) -> list[FakePool]:
        """This thread's, outermost first."""
        return self._entered_by_thread.pools

    def where(self, index: int) -> Any:
        import torch

        return torch.device("cpu")

    def is_on_device(self, tensor: Any) -> bool:
        return self.cuda.find(tensor.data_ptr()) is not None

    def device_of(self, tensor: Any) -> int:
        found = self.cuda.find(tensor.data_ptr())
        return 0 if found is None else self.cuda.visible.index(found[0].device)

    def empty(self, index: int, dtype: str, shape: Any, strides: Any) -> Any:
        import torch

        tensor = super().empty(index, dtype, shape, strides)
        size = tensor.nbytes
        if not size:
            return tensor
        if not self.entered:
            self.recorded.clear()
        pool = next((pool for pool in self.entered if pool is self._pools.get(index)), None)
        is_expandable = self.expandable and pool is not None
        unit = 512 if is_expandable else 2 << 20
        whole = -(-size // unit) * unit
        if pool is not None and pool.unused.get(whole):
            address: int | None = pool.unused[whole].pop()
        elif pool is not None and is_expandable:
            if pool.expandable is None:
                pool.expandable = ExpandableSegment(self.cuda, index, for_descriptors=self.for_descriptors)
            address = pool.expandable.take(whole)
        else:
            address = self._allocate(index, whole, in_pool=pool is not None)
            if address is None:
                raise torch.OutOfMemoryError(f"CUDA out of memory. Tried to allocate {size} bytes.")
            if pool is not None:
                pool.segments.append((address, whole))
        segment = _Segment(self.cuda, address, whole, pool, None if pool is not None else self.cached)
        keep = (segment, None if is_expandable else self.cuda.memory[address][1])
        return self.view(index, address, dtype, tuple(shape), tensor.stride(), keep)

    def _allocate(self, index: int, size: int, *, in_pool: bool) -> int | None:
        if not in_pool and self.cached and self.cached.get(size):
            return self.cached[size].pop()
        address = self.cuda.malloc(self.cuda.visible[index], size, exportable=self.exportable)
        if address is None and not self.entered:
            self.free_cache(index)
            address = self.cuda.malloc(self.cuda.visible[index], size, exportable=self.exportable)
        return address

    def free_cache(self, index: int) -> None:
        self.recorded.clear()
        for addresses in (self.cached or {}).values():
            while addresses:
                free(self.cuda, addresses.pop())

    def wrap(self, index: int, memory: ForeignMemory) -> Any:
        import numpy
        import torch

        found = self.cuda.find(memory.__cuda_array_interface__["data"][0])
        assert found is not None, "torch asks the driver which device the address belongs to"
        assert self.cuda.visible.index(found[0].device) == index, "torch would copy to the other device"
        return torch.from_numpy(numpy.asarray(_Array(memory)))

    def create_pool(self, index: int) -> bool:
        if self.has_pools and index not in self._pools:
            self._pools[index] = FakePool(index + 1)
        return self.has_pools

    def drop_pools(self, *devices: int) -> bool:
        pools = {index: pool for index, pool in self._pools.items() if index in devices or not devices}
        dropped = super().drop_pools(*devices)
        for index, pool in pools.items():
            if index not in self._pools:
                for addresses in pool.unused.values() if pool.expandable is None else ():
                    for address in addresses:
                        free(self.cuda, address)
        return dropped

    def enter_pool(self, index: int, pool: Any) -> AbstractContextManager[None]:
        @contextmanager
        def entering() -> Iterator[None]:
            assert pool not in self.entered, "already recording to mempool_id"
            self.entered.append(pool)
            try:
                yield
            finally:
                self.entered.remove(pool)

        return entering()


# ------------------------------------------------------------------------------------------------------- two processes
class Pair:
    """Two processes on one machine."""

    def __init__(self, machine: FakeMachine) -> None:
        self.machine = machine
        self.one, self.other = FakeCuda(machine), FakeCuda(machine)
        self.platform, self.other_platform = platform_of(self.one), platform_of(self.other)
        self.device, self.other_device = self.platform.devices[0], self.other_platform.devices[0]


@contextmanager
def late_pair() -> Iterator[Pair]:
    """A machine whose streams work when waited for. Fails if anything is left in the end."""
    made = Pair(FakeMachine(2, late=True))
    yield made
    made.platform.close()
    gc.collect()
    assert made.one.left() == {} and made.other.left() == {}
    assert made.machine.undefined == []
    assert made.one.current == made.other.current == 0, "contexts are put back"
