"""Tensors of CUDA devices, on a pretended driver and on torch for the CPU."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import warnings
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from mray._device import cuda_tensors
from mray._device.cuda import CudaPlatform
from mray._device.cuda_tensors import CudaTensors
from tests.unit.fake_torch import Pair, late_pair

torch = pytest.importorskip("torch")


@pytest.fixture
def pair() -> Iterator[Pair]:
    with late_pair() as made:
        yield made


class Keep:
    """Something that can be seen to die."""


# -------------------------------------------------------------------------------------------------- tensors
def test_a_tensor_whose_memory_was_freed_is_refused(pair: Pair) -> None:
    freed = torch.ones(500)
    freed.untyped_storage().resize_(0)
    with pytest.raises(RuntimeError, match="This tensor has no memory"):
        pair.platform.info(freed)


#: torch warns, once in a process, when it makes a tensor of this type itself, as it does for one without elements.
COMPLEX32 = pytest.param("complex32", marks=pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental"))
TYPES = [
    *("float16", "bfloat16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"),
    *(COMPLEX32, "complex64", "complex128", "float8_e4m3fn", "float8_e5m2"),
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
    info = pair.platform.info(tensor)[1]
    assert info == (0, address, 6 * dtype.itemsize, name, (2, 3), (1, 2))
    scalar = pair.device.tensor(address, dtype.itemsize, name, (), None, None)
    assert scalar.shape == () and scalar.dtype is dtype
    del tensor, scalar
    pair.device.free(address)
    without_elements = pair.device.tensor(0, 0, name, (0, 4), None, None)
    assert without_elements.shape == (0, 4) and without_elements.dtype is dtype


def test_stream_0_is_torchs_default_stream_wherever_a_stream_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch makes a new stream of its pool of `ExternalStream(0)`."""
    recorded: list[Any] = []

    class Tensor:
        def get_device(self) -> int:
            return 1

        def record_stream(self, stream: Any) -> None:
            recorded.append(stream)

    def external(stream: int, device: int) -> Any:
        assert stream, "torch makes a new one"
        return "external", stream, device

    monkeypatch.setattr(torch.cuda, "ExternalStream", external)
    monkeypatch.setattr(torch.cuda, "default_stream", lambda device: ("default", 0, device))
    monkeypatch.setattr(torch.cuda, "stream", contextlib.nullcontext)
    monkeypatch.setattr(cuda_tensors, "_torch_streams", lambda: lambda _device: 0)
    tensors = CudaTensors()
    for stream in (0, 4096):
        tensors.use_on(Tensor(), stream)
        with tensors.on_stream(1, stream) as current:
            recorded.append(current)
    assert recorded == [("default", 0, 1)] * 2 + [("external", 4096, 1)] * 2


def test_tensors_of_the_other_device_are_told_apart(pair: Pair) -> None:
    there = pair.platform.devices[1].empty("float32", (3,))
    assert pair.platform.info(there)[1].device == 1


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
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says that it is a prototype
        nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    pair.platform._tensors.is_on_device = lambda _tensor: True  # type: ignore[method-assign]
    assert (type(nested), nested.layout) == (torch.Tensor, torch.strided)
    assert not pair.platform.is_tensor(nested)
    tensor.label = "mine"
    assert not pair.platform.is_tensor(tensor)


def test_a_tensor_that_requires_grad_is_refused(pair: Pair) -> None:
    tensor = pair.device.empty("float32", (4,)).requires_grad_()
    with pytest.raises(RuntimeError, match="requires grad"):
        pair.platform.info(tensor)


def test_conjugates_are_resolved(pair: Pair) -> None:
    tensor = pair.device.empty("complex64", (2,)).fill_(1 + 2j)
    dense, info = pair.platform.info(tensor.conj())
    assert dense.tolist() == [1 - 2j] * 2
    assert info.strides is None


def test_a_view_that_torch_has_copied_is_refused(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    address = pair.device.allocate(64)
    wrap = pair.device._tensors.wrap
    monkeypatch.setattr(pair.device._tensors, "wrap", lambda index, memory: wrap(index, memory).clone())
    with pytest.raises(RuntimeError, match="torch has copied"):
        pair.device.tensor(address, 64, "float32", (16,), None, None)
    pair.device.free(address)


@pytest.mark.parametrize("is_loaded", [False, True])
def test_edges_use_the_default_stream_for_the_threads_own_ones(monkeypatch: pytest.MonkeyPatch, is_loaded: bool) -> None:
    """A finalizer in another thread would mark that thread's."""
    tensors, current = CudaTensors(), [2]
    monkeypatch.setattr(cuda_tensors, "_torch_streams", lambda: (lambda _index: current[0]) if is_loaded else None)
    if not is_loaded:
        monkeypatch.setitem(cuda_tensors._current.streams, 0, 2)
    assert tensors.current_stream(0) == 0
    current[0] = cuda_tensors._current.streams[0] = 1 << 20
    assert tensors.current_stream(0) == 1 << 20
    if is_loaded:
        del cuda_tensors._current.streams[0]


class OfUser:
    """Not a tensor, and not to be asked whether it is like one."""

    def __getattr__(self, name: str) -> Any:
        raise KeyError(name)


def test_only_tensors_of_exactly_torchs_class_are_looked_at(pair: Pair) -> None:
    class Sub(torch.Tensor):  # type: ignore[misc,name-defined]
        pass

    def look(value: Any) -> Any:
        return CudaPlatform.look(pair.platform, value)

    tensor = pair.device.empty("float32", (4,))
    assert look(tensor) is not None
    for other in (tensor.as_subclass(Sub), torch.nn.Parameter(tensor, requires_grad=False), OfUser(), tensor.to_sparse(), None):
        assert look(other) is None
    marked = tensor.data
    marked.remark = "one with attributes"
    assert look(marked) is None
