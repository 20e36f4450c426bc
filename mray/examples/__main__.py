"""``python -m mray.examples``: run every example in one session and print the latencies side by side."""

from __future__ import annotations

import argparse
import gc
import platform
import sys

import mray
from mray.examples import Comparison, gpu_pipeline, hello_world, image_pipeline, print_comparisons


def compare(executions: int, with_gpu: bool) -> list[Comparison]:
    """The measurement of each example."""
    comparisons = [hello_world.compare(executions), image_pipeline.compare(max(1, executions // 10))]
    if with_gpu:
        gc.collect()  # unreachable actors release the GPU
        comparisons.append(gpu_pipeline.compare(max(1, executions // 50)))
    return comparisons


def main() -> None:
    """Run the examples."""
    parser = argparse.ArgumentParser(prog="mray.examples", description="Run every example and print latencies side by side.")
    parser.add_argument("--executions", type=int, default=2000, help="how often hello world runs; the others run a part of it")
    executions = parser.parse_args().executions
    with mray.init():
        print(f"mray {mray.__version__}, Python {sys.version.split()[0]}, {mray.cluster_resources()['CPU']:.0f} CPUs, {platform.machine()}")
        with_gpu = mray.cluster_resources().get("GPU", 0) >= 1 and gpu_pipeline.has_gpu()
        print_comparisons(compare(executions, with_gpu))
    if not with_gpu:
        print("\nskipped, for want of a GPU: gpu_pipeline")


if __name__ == "__main__":
    main()
