"""The picture of a compiled graph: its `Plan` as a `Figure`. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from mray._channel.select import COMMUNICATOR, CUDA_IPC, LOCAL, NCCL, PINNED, SHM
from mray._graph.plan import DRIVER, Graph, Plan, Route, Source, Step
from mray._graph.structure import ATTRIBUTE, CALL, END, INPUT_KIND, RESULT, Vertex, nodes, source_of
from mray._picture.figure import PART, Box, Edge, Figure, FigureOwner, owners_of
from mray._picture.picture_measures import NOTHING_MEASURED, Measure, Measures, edge_notes, further_notes, step_notes

#: Hints and transports that need no accelerator.
HOST = {"auto", "cpu", LOCAL, SHM, COMMUNICATOR}
#: Names of the channels of these transports: Ray's, where it has them.
CHANNEL_NAMES = {
    LOCAL: "IntraProcessChannel",
    SHM: "BufferedSharedMemoryChannel",
    COMMUNICATOR: "TorchTensorAcceleratorChannel",
    NCCL: "TorchTensorAcceleratorChannel (NCCL)",
    CUDA_IPC: "CudaIpcChannel",
    PINNED: "PinnedMemoryChannel",
}

_NO_MEASURE: Measure = {}


def plan_figure(plan: Plan, names: Mapping[str, str], *, with_channels: bool = False, measures: Measures = NOTHING_MEASURED) -> Figure:
    """The graph, as Ray numbers it; `names` has the class of each actor, by the actor's id.

    `with_channels`: edges describe their channels in full. `measures`: written into boxes and beside edges.
    """
    shown = nodes(plan.graph)
    numbers = {node: number for number, node in enumerate(shown)}
    boxes = tuple(_box(plan.graph, node, number, names, measures) for node, number in numbers.items())
    edges = tuple(
        _edge(plan, source, numbers[source], target, numbers[target], with_channels, measures)
        for target, sources in shown.items()
        for source in sources
    )
    return Figure("compiled_graph", boxes, edges, plan_owners(plan, names, measures), measures.why)


def plan_owners(plan: Plan, names: Mapping[str, str], measures: Measures = NOTHING_MEASURED) -> tuple[FigureOwner, ...]:
    """The actors and workers that run the steps, with their busy shares if these are known."""
    busy = {actor: f", {share:.0%} busy" for actor, share in measures.busy.items()}
    return owners_of((actor, endpoint_title(actor, names) + busy.get(actor, "")) for actor in plan.graph.actors)


def endpoint_title(endpoint: str, names: Mapping[str, str]) -> str:
    """A short name of an endpoint."""
    if endpoint == DRIVER:
        return "driver"
    return endpoint if is_worker(endpoint) else f"{names.get(endpoint, 'Actor')} {endpoint[:6]}"


def is_worker(endpoint: str) -> bool:
    """Whether it is a worker that is leased for functions: it has a name, actors have ids."""
    return endpoint.startswith("function-")


def _box(graph: Graph, node: Vertex, number: int, names: Mapping[str, str], measures: Measures) -> Box:
    if node.kind != CALL:
        whole = {
            INPUT_KIND: "InputNode",
            ATTRIBUTE: f"InputAttributeNode[{node.key}]",
            RESULT: f"ClassMethodOutputNode[{node.key}]",
            END: "MultiOutputNode",
        }[node.kind]
        title = f"result {node.key}" if node.kind == RESULT else f"input[{node.key!r}]" if node.kind == ATTRIBUTE else whole
        word = f"Output[{node.key}]" if node.kind == RESULT else whole
        return Box(number, node.kind, title, f"of {graph.steps[node.step].method}" if node.kind == RESULT else "", (whole,), word=word)
    step = graph.steps[node.step]
    if is_worker(step.actor):
        sentence, word = f"Worker: {step.actor} Function: {step.method}", f"{step.actor}:{step.method}"
    else:
        sentence, word = f"Actor: {step.actor[:6]}... Method: {step.method}", f"Actor_{step.actor[:6]}:{step.method}"
    return Box(
        number,
        CALL,
        step.method,
        endpoint_title(step.actor, names),
        call_lines(step, names),
        step.actor,
        step.group,
        step_notes(measures.steps.get(step.index, _NO_MEASURE)),
        step.index == measures.bottleneck,
        sentence=sentence,
        word=word,
    )


def call_lines(step: Step, names: Mapping[str, str]) -> tuple[str, ...]:
    """Ray's text in the box of a call."""
    if is_worker(step.actor):
        return f"Function: {step.method}", f"Worker: {step.actor}"
    name = [f"Actor: {names[step.actor]}"] if step.actor in names else []
    return *name, f"ID: {step.actor[:6]}...", f"Method: {step.method}"


# -------------------------------------------------------------------------------------------- edges
def _edge(plan: Plan, source: Vertex, start: int, target: Vertex, end: int, with_channels: bool, measures: Measures) -> Edge:
    if target.kind in (ATTRIBUTE, RESULT):
        return Edge(start, end, PART)
    value = source_of(source)
    reader = plan.graph.steps[target.step].actor if target.kind == CALL else DRIVER
    if plan.graph.endpoint_of(value) == reader:
        # The driver may return its own input: then no channel carries it.
        return _described(plan, value, start, end, LOCAL, _local_details(plan, value), with_channels)
    channel = plan.channel_to(value, reader)
    details = channel_details(plan, channel, reader)
    if channel is None:
        return _described(plan, value, start, end, LOCAL, details, with_channels)
    measure = measures.edges.get(channel.index, _NO_MEASURE)
    return replace(_described(plan, value, start, end, channel.transport, details, with_channels, measure), channel=channel.index)


def _described(
    plan: Plan,
    value: Source,
    start: int,
    end: int,
    kind: str,
    details: str,
    with_channels: bool,
    measure: Measure = _NO_MEASURE,
) -> Edge:
    lines = tuple(details.split("\n"))
    label = lines if with_channels else (kind, *_hint(plan.graph, value))
    notes = edge_notes(measure)
    transfer = plan.graph.transfers.get(value)
    accelerated = (transfer is not None and transfer.transport not in HOST) or kind not in HOST
    return Edge(start, end, kind, (*label, *notes), (*lines, *notes, *further_notes(measure)), accelerated)


def _hint(graph: Graph, value: Source) -> tuple[str, ...]:
    """The user's hint about a value, in a line; empty without one."""
    transfer = graph.transfers.get(value)
    if transfer is None:
        return ()
    return (f"TorchTensorType ({transfer.transport})" if transfer.device == "default" else f"TorchTensorType ({transfer.device})",)


def channel_details(plan: Plan, channel: Route | None, endpoint: str) -> str:
    """How a value reaches an endpoint, in lines: the type of the edge, the mechanism, its measures.

    `channel` None, or one that the endpoint itself writes: the value stays in the process. Raises ValueError when the endpoint does not
    read the channel.
    """
    if channel is None:
        return CHANNEL_NAMES[LOCAL]
    if endpoint not in (channel.writer, *channel.readers):
        raise ValueError(f"{short(endpoint)} neither writes nor reads channel {channel.index}, which {short(channel.writer)} writes.")
    if endpoint not in channel.readers:
        return _local_details(plan, channel.source)
    ring = f"{channel.layout.entries} entries of {channel.layout.entry_bytes} bytes"
    return "\n".join([_type_of(plan, channel.source), CHANNEL_NAMES.get(channel.transport, channel.transport), ring])


def _local_details(plan: Plan, source: Source) -> str:
    return f"{_type_of(plan, source)}\n{CHANNEL_NAMES[LOCAL]}"


def _type_of(plan: Plan, source: Source) -> str:
    """The type of an edge, as Ray calls it."""
    return "TorchTensorType" if source in plan.graph.transfers else "SharedMemoryType"


def short(endpoint: str) -> str:
    """An endpoint in a few characters."""
    if endpoint == DRIVER:
        return "the driver"
    return endpoint if len(endpoint) <= 12 else f"{endpoint[:6]}..."
