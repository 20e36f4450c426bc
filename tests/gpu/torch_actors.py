"""Actors of tests that need torch's CUDA tensors. Workers import this."""

from __future__ import annotations

from typing import Any

from tests.gpu.actors import Maker, Member


def example(torch: Any, kind: str, device: str = "cuda") -> Any:
    """A tensor of that kind; the same on every device."""
    base = torch.arange(48, device=device, dtype=torch.float32).reshape(2, 3, 8) - 20
    if kind in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
        return base.to(getattr(torch, kind))
    if kind in ("uint16", "uint32"):
        return (base + 20).to(torch.int64).to(getattr(torch, kind))
    made = {
        "channels_last": lambda: torch.arange(2 * 3 * 4 * 5, device=device).reshape(2, 3, 4, 5).to(memory_format=torch.channels_last),
        "expanded": lambda: base[0, 0].expand(4, 8),
        "strided": lambda: base[:, 1:, ::3],
        "diagonal": lambda: base[0].diagonal(),
        "flipped": lambda: base.flip(0),
        "conjugated": lambda: torch.complex(base, base + 1).conj(),
        "negated": lambda: torch.complex(base, base + 1).conj().imag,
        "zero_dim": lambda: base[1, 2, 3],
        "one_of_many": lambda: base.unbind(1)[1],
        "parameter_data": lambda: torch.nn.Parameter(base).data,
        "empty": lambda: base[:, :0],
    }
    return made[kind]()


class TorchMaker(Maker):
    """Makes all kinds of tensors."""

    def make(self, kind: str) -> Any:
        torch = self.work.torch
        if kind == "inference":
            with torch.inference_mode():
                return example(torch, "strided")
        if kind == "own_pool":
            self.pool = torch.cuda.MemPool()
            with torch.cuda.use_mem_pool(self.pool):
                return example(torch, "bfloat16") + 0
        return example(torch, kind)

    def allocator(self) -> str:
        """The setting that its allocator shows."""
        torch = self.work.torch
        if torch.cuda.get_allocator_backend() != "native":
            return f"backend:{torch.cuda.get_allocator_backend()}"
        segments = torch.cuda.memory_snapshot()
        return f"expandable_segments:{any(segment.get('is_expandable', False) for segment in segments)}"

    def strides_of(self, kind: str) -> tuple[int, ...]:
        return tuple(example(self.work.torch, kind, "cpu").stride())


class TorchTaker(Member):
    """Takes them."""

    def compare(self, tensor: Any, kind: str) -> str:
        torch = self.work.torch
        expected = example(torch, {"inference": "strided", "own_pool": "bfloat16"}.get(kind, kind), "cpu")
        if not tensor.is_cuda:
            return f"on {tensor.device}"
        if tensor.dtype != expected.dtype or tensor.shape != expected.shape:
            return f"{tensor.dtype} {tuple(tensor.shape)}"
        # Bytes: not every dtype can be compared.
        one, other = (each.resolve_conj().resolve_neg().contiguous().flatten().view(torch.uint8) for each in (tensor.cpu(), expected))
        return "equal" if torch.equal(one, other) else f"{one.tolist()} instead of {other.tolist()}"

    def strides(self, tensor: Any) -> tuple[int, ...]:
        return tuple(tensor.stride())


class Captured(Member):
    """Replays a CUDA graph over its input: one graph for each address at which it comes."""

    def __init__(self) -> None:
        super().__init__()
        self.graphs: dict[int, tuple[Any, Any]] = {}
        self.captures = self.replays = 0
        self.fixed: Any = None

    def step(self, tensor: Any) -> float:
        torch = self.work.torch
        known = self.graphs.get(tensor.data_ptr())
        if known is None:
            graph = torch.cuda.CUDAGraph()
            torch.cuda.synchronize()
            with torch.cuda.graph(graph):
                result = tensor * 2 + 1
            known = self.graphs[tensor.data_ptr()] = graph, result
            self.captures += 1
        else:
            self.replays += 1
        graph, result = known
        graph.replay()
        return float(result[-1])

    def counts(self) -> tuple[int, int]:
        return self.captures, self.replays

    def output(self, number: int) -> Any:
        """A tensor that a CUDA graph fills, captured here."""
        torch = self.work.torch
        if self.fixed is None:
            given = torch.zeros(64, dtype=torch.int32, device="cuda")
            graph = torch.cuda.CUDAGraph()
            torch.cuda.synchronize()
            with torch.cuda.graph(graph):
                result = given + 1
            self.fixed = graph, given, result
        graph, given, result = self.fixed
        given.fill_(number)
        graph.replay()
        return result.clone()
