"""Graphs as they are written: which nodes belong to one. No session."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from mray._api.actor import make_handle
from mray._api.blueprint import ActorBlueprint
from mray._api.collective_node import nodes_of_graph
from mray._common.ids import new_actor_id
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
