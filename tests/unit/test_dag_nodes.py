"""Graphs as they are written: which nodes belong to one. No session."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import mray
from mray._api.actor import make_handle
from mray._api.blueprint import ActorBlueprint
from mray._api.collective_node import nodes_of_graph
from mray._api.dag_node import DAGInputData, MultiOutputNode
from mray._common.ids import new_actor_id
from mray._graph.caller.receive import receive_into
from mray._graph.compiler.compile import compile_graph
from mray._graph.compiler.validate import validate
from mray.experimental.collective import allreduce


class Worker:
    def value(self, *_upstream: Any) -> None: ...


def workers(count: int) -> list[Any]:
    return [make_handle(ActorBlueprint.of(Worker), new_actor_id(), None) for _ in range(count)]


def test_a_graph_has_the_steps_that_only_a_collective_leads_to_be_it_several_of_them() -> None:
    a, b, c, d = workers(4)
    first = allreduce.bind([a.value.bind(), b.value.bind()])
    second = allreduce.bind([b.value.bind(first[1]), c.value.bind()])
    third = allreduce.bind([c.value.bind(second[1]), d.value.bind()])
    nodes = nodes_of_graph(first[0])
    assert {*first, *second, *third} <= set(nodes)
    assert len(nodes) == 12


def test_each_node_of_a_graph_comes_after_those_that_it_uses() -> None:
    a, b = workers(2)
    first = a.value.bind()
    last = b.value.bind(a.value.bind(first), first)
    nodes = nodes_of_graph(first)
    assert nodes == nodes_of_graph(last)
    assert [node.get_method_name() for node in nodes] == ["value"] * 3
    assert nodes[0] is first
    assert nodes[-1] is last


def test_a_part_of_a_graph_that_is_compiled_already_is_named() -> None:
    (a,) = workers(1)
    first = a.value.bind()
    last = a.value.bind(first)
    compiled = SimpleNamespace(is_teardown=False)
    first._compiled = lambda: compiled
    with pytest.raises(ValueError, match="compiled more than once"):
        nodes_of_graph(last)
    assert nodes_of_graph(first) == [first, last]


def test_an_output_that_is_no_node_is_refused() -> None:
    (a,) = workers(1)
    with pytest.raises(ValueError, match=r"MultiOutputNode takes DAG nodes only, got <class 'int'>"):
        validate(MultiOutputNode([a.value.bind(), 3]))


def test_a_node_that_no_compiled_graph_has_is_refused_by_its_type() -> None:
    actor = mray.remote(Worker).bind()  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="Found unsupported node of type .*ClassNode"):
        validate(actor)


def test_a_default_communicator_by_another_name_is_refused() -> None:
    (a,) = workers(1)
    with pytest.raises(ValueError, match="The only allowed string for default_communicator is 'create', got nccl"):
        compile_graph(None, a.value.bind(), default_communicator="nccl")  # type: ignore[arg-type]


def test_several_inputs_are_indexed_by_position_or_name() -> None:
    given = DAGInputData(1, b=2)
    assert (given[0], given["b"]) == (1, 2)
    with pytest.raises(ValueError, match="only use int index or str as first-level key"):
        given[1.5]  # type: ignore[index]


@pytest.mark.parametrize(
    ("value", "out", "text"),
    [
        (np.zeros(2), np.zeros(3), r"the result has shape \(2,\), and `out` has \(3,\)"),
        (np.zeros(2), np.zeros(2, "f4"), "the result is of dtype float64, and `out` of float32"),
        (np.zeros(2), np.frombuffer(bytes(16)), "`out` is read-only"),
        ([0, 0], np.zeros(2), "the result is of <class 'list'>, and `out` is a numpy array"),
        (np.zeros(2), [0, 0], "`out` must be a numpy array or a torch tensor, not <class 'list'>"),
    ],
    ids=["shape", "dtype", "read-only", "kind", "out"],
)
def test_memory_that_cannot_take_a_result_is_refused(value: Any, out: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        receive_into(value, out)
