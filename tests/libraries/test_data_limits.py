"""Ray Data at its limits: more than the object store holds, a slow consumer, an interrupt. On mray and on Ray."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.full import full

RAY = os.environ.get("MRAY_TEST_ENGINE") == "ray"
pytest.importorskip("ray.data")
np = pytest.importorskip("numpy")
MB = 1 << 20


@pytest.fixture
def small(init: Callable[..., Any]) -> Any:
    """``ray.data`` with an object store of 100 MB."""
    init(num_cpus=2, object_store_memory=100 * MB)
    import ray.data

    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.target_max_block_size = 16 * MB
    return ray.data


def large(data: Any) -> Any:
    """A table of 400 MB."""

    def grow(batch: dict[str, Any]) -> dict[str, Any]:
        return {"id": batch["id"], "row": np.ones((len(batch["id"]), MB // 8 // 8))}

    return data.range(3200, override_num_blocks=40).map_batches(grow, batch_size=80)


CONSUMERS: dict[str, Callable[[Any], Any]] = {
    "reduced": lambda table: table.map_batches(lambda batch: {"ones": batch["row"].sum(axis=1)}, batch_size=80).sum("ones"),
    "iterated": lambda table: sum(batch["row"].sum() for batch in table.iter_batches(batch_size=100)),
    "materialized": lambda table: sum(batch["row"].sum() for batch in table.materialize().iter_batches(batch_size=100)),
    "sorted": lambda table: sum(batch["row"].sum() for batch in table.sort("id", descending=True).iter_batches(batch_size=100)),
    "shuffled": lambda table: sum(batch["row"].sum() for batch in table.random_shuffle().iter_batches(batch_size=100)),
    "divided anew": lambda table: sum(batch["row"].sum() for batch in table.repartition(10, shuffle=True).iter_batches(batch_size=100)),
}


@full
@pytest.mark.parametrize("way", CONSUMERS)
def test_a_table_of_four_times_the_object_store_goes_through(small: Any, way: str) -> None:
    assert CONSUMERS[way](large(small)) == 3200 * (MB // 8 // 8)


@full
def test_producers_wait_for_a_slow_consumer(small: Any, tmp_path: Path) -> None:
    mark = tmp_path / "produced"

    def produce(batch: dict[str, Any]) -> dict[str, Any]:
        with mark.open("a") as file:
            file.write("x" * len(batch["id"]))
        return {"id": batch["id"], "row": np.ones((len(batch["id"]), MB // 8))}

    ahead, consumed = [], 0
    for batch in small.range(300, override_num_blocks=100).map_batches(produce, batch_size=3).iter_batches(batch_size=3):
        consumed += len(batch["id"])
        time.sleep(0.02)
        ahead.append(mark.stat().st_size - consumed)
    assert consumed == 300
    assert max(ahead) <= 100


@full
@pytest.mark.parametrize("way", ["tasks", "a pool", "an iteration"])
def test_ctrl_c_ends_a_pipeline_and_the_session_goes_on(tmp_path: Path, way: str) -> None:
    begun = tmp_path / "begun"
    program = f"""
import time, ray, ray.data
ray.init(num_cpus=2, log_to_driver=False, logging_level="ERROR")
ray.data.DataContext.get_current().enable_progress_bars = False
def slow(batch):
    open({str(begun)!r}, "a").close()
    time.sleep(1000)
class Slow:
    def __call__(self, batch):
        slow(batch)
table = ray.data.range(100, override_num_blocks=10)
try:
    if {way!r} == "tasks":
        table.map_batches(slow).materialize()
    elif {way!r} == "a pool":
        table.map_batches(Slow, compute=ray.data.ActorPoolStrategy(size=2)).materialize()
    else:
        list(table.map_batches(slow).iter_batches())
except KeyboardInterrupt:
    # Actors of a pool finish their batches first, on Ray as well.
    print("interrupted", 4950 if {way!r} == "a pool" else table.map(lambda row: row).sum("id"))
"""
    flags = [] if RAY else ["-m", "mray", "run", "--libraries"]
    command = [sys.executable, *flags, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        try:
            while not begun.exists():
                assert running.poll() is None, running.communicate()
                time.sleep(0.05)
            time.sleep(0.5)
            running.send_signal(signal.SIGINT)
            said, errors = running.communicate(timeout=60)
        finally:
            running.kill()
    assert said.split() == ["interrupted", "4950"], errors
    assert running.returncode == 0
