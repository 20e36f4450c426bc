"""Pipeline-parallel inference: the layers of a transformer are spread over several actors, with several micro-batches in flight.

    python -m mray.examples.pipeline_parallel [executions] [stages]

    micro-batch 3 ──▶ stage 0: layers 0, 1 ── 2 ──▶ stage 1: layers 2, 3 ── 1 ──▶ stage 2: layers 4, 5 ── 0 ──▶ driver

While one stage works on a micro-batch, the stage before it works on the next one, so that all of them are busy. The result is
compared with that of the whole model in the driver. Needs torch.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Sequence

import torch
from torch import nn

import mray
from mray.dag import InputNode
from mray.examples import Comparison, measure, print_comparisons

LAYERS = 6
WIDTH = 64
TOKENS = 16
MICRO_BATCHES = 8
MICRO_BATCH = 4
#: The tolerance for rounding of the same sums, taken by other threads in another order.
RELATIVE, ABSOLUTE = 1e-5, 1e-5


@mray.remote
class Stage:
    """Some consecutive layers of a model."""

    def __init__(self, layers: nn.Sequential) -> None:
        torch.set_num_threads(1)  # the stages share the cores
        self.layers = layers.eval()

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Shape (sequence, token, feature), in and out."""
        with torch.inference_mode():
            output: torch.Tensor = self.layers(hidden)
            return output


def make_model(seed: int = 0) -> nn.Sequential:
    """An encoder of `LAYERS` layers with random weights."""
    torch.manual_seed(seed)
    layers = [nn.TransformerEncoderLayer(WIDTH, nhead=4, dim_feedforward=4 * WIDTH, dropout=0.0, batch_first=True) for _ in range(LAYERS)]
    return nn.Sequential(*layers).eval()


def split(model: nn.Sequential, stages: int) -> list[nn.Sequential]:
    """The model in `stages` parts of about the same number of layers."""
    cuts = [len(model) * stage // stages for stage in range(stages + 1)]
    return [model[first:last] for first, last in itertools.pairwise(cuts)]


def check(results: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> None:
    """Raise AssertionError unless the micro-batches are what the whole model makes of them."""
    assert len(results) == len(expected)
    for result, whole in zip(results, expected, strict=True):
        torch.testing.assert_close(result, whole, rtol=RELATIVE, atol=ABSOLUTE)


def compare(executions: int = 30, stages: int = 3) -> Comparison:
    """Measure both ways with the same actors; an execution takes `MICRO_BATCHES` micro-batches through all stages."""
    model = make_model()
    micro_batches = list(torch.randn(MICRO_BATCHES, MICRO_BATCH, TOKENS, WIDTH))
    with torch.inference_mode():
        expected = [model(micro_batch) for micro_batch in micro_batches]
    actors = [Stage.remote(layers) for layers in split(model, stages)]

    def call() -> list[torch.Tensor]:
        outputs = []
        for micro_batch in micro_batches:
            hidden = micro_batch
            for actor in actors:
                hidden = actor.forward.remote(hidden)  # a ref: the next actor waits for it, the driver does not
            outputs.append(hidden)
        results: list[torch.Tensor] = mray.get(outputs)
        return results

    check(call(), expected)
    calls = measure(call, executions, warmup=2)

    with InputNode() as node:
        graph = node
        for actor in actors:
            graph = actor.forward.bind(graph)
    compiled = graph.experimental_compile(_max_inflight_executions=MICRO_BATCHES)

    def execute() -> list[torch.Tensor]:
        results: list[torch.Tensor] = mray.get([compiled.execute(micro_batch) for micro_batch in micro_batches])
        return results

    try:
        check(execute(), expected)
        graph_latency = measure(execute, executions, warmup=2)
        check(execute(), expected)
    finally:
        compiled.teardown()
    return Comparison(f"pipeline parallel, {stages} stages", calls, graph_latency)


def main() -> None:
    """Run the example in a session of its own."""
    with mray.init(preload=["torch"]):
        print_comparisons([compare(*map(int, sys.argv[1:3]))])


if __name__ == "__main__":
    main()
