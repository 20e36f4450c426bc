"""Actors that import torch, from `init` to the last reply: on mray, with what the last session imported, and on Ray.

    python bench/heavy_imports.py [--actors N] [--rounds N] [--ray-python PATH]

In turn, each session in a process of its own: mray as it comes, `preload="auto"` in a second session of a program, the same with
variables in the runtime_env of `init`, `preload=["torch"]`, and Ray. Printed are the medians of seconds and of the actors' memory (PSS),
each with the load of the machine.

Exit status 1 if `preload="auto"` is not 3 times faster than Ray, or takes more than half of the memory of mray without it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
#: Variables of a job that torch reads when it is imported, or its parts, as post-training frameworks set them.
VARIABLES = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "true", "NCCL_DEBUG": "WARN", "PYTHONUNBUFFERED": "1"}
#: How many times faster than Ray, and what part of the memory.
FASTER, PART = 3.0, 0.5

PROGRAM = """
    import json, os, sys, time
    import ENGINE as ray

    begin = time.perf_counter()
    ray.init(num_cpus=8, logging_level="ERROR", log_to_driver=False, **json.loads(sys.argv[1]))

    @ray.remote(num_cpus=0)
    class Model:
        def __init__(self):
            import torch

            self.ones = torch.ones(3)

        def total(self):
            return float(self.ones.sum())

        def memory(self):
            with open("/proc/self/smaps_rollup") as rollup:
                return next(int(line.split()[1]) for line in rollup if line.startswith("Pss:")) * 1024

    models = [Model.remote() for _ in range(int(sys.argv[2]))]
    assert set(ray.get([model.total.remote() for model in models])) == {3.0}
    seconds = time.perf_counter() - begin
    print("FOUND", json.dumps([seconds, sum(ray.get([model.memory.remote() for model in models])), os.getloadavg()[0]]))
    ray.shutdown()
"""


def session(python: str, engine: str, options: dict[str, object], actors: int, folder: str) -> list[float]:
    """Seconds, bytes and load of one session."""
    path = Path(folder, f"on_{engine}.py")
    path.write_text(textwrap.dedent(PROGRAM).replace("ENGINE", engine if engine == "ray" else "mray"))
    environment = {**os.environ, "MRAY_CACHE_DIR": folder, "RAY_USAGE_STATS_ENABLED": "0"}
    if engine != "ray":
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH")]))
    command = [python, str(path), json.dumps(options), str(actors)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    found: list[float] = json.loads(done.stdout.rpartition("FOUND ")[2])
    return found


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("--actors", type=int, default=8)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--ray-python", help="an interpreter with ray and torch")
    given = arguments.parse_args()
    auto = 'mray, preload="auto"'
    ways: dict[str, tuple[str, str, dict[str, object]]] = {
        "mray": (sys.executable, "mray", {}),
        auto: (sys.executable, "auto", {"preload": "auto"}),
        f"{auto}, env_vars": (sys.executable, "auto", {"preload": "auto", "runtime_env": {"env_vars": VARIABLES}}),
        'mray, preload=["torch"]': (sys.executable, "mray", {"preload": ["torch"]}),
    }
    if given.ray_python:
        ways["Ray"] = (given.ray_python, "ray", {"include_dashboard": False})
    found: dict[str, list[list[float]]] = {name: [] for name in ways}
    seconds: dict[str, float] = {}
    memory: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="mh", dir="/tmp") as folder:
        session(*ways[auto], given.actors, folder)  # which learns it
        for _ in range(given.rounds):
            for name, way in ways.items():
                found[name].append(session(*way, given.actors, folder))
    for name, results in found.items():
        seconds[name], memory[name], load = (statistics.median(column) for column in zip(*results, strict=True))
        every = ", ".join(f"{each[0]:.1f}" for each in results)
        print(f"{name:<34} {seconds[name]:6.2f} s ({every})  {memory[name] / 1e6:6.0f} MB  load {load:.0f}")
    slow = "Ray" in seconds and seconds["Ray"] < FASTER * seconds[auto]
    return int(slow or memory[auto] > PART * memory["mray"])


if __name__ == "__main__":
    sys.exit(main())
