"""A broadcast of a 10 KB object to four actors and a small reply of each: a compiled graph against rings written for nothing else.

    python bench/broadcast_ring.py [--rounds N] [--messages N] [--workers N]

The baseline is how vLLM's executor feeds its workers: a ring of chunks in shared memory with one writer and N readers, a byte for each
reader that says whether it has read the chunk, pickle, and busy waiting that yields the core. The replies come through a ring of the same
kind for each worker. It knows one message at a time from one driver to fixed workers, and its workers never sleep.

                    +-----------------+-----------+-----------+-----+       per chunk
                    | written: 0 or 1 | read by 0 | read by 1 | ... | length, pickle
                    +-----------------+-----------+-----------+-----+
    writer          waits until not written or read by all; written = 0; fills; read by * = 0; written = 1
    reader r        waits until written and not read by r; unpickles; read by r = 1

Rounds of both alternate in one process. While the graph is measured the workers of the baseline are stopped (SIGSTOP), because their
waiting would take its cores; the actors of the graph sleep by themselves. Exit status 1 if the graph takes longer.
"""

from __future__ import annotations

import argparse
import mmap
import os
import pickle
import signal
import statistics
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import mray
from mray.dag import InputNode, MultiOutputNode

CHUNKS = 10
CHUNK_BYTES = 32 << 10
#: Flags of a chunk stand on cache lines of their own.
FLAG_BYTES = 64
#: The message that ends a worker.
END = None


class Ring:
    """One writer, `readers` readers, `CHUNKS` messages at most that somebody has not read; in memory that forked processes share."""

    def __init__(self, readers: int) -> None:
        self.readers = readers
        memory = mmap.mmap(-1, CHUNKS * (FLAG_BYTES + CHUNK_BYTES))
        self.memory = memoryview(memory)
        self.flags = self.memory[: CHUNKS * FLAG_BYTES]
        self.number = 0
        self.all_read = bytes([1] * readers)
        self.none_read = bytes(readers)
        self.barrier = threading.Lock()

    def fence(self) -> None:
        """Taking and releasing a lock orders memory, which processors other than x86-64 need."""
        with self.barrier:
            pass

    def write(self, value: object) -> None:
        data = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
        if len(data) > CHUNK_BYTES - 4:
            raise ValueError(f"{len(data)} bytes are more than a chunk holds")
        flags, place, first = self.flags, self.number * FLAG_BYTES, self.number * FLAG_BYTES + 1
        last = first + self.readers
        while flags[place] and flags[first:last] != self.all_read:
            os.sched_yield()
        self.fence()
        flags[place] = 0
        start = CHUNKS * FLAG_BYTES + self.number * CHUNK_BYTES
        self.memory[start : start + 4] = len(data).to_bytes(4, "little")
        self.memory[start + 4 : start + 4 + len(data)] = data
        flags[first:last] = self.none_read
        self.fence()
        flags[place] = 1
        self.number = (self.number + 1) % CHUNKS

    def read(self, reader: int = 0) -> Any:
        flags, place = self.flags, self.number * FLAG_BYTES
        mine = place + 1 + reader
        while flags[mine] or not flags[place]:
            os.sched_yield()
        self.fence()
        start = CHUNKS * FLAG_BYTES + self.number * CHUNK_BYTES
        length = int.from_bytes(self.memory[start : start + 4], "little")
        value = pickle.loads(self.memory[start + 4 : start + 4 + length])
        self.fence()
        flags[mine] = 1
        self.number = (self.number + 1) % CHUNKS
        return value


class Rings:
    """The baseline: forked workers, one ring to all of them and one from each."""

    def __init__(self, workers: int) -> None:
        self.requests = Ring(workers)
        # A chunk starts as not written; `read by` of what was never written does not matter.
        self.replies = [Ring(1) for _ in range(workers)]
        self.pids = []
        for worker in range(workers):
            pid = os.fork()
            if pid == 0:
                try:
                    self.work(worker)
                finally:
                    os._exit(0)
            self.pids.append(pid)

    def work(self, worker: int) -> None:
        while (value := self.requests.read(worker)) is not END:
            self.replies[worker].write(step(value))

    def execute(self, value: object) -> list[int]:
        self.requests.write(value)
        return [ring.read() for ring in self.replies]

    def stop(self) -> None:
        self.signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self.signal(signal.SIGCONT)

    def signal(self, number: int) -> None:
        for pid in self.pids:
            os.kill(pid, number)

    def close(self) -> None:
        self.go_on()
        self.requests.write(END)
        for pid in self.pids:
            os.waitpid(pid, 0)


def step(value: dict[str, Any]) -> int:
    """A worker's use of a message."""
    return len(value["requests"]) + value["step"]


class Worker:
    """The same as an actor."""

    def step(self, value: dict[str, Any]) -> int:
        return step(value)


def message() -> dict[str, Any]:
    """A scheduler's message to its workers: some 10 KB as a pickle."""
    requests = [
        {"id": f"request-{number:08d}", "tokens": list(range(1000 * number, 1000 * number + 24)), "blocks": list(range(8)), "heat": 0.7}
        for number in range(68)
    ]
    return {"step": 1, "requests": requests, "finished": [f"request-{number:08d}" for number in range(20)]}


def sample(execute: Callable[[object], object], value: object, count: int) -> list[float]:
    """Seconds of each execution."""
    clock = time.perf_counter
    samples = []
    for _ in range(count):
        begin = clock()
        execute(value)
        samples.append(clock() - begin)
    return samples


def high(samples: list[float]) -> float:
    return sorted(samples)[int(len(samples) * 0.99)]


def main() -> int:
    parser = argparse.ArgumentParser(description="A broadcast through a compiled graph and through rings made for it.")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--messages", type=int, default=200, help="in a round")
    parser.add_argument("--workers", type=int, default=4)
    options = parser.parse_args()

    value = message()
    size, cores = len(pickle.dumps(value, pickle.HIGHEST_PROTOCOL)), len(os.sched_getaffinity(0))
    print(f"{size} bytes to {options.workers} processes on {cores} cores")
    rings = Rings(options.workers)  # before the session: a process that has threads must not fork
    rings.stop()
    mray.init(num_cpus=options.workers, logging_level="ERROR")
    try:
        Actor = mray.remote(Worker)
        actors = [Actor.remote() for _ in range(options.workers)]
        with InputNode() as value_in:
            graph = MultiOutputNode([actor.step.bind(value_in) for actor in actors]).experimental_compile()

        def execute(value: object) -> Any:
            return mray.get(graph.execute(value))

        by_graph, by_rings, ratios = [], [], []
        for number in range(options.rounds + 1):
            graph_round = sample(execute, value, options.messages)
            rings.go_on()
            ring_round = sample(rings.execute, value, options.messages)
            assert rings.execute(value) == execute(value) == [step(value)] * options.workers
            rings.stop()
            if number:  # the first round warms up
                by_graph += graph_round
                by_rings += ring_round
                ratios.append(statistics.median(ring_round) / statistics.median(graph_round))
        graph.teardown()
    finally:
        rings.close()
        mray.shutdown()

    ratio = statistics.median(ratios)
    print(f"{'compiled graph':18} median {statistics.median(by_graph) * 1e6:8.1f} µs   p99 {high(by_graph) * 1e6:8.1f} µs")
    print(f"{'rings of its own':18} median {statistics.median(by_rings) * 1e6:8.1f} µs   p99 {high(by_rings) * 1e6:8.1f} µs")
    print(f"the graph is {ratio:.2f}x as fast (rounds {', '.join(f'{one:.2f}' for one in sorted(ratios))}); required 1x")
    return 0 if ratio >= 1 else 1


if __name__ == "__main__":
    sys.exit(main())
