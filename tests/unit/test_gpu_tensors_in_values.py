"""Tensors on GPUs inside values: offered to the edge, else through host memory. Torch is for the CPU: what is on a GPU is pretended."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from mray._common.device_tensors import carriers
from mray._objects import tensors
from mray._objects.serializer import deserialize, serialize
from mray.exceptions import RaySystemError

torch = pytest.importorskip("torch")


class Gpu:
    """Says of some tensors that they are on a GPU, and how many GPUs there are; remembers where tensors were put."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.tensors: list[Any] = []
        self.count = 1
        self.put: list[tuple[str, int]] = []
        is_plain = tensors.is_plain
        monkeypatch.setattr(tensors, "is_plain", lambda tensor: not self.has(tensor) and is_plain(tensor))
        monkeypatch.setattr(tensors, "is_plain_on_gpu", self.has)
        monkeypatch.setattr(torch.Tensor, "cpu", lambda tensor: tensor.clone())
        monkeypatch.setattr(torch.Tensor, "get_device", lambda tensor: 3 if self.has(tensor) else -1)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: self.count)
        monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
        monkeypatch.setattr(torch, "device", lambda kind, index: self.put.append((kind, index)) or "cpu")

    def has(self, tensor: Any) -> bool:
        return any(each is tensor for each in self.tensors)

    def tensor(self, *values: float) -> Any:
        self.tensors.append(torch.tensor(values, dtype=torch.float32))
        return self.tensors[-1]


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    return Gpu(monkeypatch)


def sent(value: Any) -> Any:
    """The value that another process gets."""
    serialized = serialize(value)
    return deserialize(serialized.form, serialized.to_bytes())


def test_a_tensor_on_a_gpu_goes_through_host_memory_out_of_band(gpu: Gpu) -> None:
    value = {"on a GPU": gpu.tensor(1, 2, 3), "not": torch.tensor([4.0]), "text": "x"}
    serialized = serialize(value)
    assert len(serialized.buffers) == 2, "the pickle holds no elements"
    arrived = sent(value)
    assert arrived["on a GPU"].tolist() == [1, 2, 3]
    assert arrived["not"].tolist() == [4]
    assert gpu.put == [("cuda", 0)]


@pytest.mark.parametrize(("count", "index"), [(1, 0), (3, 0), (4, 3), (8, 3)])
def test_it_is_put_on_the_gpu_of_the_same_index_or_the_current_one(gpu: Gpu, count: int, index: int) -> None:
    gpu.count = count
    assert sent(gpu.tensor(5)).tolist() == [5]
    assert gpu.put == [("cuda", index)]


def test_the_order_of_its_elements_is_kept(gpu: Gpu) -> None:
    tensor = torch.arange(6.0).view(2, 3).t()
    gpu.tensors.append(tensor)
    arrived = sent(tensor)
    assert arrived.stride() == (1, 3)
    assert torch.equal(arrived, tensor)


def test_one_without_elements_is_put_there_too(gpu: Gpu) -> None:
    assert tuple(sent(gpu.tensor()).shape) == (0,)
    assert gpu.put == [("cuda", 0)]


def test_a_reader_without_gpu_is_told_what_to_write_instead(gpu: Gpu) -> None:
    gpu.count = 0
    advice = r'GPU 3 .* no GPU to put it on. Send tensor.cpu\(\), .* with_tensor_transport\(device="cpu"\)'
    with pytest.raises(RaySystemError, match=advice):
        sent([gpu.tensor(1)])


def test_an_edge_that_carries_tensors_is_offered_it_first(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[Any] = []
    monkeypatch.setattr(carriers, "take", lambda tensor: (taken.append(tensor), ("place", len(taken)))[1])
    monkeypatch.setattr(carriers, "bring", lambda *info: info)
    tensor = gpu.tensor(1)
    assert sent([tensor, torch.tensor([7.0])])[0] == ("place", 1)
    assert taken == [tensor]
    assert gpu.put == []


def test_an_edge_may_decline(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carriers, "take", lambda tensor: None)
    assert sent(gpu.tensor(1)).tolist() == [1]
    assert gpu.put == [("cuda", 0)]


def test_along_an_edge_one_that_requires_grad_is_refused(gpu: Gpu) -> None:
    tensor = gpu.tensor(1).requires_grad_()
    with pytest.raises(RuntimeError, match="requires grad"):
        serialize(tensor, refuse_grad=True)


def test_nested_tensors_go_torchs_way() -> None:
    """Those of C++ are of exactly torch's type and of its plain layout, and have no shape."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says that they are a prototype
        nested = torch.nested.nested_tensor([torch.ones(2), torch.zeros(3)])
        for value in (nested, [nested]):
            sent = serialize(value)
            (back,) = deserialize(sent.form, sent.to_bytes()) if isinstance(value, list) else [deserialize(sent.form, sent.to_bytes())]
            assert [part.tolist() for part in back.unbind()] == [[1, 1], [0, 0, 0]]
