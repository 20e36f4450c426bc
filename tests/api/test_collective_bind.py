"""Binding collectives into graphs: what comes of it, and what is refused before anything runs."""

from __future__ import annotations

import importlib
import re
import warnings

import pytest


@pytest.fixture
def engine(ray):
    """The engine with the expected behaviour: binding is mray's own with every engine."""
    return ray.__name__


@pytest.fixture
def collective(ray):
    """The operations by name, and the types around them."""
    pytest.importorskip("torch")

    class Names:
        pass

    found = Names()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what Ray imports misses libraries of GPUs
        operations = importlib.import_module(f"{ray.__name__}.experimental.collective")
    for name in ("allreduce", "allgather", "reducescatter"):
        setattr(found, name, getattr(operations, name))
    types = importlib.import_module(f"{ray.__name__}.experimental.util.types")
    found.ReduceOp = types.ReduceOp
    found.Communicator = importlib.import_module(f"{ray.__name__}.experimental.channel.communicator").Communicator
    found.Node = ray.dag.CollectiveOutputNode
    return found


@pytest.fixture
def workers(ray_session):
    """Three actors with two methods."""

    @ray_session.remote(num_cpus=0)
    class Worker:
        def one(self, value):
            return value

        def two(self, value):
            return value

        def pair(self, value):
            return value, value

    return [Worker.remote() for _ in range(3)]


@pytest.fixture
def inputs(ray_session, workers):
    """A graph's input and a list of nodes, one of each of two actors."""
    with ray_session.dag.InputNode() as inp:
        pass
    return inp, [worker.one.bind(inp) for worker in workers[:2]]


def group_of(collective, handles):
    """A communicator of these actors that can do nothing."""
    names = collective.Communicator.__abstractmethods__
    body = {name: (lambda self, *args: None) for name in names}
    body["get_actor_handles"] = lambda self: handles
    body["get_transport_name"] = lambda self: "accelerator"
    return type("Group", (collective.Communicator,), body)()


def expect_refusal(text):
    return pytest.raises(ValueError, match=re.escape(text))


@pytest.mark.parametrize("name", ["allreduce", "allgather", "reducescatter"])
def test_each_actor_gets_a_node(ray_session, collective, workers, inputs, name):
    _inp, nodes = inputs
    outputs = getattr(collective, name).bind(nodes)
    assert [type(node) for node in outputs] == [collective.Node] * 2
    assert [node._get_actor_handle() for node in outputs] == workers[:2]
    for node, source in zip(outputs, nodes, strict=True):
        assert list(node.get_args()) == [source]
        assert node.get_kwargs() == {}
        assert isinstance(node, ray_session.dag.ClassMethodNode)
        assert node.is_class_method_call
        assert not node.is_class_method_output


def test_nodes_are_named_after_what_they_do(collective, inputs):
    _inp, nodes = inputs
    assert collective.allreduce.bind(nodes, collective.ReduceOp.MAX)[0].get_method_name() == "allreduce.ReduceOp.MAX"
    assert collective.reducescatter.bind(nodes)[0].get_method_name() == "reducescatter.ReduceOp.SUM"
    assert collective.allgather.bind(nodes)[0].get_method_name() == "allgather"


def test_the_members_share_one_operation(collective, workers, inputs):
    _inp, nodes = inputs
    one, two = (node.collective_op for node in collective.allreduce.bind(nodes))
    assert one is two
    assert one.actor_handles == workers[:2]
    assert one.type_hint.transport == "accelerator"
    assert one.type_hint.direct_return
    assert collective.allreduce.bind(nodes)[0].collective_op is not one


def test_a_node_is_bound_after_what_was_bound_before(collective, workers, inputs):
    _inp, nodes = inputs
    (first, _) = collective.allreduce.bind(nodes)
    (second, _) = collective.allreduce.bind(nodes)
    later = workers[0].one.bind(second)
    assert nodes[0]._get_bind_index() < first._get_bind_index() < second._get_bind_index() < later._get_bind_index()


def test_several_tensors_of_each_actor(collective, workers, inputs):
    inp, nodes = inputs
    outputs = collective.allreduce.bind([nodes, [worker.two.bind(inp) for worker in workers[:2]]])
    assert [len(per_actor) for per_actor in outputs] == [2, 2]
    for worker, per_actor in zip(workers, outputs, strict=False):
        assert [node._get_actor_handle() for node in per_actor] == [worker, worker]
        assert [node.output_idx for node in per_actor] == [0, 1]
        assert all(node.is_class_method_output for node in per_actor)
        call = per_actor[0].class_method_call
        assert call is per_actor[1].class_method_call
        assert [node.get_method_name() for node in call.get_args()] == ["one", "two"]


@pytest.mark.differs("Ray has lists of tensors for allreduce only")
@pytest.mark.parametrize("name", ["allgather", "reducescatter"])
def test_several_tensors_of_each_actor_for_the_other_operations(engine, collective, workers, inputs, name):
    inp, nodes = inputs
    lists = [nodes, [worker.two.bind(inp) for worker in workers[:2]]]
    if engine == "ray":
        with expect_refusal("Currently binding a nested list of dag nodes is only supported for allreduce"):
            getattr(collective, name).bind(lists)
        return
    outputs = getattr(collective, name).bind(lists)
    assert [[node.output_idx for node in per_actor] for per_actor in outputs] == [[0, 1], [0, 1]]


def test_one_list_in_a_list_is_that_list(collective, inputs):
    _inp, nodes = inputs
    assert [type(node) for node in collective.allreduce.bind([nodes])] == [collective.Node] * 2


def test_one_of_several_return_values_can_take_part(ray_session, collective, workers, inputs):
    inp, nodes = inputs
    left, right = workers[1].pair.options(num_returns=2).bind(inp)
    outputs = collective.allreduce.bind([nodes[0], right])
    assert list(outputs[1].get_args()) == [right]
    assert left is not right


def test_the_actors_may_have_a_communicator_of_their_own(collective, workers, inputs):
    _inp, nodes = inputs
    group = group_of(collective, [workers[1], workers[0]])
    operation = collective.allreduce.bind(nodes, transport=group)[0].collective_op
    assert operation.type_hint.get_custom_communicator() is group


@pytest.mark.parametrize("strangers", [1, 3])
def test_a_communicator_of_other_actors(collective, workers, inputs, strangers):
    _inp, nodes = inputs
    with expect_refusal("Expected actor handles to match the custom communicator group"):
        collective.allreduce.bind(nodes, transport=group_of(collective, workers[:strangers]))


def test_a_transport_that_does_not_exist(collective, inputs):
    _inp, nodes = inputs
    with expect_refusal("`transport` must be TorchTensorType.AUTO, TorchTensorType.ACCELERATOR or TorchTensorType.CPU"):
        collective.allreduce.bind(nodes, transport="gloo")


@pytest.mark.parametrize("name", ["allreduce", "reducescatter"])
@pytest.mark.parametrize("op", ["sum", None, 0])
def test_an_operation_that_is_none(collective, inputs, name, op):
    _inp, nodes = inputs
    with expect_refusal(f"Unexpected operation: {op}"):
        getattr(collective, name).bind(nodes, op)


@pytest.mark.differs("Ray raises IndexError for an empty list that is not in a list")
def test_an_empty_list(engine, collective):
    with pytest.raises(IndexError if engine == "ray" else ValueError):
        collective.allreduce.bind([])
    with expect_refusal("Expected non-empty input list."):
        collective.allreduce.bind([[]])


def test_an_empty_list_among_others(collective, inputs):
    _inp, nodes = inputs
    with expect_refusal("Expected non-empty input list at index 1."):
        collective.allreduce.bind([nodes, []])


def test_what_is_no_node(collective, inputs):
    _inp, nodes = inputs
    with expect_refusal("Expected all input nodes to be DAGNode, but got "):
        collective.allreduce.bind([nodes[0], 7])
    with expect_refusal("Expected all input nodes to be DAGNode at list at index 1, but got "):
        collective.allreduce.bind([nodes, [nodes[0], 7]])


def test_the_same_node_twice(collective, inputs):
    _inp, nodes = inputs
    with expect_refusal("Expected unique input nodes, but found duplicates: "):
        collective.allreduce.bind([nodes[0], nodes[0]])
    with expect_refusal("Expected unique input nodes at list at index 1, but found duplicates: "):
        collective.allreduce.bind([nodes, [nodes[0], nodes[0]]])


def test_the_same_actor_twice(collective, workers, inputs):
    inp, nodes = inputs
    again = workers[0].two.bind(inp)
    with expect_refusal("Expected unique actor handles, but found duplicate actor handles from input nodes: "):
        collective.allreduce.bind([nodes[0], again])
    with expect_refusal("Expected unique actor handles at list at index 1, but found duplicate actor handles from input nodes: "):
        collective.allreduce.bind([nodes, [nodes[0], again]])


def test_lists_of_different_lengths(collective, workers, inputs):
    inp, nodes = inputs
    with expect_refusal(
        "Expected all input lists to have the same number of nodes. List at index 0 has length 2, but list at index 1 has length 1."
    ):
        collective.allreduce.bind([nodes, [workers[0].two.bind(inp)]])


def test_lists_of_different_actors(collective, workers, inputs):
    inp, nodes = inputs
    with expect_refusal("Expected all input lists to have the same set of actor handles. List at index 0 has actors "):
        collective.allreduce.bind([nodes, [workers[0].two.bind(inp), workers[2].two.bind(inp)]])


def test_lists_of_actors_in_different_orders(collective, workers, inputs):
    inp, nodes = inputs
    with expect_refusal("Expected all input lists to have the same order of actor handles. List at index 0 has actor "):
        collective.allreduce.bind([nodes, [workers[1].two.bind(inp), workers[0].two.bind(inp)]])


def test_a_node_of_an_actor_that_does_not_exist_yet(ray_session, collective, inputs):
    inp, nodes = inputs

    @ray_session.remote(num_cpus=0)
    class Later:
        def one(self, value):
            return value

    with expect_refusal("Expected an actor handle from the input node"):
        collective.allreduce.bind([nodes[0], Later.bind().one.bind(inp)])
    with expect_refusal("Expected an actor handle from the input node at list at index 1"):
        collective.allreduce.bind([nodes, [nodes[0], Later.bind().one.bind(inp)]])


@pytest.mark.differs("Ray fails at the first thing that the input lacks, with whatever exception that is")
def test_the_driver_takes_no_part(engine, collective, inputs):
    inp, nodes = inputs
    if engine == "ray":
        with pytest.raises(Exception):  # noqa: B017
            collective.allreduce.bind([nodes[0], inp])
        return
    with expect_refusal("Expected an actor handle from the input node"):
        collective.allreduce.bind([nodes[0], inp])


def test_what_was_refused_leaves_no_trace(collective, workers, inputs):
    inp, nodes = inputs
    with expect_refusal("Expected unique input nodes"):
        collective.allreduce.bind([nodes[0], nodes[0]])
    after = workers[0].one.bind(inp)
    assert after._get_bind_index() == nodes[0]._get_bind_index() + 1
    assert not nodes[0]._downstream_nodes


def test_a_collective_is_no_ordinary_call(ray_session, collective, inputs):
    _inp, nodes = inputs
    output, _ = collective.allreduce.bind(nodes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray deprecates it
        with pytest.raises(NotImplementedError, match="CollectiveOutputNode is only supported with dag.experimental_compile"):
            output.execute(1)


def test_a_collective_node_needs_an_operation(ray_session, inputs):
    with expect_refusal("Expected a collective operation"):
        ray_session.dag.CollectiveOutputNode("allreduce", (), {}, {}, {})
