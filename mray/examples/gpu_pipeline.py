"""Four stages that share one GPU, with activations that never leave it.

    python -m mray.examples.gpu_pipeline [executions] [megabytes]

    number ──▶ stage 0 ══ 64 MB ══▶ stage 1 ══ 64 MB ══▶ stage 2 ══ 64 MB ══▶ stage 3 ──▶ one number

Each stage is an actor with a quarter of the GPU (``num_gpus=0.25`` says how many share it; mray divides neither its time nor its
memory). In the graph a stage's output is copied once, within the GPU: only the copy's location is sent, and the next stage's kernels
are queued behind the event that marks its completion. By ordinary calls the tensors go through host memory.

Without a GPU one is pretended (`MRAY_NULL_DEVICES`). Programs would use torch instead of `VisibleGpu`.
"""

from __future__ import annotations

import sys
from typing import Any

import mray
from mray._device.platform import platform
from mray.dag import InputNode
from mray.examples import Comparison, measure, print_comparisons

STAGES = 4
IN_FLIGHT = 4


class VisibleGpu:
    """The process's GPU, or the pretended one. Raises RuntimeError without one."""

    def __init__(self) -> None:
        devices = platform()
        if devices is None or not devices.devices:
            raise RuntimeError("This process sees no GPU. Give its actor num_gpus; MRAY_NULL_DEVICES=1 pretends one.")
        self.is_pretended = devices.name == "null"

    def full(self, shape: tuple[int, ...], value: float) -> Any:
        if self.is_pretended:
            from mray.testing import null  # noqa: PLC0415  (with numpy)

            return null.full(shape, value)
        import torch  # noqa: PLC0415

        return torch.full(shape, value, device="cuda")

    def last(self, tensor: Any) -> float:
        """Waits for the GPU."""
        return float(tensor.reshape(-1)[-1])


def has_gpu() -> bool:
    """Whether this process sees a GPU for computing, pretended or not."""
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
    """Options of `mray.init` that provide a GPU, perhaps pretended."""
    devices = platform()
    if devices is not None and has_gpu():
        return {"num_gpus": len(devices.devices), "preload": ["torch"] if devices.name == "cuda" else []}
    print("no GPU here: pretending one")
    return {"num_gpus": 1, "runtime_env": {"env_vars": {"MRAY_NULL_DEVICES": "1"}}}


@mray.remote(num_gpus=1 / STAGES, num_cpus=0)
class Stage:
    """Adds its weight to its input."""

    def __init__(self, weight: float, elements: int) -> None:
        self.gpu = VisibleGpu()
        self.weight = weight
        self.elements = elements

    def begin(self, number: float) -> Any:
        return self.gpu.full((self.elements,), number) + self.weight

    def forward(self, activations: Any) -> Any:
        """Does not wait for the values."""
        return activations + self.weight

    def end(self, activations: Any) -> float:
        """Waits for the GPU."""
        return self.gpu.last(activations + self.weight)


def check(results: list[float], numbers: list[float]) -> None:
    """Raise AssertionError unless each result is the sum of its number and all weights."""
    assert results == [number + sum(range(STAGES)) for number in numbers], (results, numbers)


def compare(executions: int = 20, megabytes: float = 64) -> Comparison:
    """Measure both ways; an execution takes `IN_FLIGHT` numbers through all stages."""
    elements = int(megabytes * 1e6) // 4
    first, *middle, last = (Stage.remote(float(weight), elements) for weight in range(STAGES))
    numbers = [float(number) for number in range(IN_FLIGHT)]

    def call() -> list[float]:
        outputs = []
        for number in numbers:
            activations = first.begin.remote(number)
            for stage in middle:
                activations = stage.forward.remote(activations)
            outputs.append(last.end.remote(activations))
        results: list[float] = mray.get(outputs)
        return results

    check(call(), numbers)
    calls = measure(call, executions, warmup=2)

    with InputNode() as number:
        graph = first.begin.bind(number)
        for stage in middle:
            graph = stage.forward.bind(graph)
        graph = last.end.bind(graph)
    compiled = graph.experimental_compile(_max_inflight_executions=IN_FLIGHT)

    def execute() -> list[float]:
        results: list[float] = mray.get([compiled.execute(number) for number in numbers])
        return results

    try:
        check(execute(), numbers)
        graph_latency = measure(execute, executions, warmup=2)
        check(execute(), numbers)
        through_host = sum(counts.get("device_refused", 0) for counts in compiled.statistics()["channels"].values())
        print(f"{through_host} tensors passed through host memory")
    finally:
        compiled.teardown()
    return Comparison(f"{STAGES} stages on one GPU, {megabytes:g} MB", calls, graph_latency)


def main() -> None:
    """Run the example in its own session."""
    with mray.init(**session_options()):
        executions, megabytes = [*sys.argv[1:3], *["20", "64"][len(sys.argv) - 1 :]][:2]
        print_comparisons([compare(int(executions), float(megabytes))])


if __name__ == "__main__":
    main()
