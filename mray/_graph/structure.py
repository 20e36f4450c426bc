"""The DAG nodes of a `Graph` as the user bound them. Pure.

InputNode --> InputAttributeNode --> call --> one of several results --> call --> MultiOutputNode
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from mray._api.dag_outline import ATTRIBUTE, CALL, END, INPUT_KIND, RESULT, in_order
from mray._graph.plan import INPUT, Argument, Graph, Source, Step


class Vertex(NamedTuple):
    """`key`: of an attribute of the input, or of a result of a step with several."""

    kind: str
    step: int = -1
    key: int | str | None = None


#: node -> the nodes among its arguments, perhaps repeated.
Nodes = dict[Vertex, list[Vertex]]

START, FINISH = Vertex(INPUT_KIND), Vertex(END)


def nodes(graph: Graph) -> Nodes:
    """The graph's DAG nodes, in the order of their numbers."""
    upstream = _upstream(graph)
    starts = sorted(upstream, key=lambda node: (node != START, node == FINISH, node.step))
    found = in_order(upstream, starts, _binding_order(graph), lambda node: node == FINISH and not graph.returns_list)
    if not graph.returns_list:
        # Ray adds it after everything else.
        found.remove(FINISH)
        found.append(FINISH)
    return {node: upstream[node] for node in found}


def call_numbers(graph: Graph) -> dict[int, int]:
    """Step index -> DAG node number, its name in pictures, schedules and statistics."""
    return {node.step: number for number, node in enumerate(nodes(graph)) if node.kind == CALL}


def source_of(node: Vertex) -> Source:
    if node.kind in (INPUT_KIND, ATTRIBUTE):
        return INPUT
    return Source(node.step, node.key if isinstance(node.key, int) else 0)


def _upstream(graph: Graph) -> Nodes:
    found: Nodes = {}
    for step in graph.steps:
        call = Vertex(CALL, step.index)
        found[call] = [_node_of(graph, argument) for argument in _used(step)]
        if step.num_returns > 1:
            found.update({Vertex(RESULT, step.index, output): [call] for output in range(step.num_returns)})
    found[FINISH] = [_node_of(graph, argument) for output in graph.outputs for argument in _parts(output)]
    for node in [node for sources in found.values() for node in sources if node.kind in (INPUT_KIND, ATTRIBUTE)]:
        found[node] = [START] if node.kind == ATTRIBUTE else []
        found.setdefault(START, [])
    return found


def _used(step: Step) -> Iterator[Argument]:
    for argument in (*step.arguments, *(argument for _name, argument in step.keywords)):
        yield from _parts(argument)


def _parts(argument: Argument) -> Iterator[Argument]:
    if argument.source is not None:
        yield argument
    for part in argument.nested:
        yield from _parts(part)


def _node_of(graph: Graph, argument: Argument) -> Vertex:
    source = argument.source
    assert source is not None
    if source.step < 0:
        return START if argument.key is None else Vertex(ATTRIBUTE, -1, argument.key)
    return Vertex(RESULT, source.step, source.output) if graph.steps[source.step].num_returns > 1 else Vertex(CALL, source.step)


def _binding_order(graph: Graph) -> Callable[[Vertex], tuple[int, int, int]]:
    """Sort key by the order of binding; a part of the input comes before the first step that uses it."""
    end = len(graph.steps)
    users = [(step.index, list(_used(step))) for step in graph.steps]
    users.append((end, [part for output in graph.outputs for part in _parts(output)]))
    first_use: dict[Vertex, tuple[int, int]] = {}
    for user, used in users:
        for place, argument in enumerate(used):
            first_use.setdefault(_node_of(graph, argument), (user, place))

    def key(node: Vertex) -> tuple[int, int, int]:
        if node.kind == ATTRIBUTE:
            user, place = first_use[node]
            return user, 0, place
        if node.kind == RESULT:
            assert isinstance(node.key, int)
            return node.step, 2, node.key
        return {INPUT_KIND: -1, END: end}.get(node.kind, node.step), 1, 0

    return key
