"""``python -m mray.examples``: run every example in one session and print the latencies side by side."""

from __future__ import annotations

import argparse
import platform
import sys

import mray
from mray.examples import hello_world, image_pipeline
from mray.examples.latencies import print_comparisons


def main() -> None:
    """Run the examples."""
    parser = argparse.ArgumentParser(prog="mray.examples", description="Run every example and print latencies side by side.")
    parser.add_argument("--executions", type=int, default=2000, help="how often hello world runs; the image pipeline runs a tenth of it")
    executions = parser.parse_args().executions
    with mray.init():
        print(f"mray {mray.__version__}, Python {sys.version.split()[0]}, {mray.cluster_resources()['CPU']:.0f} CPUs, {platform.machine()}")
        print_comparisons([hello_world.compare(executions), image_pipeline.compare(max(1, executions // 10))])


if __name__ == "__main__":
    main()
