"""A graph of Hamilton's through its Ray adapter, a task for each node; the first execution and the next 20. Needs ``sf-hamilton pandas``.

mray run bench/tool_work/hamilton_graph.py      # or python, on Ray itself
"""

import json
import sys
import time

begun = time.perf_counter()
import ray  # noqa: E402
from hamilton import base, driver  # noqa: E402
from hamilton.plugins import h_ray  # noqa: E402

imported = time.perf_counter()


def one_more(number: int) -> int:
    return number + 1


def doubled(one_more: int) -> int:
    return one_more * 2


def tripled(one_more: int) -> int:
    return one_more * 3


def both(doubled: int, tripled: int) -> int:
    return doubled + tripled


ray.init(num_cpus=2)
graph = driver.Driver({"number": 5}, sys.modules[__name__], adapter=h_ray.RayGraphAdapter(result_builder=base.DictResult()))
started = time.perf_counter()
graph.execute(["both"])
between = time.perf_counter()
results = [graph.execute(["doubled", "tripled", "both"]) for _ in range(20)]
ended = time.perf_counter()
seconds = {
    "import": imported - begun,
    "init": started - imported,
    "first": between - started,
    "20": ended - between,
    "whole": ended - begun,
}
print(json.dumps({"ray": ray.__version__, **{name: round(value, 2) for name, value in seconds.items()}, "result": results[-1]}))
ray.shutdown()
