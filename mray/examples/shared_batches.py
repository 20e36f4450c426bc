"""A loader that makes batches in shared memory, and a trainer that reads them there: no batch is ever copied.

    python -m mray.examples.shared_batches [executions]

The loader writes each batch into an array of `mray.util.shared`, the last step of its work by numpy's ``out=``. By ordinary calls and along
the edge of a graph the trainer gets the same memory. The loader drops its array afterwards, and when the trainer is done with it too, the
memory serves a later batch.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import numpy.typing as npt

import mray
from mray.dag import InputNode
from mray.examples.latencies import Comparison, measure, print_comparisons
from mray.util import shared

Images = npt.NDArray[np.float32]  # (image, row, column)
BATCH, SIDE = 64, 224


@mray.remote
class Loader:
    """Makes batch number n: pictures of noise, in floating point."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(0)
        self.pictures = self.random.integers(0, 256, (2 * BATCH, SIDE, SIDE), dtype=np.uint8)

    def batch(self, number: int) -> Images:
        """A new array each time: to fill one anew that readers may still look at would cost a fault for each page."""
        images: Images = shared.empty((BATCH, SIDE, SIDE), np.float32)
        start = number % BATCH
        np.multiply(self.pictures[start : start + BATCH], np.float32(1 / 255), out=images)
        return images

    def statistics(self) -> shared.Statistics:
        """Counts of the arrays that this process has made and sent."""
        return shared.statistics()


@mray.remote
class Trainer:
    """Looks at every image."""

    def step(self, images: Images) -> float:
        """The mean brightness."""
        return float(images.mean())


def compare(executions: int = 100) -> Comparison:
    """Measure both ways; RuntimeError if the results differ or a batch was copied. Starts a session if there is none."""
    loader: Any = Loader.remote()
    trainer: Any = Trainer.remote()
    with InputNode() as number:
        step = trainer.step.bind(loader.batch.bind(number))
    graph = step.experimental_compile()
    try:
        if mray.get(graph.execute(3)) != mray.get(trainer.step.remote(loader.batch.remote(3))):
            raise RuntimeError("the two ways have different results")
        by_graph = measure(lambda: mray.get(graph.execute(1)), executions)
    finally:
        graph.teardown()
    calls = measure(lambda: mray.get(trainer.step.remote(loader.batch.remote(1))), executions)
    made, elsewhere, sent, copied = mray.get(loader.statistics.remote())
    if elsewhere or copied or sent != made:
        raise RuntimeError(f"of {made} batches {sent} were sent without a copy, {copied} with one; {elsewhere} had no room")
    return Comparison("batches in shared memory", calls, by_graph)


if __name__ == "__main__":
    print_comparisons([compare(*map(int, sys.argv[1:2]))])
    mray.shutdown()
