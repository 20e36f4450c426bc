"""A step of tensor-parallel inference: a compiled graph beside a ring in shared memory, as vLLM has, and beside pipes of multiprocessing.

    python bench/inference.py [--rounds N] [--steps N] [--workers N] [--stages N ...] [--work SECONDS ...]

The same workers for all three, which compute nothing or sleep as long as a model would take: every rank of every stage gets the step's
input (some 10 KB, as a scheduler's), the ranks of a later stage also what the same rank before has returned, and rank 0 of the last stage
answers. The ring never sleeps (`broadcast_ring.py`), pipes and the graph do. Rounds alternate; while one is measured the workers of the
others are stopped.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import signal
import statistics
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from broadcast_ring import Ring, high, message, sample

import mray
from mray.examples.inference import InferenceExecutor

END = None


class Forked:
    """`stages` times `width` processes that work until they are sent END."""

    def __init__(self, width: int, stages: int, seconds: float) -> None:
        self.open(width, stages)
        self.pids = []
        for stage in range(stages):
            for rank in range(width):
                pid = os.fork()
                if pid == 0:
                    try:
                        self.work(stage, rank, seconds)
                    finally:
                        os._exit(0)
                self.pids.append(pid)
        self.signal(signal.SIGSTOP)

    def open(self, width: int, stages: int) -> None:
        raise NotImplementedError

    def ends(self, stage: int, rank: int) -> tuple[Callable[[], Any], Callable[[], Any] | None, Callable[[Any], object] | None]:
        """How a rank reads the step's input, the result of the one before it, and writes its own."""
        raise NotImplementedError

    def execute(self, value: object) -> Any:
        raise NotImplementedError

    def work(self, stage: int, rank: int, seconds: float) -> None:
        read, before, write = self.ends(stage, rank)
        while (value := read()) is not END:
            result = value["step"] + (before() if before else 0)
            if seconds:
                time.sleep(seconds)
            if write:
                write(result)

    def signal(self, number: int) -> None:
        for pid in self.pids:
            os.kill(pid, number)

    def send(self, value: object) -> None:
        raise NotImplementedError

    def close(self) -> None:
        self.signal(signal.SIGCONT)
        self.send(END)
        for pid in self.pids:
            os.waitpid(pid, 0)


class Rings(Forked):
    """One ring to all workers, one from each rank to the next stage's, and one for the answer."""

    def open(self, width: int, stages: int) -> None:
        self.width, self.last = width, stages - 1
        self.requests = Ring(width * stages)
        self.links = [[Ring(1) for _ in range(width)] for _ in range(stages)]

    def ends(self, stage: int, rank: int) -> tuple[Callable[[], Any], Callable[[], Any] | None, Callable[[Any], object] | None]:
        mine = stage * self.width + rank
        write = self.links[stage][rank].write if stage < self.last or rank == 0 else None
        return lambda: self.requests.read(mine), self.links[stage - 1][rank].read if stage else None, write

    def send(self, value: object) -> None:
        self.requests.write(value)

    def execute(self, value: object) -> Any:
        self.send(value)
        return self.links[self.last][0].read()


class Pipes(Forked):
    """The same by pipes, one for each worker."""

    def open(self, width: int, stages: int) -> None:
        self.width, self.last = width, stages - 1
        self.requests = [multiprocessing.Pipe(duplex=False) for _ in range(width * stages)]
        self.links: list[list[tuple[Connection, Connection]]] = [
            [multiprocessing.Pipe(duplex=False) for _ in range(width)] for _ in range(stages)
        ]

    def ends(self, stage: int, rank: int) -> tuple[Callable[[], Any], Callable[[], Any] | None, Callable[[Any], object] | None]:
        write = self.links[stage][rank][1].send if stage < self.last or rank == 0 else None
        return self.requests[stage * self.width + rank][0].recv, self.links[stage - 1][rank][0].recv if stage else None, write

    def send(self, value: object) -> None:
        for _reader, writer in self.requests:
            writer.send(value)

    def execute(self, value: object) -> Any:
        self.send(value)
        return self.links[self.last][0][0].recv()


class Worker:
    """The same for the graph."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def step(self, request: dict[str, Any], before: int | None) -> int:
        if self.seconds:
            time.sleep(self.seconds)
        return request["step"] + (before or 0)


def compare(width: int, stages: int, seconds: float, rounds: int, steps: int) -> None:
    """Measure all three, and print a line for each."""
    value = message()
    expected = value["step"] * stages
    # Before the session: a process that has threads must not fork.
    peers: dict[str, Forked] = {"ring": Rings(width, stages, seconds), "pipes": Pipes(width, stages, seconds)}
    samples: dict[str, list[float]] = {"graph": [], "ring": [], "pipes": []}
    with mray.init(num_cpus=width * stages, logging_level="ERROR"):
        executor = InferenceExecutor(lambda _stage, _rank: Worker(seconds), width, stages, num_cpus=0)
        executes: dict[str, Callable[[object], Any]] = {"graph": lambda value: executor.step(value).get()}
        executes.update((name, peer.execute) for name, peer in peers.items())
        for _ in range(rounds):
            for name, execute in executes.items():
                peer = peers.get(name)
                if peer:
                    peer.signal(signal.SIGCONT)
                assert execute(value) == expected
                samples[name] += sample(execute, value, steps)
                if peer:
                    peer.signal(signal.SIGSTOP)
        executor.shutdown()
    for peer in peers.values():
        peer.close()
    base = statistics.median(samples["ring"])
    for name, found in samples.items():
        median = statistics.median(found)
        times = f"{median * 1e6:9.1f} µs, p99 {high(found) * 1e6:9.1f} µs, {median / base:5.2f} x the ring"
        print(f"{width} ranks, {stages} stages, {seconds * 1e3:g} ms: {name:6} {times}")


def main() -> None:
    parser = argparse.ArgumentParser(description="A step of tensor-parallel inference, by a graph, a ring and pipes.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=200, help="in a round")
    parser.add_argument("--workers", type=int, default=2, help="ranks of a stage")
    parser.add_argument("--stages", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--work", type=float, nargs="+", default=[0.0, 0.005], help="seconds that a worker takes")
    given = parser.parse_args()
    for stages in given.stages:
        for seconds in given.work:
            compare(given.workers, stages, seconds, given.rounds, given.steps)


if __name__ == "__main__":
    sys.exit(main())
