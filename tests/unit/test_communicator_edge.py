"""Edges over a user's communicator: tensors go through it, the rest of the value through the channel below."""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Sequence
from typing import Any

import pytest

from mray._api.communicator import Communicator, ReduceOp
from mray._channel.base import NOTHING, Failed
from mray._channel.communicator_edge import CommunicatorReader, CommunicatorWriter, EdgeRules
from tests.inproc import InprocWriter

torch = pytest.importorskip("torch")


class Post(Communicator):
    """Delivers to queues; rank 0 writes, 1 and 2 read."""

    def __init__(self, queues: dict[int, deque[Any]], rank: int) -> None:
        self.queues = queues
        self.rank = rank
        self.broken = False

    def initialize(self, rank: int) -> None:
        self.rank = rank

    def get_actor_handles(self) -> list[Any]:
        return ["a", "b", "c"]

    def get_rank(self, actor: Any) -> int:
        return self.get_actor_handles().index(actor)

    def get_self_rank(self) -> int | None:
        return self.rank

    def send(self, value: Any, peer_rank: int) -> None:
        self.queues[peer_rank].append(value.clone())

    def recv(self, shape: Sequence[int], dtype: Any, peer_rank: int, allocator: Any = None) -> Any:
        assert peer_rank == 0
        if self.broken:
            raise RuntimeError("the wire is cut")
        received = allocator(shape, dtype)
        return received.copy_(self.queues[self.rank].popleft())

    recv_stream = send_stream = property(lambda self: None)  # type: ignore[assignment]

    def allgather(self, send_buf: Any, recv_buf: Any) -> None:
        raise NotImplementedError

    def allreduce(self, send_buf: Any, recv_buf: Any, op: ReduceOp) -> None:
        raise NotImplementedError

    def reducescatter(self, send_buf: Any, recv_buf: Any, op: ReduceOp) -> None:
        raise NotImplementedError

    def destroy(self) -> None:
        pass

    def get_transport_name(self) -> str:
        return "cpu"

    @classmethod
    def generate_communicator_id(cls) -> str:
        return "post"


class Wire:
    """A writer and its two readers."""

    def __init__(self, static_shape: bool = False, direct_return: bool = False) -> None:
        queues: dict[int, deque[Any]] = {1: deque(), 2: deque()}
        inner = InprocWriter(2, 4)
        rules = EdgeRules(static_shape, direct_return)
        self.queues = queues
        self.writer = CommunicatorWriter(inner, Post(queues, 0), [1, 2], rules, pickle.dumps)
        self.members = [Post(queues, 1), Post(queues, 2)]
        self.readers = [CommunicatorReader(inner.reader(number), self.members[number], 0, pickle.dumps) for number in range(2)]


def test_tensors_go_through_the_communicator_and_the_rest_beside_them() -> None:
    wire = Wire()
    twice = torch.arange(6).reshape(2, 3)
    value = {"name": "x", "pair": (twice, [torch.ones(2, dtype=torch.bfloat16)]), "again": twice}
    assert wire.writer.try_write(value)
    assert [len(queue) for queue in wire.queues.values()] == [2, 2]
    for reader in wire.readers:
        read = reader.try_read()
        assert read["name"] == "x"
        assert torch.equal(read["pair"][0], twice)
        assert read["again"] is read["pair"][0]
        assert read["pair"][1][0].dtype == torch.bfloat16
        assert reader.try_read() is NOTHING


@pytest.mark.parametrize("value", [None, "text", {"a": [1]}, (0, 1)])
def test_values_without_tensors_need_no_communicator(value: Any) -> None:
    wire = Wire()
    assert wire.writer.try_write(value)
    assert [reader.try_read() for reader in wire.readers] == [value, value]
    assert not any(wire.queues.values())


def test_failures_pass_as_they_are() -> None:
    wire = Wire()
    failed = Failed(b"payload")
    assert wire.writer.try_write(failed)
    assert wire.readers[0].failed()
    assert wire.readers[0].try_read() is failed


def test_an_error_of_the_communicator_is_fatal() -> None:
    wire = Wire()
    wire.members[0].broken = True
    assert wire.writer.try_write(torch.ones(1))
    failed = wire.readers[0].try_read()
    assert type(failed) is Failed
    assert failed.fatal
    assert "the wire is cut" in str(pickle.loads(failed.payload))


def test_a_tensor_must_be_alone_where_that_was_promised() -> None:
    wire = Wire(direct_return=True)
    assert wire.writer.try_write(torch.ones(1))
    assert torch.equal(wire.readers[0].try_read(), torch.ones(1))
    assert wire.writer.try_write([torch.ones(1)])
    failed = wire.readers[0].try_read()
    assert failed.fatal
    assert "_direct_return=True must return a torch.Tensor" in str(pickle.loads(failed.payload))


def test_shapes_must_stay_where_that_was_promised() -> None:
    wire = Wire(static_shape=True)
    for _ in range(2):
        assert wire.writer.try_write([torch.ones(3), torch.zeros(2, 2)])
        assert [tensor.shape for tensor in wire.readers[0].try_read()] == [(3,), (2, 2)]
    assert wire.writer.try_write([torch.ones(3)])
    failed = wire.readers[0].try_read()
    assert failed.fatal
    assert "Expected torch.Tensors with shapes and dtypes" in str(pickle.loads(failed.payload))


def test_nothing_is_sent_without_room() -> None:
    wire = Wire()
    for _ in range(4):
        assert wire.writer.try_write(torch.ones(1))
    assert not wire.writer.has_room()
    assert not wire.writer.try_write(torch.ones(1))
    assert len(wire.queues[1]) == 4
