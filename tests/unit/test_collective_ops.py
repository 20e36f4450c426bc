"""The results of collectives, without a process."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from mray._api.communicator import Communicator, ReduceOp
from mray._channel import collective_ops
from mray._channel.collective_ops import AllGather, AllReduce, Collective, ReduceScatter

torch = pytest.importorskip("torch")

Maker = Callable[..., Any]
LIBRARIES = {"torch": torch.tensor, "numpy": np.array}
both = pytest.mark.parametrize("make", LIBRARIES.values(), ids=LIBRARIES)

EXPECTED = {
    ReduceOp.SUM: [9.0, -3.0, 3.0],
    ReduceOp.PRODUCT: [24.0, 10.0, 0.0],
    ReduceOp.MAX: [4.0, 5.0, 3.0],
    ReduceOp.MIN: [2.0, -10.0, 0.0],
    ReduceOp.AVG: [3.0, -1.0, 1.0],
}
SHARES = ([2.0, 5.0, 3.0], [3.0, 2.0, 0.0], [4.0, -10.0, 0.0])
PRODUCT_OF_SHARES = [24.0, -100.0, 0.0]


def equal(left: Any, right: Any) -> bool:
    return bool(np.array_equal(np.asarray(left), np.asarray(right)))


@both
@pytest.mark.parametrize("op", ReduceOp)
def test_every_operation_reduces_element_by_element(make: Maker, op: ReduceOp) -> None:
    shares = [make(share) for share in SHARES]
    result = collective_ops.reduce(shares, op)
    assert type(result) is type(shares[0])
    assert equal(result, PRODUCT_OF_SHARES if op is ReduceOp.PRODUCT else EXPECTED[op])


DTYPES = ["uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "bool"]
COMPLEX = [("complex64", op) for op in (ReduceOp.SUM, ReduceOp.PRODUCT, ReduceOp.AVG)]  # complex numbers have no order


@pytest.mark.parametrize(("dtype", "op"), [*itertools.product(DTYPES, ReduceOp), *COMPLEX])
def test_a_result_has_the_dtype_of_its_arguments(dtype: str, op: ReduceOp) -> None:
    shares = [torch.tensor([1, 0, 1]).to(getattr(torch, dtype)) for _ in range(3)]
    result = collective_ops.reduce(shares, op)
    assert result.dtype == shares[0].dtype
    assert result.shape == (3,)
    if dtype != "bfloat16":
        assert equal(collective_ops.reduce([share.numpy() for share in shares], op), result)


@both
def test_the_average_of_integers_is_rounded_towards_zero(make: Maker) -> None:
    least = np.iinfo(np.int64).min
    assert equal(collective_ops.reduce([make([7, -7, -6, 5]), make([0, 0, 0, 0])], ReduceOp.AVG), [3, -3, -3, 2])
    assert equal(collective_ops.reduce([make([least]), make([0])], ReduceOp.AVG), [least // 2])


@both
def test_the_sum_of_bools_is_their_disjunction(make: Maker) -> None:
    for op in (ReduceOp.SUM, ReduceOp.AVG, ReduceOp.MAX):
        assert equal(collective_ops.reduce([make([True, False]), make([True, False])], op), [True, False])


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (5,), (7, 11, 13), (1 << 18,)])
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_a_reduction_goes_in_rank_order_however_it_is_cut(shape: tuple[int, ...], ranks: int) -> None:
    generator = np.random.default_rng(1)
    shares = [np.asarray(generator.standard_normal(shape) * 10.0**rank, np.float32) for rank in range(ranks)]
    whole = shares[0].copy()
    for share in shares[1:]:
        whole = whole + share
    assert equal(collective_ops.reduce(shares, ReduceOp.SUM), whole)
    tensors = [torch.from_numpy(share) for share in shares]
    assert equal(collective_ops.reduce(tensors, ReduceOp.SUM), whole)
    flat = [share.reshape(-1) for share in shares]
    middle = flat[0].size // 3
    parts = [collective_ops.reduce([share[part] for share in flat], ReduceOp.SUM) for part in (slice(0, middle), slice(middle, None))]
    assert equal(np.concatenate(parts), whole.reshape(-1))


def test_tensors_that_lie_otherwise_in_memory_reduce_by_their_indices() -> None:
    dense = torch.arange(600_000.0).reshape(600, 1000)
    strided = torch.arange(600_000.0).reshape(1000, 600).t()
    result = collective_ops.reduce([dense, strided, dense], ReduceOp.SUM)
    assert torch.equal(result, dense + strided + dense)
    assert result.is_contiguous()


@both
@pytest.mark.parametrize("collective", [AllReduce(), AllGather(), ReduceScatter(ReduceOp.SUM, 0)], ids=lambda each: type(each).__name__)
@pytest.mark.parametrize("ranks", [1, 2])
def test_arguments_are_neither_written_to_nor_part_of_the_result(make: Maker, collective: Collective, ranks: int) -> None:
    shares = [make([1.0, 2.0]) for _ in range(ranks)]
    for share in shares:
        if isinstance(share, np.ndarray):
            share.setflags(write=False)
    result = collective(*shares)
    result[...] = 100.0
    assert all(equal(share, [1.0, 2.0]) for share in shares)


def test_gradients_stay_with_the_arguments() -> None:
    shares = [torch.tensor([1.0, 2.0], requires_grad=True) for _ in range(2)]
    for collective in (AllReduce(), AllGather(), ReduceScatter()):
        assert not collective(*shares).requires_grad


@both
def test_gathering_lines_the_ranks_up_along_the_first_dimension(make: Maker) -> None:
    result = AllGather()(make([[1], [2]]), make([[3], [4]]))
    assert equal(result, [[1], [2], [3], [4]])


@both
def test_scattering_gives_each_rank_its_part_of_the_reduction(make: Maker) -> None:
    shares = [make([[1.0], [2.0], [3.0], [4.0]]), make([[10.0], [20.0], [30.0], [40.0]])]
    assert equal(ReduceScatter(ReduceOp.SUM, 0)(*shares), [[11.0], [22.0]])
    assert equal(ReduceScatter(ReduceOp.MAX, 1)(*shares), [[30.0], [40.0]])


def test_several_tensors_of_each_rank_give_a_tuple() -> None:
    first = (torch.tensor([1.0, 2.0]), torch.tensor([[3.0], [4.0]]))
    second = (torch.tensor([10.0, 20.0]), torch.tensor([[30.0], [40.0]]))
    reduced = AllReduce(width=2)(*first, *second)
    assert isinstance(reduced, tuple)
    assert equal(reduced[0], [11.0, 22.0])
    assert equal(reduced[1], [[33.0], [44.0]])
    gathered = AllGather(width=2)(*first, *second)
    assert equal(gathered[0], [1.0, 2.0, 10.0, 20.0])
    assert equal(gathered[1], [[3.0], [4.0], [30.0], [40.0]])
    scattered = ReduceScatter(ReduceOp.SUM, rank=1, width=2)(*first, *second)
    assert equal(scattered[0], [22.0])
    assert equal(scattered[1], [[44.0]])


def test_collectives_travel_and_compare_by_value() -> None:
    for collective in (AllReduce(ReduceOp.MAX, 2), AllGather(3), ReduceScatter(ReduceOp.AVG, 1, 2)):
        assert pickle.loads(pickle.dumps(collective)) == collective


@pytest.mark.parametrize(
    ("collective", "arguments", "text"),
    [
        (AllReduce(), [torch.zeros(2), 1], "Expected a torch tensor for each input node"),
        (AllReduce(), [torch.zeros(2), np.zeros(2)], "Expected a torch tensor for each input node"),
        (AllReduce(), [torch.zeros(2), torch.zeros(2, dtype=torch.int64)], "Expected all input tensors to have the same dtype"),
        (AllReduce(), [torch.zeros(2), torch.zeros(3)], "Expected all input tensors to have the same shape"),
        (AllReduce(width=2), [torch.zeros(2), torch.zeros(2).int()] * 2, "Expected all input tensors to have the same dtype"),
        (AllReduce(width=2), [torch.zeros(2)] * 3, "Expected 2 tensors for each rank, but got 3 in all"),
        (AllReduce(), [], "Expected 1 tensors for each rank, but got 0 in all"),
        (AllGather(), [torch.tensor(1.0)] * 2, "Expected tensors with at least one dimension"),
        (AllGather(), [torch.zeros(2), torch.zeros(3)], "Expected all input tensors to have the same shape"),
        (
            ReduceScatter(),
            [torch.zeros(3)] * 2,
            "Expected the first dimension of the input tensor to be divisible by the world size 2",
        ),
    ],
)
def test_what_does_not_fit_is_refused(collective: Collective, arguments: list[Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        collective(*arguments)


class Mirrors(Communicator):
    """A group of two whose other member has sent the same as this one."""

    def __init__(self) -> None:
        self.calls = 0

    def get_world_size(self) -> int:
        return 2

    def allreduce(self, send_buf: Any, recv_buf: Any, op: ReduceOp) -> None:
        self.calls += 1
        collective_ops.reduce_into(recv_buf, [send_buf, send_buf.clone()], op)

    def allgather(self, send_buf: Any, recv_buf: Any) -> None:
        recv_buf[...] = collective_ops.gather([send_buf, send_buf])

    def reducescatter(self, send_buf: Any, recv_buf: Any, op: ReduceOp) -> None:
        recv_buf[...] = collective_ops.reduce_scatter([send_buf, send_buf], op, 1)

    def initialize(self, rank: int) -> None: ...
    def get_actor_handles(self) -> list[Any]:
        return []

    def get_rank(self, actor: Any) -> int:
        raise ValueError

    def get_self_rank(self) -> int | None:
        return 1

    def send(self, value: Any, peer_rank: int) -> None: ...
    def recv(self, shape: Sequence[int], dtype: Any, peer_rank: int, allocator: Any = None) -> Any: ...
    @property
    def recv_stream(self) -> Any:
        return None

    @property
    def send_stream(self) -> Any:
        return None

    def destroy(self) -> None: ...
    def get_transport_name(self) -> str:
        return "cpu"

    @classmethod
    def generate_communicator_id(cls) -> Any:
        return 0


def test_the_same_goes_through_a_communicator() -> None:
    communicator = Mirrors()
    own = torch.tensor([[1.0], [2.0]])
    assert equal(AllReduce(ReduceOp.SUM).through(communicator, own), own * 2)
    assert equal(AllGather().through(communicator, own), [[1.0], [2.0], [1.0], [2.0]])
    assert equal(ReduceScatter(ReduceOp.SUM, 1).through(communicator, own), [[4.0]])
    assert equal(own, [[1.0], [2.0]])
    both = AllReduce(ReduceOp.MAX, width=2).through(communicator, own, torch.zeros(3))
    assert equal(both[0], own)
    assert equal(both[1], np.zeros(3))
    assert communicator.calls == 2, "several tensors go in one exchange"
    with pytest.raises(ValueError, match="divisible by the world size 2"):
        ReduceScatter().through(communicator, torch.zeros(3))
    with pytest.raises(ValueError, match="Expected a torch tensor for each input node"):
        AllReduce().through(communicator, 1)
