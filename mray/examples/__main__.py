"""``python -m mray.examples``: run every example in one session and print the latencies side by side."""

from __future__ import annotations

import argparse
import gc
import importlib
import importlib.util
import platform
import sys

import mray
from mray.examples import asyncio_server, hello_world, image_pipeline
from mray.examples.gpu_arrays import has_gpu
from mray.examples.latencies import Comparison, print_comparisons

#: Examples that need torch, and how many times fewer executions than hello world each makes.
WITH_TORCH = {"pipeline_parallel": 50, "tensor_parallel": 20, "data_parallel": 20}
#: The same for those that need a GPU.
WITH_GPU = {"gpu_pipeline": 50, "gpu_replay": 10}


def compare(executions: int, with_torch: bool, with_gpu: bool) -> list[Comparison]:
    """The measurement of each example."""
    comparisons = [hello_world.compare(executions), image_pipeline.compare(max(1, executions // 10)), asyncio_server.compare(executions)]
    if with_torch:
        for name, divisor in WITH_TORCH.items():
            # By name: they cannot be imported where torch is not installed.
            example = importlib.import_module(f"mray.examples.{name}")
            comparisons.append(example.compare(max(1, executions // divisor)))
    if with_gpu:
        for name, divisor in WITH_GPU.items():
            gc.collect()  # actors that nobody can reach any more give their part of the GPU back
            comparisons.append(importlib.import_module(f"mray.examples.{name}").compare(max(1, executions // divisor)))
    return comparisons


def main() -> None:
    """Run the examples."""
    parser = argparse.ArgumentParser(prog="mray.examples", description="Run every example and print latencies side by side.")
    parser.add_argument("--executions", type=int, default=2000, help="how often hello world runs; the others run a part of it")
    executions = parser.parse_args().executions
    with_torch = importlib.util.find_spec("torch") is not None
    with mray.init(preload=["torch"] if with_torch else []):
        print(f"mray {mray.__version__}, Python {sys.version.split()[0]}, {mray.cluster_resources()['CPU']:.0f} CPUs, {platform.machine()}")
        with_gpu = mray.cluster_resources().get("GPU", 0) >= 1 and has_gpu()
        print_comparisons(compare(executions, with_torch, with_gpu))
    if not with_torch:
        print(f"\nskipped, for want of torch: {', '.join(WITH_TORCH)}")
        print(f"to run them too: {sys.executable} -m pip install torch")
    if not with_gpu:
        print(f"\nskipped, for want of a GPU: {', '.join(WITH_GPU)}")


if __name__ == "__main__":
    main()
