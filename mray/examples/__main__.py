"""``python -m mray.examples``: run every example in one session and print the latencies side by side."""

from __future__ import annotations

import argparse
import gc
import importlib
import importlib.util
import platform
import sys

import mray
from mray.examples import Comparison, gpu_pipeline, hello_world, image_pipeline, print_comparisons

#: Where there is no GPU: the wheels that torch's name alone would bring hold gigabytes of CUDA.
CPU_WHEELS = " --index-url https://download.pytorch.org/whl/cpu"


def compare(executions: int, with_torch: bool, with_gpu: bool) -> list[Comparison]:
    """The measurement of each example."""
    comparisons = [hello_world.compare(executions), image_pipeline.compare(max(1, executions // 10))]
    if with_torch:
        # By name: it cannot be imported where torch is not installed.
        comparisons.append(importlib.import_module("mray.examples.pipeline_parallel").compare(max(1, executions // 50)))
    if with_gpu:
        gc.collect()  # actors that nobody can reach any more give their part of the GPU back
        comparisons.append(gpu_pipeline.compare(max(1, executions // 50)))
    return comparisons


def main() -> None:
    """Run the examples."""
    parser = argparse.ArgumentParser(prog="mray.examples", description="Run every example and print latencies side by side.")
    parser.add_argument("--executions", type=int, default=2000, help="how often hello world runs; the others run a part of it")
    executions = parser.parse_args().executions
    with_torch = importlib.util.find_spec("torch") is not None
    with mray.init(preload=["torch"] if with_torch else []):
        print(f"mray {mray.__version__}, Python {sys.version.split()[0]}, {mray.cluster_resources()['CPU']:.0f} CPUs, {platform.machine()}")
        with_gpu = mray.cluster_resources().get("GPU", 0) >= 1 and gpu_pipeline.has_gpu()
        print_comparisons(compare(executions, with_torch, with_gpu))
    if not with_torch:
        print("\nskipped, for want of torch: pipeline_parallel")
        print(f"to run it too: {sys.executable} -m pip install torch{'' if with_gpu else CPU_WHEELS}")
    if not with_gpu:
        print("\nskipped, for want of a GPU: gpu_pipeline")


if __name__ == "__main__":
    main()
