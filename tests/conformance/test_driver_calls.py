"""A message with a GPU tensor makes so many calls of the driver, and no more."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

pytest.importorskip("torch")

import mray
from mray._device import nvml
from mray._gpu.cuda_ipc import CudaIpcReader, CudaIpcWriter, trim_pools
from tests.unit.fake_torch import Pair, late_pair

PACKAGE = str(Path(mray.__file__).parent)
#: Setting a word, waiting for one.
SET, AWAIT = "cuStreamWriteValue64_v2", "cuStreamWaitValue64_v2"


class Edge:
    """From one pretended process to another one, each with a driver that notes its calls."""

    def __init__(self, shm: Any, pair: Pair) -> None:
        self.pair = pair
        self.one, self.other = pair.one, pair.other
        self.writer, (self.reader,) = shm.make(
            1,
            partial(CudaIpcWriter, platform=pair.platform),
            partial(CudaIpcReader, platform=pair.other_platform, name="an edge"),
            leases=64,
        )
        for cuda, device in ((self.one, pair.device), (self.other, pair.other_device)):
            cuda.current = 1
            device._tensors.tells_current = True
        tensor = pair.device.empty("int32", (10,))
        for _ in range(3):
            self.calls(tensor)

    def calls(self, tensor: Any) -> list[list[str]]:
        """Those of writing it, of reading it and of letting go of it."""
        self.one.calls.clear()
        assert self.writer.try_write(tensor)
        self.other.calls.clear()
        value = self.reader.try_read()
        read = self.other.calls.copy()
        self.other.calls.clear()
        del value
        made = [self.one.calls.copy(), read, self.other.calls.copy()]
        self.finish()  # before the tensor may go
        return made

    def finish(self) -> None:
        for cuda in (self.one, self.other):
            cuda.finish()


@contextmanager
def edge_between(shm: Any, eventually: Any, other: list[int] | None = None) -> Iterator[Edge]:
    with late_pair(other) as pair:
        made = Edge(shm, pair)
        yield made
        shm.close_rings()
        eventually(lambda: made.finish() or trim_pools())
        for stream in pair.other_device.belongings.get("idle streams of edges", ()):
            pair.other_device.destroy_stream(stream)
        made.one.current = made.other.current = 0
        vars(made).clear()  # pytest keeps the arguments of tests


@pytest.fixture
def edge(shm: Any, eventually: Any) -> Iterator[Edge]:
    with edge_between(shm, eventually) as made:
        yield made


@pytest.fixture
def between_gpus(shm: Any, eventually: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Edge]:
    monkeypatch.setattr(nvml, "can_access", lambda _uuid, _other: True)
    with edge_between(shm, eventually, [1]) as made:
        yield made


def test_a_message_on_one_gpu_is_a_copy_and_three_words(edge: Edge) -> None:
    tensor = edge.pair.device.empty("int32", (10,))
    for _ in range(20):
        assert edge.calls(tensor) == [["cuMemcpyAsync", SET], [AWAIT], [SET]]


def test_a_message_between_gpus_is_two_copies_and_six_words(between_gpus: Edge) -> None:
    tensor = between_gpus.pair.device.empty("int32", (10,))
    for _ in range(20):
        # The reader's copy waits for the writer's, and the user's stream for that; it is done before anybody lets go.
        assert between_gpus.calls(tensor) == [["cuMemcpyAsync", SET], [AWAIT, "cuMemcpyAsync", SET, AWAIT, SET], [SET]]


def is_of_stand_in(frame: FrameType | None) -> bool:
    """Whether a pretended driver or torch has called it."""
    while frame is not None and not frame.f_code.co_filename.endswith("test_driver_calls.py"):
        if "/fake_" in frame.f_code.co_filename:
            return True
        frame = frame.f_back
    return False


def test_few_functions_are_entered_before_the_consumers_method(edge: Edge) -> None:
    tensor = edge.pair.device.empty("int32", (10,))
    entered: list[str] = []

    def note(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE) and not is_of_stand_in(frame):
            entered.append(frame.f_code.co_qualname)

    for _ in range(5):
        edge.calls(tensor)
    counts = []
    for _ in range(9):
        sys.setprofile(note)
        try:
            assert edge.writer.try_write(tensor)
            value = edge.reader.try_read()
        finally:
            sys.setprofile(None)
        counts.append(len(entered))
        entered.clear()
        del value
        edge.finish()
    assert min(counts) <= 35, counts


def test_a_reader_that_comes_later_waits_for_nothing(edge: Edge) -> None:
    tensor = edge.pair.device.empty("int32", (10,))
    assert edge.writer.try_write(tensor)
    edge.finish()
    edge.other.calls.clear()
    value = edge.reader.try_read()
    assert edge.other.calls == []
    del value


@pytest.mark.parametrize("kind", ["gaps", "conj", "neg"])
def test_captures_are_permitted_where_torch_has_to_copy(edge: Edge, kind: str) -> None:
    tensor = edge.pair.device.empty("complex64", (4, 6))
    tensor = tensor[:, ::2] if kind == "gaps" else tensor.conj()
    if kind == "neg":
        tensor = tensor.imag
        assert tensor.is_neg()
    edge.one.calls.clear()
    edge.pair.platform.info(tensor)
    assert edge.one.calls == ["cuThreadExchangeStreamCaptureMode"] * 2


@pytest.mark.parametrize("kind", ["transposed", "row of one"])
def test_what_lies_dense_is_not_copied_first(edge: Edge, kind: str) -> None:
    tensor = edge.pair.device.empty("float32", (4, 6))
    tensor = tensor.T if kind == "transposed" else tensor[2:3]
    assert edge.calls(tensor)[0] == ["cuMemcpyAsync", SET]


@pytest.mark.parametrize("case", ["torch is not in use", "another device is current", "no context is current"])
def test_calls_are_made_in_the_context_of_their_device(edge: Edge, case: str) -> None:
    cuda, tensor = edge.one, edge.pair.device.empty("int32", (10,))
    if case == "torch is not in use":
        edge.pair.device._tensors.tells_current = False  # type: ignore[attr-defined]
    elif case == "another device is current":
        edge.pair.platform.devices[1].memory()
        cuda.current = 2
    else:
        cuda.current = 0
    before = cuda.current
    written, _read, _let_go = edge.calls(tensor)
    assert written.count("cuCtxGetCurrent") == 2
    assert cuda.current == before
    cuda.current = 1
