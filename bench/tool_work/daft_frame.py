"""A dataframe of daft's on its Ray runner: a function of the user's, a filter, a group, an order; twice. Needs ``daft[ray]``.

mray run bench/tool_work/daft_frame.py      # or python, on Ray itself
"""

import json
import time

begun = time.perf_counter()
import daft  # noqa: E402
import ray  # noqa: E402
from daft import col  # noqa: E402

imported = time.perf_counter()
ray.init(num_cpus=2)
daft.set_runner_ray()
started = time.perf_counter()
count = 200_000
columns = {
    "key": list(range(count)),
    "group": [number % 17 for number in range(count)],
    "value": [float(number % 101) for number in range(count)],
}
frame = daft.from_pydict(columns).into_partitions(4)


@daft.udf(return_dtype=daft.DataType.float64())
def double(values):
    return [2 * value for value in values.to_pylist()]


def sums(divisor: int) -> dict[str, list[float]]:
    doubled = frame.with_column("doubled", double(col("value"))).where(col("key") % divisor == 0)
    return doubled.groupby("group").agg(col("doubled").sum().alias("sum")).sort("group").to_pydict()


first = sums(3)
between = time.perf_counter()
second = sums(5)
ended = time.perf_counter()
seconds = {
    "import": imported - begun,
    "init": started - imported,
    "first": between - started,
    "second": ended - between,
    "whole": ended - begun,
}
result = [sum(first["sum"]), sum(second["sum"])]
print(json.dumps({"ray": ray.__version__, **{name: round(value, 2) for name, value in seconds.items()}, "result": result}))
ray.shutdown()
