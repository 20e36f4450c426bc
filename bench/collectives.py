"""Collectives over shared memory against torch.distributed's gloo, in the same run and the same kind of processes.

    python bench/collectives.py [--ranks N ...] [--bytes N ...] [--only WORD ...] [--rounds N]

Every row is a collective of a number of actors on a tensor of float32. The actors take turns: some dozens of calls on our groups
(`mray.util.collective`), as many on gloo's, and so on, so that a slow spell of the machine hits both. A sample is the time of one call as
the slowest rank sees it, after a barrier. Prints medians, 90th percentiles and how many times as fast as gloo ours is; the exit status is
1 if it is slower anywhere.
"""

from __future__ import annotations

import argparse
import importlib
import os
import socket
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import mray

KIB, MIB = 1 << 10, 1 << 20
SIZES = (4 * KIB, 64 * KIB, MIB, 16 * MIB)
RANKS = (2, 4)
ENGINES = ("mray", "gloo")


class Member:
    """One rank, in a group of each kind."""

    def __init__(self, world_size: int, rank: int, port: int) -> None:
        import torch
        import torch.distributed

        torch.set_num_threads(1)
        self.torch = torch
        self.gloo = torch.distributed
        self.mray = importlib.import_module("mray.util.collective")
        self.world_size, self.rank = world_size, rank
        self.port = port

    def join(self) -> None:
        self.mray.init_collective_group(self.world_size, self.rank, "gloo")
        self.gloo.init_process_group("gloo", f"tcp://127.0.0.1:{self.port}", rank=self.rank, world_size=self.world_size)

    def measure(self, engine: str, what: str, size: int, calls: int) -> list[float]:
        """Seconds of each call of this rank."""
        call = getattr(self, f"_{what}")(engine, size)
        barrier = self.mray.barrier if engine == "mray" else self.gloo.barrier
        samples = []
        for number in range(calls + 3):
            barrier()
            start = time.perf_counter()
            call()
            if number >= 3:
                samples.append(time.perf_counter() - start)
        return samples

    def _tensor(self, size: int) -> Any:
        return self.torch.zeros(size // 4)

    def _allreduce(self, engine: str, size: int) -> Callable[[], Any]:
        tensor = self._tensor(size)
        return (lambda: self.mray.allreduce(tensor)) if engine == "mray" else (lambda: self.gloo.all_reduce(tensor))

    def _broadcast(self, engine: str, size: int) -> Callable[[], Any]:
        tensor = self._tensor(size)
        return (lambda: self.mray.broadcast(tensor, 0)) if engine == "mray" else (lambda: self.gloo.broadcast(tensor, 0))

    def _allgather(self, engine: str, size: int) -> Callable[[], Any]:
        tensor = self._tensor(size)
        parts = [self._tensor(size) for _ in range(self.world_size)]
        return (lambda: self.mray.allgather(parts, tensor)) if engine == "mray" else (lambda: self.gloo.all_gather(parts, tensor))

    def _sendrecv(self, engine: str, size: int) -> Callable[[], Any]:
        """There and back between ranks 0 and 1."""
        tensor = self._tensor(size)
        send, recv = (self.mray.send, self.mray.recv) if engine == "mray" else (self.gloo.send, self.gloo.recv)

        def call() -> None:
            if self.rank == 0:
                send(tensor, 1)
                recv(tensor, 1)
            elif self.rank == 1:
                recv(tensor, 0)
                send(tensor, 0)

        return call


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare collectives with torch.distributed's gloo.")
    parser.add_argument("--ranks", type=int, nargs="+", default=RANKS)
    parser.add_argument("--bytes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--only", nargs="+", default=("allreduce", "broadcast", "allgather", "sendrecv"), metavar="WORD")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    slower = False
    print(f"{'collective':10} {'ranks':>5} {'bytes':>9}   {'mray':>10} {'p90':>10}   {'gloo':>10} {'p90':>10}   {'times as fast':>13}")
    for ranks in options.ranks:
        mray.init(num_cpus=ranks, logging_level="ERROR", log_to_driver=False)
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            port = sock.getsockname()[1]
        kind = mray.remote(num_cpus=1)(Member)
        members = [kind.remote(ranks, rank, port) for rank in range(ranks)]
        mray.get([member.join.remote() for member in members])
        for what in options.only:
            for size in options.bytes:
                slower |= row(members, what, size, options.rounds)
        mray.shutdown()
    return int(slower)


def row(members: list[Any], what: str, size: int, rounds: int) -> bool:
    """Measure and print one; whether ours is the slower one."""
    calls = max(6, min(200, 20 * MIB // size))
    samples: dict[str, list[float]] = {engine: [] for engine in ENGINES}
    for _round in range(rounds):
        for engine in ENGINES:
            by_rank = mray.get([member.measure.remote(engine, what, size, calls) for member in members])
            samples[engine] += [max(times) for times in zip(*by_rank, strict=True)]
    medians = {engine: statistics.median(times) for engine, times in samples.items()}
    high = {engine: sorted(times)[int(len(times) * 0.9)] for engine, times in samples.items()}
    ratio = medians["gloo"] / medians["mray"]
    cells = "   ".join(f"{shown(medians[engine]):>10} {shown(high[engine]):>10}" for engine in ENGINES)
    print(f"{what:10} {len(members):5} {size:9}   {cells}   {ratio:12.2f}x", flush=True)
    return ratio < 1


def shown(seconds: float) -> str:
    return f"{seconds * 1e3:.2f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.0f} µs"


if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    sys.exit(main())
