"""A table of Lance's, written and read by Ray Data. Needs ``ray[data]`` and ``pylance<2``: newer ones refuse what Ray 2.60 gives them.

mray run --libraries bench/tool_work/lance_table.py      # or python, on Ray itself
"""

import json
import tempfile
import time

begun = time.perf_counter()
import ray  # noqa: E402
import ray.data  # noqa: E402

imported = time.perf_counter()
ray.init(num_cpus=2)
started = time.perf_counter()
with tempfile.TemporaryDirectory() as folder:
    ray.data.range(20_000, override_num_blocks=4).map(lambda row: {"twice": row["id"] * 2}).write_lance(f"{folder}/table.lance")
    written = time.perf_counter()
    result = int(ray.data.read_lance(f"{folder}/table.lance").sum("twice"))
    ended = time.perf_counter()
seconds = {
    "import": imported - begun,
    "init": started - imported,
    "write": written - started,
    "read": ended - written,
    "whole": ended - begun,
}
print(json.dumps({"ray": ray.__version__, **{name: round(value, 2) for name, value in seconds.items()}, "result": result}))
ray.shutdown()
