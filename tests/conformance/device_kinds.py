"""The platforms that the contract of devices is tried on, and what a test needs of each besides.

Also a program: a second process with the same platform, which does what it is told (`Peer`).
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib.util
import os
import pickle
import signal
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from mray._device import libcuda, mappings
from mray._device.cuda import CudaDevice
from mray._device.cuda import find_platform as find_cuda
from mray._device.device import Device, Platform
from mray._device.platform import forget_platform, platform
from mray._device.timelines import Peers, Point, Where, mark, sweep_retired
from tests.checkout import python_path


class Kind(ABC):
    """A platform, in this process."""

    name: str
    #: The variables of a process with such devices.
    environment: Mapping[str, str]
    #: Whether a second process can have it too.
    has_peers = True

    def open(self) -> Platform:
        """The devices of this process, found anew."""
        forget_platform()
        found = platform()
        assert found is not None
        return found

    def close(self) -> None:
        forget_platform()

    def close_when_done(self, eventually: Callable[..., None]) -> None:
        """In the end of a test: timelines of peers stay open until it is known that those are dead."""
        gc.collect()
        eventually(lambda: sweep_retired() and not mappings._known)
        self.close()
        gc.collect()

    def why_not(self) -> str:
        """Why there is none here; empty if there is."""
        return ""

    #: The name of the fault that `break_down` causes.
    fault = "CUDA_ERROR_ILLEGAL_ADDRESS"

    @abstractmethod
    def fill(self, tensor: Any, value: float) -> None:
        """Queue on the current stream: every element becomes the value."""

    def break_down(self, device: Device) -> None:
        """Queue work on the current stream that goes wrong."""
        gone = device.allocate(4000)
        tensor = device.tensor(gone, 4000, "float32", (1000,), None, None)
        device.free(gone)
        self.fill(tensor, 1)

    @abstractmethod
    def read(self, tensor: Any) -> list[Any]:
        """Wait for the current stream; the elements, nested as the tensor's dimensions."""

    @abstractmethod
    def hold(self, device: Device, stream: int) -> AbstractContextManager[object]:
        """While entered, the stream does nothing of what is queued from then on."""


class Null(Kind):
    name = "null"

    def __init__(self) -> None:
        self.environment = {"MRAY_NULL_DEVICES": f"2,memory=67108864,scope=conformance{os.getpid()}"}

    def fill(self, tensor: Any, value: float) -> None:
        tensor.fill_(value)

    def read(self, tensor: Any) -> list[Any]:
        return tensor.tolist()  # type: ignore[no-any-return]

    def hold(self, device: Device, stream: int) -> AbstractContextManager[object]:
        from mray.testing import null

        return null.hold(stream, device.index)


class FakeCuda(Kind):
    """CUDA's, on a driver that is pretended within this process."""

    name = "fake-cuda"
    environment = MappingProxyType({})
    has_peers = False

    def why_not(self) -> str:
        return "" if importlib.util.find_spec("torch") else "torch is not installed"

    def open(self) -> Platform:
        from tests.unit.fake_cuda import FakeCuda as Driver
        from tests.unit.fake_cuda import FakeMachine
        from tests.unit.fake_torch import platform_of

        self.driver = Driver(FakeMachine(2, memory=64 << 20))
        self.platform = platform_of(self.driver)
        return self.platform

    def close(self) -> None:
        self.driver.finish()  # real drivers wait before they unregister memory
        self.platform.close()
        self.driver.close()

    def fill(self, tensor: Any, value: float) -> None:
        device = self.platform.info(tensor)[1].device
        stream = self.driver.stream_of(device, self.platform.devices[device].current_stream())
        if stream.is_idle():
            tensor.fill_(value)  # in order with what torch computes on the host
        else:
            stream.launch(lambda: tensor.fill_(value))

    def read(self, tensor: Any) -> list[Any]:
        device = self.platform.devices[self.platform.info(tensor)[1].device]
        self.platform.synchronize(device, device.current_stream())
        return tensor.tolist()  # type: ignore[no-any-return]

    @contextlib.contextmanager
    def hold(self, device: Device, stream: int) -> Iterator[None]:
        with self.driver.hold(device.index, stream):
            yield
        self.driver.stream_of(device.index, stream).synchronize()


class Cuda(Kind):
    """CUDA's, on a real GPU."""

    name = "cuda"
    environment = MappingProxyType({})

    def why_not(self) -> str:
        if find_cuda() is None:
            return "no NVIDIA driver shows a GPU here"
        if importlib.util.find_spec("torch") is None:
            return "torch is not installed"
        import torch

        return "" if torch.cuda.is_available() else "this torch was built without CUDA"

    def open(self) -> Platform:
        import torch

        torch.cuda.empty_cache()
        return super().open()

    def fill(self, tensor: Any, value: float) -> None:
        tensor.fill_(value)

    #: Memory that was freed may still be mapped.
    fault = "CUDA_ERROR_ASSERT"

    def break_down(self, device: Device) -> None:
        import torch

        there = torch.device("cuda", device.index)
        torch.zeros(1, device=there)[torch.full((1,), 7, device=there)]

    def read(self, tensor: Any) -> list[Any]:
        return tensor.tolist()  # type: ignore[no-any-return]

    @contextlib.contextmanager
    def hold(self, device: Device, stream: int) -> Iterator[None]:
        import torch

        assert isinstance(device, CudaDevice)
        wait = ctypes.CDLL(libcuda.LIBRARY).cuStreamWaitValue32_v2
        wait.argtypes = (ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint)
        # Pinned, so the device reads it at the same address.
        word = torch.zeros(1, dtype=torch.int32, pin_memory=True)
        device.context.call("Holding a stream", wait, stream, word.data_ptr(), 1, 0)
        try:
            yield
        finally:
            word[0] = 1
            device.synchronize(stream)


#: By name.
KINDS: dict[str, type[Kind]] = {kind.name: kind for kind in (Null, FakeCuda, Cuda)}


class Peer:
    """A second process with the same platform. Calls its methods of `Told`; what they raise is raised here."""

    def __init__(self, kind: Kind) -> None:
        root = Path(__file__).resolve().parents[2]
        environment = {**os.environ, **kind.environment, "PYTHONPATH": python_path()}
        command = [sys.executable, "-m", "tests.conformance.device_kinds", kind.name]
        self._process = subprocess.Popen(command, cwd=root, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.pid = self._process.pid

    def __call__(self, method: str, *arguments: Any) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        pickle.dump((method, arguments), self._process.stdin)
        self._process.stdin.flush()
        is_result, result = pickle.load(self._process.stdout)
        if not is_result:
            raise result
        return result

    def kill(self) -> None:
        """SIGKILL; gone when this returns."""
        self._process.send_signal(signal.SIGKILL)
        self.close()

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


class Told:
    """The requests that the peer takes."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.platform = kind.open()
        self.points: dict[str, Point] = {}
        self._peers: Peers | None = None
        self.holds = contextlib.ExitStack()
        self.tensors: list[Any] = []

    def allocate(self, device: int, size: int) -> int:
        return self.platform.devices[device].allocate(size)

    def export(self, device: int, address: int) -> bytes:
        return self.platform.devices[device].export_memory(address)

    def free(self, device: int, address: int) -> None:
        self.platform.devices[device].free(address)

    def open(self, device: int, handle: bytes) -> int:
        return self.platform.devices[device].open_memory(handle)

    def shut(self, device: int, address: int) -> None:
        self.platform.devices[device].close_memory(address)

    def _tensor(self, device: int, address: int, count: int) -> Any:
        return self.platform.devices[device].tensor(address, 4 * count, "float32", (count,), None, None)

    def fill(self, device: int, address: int, count: int, value: float) -> None:
        self.kind.fill(self._tensor(device, address, count), value)

    def break_down(self, device: int) -> None:
        self.kind.break_down(self.platform.devices[device])

    def read(self, device: int, address: int, count: int) -> list[float]:
        return self.kind.read(self._tensor(device, address, count))

    def copy(self, device: int, target: int, source: int, size: int) -> None:
        self.platform.devices[device].copy(target, source, size, 0)

    def synchronize(self, device: int) -> None:
        self.platform.synchronize(self.platform.devices[device], 0)

    def check(self, device: int) -> None:
        self.platform.devices[device].check()

    def mark(self, device: int, name: str) -> Where:
        """Mark the end of stream 0."""
        return self._mark(device, name, 0)

    def mark_elsewhere(self, device: int, name: str) -> Where:
        """Mark the end of a stream on which nothing is queued."""
        return self._mark(device, name, self.platform.devices[device].create_stream())

    def _mark(self, device: int, name: str, stream: int) -> Where:
        self.points[name] = mark(self.platform.devices[device], stream)
        return self.points[name].where

    def is_reached(self, name: str) -> bool:
        return self.points[name].reached()

    def await_point(self, device: int, where: Where) -> None:
        """Have stream 0 wait for a point of any process."""
        if self._peers is None:
            self._peers = Peers()
        self._peers.wait(self.platform.devices[device], 0, *where)

    def hold(self, device: int) -> None:
        self.holds.enter_context(self.kind.hold(self.platform.devices[device], 0))

    def release(self) -> None:
        self.holds.close()

    def memory(self, device: int) -> tuple[int, int]:
        return self.platform.devices[device].memory()


def main() -> None:
    told = Told(KINDS[sys.argv[1]]())
    while True:
        try:
            method, arguments = pickle.load(sys.stdin.buffer)
        except EOFError:
            break
        try:
            reply = True, getattr(told, method)(*arguments)
        except Exception as error:
            reply = False, error
        pickle.dump(reply, sys.stdout.buffer)
        sys.stdout.buffer.flush()
    told.release()


if __name__ == "__main__":
    main()
