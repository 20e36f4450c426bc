"""Ray Data: read, transform, group, zip and write a small table; prints the results as JSON."""

from __future__ import annotations

import json
import tempfile
from typing import Any

import ray
import ray.data


class Scale:
    """A stateful transformation, run by an actor pool."""

    def __init__(self, factor: int) -> None:
        self.factor = factor

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        return {**batch, "scaled": batch["id"] * self.factor}


def main() -> dict[str, Any]:
    """Run all of it; returns the results by name."""
    ray.data.DataContext.get_current().enable_progress_bars = False
    numbers = ray.data.range(1000)
    squares = numbers.map_batches(lambda batch: {**batch, "square": batch["id"] ** 2})
    by_rest = squares.map(lambda row: {**row, "rest": row["id"] % 3}).groupby("rest").count().take_all()
    pool = numbers.map_batches(Scale, fn_constructor_args=(3,), batch_size=250, compute=ray.data.ActorPoolStrategy(size=2))
    words = ray.data.from_items([{"word": word} for word in ("zero", "one", "two")])
    with tempfile.TemporaryDirectory() as folder:
        squares.write_parquet(folder)
        back = ray.data.read_parquet(folder)
        read_back = (back.count(), back.sum("square"))
    return {
        "sum": squares.sum("square"),
        "first": squares.take(3),
        "batches": sorted(len(batch["id"]) for batch in squares.iter_batches(batch_size=300)),
        "groups": sorted((row["rest"], row["count()"]) for row in by_rest),
        "sorted": [row["id"] for row in numbers.filter(lambda row: row["id"] > 995).sort("id", descending=True).take_all()],
        "pool": pool.sum("scaled"),
        "zipped": sorted((row["id"], row["word"]) for row in numbers.limit(3).zip(words).take_all()),
        "together": numbers.union(numbers).count(),
        "flat": numbers.limit(2).flat_map(lambda row: [row, row]).count(),
        "read back": read_back,
    }


if __name__ == "__main__":
    ray.init(num_cpus=4, log_to_driver=False, logging_level="ERROR")
    print(json.dumps(main(), default=int))
    ray.shutdown()
