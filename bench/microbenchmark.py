"""The rows of ``ray microbenchmark`` on mray and on Ray, in turn, as a table for the manual.

    python bench/microbenchmark.py --ray-python PYTHON [--rounds N] [--seconds S] [--only PATTERN]

Each engine has a session of its own in a process of its own. In each round both run; a row's rate is the best of its rounds, which is
what a disturbed machine leaves comparable. (With ``--engine NAME`` it is the process that measures one of them.)
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from mray.cli.benchmarks import benchmarks, row  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the rows of `ray microbenchmark` on both engines.")
    parser.add_argument("--ray-python", help="python of a virtual environment that has ray")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--only", default="", metavar="PATTERN")
    parser.add_argument("--engine", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.engine:
        measure(given)
        return 0
    rates: dict[str, dict[str, float]] = {}
    for _ in range(given.rounds):
        for engine, python in (("mray", sys.executable), ("ray", given.ray_python)):
            if python is not None:
                for name, rate in child(engine, python, given).items():
                    best = rates.setdefault(name, {})
                    best[engine] = max(rate, best.get(engine, 0.0))
    print("| what, per second | mray | Ray 2.60 | ratio |\n|---|---|---|---|")
    for name, by_engine in rates.items():
        ours, theirs = by_engine.get("mray"), by_engine.get("ray")
        ratio = f"{ours / theirs:.1f}" if ours and theirs else ""
        print(f"| {name} | {shown(ours)} | {shown(theirs)} | {ratio} |")
    return 0


def shown(rate: float | None) -> str:
    if rate is None:
        return ""
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"


def child(engine: str, python: str, given: argparse.Namespace) -> dict[str, float]:
    command = [python, __file__, "--engine", engine, "--seconds", str(given.seconds), "--only", given.only]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    rates: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return rates


def measure(given: argparse.Namespace) -> None:
    ray: Any = importlib.import_module(given.engine)
    importlib.import_module(f"{given.engine}.util")
    ray.init(include_dashboard=False, log_to_driver=False, logging_level="ERROR", resources={"custom": 100})
    rates = {name: row(name, count, go, given.seconds)["per_second"] for name, count, go in benchmarks(ray) if re.search(given.only, name)}
    ray.shutdown()
    print(json.dumps(rates))


if __name__ == "__main__":
    sys.exit(main())
