"""Ray Data: a first batch, then rows and blocks."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import ray.data
from shared import rate, run, tell


def double(batch: dict[str, Any]) -> dict[str, Any]:
    return {"id": batch["id"] * 2}


def work() -> Iterator[None]:
    ray.data.DataContext.get_current().enable_progress_bars = False
    ray.data.range(100, override_num_blocks=2).map_batches(double).take(1)
    tell("first", time.time())
    rows, blocks = 4_000_000, 200
    tell("rows/s", rate(rows, ray.data.range(rows, override_num_blocks=16).map_batches(double).materialize))
    tell("small blocks/s", rate(blocks, ray.data.range(blocks, override_num_blocks=blocks).map_batches(double).materialize))
    yield


if __name__ == "__main__":
    run(work)
