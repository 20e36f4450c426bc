"""Groups of actors and tasks that reduce, gather and exchange tensors."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import pytest

np = pytest.importorskip("numpy")
torch = pytest.importorskip("torch")

PRELOAD = ["torch"]


@pytest.fixture
def collective(ray: Any) -> Any:
    """``util.collective`` of the module under test."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of cupy, which Ray imports, on machines without its libraries
        return importlib.import_module(f"{ray.__name__}.util.collective")


def make_member(ray: Any) -> Any:
    """The class of the members: each call makes its own tensors and returns what they have become."""
    name = ray.__name__

    class Member:
        def __init__(self) -> None:
            import importlib

            self.collective = importlib.import_module(f"{name}.util.collective")
            self.types = importlib.import_module(f"{name}.util.collective.types")

        def join(self, world_size: int, rank: int, group: str = "default", **options: Any) -> None:
            self.collective.init_collective_group(world_size, rank, "gloo", group, **options)

        def call(self, what: str, tensors: Sequence[Any], *arguments: Any, op: str | None = None) -> Any:
            """Call a collective with copies of the tensors (a list of them counts as one) and return the copies."""
            import copy

            own = [[copy.deepcopy(each) for each in tensor] if isinstance(tensor, list) else copy.deepcopy(tensor) for tensor in tensors]
            options = {} if op is None else {"op": self.types.ReduceOp[op]}
            getattr(self.collective, what)(*own, *arguments, **options)
            return own

        def ask(self, what: str, *arguments: Any) -> Any:
            return getattr(self.collective, what)(*arguments)

    return ray.remote(num_cpus=0)(Member)


@pytest.fixture
def members(ray_session: Any) -> Callable[[int], list[Any]]:
    """Makes so many actors that are in no group yet."""
    kind = make_member(ray_session)
    return lambda count: [kind.remote() for _ in range(count)]


@pytest.fixture
def group(ray_session: Any, members: Callable[[int], list[Any]]) -> Callable[[int], list[Any]]:
    """Makes so many actors that are a group, "default", by rank."""

    def make(count: int) -> list[Any]:
        made = members(count)
        ray_session.get([member.join.remote(count, rank) for rank, member in enumerate(made)])
        return made

    return make


def everybody(ray: Any, group: Sequence[Any], what: str, tensors: Callable[[int], Sequence[Any]], *arguments: Any, **options: Any) -> Any:
    """Have every member call a collective with its own tensors; what they have become, by rank."""
    return ray.get([member.call.remote(what, tensors(rank), *arguments, **options) for rank, member in enumerate(group)])


MAKERS = {"torch": torch.tensor, "numpy": np.array}
makers = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)


def same(left: Any, right: Any) -> bool:
    return bool(np.array_equal(np.asarray(left), np.asarray(right)))


# ------------------------------------------------------------------------------------------- collectives
@makers
def test_allreduce_combines_the_tensors_of_all_in_place(ray_session, group, make):
    pair = group(2)
    expected = {"SUM": [5.0, 5.0], "PRODUCT": [6.0, -14.0], "MIN": [2.0, -2.0], "MAX": [3.0, 7.0]}
    for op, result in expected.items():
        for (tensor,) in everybody(ray_session, pair, "allreduce", lambda rank: [make([[2.0, -2.0], [3.0, 7.0]][rank])], op=op):
            assert type(tensor) is type(make([1.0]))
            assert same(tensor, result)


def test_tensors_keep_their_dtype(ray_session, group):
    pair = group(2)
    for dtype in (torch.uint8, torch.int32, torch.int64, torch.float16, torch.float32, torch.float64):
        own = torch.tensor([1, 2]).to(dtype)
        for (tensor,) in everybody(ray_session, pair, "allreduce", lambda rank: [own]):  # noqa: B023
            assert tensor.dtype == dtype
            assert tensor.tolist() == [2, 4]


@makers
def test_reduce_changes_the_tensor_of_one_member_only(ray_session, group, make):
    first, second = everybody(ray_session, group(2), "reduce", lambda rank: [make([1.0 + rank])], 1)
    assert same(first[0], [1.0])
    assert same(second[0], [3.0])


@makers
def test_broadcast_gives_all_the_tensor_of_one(ray_session, group, make):
    pair = group(2)
    for root in (0, 1):
        for (tensor,) in everybody(ray_session, pair, "broadcast", lambda rank: [make([[1.0], [2.0]][rank])], root):
            assert same(tensor, [[1.0], [2.0]][root])


@makers
def test_allgather_collects_the_tensors_of_all_in_a_list(ray_session, group, make):
    for gathered, own in everybody(ray_session, group(2), "allgather", lambda rank: [[make([0, 0]), make([0, 0])], make([rank, 7])]):
        assert [list(tensor) for tensor in gathered] == [[0, 7], [1, 7]]
        assert own[1] == 7


@makers
def test_reducescatter_gives_each_member_its_part_of_the_reduction(ray_session, group, make):
    lists = [[make([1.0, 2.0]), make([3.0, 4.0])], [make([10.0, 20.0]), make([30.0, 40.0])]]
    first, second = everybody(ray_session, group(2), "reducescatter", lambda rank: [make([0.0, 0.0]), lists[rank]])
    assert same(first[0], [11.0, 22.0])
    assert same(second[0], [33.0, 44.0])


@makers
def test_what_one_member_sends_another_receives(ray_session, group, make):
    first, second = group(2)
    sent = first.call.remote("send", [make([1.0, 2.0])], 1)
    received = second.call.remote("recv", [make([0.0, 0.0])], 0)
    assert same(ray_session.get(received)[0], [1.0, 2.0])
    ray_session.get(sent)
    # And the other way round.
    back = second.call.remote("send", [make([3.0])], 0)
    assert same(ray_session.get(first.call.remote("recv", [make([0.0])], 1))[0], [3.0])
    ray_session.get(back)


def test_nobody_passes_a_barrier_before_all_have_come(ray_session, group):
    first, second = group(2)
    waiting = first.call.remote("barrier", [])
    ready, _rest = ray_session.wait([waiting], timeout=0.2)
    assert not ready
    ray_session.get([waiting, second.call.remote("barrier", [])])


def test_calls_of_different_kinds_follow_each_other(ray_session, group):
    trio = group(3)
    for round_ in range(3):
        for root in range(3):
            calls = [
                everybody(ray_session, trio, "broadcast", lambda rank: [torch.tensor([rank + 10 * round_])], root),  # noqa: B023
                everybody(ray_session, trio, "reduce", lambda rank: [torch.tensor([rank])], root),
                everybody(ray_session, trio, "allreduce", lambda rank: [torch.tensor([rank])]),
            ]
            assert [int(tensor) for (tensor,) in calls[0]] == [root + 10 * round_] * 3
            assert [int(tensor) for (tensor,) in calls[1]] == [3 if rank == root else rank for rank in range(3)]
            assert [int(tensor) for (tensor,) in calls[2]] == [3, 3, 3]


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_lengths_are_no_matter(ray_session, group, ranks):
    made = group(ranks)
    for length in (0, 1, 1000, 300_000, 700_001):
        check_length(ray_session, made, length)


def check_length(ray_session, made, length):
    ranks = len(made)
    shares = [torch.arange(length, dtype=torch.float32) * (rank + 1) for rank in range(ranks)]
    for (tensor,) in everybody(ray_session, made, "allreduce", lambda rank: [shares[rank]]):
        assert torch.equal(tensor, torch.arange(length, dtype=torch.float32) * sum(range(ranks + 1)))
    zeros = torch.zeros(length)
    for gathered, _own in everybody(ray_session, made, "allgather", lambda rank: [[zeros] * ranks, shares[rank]]):
        assert all(torch.equal(tensor, share) for tensor, share in zip(gathered, shares, strict=True))
    for (tensor,) in everybody(ray_session, made, "broadcast", lambda rank: [shares[rank]], ranks - 1):
        assert torch.equal(tensor, shares[-1])
    for rank, (tensor, _parts) in enumerate(everybody(ray_session, made, "reducescatter", lambda rank: [zeros, [shares[rank]] * ranks])):
        assert torch.equal(tensor, sum(shares)), rank
    sent = made[0].call.remote("send", [shares[0]], ranks - 1)
    assert torch.equal(ray_session.get(made[-1].call.remote("recv", [zeros], 0))[0], shares[0])
    ray_session.get(sent)


# ------------------------------------------------------------------------------------------------ groups
def test_a_member_knows_its_rank_and_the_size_of_its_group(ray_session, group):
    for rank, member in enumerate(group(2)):
        assert ray_session.get(member.ask.remote("get_rank")) == rank
        assert ray_session.get(member.ask.remote("get_collective_group_size")) == 2
        assert ray_session.get(member.ask.remote("is_group_initialized", "default")) is True
        assert ray_session.get(member.ask.remote("get_rank", "another")) == -1
        assert ray_session.get(member.ask.remote("get_collective_group_size", "another")) == -1
        assert ray_session.get(member.ask.remote("is_group_initialized", "another")) is False


def test_a_group_can_be_destroyed_and_made_again(ray_session, group):
    pair = group(2)
    for _again in range(3):
        assert [int(tensor) for (tensor,) in everybody(ray_session, pair, "allreduce", lambda rank: [torch.tensor([1])])] == [2, 2]
        ray_session.get([member.ask.remote("destroy_collective_group") for member in pair])
        assert not ray_session.get(pair[0].ask.remote("is_group_initialized", "default"))
        pair.reverse()
        ray_session.get([member.join.remote(2, rank) for rank, member in enumerate(pair)])


def test_a_process_may_be_in_several_groups(ray_session, group):
    pair = group(2)
    ray_session.get([member.join.remote(2, rank, "second") for rank, member in enumerate(pair)])
    for name in ("second", "default", "second"):
        for (tensor,) in everybody(ray_session, pair, "allreduce", lambda rank: [torch.tensor([rank + 1])], name):
            assert int(tensor) == 3


def test_declared_actors_join_at_their_first_collective(ray_session, members, collective):
    pair = members(2)
    collective.create_collective_group(pair, 2, [1, 0], "gloo", "declared")
    with pytest.raises(RuntimeError, match="Trying to initialize a group twice"):
        collective.create_collective_group(pair, 2, [1, 0], "gloo", "declared")
    assert [int(tensor) for (tensor,) in everybody(ray_session, pair, "allreduce", lambda rank: [torch.tensor([1])], "declared")] == [2, 2]
    assert ray_session.get([member.ask.remote("get_rank", "declared") for member in pair]) == [1, 0]
    ray_session.get([member.ask.remote("destroy_collective_group", "declared") for member in pair])
    with pytest.raises(ValueError, match="info_declared"):
        ray_session.get_actor("info_declared")


def test_tasks_can_be_members(ray_session):
    name = ray_session.__name__

    @ray_session.remote(num_cpus=1, max_calls=1)
    def train(rank):
        import importlib

        import torch

        collective = importlib.import_module(f"{name}.util.collective")
        collective.init_collective_group(2, rank, "gloo", "tasks")
        tensor = torch.tensor([rank + 1.0])
        collective.allreduce(tensor, "tasks")
        collective.destroy_collective_group("tasks")
        return tensor.item()

    assert ray_session.get([train.remote(rank) for rank in range(2)]) == [3.0, 3.0]


# ------------------------------------------------------------------------------------------------ checks
def test_collectives_are_for_actors_and_tasks(ray_session, collective):
    for call in (
        lambda: collective.init_collective_group(1, 0, "gloo"),
        collective.destroy_collective_group,
        collective.get_rank,
        collective.get_collective_group_size,
        collective.barrier,
        lambda: collective.allreduce(torch.zeros(1)),
    ):
        with pytest.raises(RuntimeError, match="shall be only used inside a Ray actor or task"):
            call()


def test_a_group_that_does_not_exist_is_an_error(ray_session, members):
    (member,) = members(1)
    with pytest.raises(RuntimeError, match="The collective group 'nobody' is not initialized in the process"):
        ray_session.get(member.call.remote("allreduce", [torch.zeros(1)], "nobody"))


def test_a_process_joins_a_group_once(ray_session, group):
    (member,) = group(1)
    with pytest.raises(RuntimeError, match="Trying to initialize a group a second time"):
        ray_session.get(member.join.remote(1, 0))


@pytest.mark.parametrize(("world_size", "rank"), [(0, 0), (2, 2), (2, -1)])
def test_a_rank_lies_within_the_world(ray_session, members, world_size, rank):
    with pytest.raises(AssertionError):
        ray_session.get(members(1)[0].join.remote(world_size, rank))


def test_a_group_has_a_name(ray_session, members):
    with pytest.raises(ValueError, match="needs to be a string"):
        ray_session.get(members(1)[0].join.remote(1, 0, ""))


@pytest.mark.parametrize(
    ("ranks", "world_size", "text"),
    [
        ([0], 2, "Each actor should correspond to one rank"),
        ([0, 2], 2, "Ranks must be a permutation"),
        ([0, 1], 0, "World size must be greater than zero"),
    ],
)
def test_declared_ranks_must_fit(ray_session, members, collective, ranks, world_size, text):
    with pytest.raises(RuntimeError, match=text):
        collective.create_collective_group(members(2), world_size, ranks, "gloo", "unfit")


def test_arguments_are_checked(ray_session, group):
    (member,) = group(1)
    tensor = torch.zeros(1)
    refused = [
        ("allreduce", [1], (), RuntimeError, "Unrecognized tensor type"),
        ("broadcast", [tensor], (1,), ValueError, "must be less than world size '1'"),
        ("broadcast", [tensor], (-1,), ValueError, "rank '-1' is negative"),
        ("reduce", [tensor], (1,), ValueError, "must be less than world size '1'"),
        ("allgather", [tensor, tensor], (), RuntimeError, "The input must be a list of tensors"),
        ("allgather", [[], tensor], (), RuntimeError, "Got an empty list of tensors"),
        ("allgather", [[tensor, tensor], tensor], (), RuntimeError, "must be equal to world_size"),
        ("reducescatter", [tensor, [tensor, tensor]], (), RuntimeError, "equal to world_size"),
        ("reducescatter", [tensor, [torch.zeros(2)]], (), ValueError, "Output tensor has wrong shape"),
        ("send", [tensor], (0,), RuntimeError, "The destination rank '0' is self"),
        ("recv", [tensor], (0,), RuntimeError, "The destination rank '0' is self"),
        ("send", [tensor], (7,), ValueError, "must be less than world size '1'"),
    ]
    for what, tensors, arguments, kind, text in refused:
        with pytest.raises(kind, match=text):
            ray_session.get(member.call.remote(what, tensors, *arguments))


@pytest.mark.only("mray", "local")  # Ray reads where the memory was: the process ends
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_tensors_whose_memory_was_freed_are_refused(ray_session, dtype):
    name = ray_session.__name__

    def reduce_freed(group: str) -> list[str]:
        import importlib

        collective = importlib.import_module(f"{name}.util.collective")
        collective.init_collective_group(1, 0, "gloo", group)
        tensor = torch.ones(500, dtype=dtype)
        tensor.untyped_storage().resize_(0)
        found = []
        for call in (collective.allreduce, collective.broadcast, lambda tensor, **group: collective.allgather([tensor], tensor, **group)):
            try:
                call(tensor, group_name=group)
            except ValueError as error:
                found.append(str(error))
        return found

    found = ray_session.get(ray_session.remote(reduce_freed).remote(f"freed {dtype}"))
    assert len(found) == 3
    assert all("This tensor has no memory" in text for text in found)


def test_backends_have_names(collective):
    types = collective.types
    assert types.Backend("gloo") == types.Backend("torch_gloo") == types.Backend.GLOO == "GLOO"
    assert types.Backend("nccl") == types.Backend.NCCL == "NCCL"
    with pytest.raises(ValueError, match="Unrecognized backend: 'smoke'"):
        types.Backend("smoke")
    assert collective.is_backend_available("gloo")
    assert collective.gloo_available()
    assert not collective.is_backend_available("smoke")


def test_a_backend_can_be_brought_along(ray_session, members, collective):
    name = ray_session.__name__

    def work(_actor):
        import importlib

        collective = importlib.import_module(f"{name}.util.collective")
        base = importlib.import_module(f"{name}.util.collective.collective_group.base_collective_group")

        class Alone(base.BaseGroup):
            @classmethod
            def check_backend_availability(cls):
                return True

            def allreduce(self, tensor, allreduce_options):
                tensor[0][...] = self.world_size

            def barrier(self, barrier_options): ...
            def reduce(self, tensor, reduce_options): ...
            def allgather(self, tensor_list, tensor, allgather_options): ...
            def broadcast(self, tensor, broadcast_options): ...
            def reducescatter(self, tensor, tensor_list, reducescatter_options): ...
            def send(self, tensor, send_options): ...
            def recv(self, tensor, recv_options): ...

        collective.register_collective_backend("alone", Alone)
        collective.init_collective_group(5, 3, "ALONE", "own")
        import numpy

        array = numpy.zeros(2)
        collective.allreduce(array, "own")
        try:
            collective.register_collective_backend("Alone", Alone)
        except ValueError as error:
            return collective.get_rank("own"), array.tolist(), str(error)

    (member,) = members(1)
    rank, values, refusal = ray_session.get(member.__ray_call__.remote(work))
    assert rank == 3
    assert values == [5.0, 5.0]
    assert refusal == "Backend ALONE already registered"


# -------------------------------------------------------------------------------- what mray does otherwise
@pytest.mark.only("mray", "local")
def test_nccl_is_refused_where_there_is_none_with_what_to_use_instead(ray_session, members, collective):
    if collective.nccl_available():
        pytest.skip("there is NCCL here")
    (member,) = members(1)
    with pytest.raises(RuntimeError, match=r"Backend NCCL is not available\. .*backend='gloo'"):
        ray_session.get(member.ask.remote("init_collective_group", 1, 0, "nccl"))
    with pytest.raises(RuntimeError, match="Backend NCCL is registered but not available.*backend='gloo'"):
        collective.create_collective_group([member], 1, [0])


@pytest.mark.only("mray", "local")
@pytest.mark.parametrize("what", ["allreduce", "broadcast", "reduce", "allgather", "reducescatter", "send", "recv"])
def test_several_gpus_of_one_process_are_refused(collective, what):
    with pytest.raises(RuntimeError, match="Multigpu calls requires NCCL and Cupy"):
        getattr(collective, what + "_multigpu")([np.zeros(1)])


@pytest.mark.only("mray", "local")
def test_who_is_missing_is_named(ray_session, members):
    first, second = members(2)
    late = [first.join.remote(4, 0, gloo_timeout=300), second.join.remote(4, 2, gloo_timeout=300)]
    for ref in late:
        with pytest.raises(TimeoutError, match=r"waiting for the ranks \[.*\b1\b.*3\] of the group"):
            ray_session.get(ref)
    # Nothing of it is left in the way of the next attempt.
    ray_session.get([first.join.remote(2, 0), second.join.remote(2, 1)])


@pytest.mark.processes("in turns, the first to see it is gone before the other looks")
@pytest.mark.only("mray")
def test_members_that_disagree_on_the_world_are_told(ray_session, members):
    first, second = members(2)
    joining = [first.join.remote(2, 0, gloo_timeout=20_000), second.join.remote(3, 1, gloo_timeout=20_000)]
    for ref in joining:
        with pytest.raises(ValueError, match="joins the group 'collective default' with world size"):
            ray_session.get(ref)


@pytest.mark.only("mray", "local")
def test_members_that_call_different_collectives_are_told(ray_session, group):
    first, second = group(2)
    calls = [first.call.remote("allreduce", [torch.zeros(4)]), second.call.remote("allreduce", [torch.zeros(5)])]
    for ref in calls:
        with pytest.raises(ValueError, match=r"call different collectives: .* allreduce SUM of \d+ bytes of float32"):
            ray_session.get(ref)
    with pytest.raises(ray_session.exceptions.RayChannelError, match="is broken"):
        ray_session.get(first.call.remote("barrier", []))


@pytest.mark.only("mray", "local")
def test_what_is_received_must_be_what_was_sent(ray_session, group):
    first, second = group(2)
    ray_session.get(first.call.remote("send", [torch.zeros(4)], 1))
    with pytest.raises(ValueError, match="sent 16 bytes of float32, and rank 1 .* receives 12 of float32"):
        ray_session.get(second.call.remote("recv", [torch.zeros(3)], 0))


@pytest.mark.only("mray", "local")
def test_tensors_that_are_not_contiguous_are_reduced_in_place(ray_session, group):
    def work(actor, rank):
        import numpy
        import torch

        whole = torch.zeros(4, 6)
        part = whole.t()[1:3]
        part[...] = rank + 1
        actor.collective.allreduce(part)
        halves = torch.zeros(4, dtype=torch.bfloat16)
        halves[::2] = 1
        actor.collective.allreduce(halves[::2])
        array = numpy.zeros((3, 3))
        array[:, 1] = rank
        actor.collective.broadcast(array[:, 1], 1)
        weight = torch.ones(2, requires_grad=True)
        actor.collective.allreduce(weight)
        return whole, halves, array, weight.detach(), weight.requires_grad

    expected = torch.zeros(4, 6)
    expected[:, 1:3] = 3
    for whole, halves, array, weight, grad in ray_session.get(
        [member.__ray_call__.remote(work, rank) for rank, member in enumerate(group(2))]
    ):
        assert torch.equal(whole, expected)
        assert halves.tolist() == [2, 0, 2, 0]
        assert array.tolist() == [[0, 1, 0]] * 3
        assert weight.tolist() == [2, 2]
        assert grad


sizes = pytest.mark.parametrize("size", [10, 1 << 16])


@sizes
def test_an_array_that_came_as_an_argument_is_reduced_in_place(ray_session, group, size):
    def work(actor, rank, array, more):
        part = array[1:3]
        actor.collective.allreduce(array)
        actor.collective.broadcast(more[0], 0)
        actor.collective.allgather(more[1:], array)
        if rank:
            actor.collective.recv(part, 0)
        else:
            actor.collective.send(part * 2, 1)
        return array[:4].tolist(), [each.ravel()[-2:].tolist() for each in more]

    def given(rank):
        return np.full(size, 1.0 + rank), [np.full((size // 2, 2), 5.0 + rank, order="F"), np.zeros(size), np.zeros(size)]

    first, second = ray_session.get([member.__ray_call__.remote(work, rank, *given(rank)) for rank, member in enumerate(group(2))])
    assert first == ([3, 3, 3, 3], [[5, 5], [3, 3], [3, 3]])
    assert second == ([3, 6, 6, 3], [[5, 5], [3, 3], [3, 3]])


@sizes
@pytest.mark.differs("with Ray, the stored object itself is changed, for everybody")
def test_the_object_that_an_argument_came_from_stays_as_it_was(ray_session, ray, engine, group, size):
    name = ray.__name__

    def work(actor, array, refs):
        import importlib

        get = importlib.import_module(name).get
        actor.collective.broadcast(array, 0)
        array_of_one = array.ravel()
        return array_of_one[0], get(refs[0])[0], refs

    ref = ray_session.put(np.full(size, 7.0))
    other = ray_session.put(np.full(size, 1.0))
    pair = group(2)
    _first, (mine, stored, refs) = ray_session.get(
        [pair[0].__ray_call__.remote(work, ref, [ref]), pair[1].__ray_call__.remote(work, other, [other])]
    )
    left = 7 if engine == "ray" else 1
    assert mine == 7
    assert stored == left
    assert ray_session.get(refs[0])[0] == left
    assert ray_session.get(other)[0] == left

    @ray_session.remote
    def first_of(array):
        return array[0]

    assert ray_session.get(first_of.remote(other)) == left


@pytest.mark.only("mray", "local")
def test_an_array_that_cannot_be_written_to_is_refused(ray_session, group):
    def work(actor, array, what):
        import numpy

        if what == "own":
            array = numpy.zeros(4)
            array.setflags(write=False)
        elif what == "bytes":
            array = numpy.frombuffer(bytes(16))
        actor.collective.allreduce(array)

    (member,) = group(1)
    for what in ("own", "bytes"):
        with pytest.raises(ValueError, match="read-only"):
            ray_session.get(member.__ray_call__.remote(work, 1, what))


@sizes
def test_an_array_that_an_actor_got_or_kept_is_reduced_in_place(ray_session, ray, group, size):
    def keep(actor, array):
        actor.kept = array

    def work(actor, refs, name):
        import importlib

        get = importlib.import_module(name).get
        own = get(refs[0])
        actor.collective.allreduce(own[0])
        actor.collective.allreduce(own[1])
        actor.collective.allreduce(actor.kept)
        return own[0][1], own[1][1], actor.kept[1]

    ref = ray_session.put([np.full(size, 2.0), np.full(size, 3.0)])
    pair = group(2)
    ray_session.get([member.__ray_call__.remote(keep, np.ones(size)) for member in pair])
    refs = [[ref], [ray_session.put([np.full(size, 2.0), np.full(size, 3.0)])]]
    for result in ray_session.get([member.__ray_call__.remote(work, of, ray.__name__) for member, of in zip(pair, refs, strict=True)]):
        assert result == (4, 6, 2)


@sizes
@pytest.mark.only("mray", "local")
def test_what_a_process_gets_again_is_the_object_as_it_was(ray_session, ray, group, size):
    def work(actor, refs, name):
        import importlib

        import numpy

        engine = importlib.import_module(name)
        own = engine.put(numpy.ones(size))
        found = []
        for ref in (refs[0], own):
            array = engine.get(ref)
            actor.collective.recv(array, 0)
            found += [array[0], engine.get(ref)[0]]
        return found

    def send(actor):
        import numpy

        for _ in range(2):
            actor.collective.send(numpy.full(size, 5.0), 1)

    first, second = group(2)
    ref = ray_session.put(np.ones(size))
    working = second.__ray_call__.remote(work, [ref], ray.__name__)
    ray_session.get(first.__ray_call__.remote(send))
    assert ray_session.get(working) == [5, 1, 5, 1]
    assert ray_session.get(ref)[0] == 1


@sizes
@pytest.mark.only("mray", "local")
def test_memory_that_two_arrays_of_a_process_share_is_not_written_to(ray_session, group, size):
    def work(actor, array, again):
        try:
            actor.collective.allreduce(array)
        except ValueError as error:
            refused = str(error)
        else:
            refused = ""
        return refused, again[0]

    (member,) = group(1)
    ref = ray_session.put(np.ones(size))
    refused, again = ray_session.get(member.__ray_call__.remote(work, ref, ref))
    assert ("read-only; copy it first" in refused) == (size > 10), "a small one has memory of its own"
    assert again == 1


@pytest.mark.only("mray", "local")
def test_every_dtype_and_operation_gives_the_same_bits_everywhere(ray_session, group):
    trio = group(3)
    generator = torch.Generator().manual_seed(3)
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        shares = [torch.randn(50_001, generator=generator).to(dtype) for _ in range(3)]
        for op in ("SUM", "PRODUCT", "MIN", "MAX"):
            first, second, third = [tensor for (tensor,) in everybody(ray_session, trio, "allreduce", lambda rank: [shares[rank]], op=op)]  # noqa: B023
            assert torch.equal(first, second)
            assert torch.equal(first, third)
            if op == "SUM":
                assert torch.equal(first, shares[0] + shares[1] + shares[2])


@pytest.mark.only("mray", "local")
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_members_may_be_ahead_of_each_other(ray_session, group, ranks):
    def work(actor, rank, ranks):
        import random

        import numpy

        agreed, own = random.Random(5), random.Random(rank)
        wrong = []
        for number in range(400):
            what = agreed.choice(["broadcast", "reduce", "allreduce", "allgather", "barrier", "broadcast"])
            size, root = agreed.choice([1, 100, 70_000, 600_000]), agreed.randrange(ranks)
            for _pause in range(own.randrange(4) * 2000):
                pass
            array = numpy.full(size, rank + number, "f4")
            total = sum(each + number for each in range(ranks))
            if what == "barrier":
                actor.collective.barrier()
            elif what == "allgather":
                parts = [numpy.zeros(size, "f4") for _ in range(ranks)]
                actor.collective.allgather(parts, array)
                if any((part != each + number).any() for each, part in enumerate(parts)):
                    wrong.append(number)
            else:
                getattr(actor.collective, what)(array, *(() if what == "allreduce" else (root,)))
                expected = root + number if what == "broadcast" else total if what == "allreduce" or rank == root else rank + number
                if (array != expected).any():
                    wrong.append(number)
        return wrong

    # An actor that is done before the others must not end for want of handles.
    members = group(ranks)
    assert ray_session.get([member.__ray_call__.remote(work, rank, ranks) for rank, member in enumerate(members)]) == [[]] * ranks


@pytest.mark.only("mray", "local")
def test_tensors_of_any_dtype_are_sent(ray_session, group):
    first, second = group(2)
    for dtype in (torch.bool, torch.uint8, torch.bfloat16, torch.float16, torch.complex64):
        for length in (0, 3, 100_000):
            tensor = (torch.arange(length) % 3).to(dtype)
            sent = first.call.remote("send", [tensor], 1)
            (received,) = ray_session.get(second.call.remote("recv", [torch.zeros_like(tensor)], 0))
            assert received.dtype == dtype
            assert torch.equal(received, tensor)
            ray_session.get(sent)


@pytest.mark.only("mray", "local")
def test_several_messages_wait_for_their_receiver(ray_session, group):
    first, second = group(2)
    sizes = [1, 100_000, 3, 500_000]
    ray_session.get([first.call.remote("send", [torch.full((size,), float(size))], 1) for size in sizes])
    for size in sizes:
        (tensor,) = ray_session.get(second.call.remote("recv", [torch.zeros(size)], 0))
        assert torch.equal(tensor, torch.full((size,), float(size)))


@pytest.mark.only("mray", "local")
def test_a_sender_far_ahead_waits_for_its_receiver(ray_session, group):
    first, second = group(2)
    sent = [first.call.remote("send", [torch.tensor([number])], 1) for number in range(40)]
    for number in range(40):
        assert int(ray_session.get(second.call.remote("recv", [torch.tensor([0])], 0))[0]) == number
    ray_session.get(sent)


def _odd_layouts(rank: int) -> dict[str, Any]:
    """Tensors of one member, by what is odd about them; each a fresh one of its own memory."""
    import numpy
    import torch

    found: dict[str, Any] = {}
    names = "bool uint8 int16 int64 uint16 float16 bfloat16 float32 float64 complex64 float8_e4m3fn float8_e5m2"
    for dtype in (getattr(torch, name) for name in names.split()):
        bits = torch.arange(8 * 24, dtype=torch.uint8).add_(17 * rank).remainder_(2 if dtype is torch.bool else 60)
        whole = bits[: 24 * dtype.itemsize].view(dtype).view(4, 6).clone()
        views = {
            "a column": whole[:, 1],
            "one of a column": whole[1:2, 2],
            "one row of one column": whole[:1, 3:4],
            "none of a column": whole[:0, 1],
            "no columns": whole[:, 6:],
            "turned": whole.t()[1:3],
            "in steps": whole.view(-1)[::5],
            "a number": whole[1, 1],
            "one in steps": whole.view(-1)[23::2],
        }
        found.update({f"{dtype}, {name}": view for name, view in views.items()})
    for kind in ("i4", ">i4", ">f2", "f2", "f8", "m8[s]", "S3", [("a", "f4"), ("b", "u1")]):
        dtype = numpy.dtype(kind)
        memory = (numpy.arange(24 * dtype.itemsize + 1) % 60 + rank).astype("u1")
        array = memory[:-1].view(dtype).reshape(4, 6).copy()
        views = {
            "backwards": array[::-1, 2],
            "one backwards": array[1:2, ::-1][:, :1],
            "unaligned": memory[1:].view(dtype)[::2],
            "none": array[:, :0],
            "a number": array[0, 0, None].reshape(()),
            "Fortran's": numpy.asfortranarray(array),
            "a matrix": array.view(numpy.matrix) if dtype.kind in "if" else array,
        }
        found.update({f"numpy {dtype}, {name}": view for name, view in views.items()})
    return found


@pytest.mark.only("mray", "local")
def test_tensors_of_every_dtype_and_layout_are_moved(ray_session, group):
    def work(actor, rank, ranks, odd_layouts):
        import numpy
        import torch

        def elements(tensor):
            if isinstance(tensor, numpy.ndarray):
                return numpy.array(tensor).tobytes()
            return torch.empty(tensor.numel(), dtype=tensor.dtype).copy_(tensor.reshape(-1)).view(torch.uint8).tolist()

        wrong = []
        theirs = [odd_layouts(each) for each in range(ranks)]
        for name in theirs[0]:
            expected = [elements(each[name]) for each in theirs]
            (broadcast, gathered, received), source = (odd_layouts(7)[name] for _ in range(3)), theirs[rank][name]
            root = source if rank == 1 else broadcast
            actor.collective.broadcast(root, 1)
            outs = [gathered, *(odd_layouts(8)[name] for _ in range(ranks - 1))]
            actor.collective.allgather(outs, source)
            if rank == 0:
                actor.collective.send(source, 1)
            elif rank == 1:
                actor.collective.recv(received, 0)
            if elements(root) != expected[1]:
                wrong.append(f"broadcast of {name}")
            if [elements(out) for out in outs] != expected:
                wrong.append(f"allgather of {name}")
            if rank == 1 and elements(received) != expected[0]:
                wrong.append(f"receipt of {name}")
        return wrong

    members = group(3)
    answers = ray_session.get([member.__ray_call__.remote(work, rank, 3, _odd_layouts) for rank, member in enumerate(members)])
    assert answers == [[]] * 3


@pytest.mark.only("mray", "local")
def test_elements_that_are_one_in_memory_are_sent_and_not_received_into(ray_session, group):
    def work(actor, rank):
        import numpy
        import torch

        outs = [torch.zeros(4, dtype=torch.bfloat16) for _ in range(2)]
        actor.collective.allgather(outs, torch.tensor([1.0 + rank], dtype=torch.bfloat16).expand(4))
        spread = torch.tensor([5.0]).expand(3) if rank == 0 else torch.zeros(3)
        actor.collective.broadcast(spread, 0)
        refused = []
        folded = numpy.lib.stride_tricks.as_strided(numpy.zeros(1), (3,), (0,))
        for tensor in (torch.zeros(1, 1).expand(2, 3), folded, torch.zeros(3).to_sparse(), numpy.array([object()])):
            try:
                actor.collective.allreduce(tensor)
            except ValueError as error:
                refused.append(str(error))
        actor.collective.barrier()
        return [out.tolist() for out in outs], spread.tolist(), refused

    for outs, spread, refused in ray_session.get([member.__ray_call__.remote(work, rank) for rank, member in enumerate(group(2))]):
        assert outs == [[1.0] * 4, [2.0] * 4]
        assert spread == [5.0] * 3
        assert len(refused) == 4
        assert all("are the same memory" in text for text in refused[:2])
        assert "this one is sparse_coo" in refused[2]
        assert "object" in refused[3]
