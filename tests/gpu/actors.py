"""Actors of the tests of graphs over GPUs. Workers import this, and neither pytest nor the tests."""

from __future__ import annotations

import os
import signal
from typing import Any

import numpy as np

from bench.gpu_work import the_work


class Member:
    """Methods of every actor here."""

    def __init__(self) -> None:
        self.work = the_work()

    def pid(self) -> int:
        return os.getpid()

    def die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def synchronizations(self) -> int:
        return self.work.synchronizations()

    def free(self) -> int:
        return self.work.memory()[0]


class Maker(Member):
    """Makes tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.buffer: Any = None
        self.kept: list[Any] = []

    def full(self, number: int) -> Any:
        return self.work.full((100,), number)

    def sized(self, elements: int) -> Any:
        return self.work.full((elements,), elements)

    def put(self, array: Any) -> Any:
        """This array, on the device."""
        return self.work.put(array)

    def viewed(self, array: Any, how: str) -> Any:
        """A view of it that is not in C order, or has gaps."""
        tensor = self.work.put(array)
        if how == "transposed":
            return tensor.T
        if how == "gaps":
            return tensor[:, ::2]
        if how == "offset":
            return tensor[1:]
        raise ValueError(how)

    def nested(self, number: int) -> Any:
        both = self.work.full((7,), number)
        return {"one": both, "many": [self.work.full((3, 2), number + 1), "text"], "again": both, "number": number}

    def keep(self, number: int) -> Any:
        """A tensor that it keeps."""
        tensor = self.work.full((100,), number)
        self.kept.append(tensor)
        return tensor

    def kept_values(self) -> list[int]:
        return [int(self.work.get(tensor)[-1]) for tensor in self.kept]

    def reuse(self, number: int) -> Any:
        """One and the same tensor, written over each time."""
        if self.buffer is None:
            self.buffer = self.work.full((1 << 16,), 0)
        self.buffer.fill_(number)
        return self.buffer

    def late(self, number: int) -> Any:
        """A tensor whose kernel comes late."""
        tensor = self.work.full((1 << 16,), -1)
        self.work.sleep(0.3)
        tensor.fill_(number)
        return tensor

    def on_side_stream(self, number: int) -> Any:
        with self.work.side_stream():
            self.work.sleep(0.02)
            return self.work.full((1 << 12,), number)

    def fail(self, number: int) -> Any:
        raise ValueError(f"no tensor {number}")


class Taker(Member):
    """Takes tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.held: list[Any] = []

    def describe(self, tensor: Any) -> tuple[bool, str, Any]:
        """Whether it is on the device, its dtype, and what is in it."""
        on_device = self.work.is_on_device(tensor)
        return on_device, self.work.dtype(tensor), self.work.get(tensor) if on_device else np.asarray(tensor)

    def unpack(self, value: Any) -> Any:
        one, (many, text) = value["one"], value["many"]
        return self.work.get(one).tolist(), self.work.get(many).tolist(), text, self.work.get(value["again"]).tolist(), value["number"]

    def add(self, tensor: Any) -> Any:
        return tensor + 1

    def total(self, *tensors: Any) -> int:
        return sum(int(self.work.get(tensor).astype(np.int64).sum()) for tensor in tensors)

    def ends(self, tensor: Any) -> tuple[int, int, int]:
        """Length, first and last."""
        array = self.work.get(tensor)
        return len(array), int(array[0]), int(array[-1])

    def write(self, tensor: Any, number: int) -> list[int]:
        """Writes over what it got."""
        tensor.fill_(number)
        return sorted(set(self.work.get(tensor).tolist()))

    def hold(self, tensor: Any) -> int:
        self.held.append(tensor)
        return len(self.held)

    def held_values(self) -> list[int]:
        return [int(self.work.get(tensor)[-1]) for tensor in self.held]

    def let_go(self) -> None:
        self.held.clear()

    def queue(self, tensor: Any) -> bool:
        """Queues work on it; whether that was still to be done when all was queued."""
        self.result = tensor + 1
        return not self.work.is_reached(self.work.mark())

    def read_late(self, tensor: Any) -> None:
        """Queues a kernel that reads it late, and lets go of it at once."""
        self.work.sleep(0.1)
        self.held.append(tensor + 0)

    def result_value(self) -> list[int]:
        return sorted(set(self.work.get(self.result).tolist()))

    def address(self, tensor: Any) -> tuple[int, int]:
        return self.work.address(tensor), int(self.work.get(tensor)[0])

    def on_side_stream(self, tensor: Any) -> int:
        with self.work.side_stream():
            result = tensor + 1
        return int(self.work.get(result)[-1])

    def drop(self, tensor: Any) -> None:
        _ = tensor + 1
