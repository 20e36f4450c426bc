"""The picture of a compiled graph: its `Drawing` as a `Figure`. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mray._api.dag_outline import ATTRIBUTE, CALL, END, INPUT_KIND, RESULT
from mray._inside.plans import DrawnEdge, DrawnNode, drawing_of
from mray._inside.plans import plan as plans
from mray._picture.figure import PART, Box, Edge, Figure, FigureOwner, owners_of
from mray._picture.picture_measures import NOTHING_MEASURED, Measure, Measures, edge_notes, further_notes, step_notes

_NO_MEASURE: Measure = {}


def plan_figure(
    plan: plans.Plan, names: Mapping[str, str], *, with_channels: bool = False, measures: Measures = NOTHING_MEASURED
) -> Figure:
    """The graph, numbered as in Ray; `names` has the class of each actor, by the actor's id.

    `with_channels`: edges describe their channels in full.
    """
    drawing = drawing_of(plan)
    boxes = tuple(_box(node, names, measures) for node in drawing.nodes)
    edges = tuple(_edge(edge, with_channels, measures.edges.get(edge.channel, _NO_MEASURE)) for edge in drawing.edges)
    return Figure("compiled_graph", boxes, edges, plan_owners(drawing.actors, names, measures), measures.why)


def plan_owners(actors: Iterable[str], names: Mapping[str, str], measures: Measures = NOTHING_MEASURED) -> tuple[FigureOwner, ...]:
    busy = {actor: f", {share:.0%} busy" for actor, share in measures.busy.items()}
    return owners_of((actor, endpoint_title(actor, names) + busy.get(actor, "")) for actor in actors)


def endpoint_title(endpoint: str, names: Mapping[str, str]) -> str:
    if endpoint == plans.DRIVER:
        return "driver"
    return endpoint if is_worker(endpoint) else f"{names.get(endpoint, 'Actor')} {endpoint[:6]}"


def is_worker(endpoint: str) -> bool:
    """Whether it is a worker leased for functions, which has a name instead of an id."""
    return endpoint.startswith("function-")


def _box(node: DrawnNode, names: Mapping[str, str], measures: Measures) -> Box:
    if node.kind != CALL:
        whole = {
            INPUT_KIND: "InputNode",
            ATTRIBUTE: f"InputAttributeNode[{node.key}]",
            RESULT: f"ClassMethodOutputNode[{node.key}]",
            END: "MultiOutputNode",
        }[node.kind]
        title = f"result {node.key}" if node.kind == RESULT else f"input[{node.key!r}]" if node.kind == ATTRIBUTE else whole
        word = f"Output[{node.key}]" if node.kind == RESULT else whole
        return Box(node.number, node.kind, title, f"of {node.method}" if node.kind == RESULT else "", (whole,), word=word)
    if is_worker(node.actor):
        sentence, word = f"Worker: {node.actor} Function: {node.method}", f"{node.actor}:{node.method}"
    else:
        sentence, word = f"Actor: {node.actor[:6]}... Method: {node.method}", f"Actor_{node.actor[:6]}:{node.method}"
    return Box(
        node.number,
        CALL,
        node.method,
        endpoint_title(node.actor, names),
        call_lines(node, names),
        node.actor,
        node.group,
        step_notes(measures.steps.get(node.step, _NO_MEASURE)),
        node.step == measures.bottleneck,
        sentence=sentence,
        word=word,
    )


def call_lines(node: DrawnNode, names: Mapping[str, str]) -> tuple[str, ...]:
    """The lines in the box of a call, as Ray shows them."""
    if is_worker(node.actor):
        return f"Function: {node.method}", f"Worker: {node.actor}"
    name = [f"Actor: {names[node.actor]}"] if node.actor in names else []
    return *name, f"ID: {node.actor[:6]}...", f"Method: {node.method}"


def _edge(edge: DrawnEdge, with_channels: bool, measure: Measure) -> Edge:
    if not edge.transport:
        return Edge(edge.source, edge.target, PART)
    label = edge.details if with_channels else (edge.transport, *edge.hint)
    notes = edge_notes(measure)
    details = (*edge.details, *notes, *further_notes(measure))
    return Edge(edge.source, edge.target, edge.transport, (*label, *notes), details, edge.accelerated, edge.channel)
