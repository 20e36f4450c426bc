"""Tensors and modules of torch, by family and name."""

from __future__ import annotations

import warnings
from typing import Any

import torch

from tests.values.kinds_of_python import Kinds

DTYPES = "float16 bfloat16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool complex64 complex128 "
DTYPES += "float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu complex32"


class Derived(torch.Tensor):
    """A tensor of a class of its own."""


class Net(torch.nn.Module):
    """With a parameter that two layers share, and buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(3, 3)
        self.second = torch.nn.Linear(3, 3)
        self.second.weight = self.first.weight
        self.register_buffer("mean", torch.arange(3.0))
        self.register_buffer("passing", torch.ones(2), persistent=False)
        self.layers = torch.nn.ModuleList([torch.nn.BatchNorm1d(2), torch.nn.Dropout(0.5)])
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.fill_(0.5)


def quiet(make: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make()


def views() -> Any:
    base = torch.arange(12.0)
    return [base, base[2:5], base.view(3, 4), base]


def with_attribute() -> Any:
    tensor = torch.arange(3)
    tensor.label = "n"
    return tensor


def with_grad() -> Any:
    tensor = torch.arange(3.0, requires_grad=True)
    (tensor * 2).sum().backward()
    return tensor


TENSORS: Kinds = {
    **{
        f"tensor of {name}": lambda name=name: quiet(lambda: torch.arange(6).reshape(2, 3).float().to(getattr(torch, name)))
        for name in DTYPES.split()
        if hasattr(torch, name)
    },
    "large": lambda: torch.arange(40_000),
    "large half": lambda: torch.ones(40_000, dtype=torch.bfloat16),
    "no dimension": lambda: torch.tensor(2.5),
    "empty": lambda: [torch.zeros(0), torch.zeros(0, 3, dtype=torch.int8), torch.zeros(3, 0).t()],
    "transposed": lambda: torch.arange(12).reshape(3, 4).t(),
    "channels last": lambda: torch.arange(48.0).reshape(2, 3, 2, 4).to(memory_format=torch.channels_last),
    "steps": lambda: torch.arange(12)[::3],
    "column": lambda: torch.arange(12).reshape(3, 4)[:, 1],
    "repeated": lambda: torch.arange(3).expand(4, 3),
    "repeated number": lambda: torch.tensor(3).expand(5),
    "part of a large one": lambda: torch.arange(100_000)[10:20],
    "conjugate": lambda: torch.tensor([1 + 2j]).conj(),
    "negated": lambda: torch.tensor([1 + 2j]).conj().imag,
    "the same twice": lambda: [*([torch.arange(3)] * 2)],
    "views of one storage": views,
    "on no device": lambda: torch.ones(3, device="meta"),
    "with an attribute": with_attribute,
    "derived": lambda: torch.arange(3.0).as_subclass(Derived),
    "coordinates": lambda: quiet(lambda: torch.sparse_coo_tensor(torch.tensor([[0, 1], [1, 0]]), torch.tensor([1.0, 2.0]), (2, 2))),
    "coalesced": lambda: torch.eye(3).to_sparse(),
    "rows": lambda: quiet(lambda: torch.eye(3).to_sparse_csr()),
    "columns": lambda: quiet(lambda: torch.eye(3).to_sparse_csc()),
    "blocks": lambda: quiet(lambda: torch.eye(4).to_sparse_bsr((2, 2))),
    "quantized": lambda: quiet(lambda: torch.quantize_per_tensor(torch.arange(3.0), 0.5, 1, torch.quint8)),
    "quantized by channel": lambda: quiet(
        lambda: torch.quantize_per_channel(torch.ones(2, 3), torch.tensor([0.5, 1.0]), torch.tensor([0, 1]), 0, torch.qint8)
    ),
    "nested": lambda: quiet(lambda: torch.nested.nested_tensor([torch.ones(2), torch.zeros(3)])),
    "in an exception": lambda: ValueError(torch.arange(3)),
    "storage": lambda: torch.arange(3).untyped_storage().tolist(),
}
#: Tensors with a history, which edges of graphs refuse.
GRADIENTS: Kinds = {
    "requires grad": lambda: torch.arange(3.0, requires_grad=True),
    "with a gradient": with_grad,
    "parameter": lambda: torch.nn.Parameter(torch.arange(3.0)),
    "frozen parameter": lambda: torch.nn.Parameter(torch.arange(3), requires_grad=False),
    "buffer": lambda: torch.nn.Buffer(torch.arange(3)) if hasattr(torch.nn, "Buffer") else None,
    "module": Net,
    "state": lambda: Net().state_dict(),
    "sequence": lambda: torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Embedding.from_pretrained(torch.ones(2, 3))),
}
OTHERS: Kinds = {
    "info": lambda: [torch.float32, torch.Size([1, 2]), torch.device("cpu"), torch.strided, torch.channels_last, torch.contiguous_format],
    "types": lambda: [torch.Tensor, torch.nn.Linear, torch.nn.functional.relu, torch.add],
    "generator": lambda: torch.Generator().manual_seed(5),
    "data set": lambda: torch.utils.data.TensorDataset(torch.arange(3)),
    "distribution": lambda: torch.distributions.Normal(torch.tensor(0.0), torch.tensor(1.0)),
    "packed sequence": lambda: torch.nn.utils.rnn.pack_sequence([torch.arange(3), torch.arange(2)]),
    "result of max": lambda: torch.arange(6).reshape(2, 3).max(0),
}

FAMILIES: dict[str, Kinds] = {"torch tensors": TENSORS, "torch gradients": GRADIENTS, "torch others": OTHERS}
