"""The GPU work of measurements and tests, for CUDA (torch) and for pretended devices: making tensors, slow kernels, clocks, counters.

Any process: it is imported by actors, too. `find_work()` is the one for this process's devices.

The start of a kernel, as the host sees it (`Stamp`): the kernel is one thread that loads the first number of a tensor and stores it in a
word of pinned host memory; the host polls that word. So no clocks have to be compared, and a kernel that starts before the tensor is
complete stores a wrong number and is found out. The measured time is that of the word's change: the start of the kernel plus one
load and one store over the bus, about a microsecond. The kernel is PTX, which the driver compiles; where it cannot, an asynchronous copy of
four bytes takes its place.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from mray._device.platform import platform

#: Seconds after which a kernel that was to start has not.
PATIENCE = 60.0


class Stamp(ABC):
    """Tells when a kernel starts that was queued behind everything on the current stream."""

    #: How it does that.
    method: str
    #: The word that the kernel stores into.
    word: Any

    @abstractmethod
    def launch(self, tensor: Any) -> None:
        """Queue the kernel: it stores the first number of the tensor, an int32, into the word."""

    def wait(self, number: int) -> float:
        """Poll until the kernel has stored this number; when it had (`time.perf_counter`). Raises RuntimeError for another one."""
        word, clock = self.word, time.perf_counter
        before = word.value
        deadline = clock() + PATIENCE
        while True:
            found = word.value
            now = clock()
            if found != before or found == number:
                break
            if now > deadline:
                raise RuntimeError(f"the kernel that should read {number} did not start within {PATIENCE:g} s, or read {found} once more")
            self._pause()
        if found != number:
            raise RuntimeError(f"the kernel read {found} where {number} was expected: it started before its tensor was complete")
        return now

    def _pause(self) -> None:  # noqa: B027  (most do nothing)
        """Between two looks."""


class Work(ABC):
    """The operations of one kind of device."""

    #: Of the platform.
    name: str
    #: The environment that workers start with.
    preload: tuple[str, ...] = ()

    @abstractmethod
    def empty(self, shape: Any, dtype: str = "int32") -> Any:
        """A tensor on the first device, its contents undefined."""

    @abstractmethod
    def full(self, shape: Any, value: Any, dtype: str = "int32") -> Any:
        """A tensor of one value; a kernel fills it."""

    @abstractmethod
    def on_host(self, shape: Any, value: Any) -> Any:
        """The same in host memory."""

    @abstractmethod
    def put(self, array: Any) -> Any:
        """A copy of a numpy array on the device."""

    @abstractmethod
    def get(self, tensor: Any) -> Any:
        """A copy of a tensor as an array of numpy. Waits."""

    @abstractmethod
    def is_on_device(self, tensor: Any) -> bool:
        """Whether it is a tensor of a device."""

    @abstractmethod
    def address(self, tensor: Any) -> int:
        """Where its first element is."""

    @abstractmethod
    def dtype(self, tensor: Any) -> str:
        """torch's name of it."""

    def write_first(self, tensor: Any, number: int) -> None:
        """A kernel that writes the first element of a tensor of one dimension."""
        tensor[:1].fill_(number)

    @abstractmethod
    def sleep(self, seconds: float) -> None:
        """Queue a kernel that takes about so long, and does nothing."""

    @abstractmethod
    def synchronize(self) -> None:
        """Wait for the device."""

    @abstractmethod
    def mark(self) -> Any:
        """Mark this place of the current stream."""

    @abstractmethod
    def is_reached(self, mark: Any) -> bool:
        """Whether the stream has come to a mark."""

    @abstractmethod
    def elapsed(self, first: Any, second: Any) -> float:
        """Seconds that the stream took from one mark to the other; waits for both."""

    @abstractmethod
    def side_stream(self) -> contextlib.AbstractContextManager[None]:
        """Makes another stream current while entered, which starts after what is queued now; the former one waits for it in the end."""

    @abstractmethod
    def stamp(self) -> Stamp:
        """A new stamp."""

    @abstractmethod
    def hold(self) -> Callable[[], None]:
        """Have the current stream do nothing of what is queued from now on, until the returned function is called."""

    def begin_profile(self) -> Any:
        """Count from now on, see `end_profile`."""
        return None

    def end_profile(self, profile: Any) -> dict[str, int] | None:
        """How often each call of CUDA, copy and kernel happened here since `begin_profile`, by name; None where nobody counts."""
        return None

    def memory(self) -> tuple[int, int]:
        """Free and total bytes of the first device, whoever uses it."""
        devices = platform()
        assert devices is not None
        return devices.devices[0].memory()

    def synchronizations(self) -> int:
        """How often mray has waited for a device in this process."""
        devices = platform()
        return 0 if devices is None else devices.synchronizations


# -------------------------------------------------------------------------------------------------- CUDA
def import_torch() -> Any:
    """torch, without what its import may warn of."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import torch

        torch.cuda.is_available()
    return torch


class CudaWork(Work):
    name = "cuda"
    preload = ("torch",)

    def __init__(self) -> None:
        self.torch = import_torch()

    def __reduce__(self) -> Any:
        return CudaWork, ()

    def _dtype(self, dtype: str) -> Any:
        return getattr(self.torch, dtype)

    def empty(self, shape: Any, dtype: str = "int32") -> Any:
        return self.torch.empty(shape, dtype=self._dtype(dtype), device="cuda")

    def full(self, shape: Any, value: Any, dtype: str = "int32") -> Any:
        shape = (shape,) if isinstance(shape, int) else shape
        return self.torch.full(shape, value, dtype=self._dtype(dtype), device="cuda")

    def on_host(self, shape: Any, value: Any) -> Any:
        return self.torch.full((shape,) if isinstance(shape, int) else shape, value, dtype=self.torch.int32)

    def put(self, array: Any) -> Any:
        return self.torch.from_numpy(np.array(array)).cuda()

    def get(self, tensor: Any) -> Any:
        return tensor.cpu().numpy()

    def is_on_device(self, tensor: Any) -> bool:
        return isinstance(tensor, self.torch.Tensor) and tensor.is_cuda

    def address(self, tensor: Any) -> int:
        return int(tensor.data_ptr())

    def dtype(self, tensor: Any) -> str:
        return str(tensor.dtype).removeprefix("torch.")

    def sleep(self, seconds: float) -> None:
        # Cycles of the multiprocessors' clock: some 2 GHz.
        self.torch.cuda._sleep(int(seconds * 2e9))

    def synchronize(self) -> None:
        self.torch.cuda.synchronize()

    def mark(self) -> Any:
        mark = self.torch.cuda.Event(enable_timing=True)
        mark.record()
        return mark

    def is_reached(self, mark: Any) -> bool:
        return bool(mark.query())

    def elapsed(self, first: Any, second: Any) -> float:
        second.synchronize()
        return float(first.elapsed_time(second)) / 1e3

    @contextlib.contextmanager
    def side_stream(self) -> Iterator[None]:
        outer = self.torch.cuda.current_stream()
        side = self.torch.cuda.Stream()
        side.wait_stream(outer)
        with self.torch.cuda.stream(side):
            yield
        outer.wait_stream(side)

    def stamp(self) -> Stamp:
        try:
            return KernelStamp(self.torch)
        except (OSError, RuntimeError) as error:
            return CopyStamp(self.torch, f"a copy of 4 bytes, since a kernel cannot be loaded ({error})")

    def hold(self) -> Callable[[], None]:
        # The stream waits in the device until the host has written a word; no kernel is running meanwhile.
        words = self.torch.zeros(1, dtype=self.torch.int32, pin_memory=True)
        self.torch.zeros(1, device="cuda")  # makes the context, and current in this thread
        cuda, pointer = ctypes.CDLL("libcuda.so.1"), ctypes.c_uint64()
        address = ctypes.c_void_p(words.data_ptr())
        stream = ctypes.c_void_p(self.torch.cuda.current_stream().cuda_stream)
        status = cuda.cuMemHostGetDevicePointer_v2(ctypes.byref(pointer), address, ctypes.c_uint(0))
        # At least 1 (CU_STREAM_WAIT_VALUE_GEQ is 0).
        status = status or cuda.cuStreamWaitValue32_v2(stream, pointer, ctypes.c_uint32(1), ctypes.c_uint(0))
        if status:
            raise RuntimeError(f"a stream cannot be held: CUDA error {status}")

        def release() -> None:
            words.fill_(1)

        return release

    def begin_profile(self) -> Any:
        from torch.profiler import ProfilerActivity, profile

        # Ours goes through the driver's library; torch's own calls through the runtime's. The device's activities show both.
        profiler = profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])
        profiler.__enter__()
        return profiler

    def end_profile(self, profile: Any) -> dict[str, int] | None:
        profile.__exit__(None, None, None)
        counts: collections.Counter[str] = collections.Counter()
        for event in profile.events():
            counts[event.name] += 1
        return dict(counts)


#: Loads an int32 and stores it, widened, where the host sees it.
_PTX = b"""
.version 6.4
.target sm_75
.address_size 64

.visible .entry stamp(.param .u64 p_word, .param .u64 p_data)
{
    .reg .b32 %r<2>;
    .reg .b64 %rd<6>;
    ld.param.u64 %rd1, [p_word];
    ld.param.u64 %rd2, [p_data];
    cvta.to.global.u64 %rd3, %rd1;
    cvta.to.global.u64 %rd4, %rd2;
    ld.volatile.global.s32 %r1, [%rd4];
    cvt.s64.s32 %rd5, %r1;
    st.volatile.global.s64 [%rd3], %rd5;
    membar.sys;
    ret;
}
"""


class _PinnedStamp(Stamp):
    def __init__(self, torch: Any) -> None:
        self._torch = torch
        # An int64, of which a copy fills the lower half: numbers are not negative.
        self._words = torch.zeros(1, dtype=torch.int64, pin_memory=True)
        self.word = ctypes.c_int64.from_address(self._words.data_ptr())

    def _stream(self) -> int:
        return int(self._torch.cuda.current_stream().cuda_stream)


class CopyStamp(_PinnedStamp):
    """Instead of a kernel, an asynchronous copy."""

    def __init__(self, torch: Any, method: str) -> None:
        super().__init__(torch)
        self.method = method
        self._target = self._words.view(torch.int32)[:1]

    def launch(self, tensor: Any) -> None:
        self._target.copy_(tensor[:1], non_blocking=True)


class KernelStamp(_PinnedStamp):
    """A kernel of one thread. Raises OSError or RuntimeError where the driver cannot compile or find it."""

    method = "a kernel that stores into pinned host memory, which the host polls"

    def __init__(self, torch: Any) -> None:
        super().__init__(torch)
        torch.zeros(1, device="cuda")  # makes the context, and current in this thread
        self._cuda = ctypes.CDLL("libcuda.so.1")
        module, function, pointer = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint64()
        self._check("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(_PTX))
        self._check("cuModuleGetFunction", ctypes.byref(function), module, ctypes.c_char_p(b"stamp"))
        self._check("cuMemHostGetDevicePointer_v2", ctypes.byref(pointer), ctypes.c_void_p(self._words.data_ptr()), ctypes.c_uint(0))
        self._function = function
        self._word_there, self._data = pointer, ctypes.c_uint64()
        self._parameters = (ctypes.c_void_p * 2)(ctypes.addressof(self._word_there), ctypes.addressof(self._data))
        self._launch = self._cuda.cuLaunchKernel
        self._launch.argtypes = (ctypes.c_void_p, *[ctypes.c_uint] * 7, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)

    def _check(self, name: str, *arguments: Any) -> None:
        status = getattr(self._cuda, name)(*arguments)
        if status:
            raise RuntimeError(f"{name} failed: CUDA error {status}")

    def launch(self, tensor: Any) -> None:
        self._data.value = tensor.data_ptr()
        status = self._launch(self._function, 1, 1, 1, 1, 1, 1, 0, self._stream(), self._parameters, None)
        if status:
            raise RuntimeError(f"cuLaunchKernel failed: CUDA error {status}")


# ------------------------------------------------------------------------------------- pretended devices
class NullWork(Work):
    name = "null"

    def __init__(self) -> None:
        from mray.testing import null

        self.null = null

    def __reduce__(self) -> Any:
        return NullWork, ()

    @property
    def _device(self) -> Any:
        devices = platform()
        assert devices is not None
        return devices.devices[0]

    def empty(self, shape: Any, dtype: str = "int32") -> Any:
        return self._device.empty(dtype, (shape,) if isinstance(shape, int) else shape)

    def full(self, shape: Any, value: Any, dtype: str = "int32") -> Any:
        return self.empty(shape, dtype).fill_(value)

    def on_host(self, shape: Any, value: Any) -> Any:
        return np.full(shape, value, np.int32)

    def put(self, array: Any) -> Any:
        return self.null.from_numpy(np.asarray(array))

    def get(self, tensor: Any) -> Any:
        return tensor.numpy()

    def is_on_device(self, tensor: Any) -> bool:
        return isinstance(tensor, self.null.NullArray)

    def address(self, tensor: Any) -> int:
        return int(tensor.address)

    def dtype(self, tensor: Any) -> str:
        return str(tensor.dtype.name)

    def _queue(self, work: Callable[[], object]) -> None:
        self._device.launch(self._device.current_stream(), work)

    def sleep(self, seconds: float) -> None:
        self._queue(lambda: time.sleep(seconds))

    def synchronize(self) -> None:
        self._device.streams.current.synchronize()

    def mark(self) -> Any:
        mark: list[float] = []
        self._queue(lambda: mark.append(time.perf_counter()))
        return mark

    def is_reached(self, mark: Any) -> bool:
        return bool(mark)

    def elapsed(self, first: Any, second: Any) -> float:
        self.synchronize()
        return float(second[0] - first[0])

    @contextlib.contextmanager
    def side_stream(self) -> Iterator[None]:
        device = self._device
        outer, side = device.current_stream(), device.create_stream()
        device.streams.get(side).follow(device.streams.get(outer))
        with device.on_stream(side):
            yield
        device.streams.get(outer).follow(device.streams.get(side))

    def stamp(self) -> Stamp:
        return NullStamp(self)

    def hold(self) -> Callable[[], None]:
        release: Callable[[], None] = self.null.hold(self._device.current_stream()).release
        return release


class NullStamp(Stamp):
    """Work of the stream that stores into a word of the host."""

    method = "work on a pretended stream"

    def __init__(self, work: NullWork) -> None:
        self._work = work
        self.word = ctypes.c_int64(0)

    def launch(self, tensor: Any) -> None:
        first, word = ctypes.c_int32.from_address(tensor.address), self.word

        def store() -> None:
            word.value = first.value

        self._work._queue(store)

    def _pause(self) -> None:
        time.sleep(0)  # the stream is a thread of this interpreter


# ------------------------------------------------------------------------------------------------ which one
def find_work() -> Work | None:
    """That of this process's devices; None: it has none, or torch is missing."""
    devices = platform()
    if devices is None or not devices.devices:
        return None
    if devices.name == "null":
        return NullWork()
    try:
        work = CudaWork()
    except ImportError:
        return None
    return work if work.torch.cuda.is_available() else None


def the_work() -> Work:
    """That of this process's devices, which has some."""
    work = find_work()
    assert work is not None
    return work
