"""The GPU example of Ray's quickstart: a tensor from the GPU of one actor to that of another.

    python -m mray.examples.gpu_quickstart [transport]

Written for two GPUs and NCCL. With one GPU, which both actors share, one line changes: ``transport="auto"``. That is right for two GPUs,
too: where they reach each other's memory it goes by CUDA IPC, otherwise by NCCL.
"""

from __future__ import annotations

import sys
from typing import Any

import mray
import mray.dag
from mray.examples.gpu_pipeline import VisibleGpu, session_options
from mray.experimental.channel.torch_tensor_type import TorchTensorType


class GPUSender:
    """Makes tensors."""

    def __init__(self) -> None:
        self.gpu = VisibleGpu()

    def send(self, shape: tuple[int, ...]) -> Any:
        """Zeros; with torch: ``torch.zeros(shape, device="cuda")``."""
        return self.gpu.full(shape, 0.0)


class GPUReceiver:
    """Gets them on its own GPU."""

    def __init__(self) -> None:
        self.gpu = VisibleGpu()

    def recv(self, tensor: Any) -> tuple[int, ...]:
        """The shape of what came."""
        assert self.gpu.last(tensor) == 0.0
        return tuple(tensor.shape)


def run(transport: str = "") -> tuple[str, tuple[int, ...]]:
    """The transport that was asked for (by default what fits the number of GPUs), and the shape that the receiver got."""
    two = mray.available_resources().get("GPU", 0) >= 2
    transport = transport or ("nccl" if two else "auto")
    share = 1 if two else 0.5
    sender = mray.remote(num_gpus=share, num_cpus=0)(GPUSender).remote()
    receiver = mray.remote(num_gpus=share, num_cpus=0)(GPUReceiver).remote()

    with mray.dag.InputNode() as inp:
        dag = sender.send.bind(inp)
        # How the tensors that `send` returns travel.
        dag = dag.with_type_hint(TorchTensorType(transport=transport))
        dag = receiver.recv.bind(dag)
    compiled = dag.experimental_compile()
    try:
        shape = mray.get(compiled.execute((10,)))
    finally:
        compiled.teardown()
    return transport, shape


def main() -> None:
    """Run the example in a session of its own."""
    with mray.init(**session_options()):
        transport, shape = run(*sys.argv[1:2])
        print(f"transport={transport!r}: the receiver got a tensor of shape {shape}")


if __name__ == "__main__":
    main()
