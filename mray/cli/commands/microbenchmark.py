"""``mray microbenchmark``: the cost of objects, calls, actors and compiled graphs on this machine."""

from __future__ import annotations

import argparse
import os
import re
from itertools import chain

import mray as ray
from mray.cli.benchmarks import benchmarks, graph_benchmarks, row
from mray.cli.terminal import DONE, add_format, parser, run_command, show

SUMMARY = "measure objects, calls, actors and graphs on this machine"


def main(words: list[str]) -> int:
    arguments = parser(
        "microbenchmark",
        SUMMARY,
        "The rows of `ray microbenchmark`, without those of a client of a cluster, and two of graphs. Each is repeated for --seconds; the\n"
        "rate is that of the median. It starts a session of its own. Figures of a busy machine mean little.",
    )
    arguments.add_argument("--seconds", type=float, default=1.0, help="how long to repeat each row (default 1)")
    arguments.add_argument("--only", metavar="PATTERN", default="", help="rows whose name matches this regular expression")
    arguments.add_argument("--scale", type=float, default=1.0, help="below 1: smaller arrays and fewer calls in the large rows")
    add_format(arguments)
    return run_command(arguments, words, _measure)


def _measure(given: argparse.Namespace) -> int:
    ray.init(include_dashboard=False, log_to_driver=False, logging_level="ERROR", resources={"custom": 100})
    try:
        found = chain(benchmarks(ray, scale=given.scale), graph_benchmarks(ray))
        rows = [row(name, count, go, given.seconds) for name, count, go in found if re.search(given.only, name)]
    finally:
        ray.shutdown()
    if given.format == "table":
        print(f"mray {ray.__version__}, {len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.1f}")
    show(rows, given.format)
    return DONE
