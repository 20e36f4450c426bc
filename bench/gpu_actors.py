"""Actors of the measurements on GPUs. A module of its own, so that workers import it."""

from __future__ import annotations

import itertools
import mmap
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpu_work import the_work

from mray.dag import output

#: Seconds after which a stream that is held, or a turn, is given up.
PATIENCE = 30.0


class Member:
    """Methods of every actor of a measurement."""

    def __init__(self) -> None:
        self.work = the_work()
        self._profile: Any = None

    def pid(self) -> int:
        return os.getpid()

    def begin_profile(self) -> None:
        self._profile = self.work.begin_profile()

    def end_profile(self) -> dict[str, int] | None:
        return self.work.end_profile(self._profile)

    def synchronize(self) -> None:
        self.work.synchronize()

    def occupy(self) -> None:
        """Be the process that had the GPU last."""
        self.work.full(10, 0)
        self.work.synchronize()

    def synchronizations(self) -> int:
        return self.work.synchronizations()

    def memory(self) -> tuple[int, int]:
        """Free and total bytes of the device."""
        return self.work.memory()

    def pss(self) -> int:
        """Bytes of host memory that this process alone accounts for (PSS)."""
        for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) << 10
        raise LookupError("no Pss")


# ----------------------------------------------------------------------------------------------- latency
class Producer(Member):
    """Makes tensors of one size, whose first number counts the calls."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.elements = size // 4
        self.started: list[float] = []

    def make(self, _input: Any) -> Any:
        self.started.append(time.perf_counter())
        tensor = self.work.empty(self.elements)
        self.work.write_first(tensor, len(self.started))
        return tensor

    def times(self) -> list[float]:
        return self.started


class Consumer(Member):
    """Notes when its method is entered, and when a kernel that is queued there starts."""

    def __init__(self) -> None:
        super().__init__()
        self.stamp = self.work.stamp()
        self.entered: list[float] = []
        self.seen: list[float] = []

    def take(self, tensor: Any) -> None:
        self.entered.append(time.perf_counter())
        self.stamp.launch(tensor)
        self.seen.append(self.stamp.wait(len(self.entered)))

    def times(self) -> tuple[list[float], list[float]]:
        return self.entered, self.seen

    def alone(self, count: int) -> list[float]:
        """Seconds from the launch of such a kernel to its start, with a tensor that is there already."""
        samples = []
        for number in range(1 << 20, (1 << 20) + count):
            tensor = self.work.full(10, number)
            self.work.synchronize()
            begun = time.perf_counter()
            self.stamp.launch(tensor)
            samples.append(self.stamp.wait(number) - begun)
        return samples

    def prepare(self, number: int) -> None:
        """Have a tensor ready for `once`."""
        self.ready = self.work.full(10, number)
        self.work.synchronize()

    def once(self, number: int) -> float:
        """As `alone`, with what was prepared."""
        begun = time.perf_counter()
        self.stamp.launch(self.ready)
        return self.stamp.wait(number) - begun

    def method(self) -> str:
        return self.stamp.method


class Listing(Producer):
    """Its tensors come in lists, with all facts in each message."""

    def make(self, _input: Any) -> Any:
        return [super().make(_input)]


class ListConsumer(Consumer):
    def take(self, tensors: Any) -> None:
        super().take(tensors[0])


class Placing(Producer):
    """Makes its tensors where their reader looks."""

    def make(self, _input: Any) -> Any:
        self.started.append(time.perf_counter())
        tensor = output(self.elements, "int32")
        self.work.write_first(tensor, len(self.started))
        return tensor


class HostProducer:
    """The same in host memory."""

    def __init__(self, size: int) -> None:
        self.work = the_work()
        self.elements = size // 4
        self.started: list[float] = []

    def make(self, _input: Any) -> Any:
        self.started.append(time.perf_counter())
        return self.work.on_host(self.elements, len(self.started))

    def times(self) -> list[float]:
        return self.started


class HostConsumer:
    """Its work starts when it is called."""

    def __init__(self) -> None:
        self.entered: list[float] = []

    def take(self, tensor: Any) -> None:
        self.entered.append(time.perf_counter())
        assert int(tensor[0]) == len(self.entered)

    def times(self) -> tuple[list[float], list[float]]:
        return self.entered, self.entered


# ------------------------------------------------------------------------- hand-over of the GPU, streams that are held
class Turn(Member):
    """One of two processes that take turns on the GPU; they see each other's turn in a file that both have mapped."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.stamp = self.work.stamp()
        with open(path, "r+b") as file:
            self.words = memoryview(mmap.mmap(file.fileno(), 16)).cast("q")

    def take_turns(self, own: int, count: int) -> list[float]:
        """When each of our kernels started (`time.perf_counter`). `own`: 0 begins, 1 follows; the other one is called at the same time."""
        tensors = [self.work.full(10, number) for number in range(1, count + 1)]
        self.work.synchronize()
        deadline = time.perf_counter() + PATIENCE
        seen = []
        for number, tensor in enumerate(tensors, 1):
            while self.words[1 - own] < number - (own == 0):
                if time.perf_counter() > deadline:
                    raise RuntimeError("the other process did not take its turn")
            self.stamp.launch(tensor)
            seen.append(self.stamp.wait(number))
            self.words[own] = number
        return seen


class Held(Member):
    """Makes and takes tensors while its stream is held."""

    def __init__(self) -> None:
        super().__init__()
        self.marks: list[Any] = []
        self.values: list[Any] = []
        self._release: Callable[[], None] | None = None
        self._timer: threading.Timer | None = None

    def hold(self) -> None:
        """Hold the stream. If the host waits for it all the same, another thread lets it go in the end."""
        self._release = self.work.hold()
        self._timer = threading.Timer(PATIENCE, self._release)
        self._timer.daemon = True
        self._timer.start()

    def release(self) -> bool:
        """Let the stream go; whether it was held until now."""
        assert self._timer is not None and self._release is not None
        held = not self._timer.finished.is_set()
        self._timer.cancel()
        self._release()
        return held

    def make(self, number: int) -> Any:
        return self.work.full(1000, number)

    def take(self, tensor: Any) -> int:
        """Queue work with the tensor; the number of the call, known to the host."""
        self.values.append(tensor[:1] + 1)
        self.marks.append(self.work.mark())
        return len(self.marks)

    def reached(self) -> int:
        """How many of the calls' places the stream has come to."""
        return sum(map(self.work.is_reached, self.marks))

    def forget(self) -> None:
        self.marks.clear()
        self.values.clear()

    def taken(self) -> list[int]:
        """The results of the calls; waits for the device."""
        return [int(self.work.get(value)[0]) for value in self.values]


# ------------------------------------------------------------------------------------ counts and bandwidth
class Stage(Member):
    """One stage of a pipeline: a new tensor of the same size."""

    def __init__(self, size: int = 0) -> None:
        super().__init__()
        self.elements = size // 4

    def first(self, number: int) -> Any:
        return self.work.full(self.elements, number)

    def forward(self, tensor: Any) -> Any:
        return tensor + 1

    def last(self, tensor: Any) -> int:
        """Waits for the device: the only place where the pipeline does."""
        return int(tensor[-1:].sum())

    def drop(self, tensor: Any) -> None:
        """Does not."""
        _ = tensor + 1

    def touch(self, tensor: Any) -> None:
        """Looks at no more than one number: the memory of the device is busy with something else."""
        _ = tensor[-1:] + 1


class Keeper(Member):
    """Returns a tensor that it keeps, so that an edge has to copy it."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.tensor = self.work.full(size // 4, 7)
        self.marks: list[Any] = []

    def give(self, _input: Any) -> Any:
        self.marks.append(self.work.mark())
        return self.tensor

    def copies(self) -> list[float]:
        """Seconds of the stream from each call to the next."""
        samples = [self.work.elapsed(first, second) for first, second in itertools.pairwise(self.marks)]
        self.marks.clear()
        return samples

    def plain(self, count: int) -> list[float]:
        """Seconds of each of so many copies into another tensor, back to back."""
        target = self.work.empty(len(self.tensor))
        target.copy_(self.tensor)
        self.work.sleep(0.02)
        marks = [self.work.mark()]
        for _ in range(count):
            target.copy_(self.tensor)
            marks.append(self.work.mark())
        return [self.work.elapsed(first, second) for first, second in itertools.pairwise(marks)]


# ----------------------------------------------------------------------------------------- memory, deaths
class Shapes(Member):
    """Makes tensors of ever other shapes, some of which it keeps for a while."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    def make(self, number: int) -> Any:
        elements, kind = shape_of(number, self.most)
        tensor = self.work.full(elements, number)
        if kind == 1:
            return {"tensor": tensor, "number": number}
        if kind == 2:
            self.kept = tensor  # somebody else looks at it: the edge has to copy
        return tensor

    def take(self, value: Any, number: int) -> int:
        """The number again, read from the device now and then."""
        tensor = value["tensor"] if isinstance(value, dict) else value
        assert len(tensor) == shape_of(number, self.most)[0]
        return int(tensor[-1:].sum()) if number % 50 == 0 else number


def shape_of(number: int, most: int) -> tuple[int, int]:
    """Elements of a tensor, and what is done with it; scattered over magnitudes by the number."""
    mixed = (number * 2654435761) % (1 << 32)
    magnitude = mixed % 1000 / 1000
    return max(1, int((most // 4) ** magnitude)), mixed % 3


class Mortal(Member):
    """Makes and takes tensors until it is killed."""

    def make(self, number: int) -> Any:
        return self.work.full(1 << 16, number)

    def take(self, tensor: Any) -> int:
        return int(tensor[-1:].sum())


# -------------------------------------------------------------------------------------------------- NCCL
class Rank(Member):
    """One rank of a communicator."""

    def __init__(self, rank: int, size: int) -> None:
        super().__init__()
        self.rank = rank
        self.elements = size // 4
        self.seconds = 0.0

    def compute_for(self, seconds: float) -> None:
        """How long a call of `make` and `use` keeps the device busy."""
        self.seconds = seconds

    def make(self, number: int) -> Any:
        if self.seconds:
            self.work.sleep(self.seconds)
        return self.work.full(self.elements, number + self.rank, "float32")

    def use(self, tensor: Any) -> float:
        if self.seconds:
            self.work.sleep(self.seconds)
        return float(tensor[-1:].sum())
