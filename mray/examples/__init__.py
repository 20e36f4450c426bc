"""Programs to read and to run: ``python -m mray.examples`` runs them all, ``python -m mray.examples.NAME`` one.

Each does the same work by ordinary calls (``remote`` and ``get``) and through a compiled graph, and prints both latencies: the time
from the call until its value has arrived in the driver.

| name | what |
|---|---|
| `hello_world` | one actor that returns its argument |
| `image_pipeline` | four actors in a row, over a batch of images |
| `inference` | an executor of a model that is split over several processes; `vllm_executor` runs vLLM on it |
| `cluster` | a replica of a model on each machine of a Ray cluster, each with a compiled graph of mray's own |
| `gpu_pipeline` | four stages that share one GPU, with activations that never leave it |
| `libraries` | Ray's Data, Tune and Serve |
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple


class Latency(NamedTuple):
    """Seconds per execution."""

    median: float
    p99: float


class Comparison(NamedTuple):
    """One piece of work, done both ways."""

    name: str
    calls: Latency
    graph: Latency


def measure(execute: Callable[[], object], executions: int, warmup: int = 10) -> Latency:
    """The latency of `execute`, which returns when its value has arrived, after `warmup` executions."""
    for _ in range(warmup):
        execute()
    seconds = []
    for _ in range(executions):
        begun = time.perf_counter()
        execute()
        seconds.append(time.perf_counter() - begun)
    return summarize(seconds)


def summarize(seconds: Sequence[float]) -> Latency:
    """The latencies of executions with these durations."""
    ordered = sorted(seconds)
    return Latency(statistics.median(ordered), ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)])


def print_comparisons(comparisons: Sequence[Comparison]) -> None:
    """Print a table with a line for each piece of work."""
    print(f"\n{'':<28}{'remote + get':>22}{'compiled graph':>22}{'ratio':>8}")
    print(f"{'':<28}{'median':>12}{'p99':>10}{'median':>12}{'p99':>10}")
    for name, calls, graph in comparisons:
        figures = f"{_readable(calls.median):>12}{_readable(calls.p99):>10}{_readable(graph.median):>12}{_readable(graph.p99):>10}"
        print(f"{name:<28}{figures}{calls.median / graph.median:>7.1f}x")


def _readable(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} us" if seconds < 1e-3 else f"{seconds * 1e3:.2f} ms"
