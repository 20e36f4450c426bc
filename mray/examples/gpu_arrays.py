"""The arrays of the GPU examples: torch's CUDA tensors where there is a GPU, arrays on a pretended one elsewhere.

A program of yours would use torch and nothing of this. The pretended GPU (`MRAY_NULL_DEVICES`) is host memory whose work is done later, as
a GPU's: so the examples run, and are tested, anywhere.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from mray._device.platform import platform


class Gpu(ABC):
    """The few operations that the examples need."""

    @abstractmethod
    def full(self, shape: Sequence[int], value: float) -> Any:
        """A float32 tensor of one value, on the GPU."""

    @abstractmethod
    def address(self, tensor: Any) -> int:
        """Where it begins in the memory of the GPU."""

    @abstractmethod
    def last(self, tensor: Any) -> float:
        """Its last element. Waits for the GPU."""

    @abstractmethod
    def capture(self, function: Callable[[Any], Any], tensor: Any) -> Callable[[], Any]:
        """Record what `function` does with the tensor; what is returned does it again, with whatever lies at that address by then.

        It does not keep the tensor. On CUDA the result is the same tensor each time.
        """


class CudaGpu(Gpu):
    """torch."""

    def __init__(self) -> None:
        import torch  # noqa: PLC0415

        self.torch = torch

    def full(self, shape: Sequence[int], value: float) -> Any:
        return self.torch.full(tuple(shape), value, device="cuda")

    def address(self, tensor: Any) -> int:
        return int(tensor.data_ptr())

    def last(self, tensor: Any) -> float:
        return float(tensor.flatten()[-1])

    def capture(self, function: Callable[[Any], Any], tensor: Any) -> Callable[[], Any]:
        graph = self.torch.cuda.CUDAGraph()
        with self.torch.cuda.graph(graph):
            result = function(tensor)

        def replay() -> Any:
            graph.replay()
            return result

        return replay


class PretendedGpu(Gpu):
    """`mray.testing.null`, which has no CUDA graphs: it computes anew from the same address."""

    def __init__(self) -> None:
        from mray.testing import null  # noqa: PLC0415  (with numpy)

        self.null = null

    def full(self, shape: Sequence[int], value: float) -> Any:
        return self.null.full(tuple(shape), value)

    def address(self, tensor: Any) -> int:
        return int(tensor.address)

    def last(self, tensor: Any) -> float:
        return float(tensor.reshape(-1)[-1])

    def capture(self, function: Callable[[Any], Any], tensor: Any) -> Callable[[], Any]:
        devices = platform()
        assert devices is not None
        device, place = devices.devices[tensor.device], (tensor.address, tensor.nbytes, tensor.dtype.name, tensor.shape)
        return lambda: function(device.tensor(*place, None, None))


def find_gpu() -> Gpu:
    """That of this process. Raises RuntimeError if it sees none."""
    devices = platform()
    if devices is None or not devices.devices:
        raise RuntimeError("This process sees no GPU. Give its actor num_gpus; MRAY_NULL_DEVICES=1 pretends one.")
    return PretendedGpu() if devices.name == "null" else CudaGpu()


def has_gpu() -> bool:
    """Whether this process sees one that it can compute on, pretended or not."""
    devices = platform()
    if devices is None or not devices.devices:
        return False
    if devices.name == "null":
        return True
    try:
        import torch  # noqa: PLC0415
    except ImportError:
        return False
    return bool(torch.cuda.is_available())


def session_options() -> dict[str, Any]:
    """Options of `mray.init` that provide a GPU: the machine's own, or a pretended one for the workers."""
    devices = platform()
    if devices is not None and has_gpu():
        preload = ["torch"] if devices.name == "cuda" else []
        return {"num_gpus": len(devices.devices), "preload": preload}
    print("no GPU here: pretending one")
    return {"num_gpus": 1, "runtime_env": {"env_vars": {"MRAY_NULL_DEVICES": "1"}}}
