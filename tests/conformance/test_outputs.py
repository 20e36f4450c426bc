"""Edges whose ends remember leases, and results that are made where their reader looks: what crosses is right, whoever keeps what."""

from __future__ import annotations

import gc
import os
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from mray._api.dag_output import output, with_outputs
from mray._device.exports import MOST_AHEAD, MOST_SPARE
from mray._device.platform import forget_platform, platform
from mray._gpu.cuda_ipc import CudaIpcReader, CudaIpcWriter, trim_pools
from mray.testing import null
from mray.testing.null import NullPlatform
from tests.unit.fake_torch import late_pair

LEASES = 64
#: Messages that the ring holds.
AHEAD = 4


class Edge(ABC):
    """Both ends of an edge on one GPU, in this process."""

    writer: CudaIpcWriter
    reader: CudaIpcReader

    @abstractmethod
    def full(self, shape: Any, value: float, dtype: str = "float32") -> Any:
        """A tensor of the writer's."""

    @abstractmethod
    def fill(self, tensor: Any, value: float) -> None:
        """Queue on the current stream of whoever has it."""

    @abstractmethod
    def host(self, tensor: Any) -> list[Any]:
        """Its elements, as its reader's stream sees them."""

    @abstractmethod
    def address(self, tensor: Any) -> int: ...

    @abstractmethod
    def settle(self) -> None:
        """All devices do what is queued."""

    def send(self, value: Any) -> None:
        assert self.writer.try_write(value)

    def read(self) -> Any:
        return self.reader.try_read()

    def call(self, method: Callable[[], Any]) -> Any:
        """Run a method whose result the edge carries, and send that."""
        outputs = self.writer.outputs()
        assert outputs is not None
        self.send(with_outputs(method, outputs)())

    def made(self, value: float, shape: Any = (10,)) -> Any:
        """A method's result, in memory of the edge."""

        def method() -> Any:
            tensor = output(shape)
            self.fill(tensor, value)
            return tensor

        self.call(method)

    @property
    def counts(self) -> tuple[int, int]:
        """Tensors that were copied, and that went as they lay."""
        statistics = self.writer.statistics()
        return statistics["device_copied"], statistics["device_handed"]


class NullEdge(Edge):
    def __init__(self, shm: Any) -> None:
        own = platform()
        assert isinstance(own, NullPlatform)
        self.view = NullPlatform(own.info_of_machine, [0])
        self.own = own
        self.writer, (self.reader,) = shm.make(
            1,
            partial(CudaIpcWriter, platform=own),
            partial(CudaIpcReader, platform=self.view, name="an edge"),
            leases=LEASES,
        )

    def full(self, shape: Any, value: float, dtype: str = "float32") -> Any:
        return null.full(shape, value, dtype)

    def fill(self, tensor: Any, value: float) -> None:
        tensor.fill_(value)

    def host(self, tensor: Any) -> list[Any]:
        return tensor.tolist()  # type: ignore[no-any-return]

    def address(self, tensor: Any) -> int:
        return tensor.address  # type: ignore[no-any-return]

    def settle(self) -> None:
        for each in (self.own, self.view):
            each.synchronize(each.devices[0], 0)


class TorchEdge(Edge):
    def __init__(self, shm: Any, pair: Any) -> None:
        self.pair = pair
        for cuda, device in ((pair.one, pair.device), (pair.other, pair.other_device)):
            cuda.current = 1
            device._tensors.tells_current = True
        self.writer, (self.reader,) = shm.make(
            1,
            partial(CudaIpcWriter, platform=pair.platform),
            partial(CudaIpcReader, platform=pair.other_platform, name="an edge"),
            leases=LEASES,
        )

    def full(self, shape: Any, value: float, dtype: str = "float32") -> Any:
        return self.pair.device.empty(dtype, shape if isinstance(shape, tuple) else (shape,)).fill_(value)

    def fill(self, tensor: Any, value: float) -> None:
        self.settle()  # torch fills tensors of the host immediately
        tensor.fill_(value)

    def host(self, tensor: Any) -> list[Any]:
        self.settle()
        return tensor.tolist()  # type: ignore[no-any-return]

    def address(self, tensor: Any) -> int:
        return tensor.data_ptr()  # type: ignore[no-any-return]

    def settle(self) -> None:
        for cuda in (self.pair.one, self.pair.other):
            cuda.finish()


@contextmanager
def null_edge(shm: Any, monkeypatch: pytest.MonkeyPatch, eventually: Any) -> Iterator[Edge]:
    monkeypatch.setenv("MRAY_NULL_DEVICES", f"1,memory=67108864,scope=outputs{os.getpid()}")
    forget_platform()
    edge = NullEdge(shm)
    yield edge
    edge.settle()
    shm.close_rings()
    gc.collect()
    eventually(trim_pools)
    edge.view.close()
    vars(edge).clear()  # pytest keeps the arguments of tests
    forget_platform()
    gc.collect()


@contextmanager
def torch_edge(shm: Any, _monkeypatch: pytest.MonkeyPatch, eventually: Any) -> Iterator[Edge]:
    with late_pair() as pair:
        edge = TorchEdge(shm, pair)
        yield edge
        edge.settle()
        shm.close_rings()
        eventually(lambda: edge.settle() or trim_pools())
        pair.one.current = pair.other.current = 0
        vars(edge).clear()  # pytest keeps the arguments of tests


@pytest.fixture(params=[null_edge, torch_edge], ids=["null", "torch"])
def edge(request: pytest.FixtureRequest, shm: Any, monkeypatch: pytest.MonkeyPatch, eventually: Any) -> Iterator[Edge]:
    if request.param is torch_edge:
        pytest.importorskip("torch")
    with request.param(shm, monkeypatch, eventually) as made:
        yield made


# ------------------------------------------------------------------------------------ leases that are remembered
KEEPERS: dict[str, Callable[[Any], Any]] = {
    "the tensor": lambda tensor: tensor,
    "a view": lambda tensor: tensor[2:5],
    "a view of a view": lambda tensor: tensor[2:8][1:3],
}


@pytest.mark.parametrize("keeper", KEEPERS)
def test_what_was_read_and_kept_is_never_written_again(edge: Edge, keeper: str) -> None:
    kept = []
    for number in range(3 * MOST_AHEAD):
        edge.send(edge.full(10, number))
        value = edge.read()
        assert edge.host(value) == [number] * 10
        if number % 3 == 0:
            kept.append((number, KEEPERS[keeper](value)))
        del value
        edge.settle()
    for number, tensor in kept:
        assert set(edge.host(tensor)) == {number}


def test_the_memory_of_kept_views_goes_back_once_they_are_gone(edge: Edge) -> None:
    kept = []
    for number in range(5):
        edge.send(edge.full(10, number))
        kept.append(edge.read()[1:])
    assert edge.writer.statistics()["device_leases"] == 5
    kept.clear()
    for number in range(2):
        edge.send(edge.full(10, number))
        edge.read()
        edge.settle()
    assert edge.writer.statistics()["device_leases"] == 0


def test_one_kind_after_another_is_told_apart(edge: Edge) -> None:
    kinds = [((10,), "float32"), ((5, 2), "float32"), ((10,), "int32"), ((2, 5), "float32"), ((20,), "float32")]
    for number in range(4):
        for shape, dtype in kinds:
            edge.send(edge.full(shape, number, dtype))
            value = edge.read()
            assert tuple(value.shape) == shape
            assert str(value.dtype).removeprefix("torch.") == dtype
            assert set(_flat(edge.host(value))) == {number}
            del value
            edge.settle()


def test_many_kinds_keep_few_blocks(edge: Edge) -> None:
    for number in range(3 * MOST_SPARE):
        edge.send(edge.full(10 + number, number))
        assert edge.host(edge.read()) == [number] * (10 + number)
        edge.settle()
    remembered = edge.writer._remembered
    assert remembered is not None
    assert len(remembered._all) <= MOST_SPARE


def test_the_second_message_of_a_kind_brings_no_layout(edge: Edge, monkeypatch: pytest.MonkeyPatch) -> None:
    edge.send(edge.full(10, 0))
    edge.read()
    edge.settle()
    monkeypatch.setattr("mray._device.exports.TensorExports.add", None)
    monkeypatch.setattr("mray._device.imports.TensorImports.bring", None)
    for number in range(20):
        edge.send(edge.full(10, number))
        assert edge.host(edge.read()) == [number] * 10
        edge.settle()


# ------------------------------------------------------------------------------------ results that are made where they are looked for
def test_what_a_method_makes_in_memory_of_the_edge_crosses_without_a_copy(edge: Edge) -> None:
    addresses = set()
    for number in range(20):
        edge.made(number)
        value = edge.read()
        addresses.add(edge.address(value))
        assert edge.host(value) == [number] * 10
        del value
        edge.settle()
    copied, handed = edge.counts
    assert (copied, handed) == (1, 19)
    assert len(addresses) <= 2


def test_outputs_go_on_beside_messages_that_are_read_late(edge: Edge) -> None:
    for number in range(AHEAD):
        edge.made(number)
    for number in range(AHEAD):
        assert edge.host(edge.read()) == [number] * 10
    edge.settle()
    before = edge.counts
    for number in range(AHEAD):
        edge.made(number)
    assert edge.counts == (before[0], before[1] + AHEAD)
    for number in range(AHEAD):
        assert edge.host(edge.read()) == [number] * 10


@pytest.mark.parametrize("keeper", KEEPERS)
def test_an_output_that_its_maker_keeps_is_copied_and_stays_the_makers(edge: Edge, keeper: str) -> None:
    kept = []

    def method() -> Any:
        tensor = output((10,))
        edge.fill(tensor, 1)
        kept.append(KEEPERS[keeper](tensor))
        return tensor

    for number in range(3):
        edge.made(number)
        edge.read()
        edge.settle()
    before = edge.counts
    for _ in range(2 * MOST_AHEAD):
        edge.call(method)
        value = edge.read()
        for each in kept:
            edge.fill(each, 7)
        assert edge.host(value) == [1] * 10, "what the reader got is its own"
        edge.fill(value, 3)
        for each in kept:
            assert set(edge.host(each)) == {7}, "what the maker kept is its own"
        del value
    assert edge.counts[1] == before[1]
    kept.clear()
    for number in range(3):
        edge.made(number)
        assert edge.host(edge.read()) == [number] * 10
        edge.settle()
    assert edge.counts[1] > before[1], "its memory is the edge's again"


def test_an_output_that_is_not_returned_is_no_message(edge: Edge) -> None:
    def method() -> Any:
        first, second = output((10,)), output((10,))
        edge.fill(first, 1)
        edge.fill(second, 2)
        return edge.full(10, 3)

    for number in range(2 * MOST_AHEAD):
        edge.made(number)
        assert edge.host(edge.read()) == [number] * 10
        edge.call(method)
        assert edge.host(edge.read()) == [3] * 10
        edge.settle()


def test_a_view_of_an_output_and_one_within_a_value_are_copied(edge: Edge) -> None:
    for number in range(3):
        edge.made(number)
        edge.read()
        edge.settle()

    def made() -> Any:
        tensor = output((10,))
        edge.fill(tensor, 5)
        return tensor

    for number in range(10):
        edge.call(lambda: made()[2:4])
        assert edge.host(edge.read()) == [5] * 2
        edge.call(lambda: {"a": made(), "b": number})  # noqa: B023  (it is called at once)
        value = edge.read()
        assert (edge.host(value["a"]), value["b"]) == ([5] * 10, number)
        edge.settle()


def test_a_method_that_fails_after_it_took_an_output_leaves_nothing_behind(edge: Edge) -> None:
    def method() -> Any:
        edge.fill(output((10,)), 9)
        raise ValueError("no")

    for number in range(2 * MOST_AHEAD):
        edge.made(number)
        assert edge.host(edge.read()) == [number] * 10
        with pytest.raises(ValueError, match="no"):
            edge.call(method)
        edge.settle()
    assert edge.counts[0] <= MOST_AHEAD


def test_an_output_outlives_its_edge(edge: Edge, shm: Any, eventually: Any) -> None:
    kept = []
    for number in range(2):
        edge.made(number)
        edge.read()
        edge.settle()

    def method() -> Any:
        kept.append(output((10,)))
        return None

    edge.call(method)
    edge.fill(kept[0], 4)
    shm.close_rings()
    trim_pools()
    assert edge.host(kept[0]) == [4] * 10
    gone = weakref.ref(kept[0])
    kept.clear()
    assert gone() is None
    eventually(lambda: edge.settle() or trim_pools())


def test_the_reader_sees_an_output_only_when_it_is_filled(edge: Edge) -> None:
    for number in range(3):
        edge.made(number)
        edge.read()
        edge.settle()
    edge.made(5)
    assert edge.host(edge.read()) == [5] * 10


def _flat(values: list[Any]) -> list[Any]:
    return [each for value in values for each in (_flat(value) if isinstance(value, list) else [value])]


def test_blocks_of_a_kind_that_comes_no_more_go_back(edge: Edge) -> None:
    kept = []
    for number in range(3):
        edge.send(edge.full(10, number))
        kept.append(edge.read())
    for number in range(MOST_SPARE + 1):
        edge.send(edge.full(20 + number, number))  # until nothing of the first kind is remembered
        edge.read()
        edge.settle()
    kept.clear()
    for number in range(4):
        edge.send(edge.full(20 + MOST_SPARE, number))
        edge.read()
        edge.settle()
    assert len(edge.writer._lender.out) == len(edge.writer._remembered)


@pytest.mark.parametrize("shape", [(0,), (3, 0), (1,)])
def test_tensors_with_few_elements_or_none_come_again_and_again(edge: Edge, shape: tuple[int, ...]) -> None:
    for _ in range(5):
        edge.send(edge.full(shape, 1))
        value = edge.read()
        assert tuple(value.shape) == shape
        del value
        edge.settle()
        edge.made(2, shape)
        assert set(_flat(edge.host(edge.read()))) <= {2}
        edge.settle()
