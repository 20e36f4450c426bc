"""The communicator over shared memory, in the hands of user code and in graphs."""

from __future__ import annotations

import importlib
import pickle
from typing import Any

import pytest

torch = pytest.importorskip("torch")

PRELOAD = ["torch"]


@pytest.fixture
def communicators(ray: Any) -> Any:
    return importlib.import_module(f"{ray.__name__}.experimental.channel.cpu_communicator")


@pytest.fixture
def reductions(ray: Any) -> Any:
    """The enumeration of operations."""
    return importlib.import_module(f"{ray.__name__}.experimental.channel.communicator").ReduceOp


def make_member(ray: Any) -> Any:
    class Member:
        def __init__(self) -> None:
            self.communicator: Any = None

        def initialize(self, communicator: Any, rank: int) -> int:
            self.communicator = communicator
            communicator.initialize(rank)
            return communicator.get_self_rank()

        def allreduce(self, tensor: Any, op: Any) -> Any:
            into = torch.empty_like(tensor)
            self.communicator.allreduce(tensor, into, op)
            return into

        def do(self, function: Any) -> Any:
            return function(self.communicator)

        def double(self, tensor: Any) -> Any:
            return tensor * 2

    return ray.remote(num_cpus=0)(Member)


@pytest.fixture
def group(ray_session: Any, communicators: Any) -> Any:
    """Makes so many members, and their communicator as this process holds it."""
    kind = make_member(ray_session)

    def make(count: int) -> tuple[list[Any], Any]:
        members = [kind.remote() for _ in range(count)]
        communicator = communicators.CPUCommunicator(count, members)
        ranks = ray_session.get([member.initialize.remote(communicator, rank) for rank, member in enumerate(members)])
        assert ranks == list(range(count))
        return members, communicator

    return make


@pytest.mark.differs("Ray's MIN and MAX fail with a NameError")
def test_allreduce_writes_the_reduction_into_the_other_buffer(ray_session, engine, group, reductions):
    members, _communicator = group(2)
    expected = {"SUM": [5.0, 5.0], "PRODUCT": [6.0, -14.0], "AVG": [2.5, 2.5]}
    if engine == "mray":
        expected |= {"MIN": [2.0, -2.0], "MAX": [3.0, 7.0]}
    own = [torch.tensor([2.0, -2.0]), torch.tensor([3.0, 7.0])]
    for name, result in expected.items():
        refs = [member.allreduce.remote(own[rank], reductions[name]) for rank, member in enumerate(members)]
        assert [tensor.tolist() for tensor in ray_session.get(refs)] == [result] * 2


def test_the_driver_knows_the_members_and_is_none(ray_session, group, communicators):
    members, communicator = group(2)
    stranger = make_member(ray_session).remote()
    assert communicator.get_actor_handles() == members
    assert [communicator.get_rank(member) for member in members] == [0, 1]
    assert communicator.get_world_size() == 2
    assert communicator.get_self_rank() is None
    assert communicator.get_transport_name() == "cpu"
    with pytest.raises(ValueError, match="Actor is not in the CPUCommunicator group"):
        communicator.get_rank(stranger)
    assert communicators.CPUCommunicator.generate_communicator_id() != communicators.CPUCommunicator.generate_communicator_id()


@pytest.mark.only("mray", "local")
def test_gathering_scattering_and_sending(ray_session, group):
    members, _communicator = group(3)

    def work(communicator):
        rank = communicator.get_self_rank()
        gathered = torch.empty(6, 2)
        communicator.allgather(torch.full((2, 2), float(rank)), gathered)
        scattered = torch.empty(1, 2)
        communicator.reducescatter(torch.arange(6.0).reshape(3, 2) * (rank + 1), scattered)
        communicator.send(torch.tensor([rank, 7]), (rank + 1) % 3)
        made = []

        def allocate(shape, dtype):
            made.append(torch.zeros(shape, dtype=dtype))
            return made[-1]

        received = communicator.recv((2,), torch.int64, (rank - 1) % 3, allocate)
        assert received is made[0]
        assert communicator.recv_stream is None
        assert communicator.send_stream is None
        return gathered, scattered, received

    for rank, (gathered, scattered, received) in enumerate(ray_session.get([member.do.remote(work) for member in members])):
        assert gathered[:, 0].tolist() == [0, 0, 1, 1, 2, 2]
        assert scattered.tolist() == [[12.0 * rank, 12.0 * rank + 6]]
        assert received.tolist() == [(rank - 1) % 3, 7]


@pytest.mark.only("mray", "local")
def test_what_is_received_without_an_allocator_is_a_new_tensor(ray_session, group):
    members, _communicator = group(2)
    sent = members[0].do.remote(lambda communicator: communicator.send(torch.ones(2, 3, dtype=torch.bfloat16), 1))
    tensor = ray_session.get(members[1].do.remote(lambda communicator: communicator.recv((2, 3), torch.bfloat16, 0)))
    assert torch.equal(tensor, torch.ones(2, 3, dtype=torch.bfloat16))
    ray_session.get(sent)


@pytest.mark.only("mray", "local")
def test_misuse_is_refused(ray_session, group, communicators):
    (member,), communicator = group(1)
    with pytest.raises(ValueError, match="Expected 2 different actors, but got "):
        communicators.CPUCommunicator(2, [member])
    with pytest.raises(ValueError, match="Expected 2 different actors"):
        communicators.CPUCommunicator(2, [member, member])
    with pytest.raises(RuntimeError, match="is rank 0 of this group already"):
        ray_session.get(member.do.remote(lambda own: own.initialize(0)))
    with pytest.raises(ValueError, match="rank 1 is none of the 1"):
        communicator.initialize(1)
    with pytest.raises(ray_session.exceptions.RayChannelError, match="has not been called here"):
        communicator.allreduce(torch.zeros(1), torch.zeros(1))
    for call, text in (
        (lambda own: own.allreduce(torch.zeros(2), torch.zeros(3)), "as many elements to receive as are sent"),
        (lambda own: own.allreduce(torch.zeros(2), torch.zeros(2).int()), "to have the same dtype"),
        (lambda own: own.allgather(torch.zeros(2), torch.tensor(1.0)), "divisible by the world size 1"),
        (lambda own: own.allreduce(1, torch.zeros(1)), "Expected a torch tensor"),
    ):
        with pytest.raises(ValueError, match=text):
            ray_session.get(member.do.remote(call))
    # A call that is refused before it begins breaks nothing.
    ray_session.get(member.do.remote(lambda own: own.allreduce(torch.zeros(1), torch.zeros(1))))


@pytest.mark.only("mray", "local")
def test_leaving_ends_the_others_waits_and_a_copy_is_a_new_member(ray_session, group):
    members, communicator = group(2)
    waiting = members[0].do.remote(lambda own: own.allreduce(torch.zeros(1), torch.zeros(1)))
    ray_session.get(members[1].do.remote(lambda own: (own.destroy(), own.destroy())))
    with pytest.raises(ray_session.exceptions.RayChannelError, match="destroyed the group"):
        ray_session.get(waiting)
    again = pickle.loads(pickle.dumps(communicator))
    assert again.get_self_rank() is None
    ray_session.get([member.initialize.remote(again, rank) for rank, member in enumerate(members)])


@pytest.mark.only("mray", "local")
def test_graphs_reduce_over_it(ray_session, ray, communicators):
    collective = importlib.import_module(f"{ray.__name__}.experimental.collective")
    kind = make_member(ray_session)
    members = [kind.remote() for _ in range(3)]
    communicator = communicators.CPUCommunicator(3, members)
    with ray.dag.InputNode() as given:
        doubled = [member.double.bind(given[rank]) for rank, member in enumerate(members)]
        dag = ray.dag.MultiOutputNode(collective.allreduce.bind(doubled, transport=communicator))
    graph = dag.experimental_compile()
    try:
        for size in (3, 300_000):
            for tensor in ray.get(graph.execute(*[torch.full((size,), float(rank)) for rank in range(3)])):
                assert torch.equal(tensor, torch.full((size,), 6.0))
    finally:
        graph.teardown()
