"""Tensors of CUDA devices, on a pretended driver and on torch for the CPU."""

from __future__ import annotations

import ctypes
import gc
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from mray._device import cuda_tensors
from mray._device.cuda import CudaDevice
from mray._device.outputs import with_outputs
from tests.unit.fake_torch import FakeTensors, Pair, late_pair

torch = pytest.importorskip("torch")


@pytest.fixture
def pair() -> Iterator[Pair]:
    with late_pair() as made:
        yield made


class Keep:
    """Something that can be seen to die."""


# -------------------------------------------------------------------------------------------------- tensors
TYPES = [
    *("float16", "bfloat16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"),
    *("complex32", "complex64", "complex128", "float8_e4m3fn", "float8_e5m2"),
]


@pytest.mark.parametrize("name", TYPES)
def test_tensors_of_every_type_view_given_memory(pair: Pair, name: str) -> None:
    dtype = getattr(torch, name)
    address = pair.device.allocate(1000)
    ctypes.memmove(address, bytes(range(1, 97)), 96)
    tensor = pair.device.tensor(address, 6 * dtype.itemsize, name, (2, 3), (1, 2), None)
    assert (tensor.dtype, tuple(tensor.shape), tensor.stride()) == (dtype, (2, 3), (1, 2))
    assert tensor.data_ptr() == address
    assert tensor.untyped_storage().nbytes() == 6 * dtype.itemsize
    assert pair.platform.is_tensor(tensor)
    facts = pair.platform.facts(tensor)[1]
    assert facts == (0, address, 6 * dtype.itemsize, name, (2, 3), (1, 2))
    scalar = pair.device.tensor(address, dtype.itemsize, name, (), None, None)
    assert scalar.shape == () and scalar.dtype is dtype
    del tensor, scalar
    pair.device.free(address)


def test_tensors_of_the_other_device_are_told_apart(pair: Pair) -> None:
    there = pair.platform.devices[1].empty("float32", (3,))
    assert pair.platform.facts(there)[1].device == 1


def test_what_keeps_memory_dies_with_the_last_view(pair: Pair) -> None:
    address = pair.device.allocate(64)
    keep = Keep()
    is_kept = weakref.ref(keep)
    view = pair.device.tensor(address, 64, "bfloat16", (32,), None, keep).view(torch.int16)[4:].reshape(7, 4)[::2]
    del keep
    gc.collect()
    assert is_kept() is not None
    del view
    assert is_kept() is None, "by its count of references alone"
    pair.device.free(address)


def test_a_tensor_without_elements_needs_no_memory(pair: Pair) -> None:
    tensor = pair.device.tensor(0, 0, "bfloat16", (3, 0, 2), None, None)
    assert (tuple(tensor.shape), tensor.dtype) == ((3, 0, 2), torch.bfloat16)


def test_only_plain_tensors_of_the_device_count(pair: Pair) -> None:
    tensor = pair.device.empty("float32", (4,))
    assert pair.platform.is_tensor(tensor)
    assert not pair.platform.is_tensor(torch.ones(4))
    assert not pair.platform.is_tensor(torch.nn.Parameter(tensor))
    assert not pair.platform.is_tensor([tensor])
    tensor.label = "mine"
    assert not pair.platform.is_tensor(tensor)


def test_a_tensor_that_requires_grad_is_refused(pair: Pair) -> None:
    tensor = pair.device.empty("float32", (4,)).requires_grad_()
    with pytest.raises(RuntimeError, match="requires grad"):
        pair.platform.facts(tensor)


def test_conjugates_are_resolved(pair: Pair) -> None:
    tensor = pair.device.empty("complex64", (2,)).fill_(1 + 2j)
    dense, facts = pair.platform.facts(tensor.conj())
    assert dense.tolist() == [1 - 2j] * 2
    assert facts.strides is None


def looks(tensor: Any) -> Any:
    """Ways in which somebody looks at the memory of a tensor."""
    weight = torch.ones(8, requires_grad=True)
    return {
        "view": lambda: tensor[2:],
        "detached": lambda: tensor.detach(),
        "storage": lambda: tensor.untyped_storage(),
        "numpy array": lambda: tensor.numpy(),
        "backward pass": lambda: tensor * weight,
        "dlpack": lambda: tensor.__dlpack__(),
    }


@pytest.mark.parametrize("look", list(looks(None)))
def test_a_tensor_somebody_looks_at_is_not_sole(pair: Pair, look: str) -> None:
    tensor = pair.device.empty("float32", (8,)).fill_(1)
    assert pair.platform.is_sole(tensor)
    seen = looks(tensor)[look]()
    assert not pair.platform.is_sole(tensor)
    del seen
    gc.collect()
    assert pair.platform.is_sole(tensor)


def test_a_view_is_never_sole(pair: Pair) -> None:
    tensor = pair.device.empty("float32", (8,)).view(2, 4)
    assert not pair.platform.is_sole(tensor)
    assert not pair.platform.is_sole(pair.device.empty("float32", (8,)).requires_grad_())


# -------------------------------------------------------------------------------------------------- outputs
def base_of(device: CudaDevice, tensor: Any) -> Any:
    return device.allocation_of(tensor.data_ptr())


def test_outputs_lie_in_the_pool_and_others_do_not(pair: Pair) -> None:
    with pair.device.outputs():
        output = pair.device.empty("float32", (10,))
    plain = pair.device.empty("float32", (10,))
    assert pair.device.is_output(base_of(pair.device, output))
    assert not pair.device.is_output(base_of(pair.device, plain))


def test_the_pool_is_asked_once_about_an_allocation(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    with pair.device.outputs():
        output = pair.device.empty("float32", (10,))
    asked: list[int] = []
    segments = pair.device._tensors.segments
    monkeypatch.setattr(pair.device._tensors, "segments", lambda index: asked.append(index) or segments(index))
    for _ in range(3):
        assert pair.device.is_output(base_of(pair.device, output))
    assert asked == [0]


def test_outputs_within_outputs_and_in_two_threads_are_harmless(pair: Pair) -> None:
    tensors = pair.device._tensors
    assert isinstance(tensors, FakeTensors)
    with pair.device.outputs():
        with pair.device.outputs():
            assert len(tensors.entered) == 1
        thread = threading.Thread(target=lambda: pair.device.outputs().__enter__())
        thread.start()
        thread.join()
        assert len(tensors.entered) == 1
        with pair.platform.devices[1].outputs():
            assert len(tensors.entered) == 2
    assert tensors.entered == []
    with pytest.raises(KeyError), pair.device.outputs():
        raise KeyError
    assert tensors.entered == []
    with pair.device.outputs():
        assert len(tensors.entered) == 1


@pytest.mark.parametrize("obstacle", ["has_pools", "exportable", "setting"])
def test_where_a_pool_is_of_no_use_outputs_are_ordinary_tensors(pair: Pair, monkeypatch: pytest.MonkeyPatch, obstacle: str) -> None:
    if obstacle == "setting":
        monkeypatch.setenv("MRAY_DEVICE_OUTPUTS", "0")
    else:
        monkeypatch.setattr(pair.device._tensors, obstacle, False)
    for _ in range(2):
        with pair.device.outputs():
            output = pair.device.empty("float32", (10,))
    monkeypatch.undo()
    allocation = base_of(pair.device, output)
    assert allocation is None or not pair.device.is_output(allocation)


def test_a_pool_that_refuses_to_allocate_is_given_up(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    tensors = pair.device._tensors

    def refuse(index: int, pool: Any) -> Any:
        raise RuntimeError("MemPool doesn't currently support expandable_segments")

    monkeypatch.setattr(tensors, "enter_pool", refuse)
    for _ in range(2):
        with pair.device.outputs():
            assert pair.device.empty("float32", (10,)) is not None
    assert tensors._pools == {}


def test_a_closed_platform_makes_another_pool_when_asked(pair: Pair) -> None:
    with pair.device.outputs():
        first = base_of(pair.device, pair.device.empty("float32", (10,)))
    assert pair.device.is_output(first)
    pair.platform.close()
    assert not pair.device.is_output(first)
    with pair.device.outputs():
        assert pair.device.is_output(base_of(pair.device, pair.device.empty("float32", (10,))))


def test_what_was_cached_before_the_first_outputs_is_there_for_them(pair: Pair) -> None:
    tensors = pair.device._tensors
    tensors.cached = {}
    most = int(pair.device.memory()[0] * 0.6)
    pair.device.empty("uint8", (most,))
    assert pair.device.memory()[0] < most, "it is cached"
    with pair.device.outputs():
        assert pair.device.empty("uint8", (most,)) is not None


def test_memory_that_another_stream_has_used_is_used_again(pair: Pair) -> None:
    tensors, size = pair.device._tensors, 8 << 20
    free = pair.device.memory()[0]
    for _ in range(60):
        with pair.device.outputs():
            tensors.recorded.append(pair.device.empty("uint8", (size,)))
    assert pair.device.memory()[0] > free - 12 * size, "not so many as were made"
    tensors.recorded.clear()


def test_a_method_that_runs_out_of_memory_makes_ordinary_tensors_from_then_on(pair: Pair) -> None:
    tensors = pair.device._tensors
    most = int(pair.device.memory()[0] * 0.6)
    with pair.device.outputs():
        pass
    tensors.cached = {}
    pair.device.empty("uint8", (most,))
    runs: list[int] = []

    def step(number: int) -> Any:
        runs.append(number)
        return pair.device.empty("uint8", (most,))

    def other() -> Any:
        return pair.device.empty("uint8", (10,))

    make = with_outputs(UsedPlatform(pair.platform), step)
    with pytest.raises(MemoryError):
        make(1)
    assert runs == [1], "what it did is not done twice"
    assert pair.device.exhausted == 1
    made = make(2)
    assert not pair.device.is_output(base_of(pair.device, made))
    del made
    gc.collect()
    tensors.free_cache(0)
    assert pair.device.is_output(base_of(pair.device, with_outputs(UsedPlatform(pair.platform), other)())), "others do as ever"


class UsedPlatform:
    """A platform that is in use: torch for the CPU says that it is not."""

    def __init__(self, platform: Any) -> None:
        self.platform = platform

    def is_in_use(self) -> bool:
        return True

    def current_device(self) -> Any:
        return self.platform.devices[0]


# --------------------------------------------------------------------------------- outputs, and others' pools
class Routes:
    """Stands for torch.cuda and torch._C: who gets the memory that is allocated now. The pool entered first."""

    def __init__(self) -> None:
        self.pools: list[Any] = []
        routes = self

        class CUDAGraph:
            fails = False

            def capture_begin(self, pool: Any = None, capture_error_mode: str = "global") -> None:
                if self.fails:
                    raise RuntimeError("capture")
                routes.pools.append("graph")

            def capture_end(self) -> None:
                routes.pools.remove("graph")

        class C:
            @staticmethod
            def _cuda_beginAllocateCurrentThreadToPool(device: int, pool_id: Any) -> None:
                assert pool_id not in routes.pools
                routes.pools.append(pool_id)

            @staticmethod
            def _cuda_endAllocateToPool(device: int, pool_id: Any) -> None:
                routes.pools.remove(pool_id)

        class memory:
            _cuda_beginAllocateCurrentThreadToPool = C._cuda_beginAllocateCurrentThreadToPool
            _cuda_endAllocateToPool = C._cuda_endAllocateToPool

        class cuda:
            pass

        cuda.CUDAGraph, cuda.memory = CUDAGraph, memory  # type: ignore[attr-defined]
        self._C, self.cuda, self.memory, self.graph = C, cuda, memory, CUDAGraph

    def use(self, pool: Any) -> Any:
        """`torch.cuda.use_mem_pool`."""

        @contextmanager
        def using() -> Iterator[None]:
            self.memory._cuda_beginAllocateCurrentThreadToPool(0, pool.id)
            try:
                yield
            finally:
                self.memory._cuda_endAllocateToPool(0, pool.id)

        return using()


@pytest.fixture
def routes(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> Routes:
    made = Routes()
    assert cuda_tensors._make_way(made)
    before = made.graph.capture_begin
    assert cuda_tensors._make_way(made) and made.graph.capture_begin is before, "once is enough"
    monkeypatch.setattr(pair.device._tensors, "enter_pool", lambda index, pool: made.use(pool))
    return made


def test_a_captured_graph_takes_its_memory_from_its_own_pool(pair: Pair, routes: Routes) -> None:
    graph = routes.graph()
    with pair.device.outputs():
        ours = list(routes.pools)
        assert len(ours) == 1
        graph.capture_begin(capture_error_mode="thread_local")
        assert routes.pools == ["graph"]
        graph.capture_end()
        assert routes.pools == ours
        graph.fails = True
        with pytest.raises(RuntimeError, match="capture"):
            graph.capture_begin()
        assert routes.pools == ours
    assert routes.pools == []
    graph.fails = False
    graph.capture_begin()
    graph.capture_end()
    assert routes.pools == []


def test_a_users_own_pool_gets_what_it_asks_for(pair: Pair, routes: Routes) -> None:
    class Pool:
        def __init__(self, number: int) -> None:
            self.id = (0, number)

    with pair.device.outputs():
        ours = list(routes.pools)
        with routes.use(Pool(100)):
            assert routes.pools == [(0, 100)]
            with routes.use(Pool(101)):
                assert routes.pools[0] == (0, 100)
            assert routes.pools[0] == (0, 100)
        assert routes.pools == ours
        routes._C._cuda_beginAllocateCurrentThreadToPool(0, (0, 102))
        assert routes.pools == [(0, 102)]
        routes._C._cuda_endAllocateToPool(0, (0, 102))
        assert routes.pools == ours
    assert routes.pools == []


def test_a_torch_without_pools_of_threads_is_left_alone() -> None:
    old = Routes()
    del old._C._cuda_beginAllocateCurrentThreadToPool
    begin = old.graph.capture_begin
    assert not cuda_tensors._make_way(old)
    assert old.graph.capture_begin is begin


def test_this_torch_has_what_outputs_are_made_with() -> None:
    assert {"capture_begin", "capture_end"} <= set(vars(torch.cuda.CUDAGraph))
    assert hasattr(torch.cuda.memory, "_cuda_beginAllocateCurrentThreadToPool")
    assert hasattr(torch.cuda, "MemPool") and hasattr(torch.cuda, "use_mem_pool") and hasattr(torch.cuda.MemPool, "snapshot")
    assert hasattr(torch._C, "_storage_Use_Count") and hasattr(torch.Tensor, "_use_count")


def test_a_view_that_torch_has_copied_is_refused(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    address = pair.device.allocate(64)
    wrap = pair.device._tensors.wrap
    monkeypatch.setattr(pair.device._tensors, "wrap", lambda index, memory: wrap(index, memory).clone())
    with pytest.raises(RuntimeError, match="torch has copied"):
        pair.device.tensor(address, 64, "float32", (16,), None, None)
    pair.device.free(address)
