"""Compares mray with its peers on this machine, now: medians, 99th percentiles and ratios.

    python bench/compare.py [--ray-python PYTHON] [--only WORD ...] [--rounds N] [--json FILE]
                            [--no-ray | --ray-json FILE]

Every measurement is a fresh process (`measure.py`). Rounds are interleaved: in each round every row runs once on every
engine, so that a slow spell of the machine hits all of them. Ray lives in a virtual environment of its own, named by
``--ray-python``; ``--ray-json`` takes its figures from a file that an earlier run wrote with ``--json``.
The exit status is 1 if a row misses what is required of it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from rows import BY_KEY, ROWS, Row

from mray.cli.python_build import describe

HERE = Path(__file__).resolve().parent
#: Seconds after which a measurement hangs.
PATIENCE = 300
Samples = dict[str, dict[str, list[list[float]]]]  # row -> engine -> one list per round


def main() -> int:
    arguments = parse(sys.argv[1:])
    rows = [row for row in ROWS if not arguments.only or any(word in row.key for word in arguments.only)]
    if not rows:
        print("no such row; there are:", *BY_KEY, file=sys.stderr)
        return 2
    samples: Samples = {row.key: {} for row in rows}
    if arguments.ray_json:
        earlier: Samples = json.loads(Path(arguments.ray_json).read_text())["samples"]
        for row in rows:
            if "ray" in earlier.get(row.key, {}):
                samples[row.key]["ray"] = earlier[row.key]["ray"]
    for number in range(arguments.rounds):
        for row in rows:
            for engine in row.engines:
                if wanted(engine, arguments):
                    measured = measure(engine, row, arguments)
                    if measured:
                        samples[row.key].setdefault(engine, []).append(measured)
        print(f"round {number + 1} of {arguments.rounds} done", file=sys.stderr)
        if arguments.json:
            write_json(Path(arguments.json), samples)
    return report(rows, samples)


def parse(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Run mray and its peers in turn and print ratios.")
    parser.add_argument("--ray-python", help="python of a virtual environment that has ray")
    parser.add_argument("--only", nargs="+", metavar="WORD", help="rows whose key contains one of these words")
    parser.add_argument("--engines", nargs="+", metavar="ENGINE", help="run only these engines")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", metavar="FILE", help="write every sample there")
    parser.add_argument("--no-ray", action="store_true", help="leave Ray out")
    parser.add_argument("--ray-json", metavar="FILE", help="Ray's figures of an earlier run instead of running it")
    return parser.parse_args(words)


def wanted(engine: str, arguments: argparse.Namespace) -> bool:
    if arguments.engines and engine not in arguments.engines:
        return False
    return engine != "ray" or bool(arguments.ray_python and not arguments.no_ray and not arguments.ray_json)


def measure(engine: str, row: Row, arguments: argparse.Namespace) -> list[float]:
    """Samples of one fresh process; an engine that fails is reported and left out of this round."""
    python = arguments.ray_python if engine == "ray" else sys.executable
    environment = dict(os.environ, MRAY_BENCH_MARK=f"{os.getpid()}-{engine}-{row.key}")
    command = [python, str(HERE / "measure.py"), engine, row.key]
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        print(f"{engine} {row.key} did not end within {PATIENCE} s", file=sys.stderr)
        return []
    if done.returncode != 0:
        print(f"{engine} {row.key} failed ({done.returncode}):\n{done.stderr[-2000:]}", file=sys.stderr)
        return []
    measured: list[float] = json.loads(done.stdout.strip().splitlines()[-1])
    return measured


def machine() -> dict[str, Any]:
    return {"cpus": len(os.sched_getaffinity(0)), "python": f"{sys.version.split()[0]}, {describe()}", "load": os.getloadavg()}


def write_json(path: Path, samples: Samples) -> None:
    path.write_text(json.dumps({"machine": machine(), "samples": samples}))


# ------------------------------------------------------------------------------------------------ report
def median(rounds: list[list[float]]) -> float:
    """Median of the rounds' medians: one slow round does not drown the others."""
    return statistics.median(statistics.median(samples) for samples in rounds)


def high(rounds: list[list[float]]) -> float | None:
    """99th percentile of all samples, where there are enough of them to have one."""
    pooled = sorted(sample for samples in rounds for sample in samples)
    return pooled[int(len(pooled) * 0.99)] if len(pooled) >= 100 else None


def shown(row: Row, value: float | None) -> str:
    if value is None:
        return ""
    if row.unit != "s":
        return f"{value:.2f} {row.unit.split()[0]}"
    for scale, unit in ((1.0, "s"), (1e-3, "ms")):
        if value >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value / 1e-6:.3g} µs"


def report(rows: list[Row], samples: Samples) -> int:
    missed = 0
    print(", ".join(f"{name} {value}" for name, value in machine().items()))
    print(f"{'what':42} {'engine':9} {'median':>10} {'p99':>10} {'per s':>10} {'mray is':>8}  {'required':>8} {'aim':>5}")
    for row in rows:
        by_engine = samples[row.key]
        ours = median(by_engine["mray"]) if by_engine.get("mray") else None
        title = row.title
        for engine in row.engines:
            rounds = by_engine.get(engine)
            if not rounds:
                continue
            middle = median(rounds)
            ratio = middle / ours if ours and engine != "mray" else None
            required, aim, verdict = demands(row, engine, ratio, middle)
            missed += verdict == "MISSED"
            rate = f"{1 / middle:.0f}" if row.rate else ""
            times_better = f"{ratio:.2f}x" if ratio is not None else ""
            print(
                f"{title:42} {engine:9} {shown(row, middle):>10} {shown(row, high(rounds)):>10} {rate:>10} "
                f"{times_better:>8}  {required:>8} {aim:>5} {verdict}"
            )
            title = ""
    return 1 if missed else 0


def demands(row: Row, engine: str, ratio: float | None, middle: float) -> tuple[str, str, str]:
    """The limit of this line, its aim, and whether it is met."""
    if engine == "mray" and row.limit is not None:
        return f"<{row.limit:g}", "0", "MISSED" if middle > row.limit else ""
    if engine == "memcpy" and row.of_memcpy is not None:
        return f">{row.of_memcpy:g}x", "", "MISSED" if ratio is not None and ratio < row.of_memcpy else ""
    if engine in ("ray", "gloo") and row.required is not None:
        missed = ratio is not None and ratio < row.required
        return f"{row.required:g}x", f"{row.aim:g}x" if row.aim else "", "MISSED" if missed else ""
    return "", "", ""


if __name__ == "__main__":
    sys.exit(main())
