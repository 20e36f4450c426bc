"""Common parts of the programs of this folder, each of which is the work of `libraries.py` for one of Ray's libraries.

They run on Ray, or on mray under ``mray run --libraries``. Prints a line of JSON for each figure as it is known,
``{"name": ..., "value": ...}``; that of "first" is the time of day of the first result. After ``{"name": "idle"}`` it does nothing until
its standard input ends.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator

import ray

CPUS = 4


def tell(name: str, value: float | None = None) -> None:
    print(json.dumps({"name": name, "value": value}), flush=True)


def rate(count: int, work: Callable[[], object]) -> float:
    """So many things a second."""
    begun = time.perf_counter()
    work()
    return count / (time.perf_counter() - begun)


def run(work: Callable[[], Iterator[None]]) -> None:
    """Do the work until it yields, be idle, and then its rest."""
    ray.init(num_cpus=CPUS, log_to_driver=False, logging_level="ERROR")
    doing = work()
    next(doing)
    tell("idle")
    sys.stdin.read()
    next(doing, None)
    ray.shutdown()
