"""Fixtures of tests of `bench/bench_gpu.py`: running it once, and looking at its rows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
ROWS = ("latency", "queues", "copies", "mps", "held", "waits", "pipeline", "bandwidth", "nccl", "shapes", "deaths")


class Run(NamedTuple):
    """A run of the program; no figures: it has written none."""

    status: int
    said: str
    figures: dict[str, Any]


def run_bench(folder: Path, variables: dict[str, str], *words: str) -> Run:
    """Run it, each row as small as can be."""
    figures = folder / "figures.json"
    command = [sys.executable, "bench/bench_gpu.py", "--tiny", "--json", str(figures), *words]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **variables}, capture_output=True, text=True, check=False)
    return Run(done.returncode, f"{done.stdout}\n{done.stderr}", json.loads(figures.read_text()) if figures.exists() else {})
