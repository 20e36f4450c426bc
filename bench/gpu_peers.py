"""The peers of GPU edges: queues of torch.multiprocessing between two spawned processes, the same tensors, the same clock.

producer: makes a tensor, puts it          consumer: gets it, launches the kernel whose start is noted
          <- "again", once the other has noted it -
"""

from __future__ import annotations

import time
from typing import Any

from gpu_work import import_torch, the_work


def produce(queue: Any, again: Any, times: Any, size: int, count: int) -> None:
    """Runs in a process of its own."""
    work = the_work()
    started = []
    again.recv()  # the other one is ready
    for number in range(1, count + 1):
        started.append(time.perf_counter())
        tensor = work.empty(size // 4)
        work.write_first(tensor, number)
        queue.put(tensor)
        again.recv()  # a tensor that is shared must live until the other has it
    times.put(started)
    again.recv()


def consume(queue: Any, again: Any, times: Any, count: int) -> None:
    """Runs in a process of its own."""
    work = the_work()
    stamp = work.stamp()
    seen = []
    again.send(None)
    for number in range(1, count + 1):
        tensor = queue.get()
        stamp.launch(tensor)
        seen.append(stamp.wait(number))
        del tensor
        again.send(None)
    times.put(seen)
    again.send(None)


def queue_times(size: int, count: int) -> list[float]:
    """Seconds from the producer's start to the consumer's kernel, for each of `count` tensors of `size` bytes."""
    import torch.multiprocessing

    import_torch()
    # A SimpleQueue writes to its pipe in the caller's thread: faster than a Queue, which has one of its own for that.
    spawn = torch.multiprocessing.get_context("spawn")
    queue, started, seen = spawn.SimpleQueue(), spawn.SimpleQueue(), spawn.SimpleQueue()
    receiving, sending = spawn.Pipe(duplex=False)
    processes = [
        spawn.Process(target=produce, args=(queue, receiving, started, size, count)),
        spawn.Process(target=consume, args=(queue, sending, seen, count)),
    ]
    for process in processes:
        process.start()
    receiving.close()
    sending.close()
    try:
        begun, ended = _answer(started, processes), _answer(seen, processes)
    finally:
        for process in processes:
            process.join(5)
            process.kill()
    return [end - begin for begin, end in zip(begun, ended, strict=True)]


def _answer(queue: Any, processes: list[Any]) -> list[float]:
    while queue.empty():
        if any(process.exitcode not in (None, 0) for process in processes):
            raise RuntimeError(f"processes of torch.multiprocessing ended with {[process.exitcode for process in processes]}")
        time.sleep(0.01)
    times: list[float] = queue.get()
    return times
