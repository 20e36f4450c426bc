"""Data-parallel training: every actor has the whole model and a part of the batch, and their gradients are averaged by an allreduce.

    python -m mray.examples.data_parallel [steps] [actors]

                 actor 0: gradients of its part ──┐                       ┌──▶ actor 0: optimizer step ──▶ loss
    (x, y) ──▶                                    ├─ allreduce (average) ─┤
                 actor 1: gradients of its part ──┘                       └──▶ actor 1: optimizer step ──▶ loss

All the gradients of an actor go through one allreduce, which takes a list of tensors of each. The replicas stay the same bit for bit, since
every actor adds up the same numbers in the same order; and they stay within `TOLERANCE` of one process that trains on the whole batch,
which adds them up in another order. Needs torch.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

import mray
from mray.dag import InputNode, MultiOutputNode
from mray.examples.latencies import Comparison, measure, print_comparisons
from mray.experimental.collective import allreduce
from mray.experimental.util.types import ReduceOp

FEATURES = 16
WIDTH = 64
ROWS_PER_ACTOR = 32
DTYPE = torch.float64
#: Largest relative difference to training in one process, of every weight after `CHECKED_STEPS` steps.
TOLERANCE = 1e-9
CHECKED_STEPS = 20

Batch = tuple[torch.Tensor, torch.Tensor]  # x: (row, FEATURES), y: (row, 1)


class Trainer:
    """A model, its optimizer, and the two halves of a training step."""

    def __init__(self, seed: int = 0) -> None:
        torch.set_num_threads(1)  # the replicas share the cores
        torch.manual_seed(seed)
        self.model = nn.Sequential(nn.Linear(FEATURES, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 1)).to(DTYPE)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)
        self.loss = 0.0

    def gradients(self, batch: Batch) -> tuple[torch.Tensor, ...]:
        """Of the mean squared error over the rows of `batch`, one for each parameter."""
        x, y = batch
        loss = nn.functional.mse_loss(self.model(x), y)
        self.loss = loss.item()
        gradients: tuple[torch.Tensor, ...] = torch.autograd.grad(loss, list(self.model.parameters()))
        return gradients

    def step(self, *gradients: torch.Tensor) -> float:
        """Change the parameters; the loss of the batch that the own gradients were for."""
        for parameter, gradient in zip(self.model.parameters(), gradients, strict=True):
            parameter.grad = gradient
        self.optimizer.step()
        return self.loss

    def parameters(self) -> list[torch.Tensor]:
        return [parameter.detach() for parameter in self.model.parameters()]


PARAMETERS = 4  # a weight and a bias for each of the two linear layers


def make_batches(steps: int, actors: int) -> list[list[Batch]]:
    """For each step, a part of the batch for each actor."""
    random = torch.Generator().manual_seed(1)

    def part() -> Batch:
        x = torch.randn(ROWS_PER_ACTOR, FEATURES, dtype=DTYPE, generator=random)
        return x, x.square().mean(dim=1, keepdim=True)

    return [[part() for _ in range(actors)] for _ in range(steps)]


def train_alone(batches: Sequence[Sequence[Batch]]) -> tuple[list[float], list[torch.Tensor]]:
    """Train in this process on the whole batches; the loss of each step, and the parameters."""
    threads = torch.get_num_threads()
    trainer = Trainer()
    losses = []
    for parts in batches:
        whole = torch.cat([x for x, _ in parts]), torch.cat([y for _, y in parts])
        losses.append(trainer.step(*trainer.gradients(whole)))
    torch.set_num_threads(threads)
    return losses, trainer.parameters()


def compile_training(replicas: Sequence[Any]) -> Any:
    """The graph of a training step: the parts of a batch in, the loss of each part out."""
    with InputNode() as parts:
        gradients = [
            replica.gradients.options(num_returns=PARAMETERS).bind(parts[number])  # each replica gets its part alone
            for number, replica in enumerate(replicas)
        ]
        averages = allreduce.bind([list(of_all) for of_all in zip(*gradients, strict=True)], ReduceOp.AVG)
        losses = [replica.step.bind(*own) for replica, own in zip(replicas, averages, strict=True)]
        return MultiOutputNode(losses).experimental_compile()


def check(train: Callable[[Sequence[Batch]], list[float]], replicas: Sequence[Any]) -> list[float]:
    """Raise AssertionError unless training by `train` is training on the whole batches; the loss of each step."""
    batches = make_batches(CHECKED_STEPS, len(replicas))
    losses = [sum(train(parts)) / len(replicas) for parts in batches]
    alone, parameters = train_alone(batches)
    assert alone[-1] < alone[0] / 2, "the training has taught nothing"
    torch.testing.assert_close(torch.tensor(losses), torch.tensor(alone), rtol=TOLERANCE, atol=0)
    first, *others = mray.get([replica.parameters.remote() for replica in replicas])
    torch.testing.assert_close(first, parameters, rtol=TOLERANCE, atol=TOLERANCE)
    for other in others:
        assert all(torch.equal(mine, its) for mine, its in zip(first, other, strict=True)), "the replicas are no longer the same"
    return losses


def compare(steps: int = 100, actors: int = 2) -> Comparison:
    """Measure a training step both ways, each with actors of its own that start with the same weights."""
    Replica = mray.remote(Trainer)  # noqa: N806  (a class)
    batch = make_batches(1, actors)[0]
    replicas = [Replica.remote() for _ in range(actors)]

    def call(parts: Sequence[Batch] = batch) -> list[float]:
        gradients = mray.get([replica.gradients.remote(part) for replica, part in zip(replicas, parts, strict=True)])
        averages = [torch.stack(of_all).mean(dim=0) for of_all in zip(*gradients, strict=True)]
        losses: list[float] = mray.get([replica.step.remote(*averages) for replica in replicas])
        return losses

    check(call, replicas)
    calls = measure(call, steps)

    replicas = [Replica.remote() for _ in range(actors)]
    compiled = compile_training(replicas)

    def execute(parts: Sequence[Batch] = batch) -> list[float]:
        losses: list[float] = mray.get(compiled.execute(*parts))
        return losses

    try:
        check(execute, replicas)
        graph = measure(execute, steps)
    finally:
        compiled.teardown()
    return Comparison(f"data parallel, {actors} actors", calls, graph)


def main() -> None:
    """Run the example in a session of its own."""
    with mray.init(preload=["torch"]):
        print_comparisons([compare(*map(int, sys.argv[1:3]))])


if __name__ == "__main__":
    main()
