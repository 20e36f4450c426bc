"""Type hints of edges: what each transport means, and what is refused."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import pytest

from mray._api.communicator import Communicator, ReduceOp
from mray._api.dag_node import InputNode, MultiOutputNode
from mray._api.type_hint import AutoTransportType, ChannelOutputType, Device, TorchTensorType


class Group(Communicator):
    """A communicator that says what it is and can do nothing."""

    def __init__(self, transport: str = "accelerator") -> None:
        self.transport = transport

    def initialize(self, rank: int) -> None: ...

    def get_actor_handles(self) -> list[Any]:
        return []

    def get_rank(self, actor: Any) -> int:
        raise ValueError(actor)

    def get_self_rank(self) -> int | None:
        return None

    def send(self, value: Any, peer_rank: int) -> None: ...

    def recv(self, shape: Sequence[int], dtype: Any, peer_rank: int, allocator: Any = None) -> Any: ...

    @property
    def recv_stream(self) -> Any:
        return None

    @property
    def send_stream(self) -> Any:
        return None

    def allgather(self, send_buf: Any, recv_buf: Any) -> None: ...

    def allreduce(self, send_buf: Any, recv_buf: Any, op: ReduceOp) -> None: ...

    def reducescatter(self, send_buf: Any, recv_buf: Any, op: ReduceOp) -> None: ...

    def destroy(self) -> None: ...

    def get_transport_name(self) -> str:
        return self.transport

    @classmethod
    def generate_communicator_id(cls) -> str:
        return "group"


@pytest.mark.parametrize(
    ("asked", "transport", "mechanism"),
    [
        ("auto", "auto", None),
        ("cpu", "cpu", None),
        ("accelerator", "accelerator", None),
        ("shm", "auto", "shm"),
        ("nccl", "accelerator", "nccl"),
        ("cuda_ipc", "accelerator", "cuda_ipc"),
    ],
)
def test_a_transport_is_a_way_and_perhaps_a_mechanism(asked: str, transport: str, mechanism: str | None) -> None:
    hint = TorchTensorType(asked)
    assert (hint.transport, hint.mechanism) == (transport, mechanism)
    assert hint.requires_accelerator() == (transport == "accelerator")
    assert hint.get_custom_communicator() is None
    assert hint.communicator_id is None


@pytest.mark.parametrize("asked", ["gloo", "", None, 3, ["auto"]])
def test_a_transport_that_does_not_exist_is_refused(asked: Any) -> None:
    with pytest.raises(ValueError, match="`transport` must be TorchTensorType.AUTO, TorchTensorType.ACCELERATOR or TorchTensorType.CPU"):
        TorchTensorType(asked)


@pytest.mark.parametrize("transport", ["accelerator", "cpu"])
def test_a_communicator_says_its_transport(transport: str) -> None:
    group = Group(transport)
    hint = TorchTensorType(group)
    assert hint.transport == transport
    assert hint.get_custom_communicator() is group


def test_a_communicator_of_an_unknown_transport_is_refused() -> None:
    with pytest.raises(ValueError, match="`transport` must be"):
        TorchTensorType(Group("carrier pigeon"))


@pytest.mark.parametrize("transport", ["accelerator", "nccl", "cuda_ipc", Group()])
def test_device_memory_does_not_lead_to_the_cpu(transport: Any) -> None:
    with pytest.raises(ValueError, match="accelerator transport is not supported with CPU target device"):
        TorchTensorType(transport, device=Device.CPU)


def test_a_hint_says_what_it_was_given() -> None:
    hint = TorchTensorType("cpu", Device.CPU, _static_shape=True, _direct_return=True)
    assert (hint.device, hint.static_shape, hint.direct_return) == (Device.CPU, True, True)
    plain = TorchTensorType()
    assert (plain.transport, plain.device, plain.static_shape, plain.direct_return) == ("auto", Device.DEFAULT, False, False)
    auto = AutoTransportType(Device.GPU, _static_shape=True)
    assert (auto.device, auto.static_shape, auto.direct_return) == (Device.GPU, True, False)
    assert "static_shape" in repr(hint)
    assert "gpu" in repr(auto)


def test_a_deep_copy_has_the_same_communicator_and_all_the_rest() -> None:
    group = Group()
    hint = TorchTensorType(group, Device.CUDA, _static_shape=True)
    hint.set_communicator_id("seven")
    copied = copy.deepcopy(hint)
    assert copied is not hint
    assert copied.get_custom_communicator() is group
    assert (copied.device, copied.static_shape, copied.communicator_id) == (Device.CUDA, True, "seven")
    copied.set_communicator_id("eight")
    assert hint.communicator_id == "seven"


def test_a_hint_about_nothing_demands_nothing() -> None:
    hint = ChannelOutputType()
    assert not hint.requires_accelerator()
    assert hint.get_custom_communicator() is None
    with pytest.raises(NotImplementedError):
        hint.set_communicator_id("one")


def test_devices_are_known_by_their_names() -> None:
    assert [str(device) for device in Device] == ["default", "cpu", "gpu", "cuda"]


# --------------------------------------------------------------------------------------------- on nodes
@pytest.mark.parametrize(("asked", "transport"), [("nccl", "accelerator"), ("accelerator", "accelerator"), ("shm", "auto"), ("cpu", "cpu")])
def test_a_node_takes_a_transport(asked: str, transport: str) -> None:
    node = InputNode()
    assert node.with_tensor_transport(asked, _static_shape=True, _direct_return=True) is node
    hint = node.type_hint
    assert isinstance(hint, TorchTensorType)
    assert (hint.transport, hint.device, hint.static_shape, hint.direct_return) == (transport, Device.DEFAULT, True, True)


def test_a_node_leaves_the_transport_to_the_compiler_by_default() -> None:
    assert type(InputNode().type_hint) is ChannelOutputType
    hint = InputNode().with_tensor_transport(device="cuda").type_hint
    assert isinstance(hint, AutoTransportType)
    assert hint.device is Device.CUDA


def test_a_node_takes_a_communicator_as_its_transport() -> None:
    group = Group("cpu")
    hint = InputNode().with_tensor_transport(group, "cpu").type_hint
    assert isinstance(hint, TorchTensorType)
    assert hint.get_custom_communicator() is group


@pytest.mark.parametrize("transport", ["gloo", None, 7, Group])
def test_a_node_refuses_other_transports(transport: Any) -> None:
    with pytest.raises(ValueError, match="Invalid transport type: .* Transport must be one of 'auto', 'nccl', 'shm', 'accelerator' or an"):
        InputNode().with_tensor_transport(transport)


def test_a_node_refuses_devices_that_do_not_exist() -> None:
    with pytest.raises(ValueError, match=r"Invalid device 'tpu'. Valid options are: 'default', 'cpu', 'gpu', 'cuda'."):
        InputNode().with_tensor_transport(device="tpu")


def test_a_node_takes_a_hint_and_nothing_else() -> None:
    node = InputNode()
    hint = TorchTensorType("shm")
    assert node.with_type_hint(hint) is node
    assert node.type_hint is hint
    node.type_hint = other = AutoTransportType()
    assert node.type_hint is other
    with pytest.raises(TypeError, match="A type hint is a ChannelOutputType, such as TorchTensorType, not str"):
        node.with_type_hint("shm")  # type: ignore[arg-type]
    assert node.type_hint is other


def test_copies_of_a_node_keep_its_hint() -> None:
    with InputNode() as inp:
        outputs = MultiOutputNode([inp.with_tensor_transport("shm")])
    seen = []
    outputs.apply_recursive(lambda node: seen.append(node.type_hint))
    assert any(isinstance(hint, TorchTensorType) and hint.mechanism == "shm" for hint in seen)
