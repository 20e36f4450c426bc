"""Tensor-parallel matrix products: each actor holds a part of every weight, and an allreduce adds up what they make of it.

    python -m mray.examples.tensor_parallel [executions] [actors]

A layer is ``relu(x @ up) @ down``. `up` is split by columns and `down` by rows, so an actor needs nothing of the others until it has its
part of the sum, and an allreduce makes that the whole one on every actor: one for each layer, through shared memory.

             actor 0: relu(x @ up[:, 0]) @ down[0] ──┐             ┌──▶ actor 0: next layer ...
    x ──▶                                            ├─ allreduce ─┤
             actor 1: relu(x @ up[:, 1]) @ down[1] ──┘             └──▶ actor 1: next layer ...

The result is compared with that of the whole weights in the driver. Needs torch.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import torch

import mray
from mray.dag import InputNode, MultiOutputNode
from mray.examples.latencies import Comparison, measure, print_comparisons
from mray.experimental.collective import allreduce

LAYERS = 3
ROWS = 32
WIDTH = 128
INNER = 4 * WIDTH
#: The tolerance for rounding of the same sums in another order.
RELATIVE, ABSOLUTE = 1e-4, 1e-5

Layer = tuple[torch.Tensor, torch.Tensor]  # up: (WIDTH, inner), down: (inner, WIDTH)


@mray.remote
class Shard:
    """One part of the weights of every layer."""

    def __init__(self, layers: Sequence[Layer]) -> None:
        torch.set_num_threads(1)  # the shards share the cores
        self.layers = layers

    def partial(self, number: int, hidden: torch.Tensor) -> torch.Tensor:
        """This actor's part of the sum that layer `number` makes of `hidden` (row, feature)."""
        return apply(self.layers[number], hidden)


def apply(layer: Layer, hidden: torch.Tensor) -> torch.Tensor:
    """A layer, or the part of one."""
    up, down = layer
    return torch.relu(hidden @ up) @ down


def make_layers(seed: int = 0) -> list[Layer]:
    """Random weights that keep the size of what they are applied to."""
    random = torch.Generator().manual_seed(seed)

    def weight(rows: int, columns: int) -> torch.Tensor:
        return torch.randn(rows, columns, generator=random) * (2 / rows) ** 0.5

    return [(weight(WIDTH, INNER), weight(INNER, WIDTH)) for _ in range(LAYERS)]


def split(layers: Sequence[Layer], shards: int) -> list[list[Layer]]:
    """The part of each actor: columns of `up` and the same rows of `down`."""
    columns = [[part.contiguous() for part in up.tensor_split(shards, dim=1)] for up, _ in layers]
    rows = [[part.contiguous() for part in down.tensor_split(shards, dim=0)] for _, down in layers]
    return [[(columns[number][shard], rows[number][shard]) for number in range(len(layers))] for shard in range(shards)]


def check(results: Sequence[torch.Tensor], expected: torch.Tensor) -> None:
    """Raise AssertionError unless every actor has the product of the whole weights, all of them bit for bit the same."""
    for result in results:
        torch.testing.assert_close(result, expected, rtol=RELATIVE, atol=ABSOLUTE)
        assert torch.equal(result, results[0])


def compare(executions: int = 100, shards: int = 2) -> Comparison:
    """Measure both ways with the same actors."""
    layers = make_layers()
    given = torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(1))
    expected = given
    for layer in layers:
        expected = apply(layer, expected)
    actors = [Shard.remote(part) for part in split(layers, shards)]

    def call() -> list[torch.Tensor]:
        hidden = given
        for number in range(LAYERS):
            shared = mray.put(hidden)  # once for all actors
            hidden = sum(mray.get([actor.partial.remote(number, shared) for actor in actors]))
        return [hidden]

    check(call(), expected)
    calls = measure(call, executions)

    with InputNode() as node:
        hidden = [node] * shards
        for number in range(LAYERS):
            hidden = allreduce.bind([actor.partial.bind(number, value) for actor, value in zip(actors, hidden, strict=True)])
        graph = MultiOutputNode(hidden)
    compiled = graph.experimental_compile()
    try:
        check(mray.get(compiled.execute(given)), expected)
        graph_latency = measure(lambda: mray.get(compiled.execute(given)), executions)
        check(mray.get(compiled.execute(given)), expected)
    finally:
        compiled.teardown()
    return Comparison(f"tensor parallel, {shards} actors", calls, graph_latency)


def main() -> None:
    """Run the example in a session of its own."""
    with mray.init(preload=["torch"]):
        print_comparisons([compare(*map(int, sys.argv[1:3]))])


if __name__ == "__main__":
    main()
