"""Remote variables: what pipelining saves.

python bench/proxy.py [--ray-python /path/to/env/with/ray/bin/python]

Each row is the median of rounds that take turns, so that a busy machine disturbs all of them alike. Ray-proxy's way is an actor call for
each operation whose answer, the result's id, is awaited; it runs on the engine itself, and with --ray-python also on Ray.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from mray.proxy import RemoteInterpreterFactory

#: Operations in a chain.
CHAIN = 20


class CallPerOperation:
    """The counterpart in ray-proxy."""

    def __init__(self) -> None:
        self.numbers = itertools.count()
        self.objects: dict[int, Any] = {}

    def put(self, value: Any) -> int:
        number = next(self.numbers)
        self.objects[number] = value
        return number

    def operate(self, number: int, operator: str, value: Any) -> int:
        return self.put(getattr(self.objects[number], operator)(value))

    def fetch(self, number: int) -> Any:
        return self.objects[number]


def microseconds(rows: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """The median of each, in microseconds; rounds go through all rows."""
    times: dict[str, list[float]] = {name: [] for name in rows}
    for _ in range(rounds):
        for name, act in rows.items():
            begun = time.perf_counter()
            act()
            times[name].append((time.perf_counter() - begun) * 1e6)
    return {name: statistics.median(measured) for name, measured in times.items()}


def measure(engine: str, rounds: int) -> dict[str, float]:
    """All rows on one engine."""
    ray: Any = importlib.import_module(engine)
    ray.init(num_cpus=2, logging_level="ERROR", **({"include_dashboard": False} if engine == "ray" else {}))
    env = RemoteInterpreterFactory(ray).create(num_cpus=0)
    per_call = ray.remote(num_cpus=0)(CallPerOperation).remote()
    x = env.put(0)
    there = ray.get(per_call.put.remote(0))

    def pipelined() -> None:
        y = x
        for _ in range(CHAIN):
            y = y + 1
        assert y.fetch() == CHAIN

    def awaited() -> None:
        y = x
        for number in range(CHAIN):
            y = y + 1
            assert y.fetch() == number + 1

    def ray_proxy() -> None:
        y = there
        for _ in range(CHAIN):
            y = ray.get(per_call.operate.remote(y, "__add__", 1))
        assert ray.get(per_call.fetch.remote(y)) == CHAIN

    chains = {
        "chain of 20, one fetch": pipelined,
        "chain of 20, each awaited": awaited,
        "chain of 20, ray-proxy's way": ray_proxy,
    }
    # Apart, since the variables of a chain end a moment after it.
    singles = {
        "fetch of a variable": x.fetch,
        "one operation and its value (bool)": lambda: bool(x),
        "actor call, of many threads": env.get_host,
        "actor call": lambda: ray.get(per_call.fetch.remote(there)),
    }
    found: dict[str, float] = {}
    for rows in (chains, singles):
        microseconds(rows, 20)
        found.update(microseconds(rows, rounds))
    ray.shutdown()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ray-python", help="a Python that has Ray")
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--engine", default="mray", help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    found = measure(given.engine, given.rounds)
    if given.json:
        print(json.dumps(found))
        return
    print(f"{given.engine}:")
    for name, value in found.items():
        print(f"  {name:36} {value:9.1f} us")
    chain, awaited, per_call = (found[f"chain of 20, {way}"] for way in ("one fetch", "each awaited", "ray-proxy's way"))
    print(f"  awaited / one fetch {awaited / chain:.1f}, ray-proxy's way / one fetch {per_call / chain:.1f}")
    print(f"  fetch - actor call {found['fetch of a variable'] - found['actor call']:.1f} us")
    if given.ray_python:
        command = [given.ray_python, __file__, "--engine", "ray", "--json", "--rounds", str(max(20, given.rounds // 5))]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        theirs = json.loads(done.stdout.splitlines()[-1])
        print("ray:")
        for name, value in theirs.items():
            print(f"  {name:36} {value:9.1f} us")
        own = theirs["chain of 20, ray-proxy's way"]
        there = theirs["chain of 20, one fetch"]
        print(f"  ray-proxy's way on Ray / one fetch here {own / chain:.1f}, / one fetch on Ray {own / there:.1f}")


if __name__ == "__main__":
    sys.exit(main())
