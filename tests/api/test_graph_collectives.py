"""Collectives and tensor transports in compiled graphs, on the CPU."""

from __future__ import annotations

import importlib

import pytest

torch = pytest.importorskip("torch")

PRELOAD = ["torch"]


@pytest.fixture
def collective(ray_session, engine):
    return importlib.import_module(f"{engine}.experimental.collective")


@pytest.fixture
def operations(engine):
    return importlib.import_module(f"{engine}.experimental.util.types").ReduceOp


@pytest.fixture
def members(ray_session):
    """`members(n)` makes n actors of ranks 0 to n - 1."""

    class Member:
        def __init__(self, rank):
            self.rank = rank

        def values(self, shape):
            return (torch.arange(torch.Size(shape).numel(), dtype=torch.float32) + self.rank).reshape(shape)

        def pair(self, shape):
            return self.values(shape), torch.full((2, 3), float(self.rank + 1))

        def of_dtype(self, name):
            return (torch.arange(4) + self.rank).to(getattr(torch, name))

        def mixed_dtype(self, _):
            return torch.ones(2, dtype=torch.float32 if self.rank else torch.float64)

        def mixed_shape(self, _):
            return torch.ones(2 + self.rank)

        def look_if(self, bad):
            return "no tensor" if self.rank == bad else torch.ones(2)

        def fail_on(self, bad):
            if self.rank == bad:
                raise KeyError(f"rank {self.rank}")
            return torch.ones(2)

        def plain(self, tensor):
            return tensor.tolist()

        def double(self, tensor):
            return 2 * tensor

        def look(self, value):
            return value

        def device(self, tensor):
            return str(tensor.device), tensor.sum().item()

    # They have no state, and importing torch takes seconds: tests share them.
    shared = _members.setdefault(ray_session.get_runtime_context().get_node_id(), [])

    def make(count):
        while len(shared) < count:
            shared.append(ray_session.remote(Member).remote(len(shared)))
        return shared[:count]

    return make


#: By session.
_members: dict[str, list] = {}


@pytest.fixture(scope="module", autouse=True)
def _forget_members():
    yield
    _members.clear()


def gathered(ray, actors, nodes):
    return ray.dag.MultiOutputNode([actor.plain.bind(node) for actor, node in zip(actors, nodes, strict=True)])


def of_rank(rank, shape=(4,)):
    return (torch.arange(torch.Size(shape).numel(), dtype=torch.float32) + rank).reshape(shape)


# ---------------------------------------------------------------------------------- without a communicator
REDUCTIONS = {
    "SUM": lambda stack: stack.sum(0),
    "PRODUCT": lambda stack: stack.prod(0),
    "MAX": lambda stack: stack.amax(0),
    "MIN": lambda stack: stack.amin(0),
    "AVG": lambda stack: stack.mean(0),
}


@pytest.mark.only("mray", "local")
@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_allreduce(ray_session, collective, operations, members, compiled, name, count):
    actors = members(count)
    with ray_session.dag.InputNode() as inp:
        parts = [actor.values.bind(inp) for actor in actors]
        graph = compiled(gathered(ray_session, actors, collective.allreduce.bind(parts, operations[name])))
    for shape in [(4,), (2, 3), (), (300, 100)]:
        wanted = REDUCTIONS[name](torch.stack([of_rank(rank, shape) for rank in range(count)]))
        results = [torch.tensor(result) for result in ray_session.get(graph.execute(shape))]
        for result in results:
            torch.testing.assert_close(result, wanted)


@pytest.mark.only("mray", "local")
def test_allgather_and_reducescatter(ray_session, collective, members, compiled):
    actors = members(2)
    with ray_session.dag.InputNode() as inp:
        parts = [actor.values.bind(inp) for actor in actors]
        outputs = [*collective.allgather.bind(parts), *collective.reducescatter.bind(parts)]
        graph = compiled(gathered(ray_session, actors * 2, outputs))
    everything = torch.cat([of_rank(0, (4, 2)), of_rank(1, (4, 2))]).tolist()
    total = of_rank(0, (4, 2)) + of_rank(1, (4, 2))
    assert ray_session.get(graph.execute((4, 2))) == [everything, everything, total[:2].tolist(), total[2:].tolist()]


@pytest.mark.only("mray", "local")
@pytest.mark.parametrize("name", ["allreduce", "allgather", "reducescatter"])
def test_lists_of_tensors(ray_session, collective, members, compiled, name):
    actors = members(2)
    with ray_session.dag.InputNode() as inp:
        pairs = [actor.pair.options(num_returns=2).bind(inp) for actor in actors]
        results = getattr(collective, name).bind([list(column) for column in zip(*pairs, strict=True)])
        outputs = [actor.plain.bind(node) for actor, nodes in zip(actors, results, strict=True) for node in nodes]
        graph = compiled(ray_session.dag.MultiOutputNode(outputs))
    got = ray_session.get(graph.execute((2, 2)))
    ones, twos = torch.full((2, 3), 1.0), torch.full((2, 3), 2.0)
    total, second = of_rank(0, (2, 2)) + of_rank(1, (2, 2)), ones + twos
    wanted = {
        "allreduce": [total, second] * 2,
        "allgather": [torch.cat([of_rank(0, (2, 2)), of_rank(1, (2, 2))]), torch.cat([ones, twos])] * 2,
        "reducescatter": [total[:1], second[:1], total[1:], second[1:]],
    }
    assert got == [tensor.tolist() for tensor in wanted[name]]


@pytest.mark.only("mray", "local")
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int32", "int64", "complex64"])
def test_dtypes(ray_session, collective, members, compiled, dtype):
    actors = members(2)
    with ray_session.dag.InputNode() as inp:
        results = collective.allreduce.bind([actor.of_dtype.bind(inp) for actor in actors])
        graph = compiled(ray_session.dag.MultiOutputNode([actor.look.bind(node) for actor, node in zip(actors, results, strict=True)]))
    for result in ray_session.get(graph.execute(dtype)):
        assert result.dtype == getattr(torch, dtype)
        assert torch.equal(result, torch.tensor([1, 3, 5, 7]).to(result.dtype))


@pytest.mark.only("mray", "local")
@pytest.mark.parametrize(("method", "text"), [("mixed_dtype", "same dtype"), ("mixed_shape", "same shape")])
def test_tensors_that_do_not_fit_are_an_error_and_the_graph_lives_on(ray_session, collective, members, compiled, method, text):
    actors = members(2)
    with ray_session.dag.InputNode() as inp:
        results = collective.allreduce.bind([getattr(actor, method).bind(inp) for actor in actors])
        graph = compiled(gathered(ray_session, actors, results))
    for _ in range(2):
        with pytest.raises(ValueError, match=text):
            ray_session.get(graph.execute(0))


@pytest.mark.only("mray", "local")
def test_the_error_of_one_member_reaches_everybody_and_the_graph_lives_on(ray_session, collective, members, compiled):
    actors = members(3)
    with ray_session.dag.InputNode() as inp:
        results = collective.allreduce.bind([actor.fail_on.bind(inp) for actor in actors])
        graph = compiled(gathered(ray_session, actors, results))
    with pytest.raises(KeyError, match="rank 1"):
        ray_session.get(graph.execute(1))
    assert ray_session.get(graph.execute(-1)) == [[3.0, 3.0]] * 3


@pytest.mark.only("mray", "local")
def test_a_collective_whose_result_one_member_ignores(ray_session, collective, members, compiled):
    actors = members(2)
    with ray_session.dag.InputNode() as inp:
        first, _second = collective.allreduce.bind([actor.values.bind(inp) for actor in actors])
        graph = compiled(actors[0].plain.bind(first))
    assert ray_session.get(graph.execute((2,))) == [1.0, 3.0]


# ------------------------------------------------------------------------------------- with a communicator
@pytest.fixture
def communicator(ray_session, engine):
    """Makes a communicator of actors."""
    module = importlib.import_module(f"{engine}.experimental.channel.cpu_communicator")
    return lambda actors: module.CPUCommunicator(len(actors), actors)


@pytest.mark.only("mray", "local")
@pytest.mark.parametrize("count", [2, 3])
def test_collectives_through_a_communicator(ray_session, collective, members, compiled, communicator, count):
    actors = members(count)
    group = communicator(actors)
    with ray_session.dag.InputNode() as inp:
        parts = [actor.values.bind(inp) for actor in actors]
        summed = collective.allreduce.bind(parts, transport=group)
        outputs = [*summed, *collective.allgather.bind(summed, transport=group), *collective.reducescatter.bind(parts, transport=group)]
        graph = compiled(gathered(ray_session, actors * 3, outputs))
    total = sum(of_rank(rank, (6,)) for rank in range(count))
    for _ in range(3):
        got = ray_session.get(graph.execute((6,)))
        assert got[:count] == [total.tolist()] * count
        assert got[count : 2 * count] == [torch.cat([total] * count).tolist()] * count
        assert [number for part in got[2 * count :] for number in part] == total.tolist()


@pytest.mark.only("mray", "local")
@pytest.mark.parametrize(
    ("method", "operation", "argument", "text"),
    [
        ("mixed_shape", "reducescatter", None, "divisible by the world size 2"),
        ("mixed_shape", "allreduce", None, "call different collectives"),
        ("look_if", "allreduce", 1, "Expected a torch tensor"),
        ("look_if", "allgather", 1, "Expected a torch tensor"),
        ("look_if", "reducescatter", 0, "Expected a torch tensor"),
        ("fail_on", "allreduce", 1, "rank 1"),
    ],
)
def test_a_collective_that_one_member_is_refused_through_a_communicator_is_an_error_for_all(
    ray_session, collective, members, compiled, communicator, method, operation, argument, text
):
    actors = members(2)
    with ray_session.dag.InputNode() as inp:
        results = getattr(collective, operation).bind(
            [getattr(actor, method).bind(inp) for actor in actors], transport=communicator(actors)
        )
        graph = compiled(gathered(ray_session, actors, results))
    with pytest.raises((ValueError, KeyError), match=text):
        ray_session.get(graph.execute(argument))
    graph.teardown()
    assert ray_session.get([actor.look.remote(1) for actor in actors]) == [1, 1]


@pytest.mark.only("mray", "local")
def test_the_default_communicator_carries_collectives(ray_session, collective, members, compiled, communicator):
    actors = members(2)
    with ray_session.dag.InputNode() as inp:
        results = collective.allreduce.bind([actor.values.bind(inp) for actor in actors])
        graph = compiled(gathered(ray_session, actors, results), _default_communicator=communicator(actors))
    assert ray_session.get(graph.execute((2,))) == [[1.0, 3.0]] * 2


@pytest.mark.only("mray", "local")
def test_tensors_travel_through_a_communicator(ray_session, members, compiled, communicator):
    actors = members(3)
    group = communicator(actors)
    with ray_session.dag.InputNode() as inp:
        made = actors[0].values.bind(inp).with_tensor_transport(transport=group)
        doubled = [actor.double.bind(made).with_tensor_transport(transport=group) for actor in actors[1:]]
        graph = compiled(gathered(ray_session, [actors[0]] * 2, doubled))
    for shape in [(3,), (2, 2), (3,)]:
        assert ray_session.get(graph.execute(shape)) == [(2 * of_rank(0, shape)).tolist()] * 2


@pytest.mark.only("mray", "local")
def test_crossing_edges_over_a_communicator_do_not_deadlock(ray_session, members, compiled, communicator):
    a, b = members(2)
    group = communicator([a, b])
    with ray_session.dag.InputNode() as inp:
        from_a = a.values.bind(inp).with_tensor_transport(transport=group)
        from_b = b.values.bind(inp).with_tensor_transport(transport=group)
        graph = compiled(ray_session.dag.MultiOutputNode([b.plain.bind(from_a), a.plain.bind(from_b)]))
    for _ in range(20):
        assert ray_session.get(graph.execute((2,))) == [[0.0, 1.0], [1.0, 2.0]]


@pytest.mark.only("mray", "local")
def test_a_failed_operation_of_a_communicator_ends_the_graph(ray_session, members, compiled, communicator):
    actors = members(2)
    with ray_session.dag.InputNode() as inp:
        made = actors[0].look.bind(inp).with_tensor_transport(transport=communicator(actors), _direct_return=True)
        graph = compiled(actors[1].look.bind(made))
    with pytest.raises(ValueError, match="_direct_return=True must return a torch.Tensor, instead found value `'no tensor'`"):
        ray_session.get(graph.execute("no tensor"))
    with pytest.raises(ray_session.exceptions.RayChannelError):
        graph.execute(1)
    assert ray_session.get(actors[0].look.remote(1)) == 1
    assert ray_session.get(actors[1].look.remote(2)) == 2


@pytest.mark.only("mray", "local")
def test_a_registered_accelerator_carries_what_asks_for_one(ray_session, engine, collective, members, compiled, monkeypatch):
    channel = importlib.import_module(f"{engine}.experimental.channel.cpu_communicator")
    context = importlib.import_module(f"{engine}.experimental.channel.accelerator_context")
    accelerators = importlib.import_module(f"{engine}._api.accelerator_transport")

    class Own(channel.CPUCommunicator):
        """Made in each actor, as an accelerator's communicator is."""

        def __init__(self, world_size, communicator_id, rank, actor_handles, stream, use_communication_streams):
            super().__init__(world_size, actor_handles)
            assert stream is None
            assert self.get_rank(actor_handles[rank]) == rank
            self._id = communicator_id

    monkeypatch.setattr(accelerators, "_registered", None)
    context.register_accelerator_context("cpu", Own)
    actors = members(2)
    with ray_session.dag.InputNode() as inp:
        made = [actor.values.bind(inp) for actor in actors]
        results = collective.allreduce.bind(made)
        sent = actors[0].double.bind(results[0]).with_tensor_transport(transport="accelerator")
        graph = compiled(ray_session.dag.MultiOutputNode([actors[1].plain.bind(sent), actors[1].plain.bind(results[1])]))
    assert ray_session.get(graph.execute((2,))) == [[2.0, 6.0], [1.0, 3.0]]


# --------------------------------------------------------------------------------------------- refusals
@pytest.mark.only("mray", "local")
def test_transports_that_cannot_work_are_refused(ray_session, collective, members, communicator):
    a, b, c = members(3)
    group = communicator([a, b])

    def refused(dag, text):
        with pytest.raises(ValueError, match=text):
            dag.experimental_compile()

    with ray_session.dag.InputNode() as inp:
        refused(b.plain.bind(a.values.bind(inp).with_tensor_transport("nccl")), "does not have an accelerator assigned by Ray")
    with ray_session.dag.InputNode() as inp:
        refused(c.plain.bind(a.values.bind(inp).with_tensor_transport(transport=group)), "must include all of the actors")
    with ray_session.dag.InputNode() as inp:
        refused(a.values.bind(inp).with_tensor_transport(transport=group), "Driver cannot participate in the communicator group")
    with ray_session.dag.InputNode() as inp:
        inp.with_tensor_transport(transport=group)
        refused(a.plain.bind(inp), "DAG inputs cannot be transferred via accelerator")
    with ray_session.dag.InputNode() as inp:
        first, _second = collective.allreduce.bind([a.values.bind(inp), b.values.bind(inp)], transport="nccl")
        refused(a.plain.bind(first), "tensors on the CPU are reduced in shared memory")


@pytest.mark.parametrize("device", ["default", "cpu"])
def test_tensors_arrive_on_the_cpu(ray_session, members, compiled, device):
    a, b = members(2)
    with ray_session.dag.InputNode() as inp:
        inp.with_tensor_transport(device=device)
        graph = compiled(b.device.bind(a.look.bind(inp).with_tensor_transport(device=device)))
    assert ray_session.get(graph.execute(torch.ones(3))) == ("cpu", 3.0)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_device_that_is_absent_is_an_error(ray_session, members, compiled):
    a, b = members(2)
    with ray_session.dag.InputNode() as inp:
        graph = compiled(b.device.bind(a.look.bind(inp).with_tensor_transport(device="cuda")))
    with pytest.raises((RuntimeError, AttributeError)):
        ray_session.get(graph.execute(torch.ones(3)))
