"""A plan as records for pictures: DAG nodes by number, and edges with how their values travel. Pure."""

from __future__ import annotations

from typing import NamedTuple

from mray._api.dag_outline import ATTRIBUTE, CALL, RESULT
from mray._channel.select import COMMUNICATOR, CUDA_IPC, LOCAL, NCCL, PINNED, SHM
from mray._graph.plan import DRIVER, Graph, Plan, Route, Source
from mray._graph.structure import Vertex, nodes, source_of

#: Hints and transports without an accelerator.
_HOST = {"auto", "cpu", LOCAL, SHM, COMMUNICATOR}
#: Names of channels: Ray's, where it has them.
_CHANNEL_NAMES = {
    LOCAL: "IntraProcessChannel",
    SHM: "BufferedSharedMemoryChannel",
    COMMUNICATOR: "TorchTensorAcceleratorChannel",
    NCCL: "TorchTensorAcceleratorChannel (NCCL)",
    CUDA_IPC: "CudaIpcChannel",
    PINNED: "PinnedMemoryChannel",
}


class DrawnNode(NamedTuple):
    """Numbered as in Ray."""

    number: int
    kind: str
    #: Attribute of the input, or index of a result.
    key: int | str | None
    #: Its step (of a result: the call's), method and actor; -1, "", "" if none.
    step: int
    method: str
    actor: str
    group: int


class DrawnEdge(NamedTuple):
    """A value's way between DAG nodes, by their numbers."""

    source: int
    target: int
    #: "": the target is a part of the source.
    transport: str
    #: The hint and the channel's description, line by line.
    hint: tuple[str, ...] = ()
    details: tuple[str, ...] = ()
    #: Whether an accelerator carries it or is wanted to.
    accelerated: bool = False
    #: -1: none.
    channel: int = -1


class Drawing(NamedTuple):
    nodes: tuple[DrawnNode, ...]
    edges: tuple[DrawnEdge, ...]
    actors: tuple[str, ...]

    def numbers(self) -> dict[int, int]:
        return {node.step: node.number for node in self.nodes if node.kind == CALL}


def drawing_of(plan: Plan) -> Drawing:
    graph = plan.graph
    shown = nodes(graph)
    numbers = {node: number for number, node in enumerate(shown)}
    edges = [_edge(plan, source, numbers[source], target, numbers[target]) for target, sources in shown.items() for source in sources]
    return Drawing(tuple(_node(graph, node, number) for node, number in numbers.items()), tuple(edges), tuple(graph.actors))


def _node(graph: Graph, node: Vertex, number: int) -> DrawnNode:
    if node.kind not in (CALL, RESULT):
        return DrawnNode(number, node.kind, node.key, -1, "", "", -1)
    step = graph.steps[node.step]
    return DrawnNode(number, node.kind, node.key, step.index, step.method, step.actor, step.group if node.kind == CALL else -1)


def _edge(plan: Plan, source: Vertex, start: int, target: Vertex, end: int) -> DrawnEdge:
    if target.kind in (ATTRIBUTE, RESULT):
        return DrawnEdge(start, end, "")
    value = source_of(source)
    reader = plan.graph.steps[target.step].actor if target.kind == CALL else DRIVER
    transfer = plan.graph.transfers.get(value)
    # The driver may return its own input.
    stays = plan.graph.endpoint_of(value) == reader
    channel = None if stays else plan.channel_to(value, reader)
    details = _local_details(plan, value) if stays else channel_details(plan, channel, reader)
    transport = LOCAL if channel is None else channel.transport
    accelerated = (transfer is not None and transfer.transport not in _HOST) or transport not in _HOST
    index = -1 if channel is None else channel.index
    return DrawnEdge(start, end, transport, _hint(plan.graph, value), tuple(details.split("\n")), accelerated, index)


def _hint(graph: Graph, value: Source) -> tuple[str, ...]:
    transfer = graph.transfers.get(value)
    if transfer is None:
        return ()
    return (f"TorchTensorType ({transfer.transport})" if transfer.device == "default" else f"TorchTensorType ({transfer.device})",)


def channel_details(plan: Plan, channel: Route | None, endpoint: str) -> str:
    """`channel` None, or written by the endpoint: the value stays in the process. ValueError when the endpoint neither writes nor reads the
    channel.
    """
    if channel is None:
        return _CHANNEL_NAMES[LOCAL]
    if endpoint not in (channel.writer, *channel.readers):
        raise ValueError(f"{short(endpoint)} neither writes nor reads channel {channel.index}, which {short(channel.writer)} writes.")
    if endpoint not in channel.readers:
        return _local_details(plan, channel.source)
    ring = f"{channel.layout.entries} entries of {channel.layout.entry_bytes} bytes"
    return "\n".join([_type_of(plan, channel.source), _CHANNEL_NAMES.get(channel.transport, channel.transport), ring])


def _local_details(plan: Plan, source: Source) -> str:
    return f"{_type_of(plan, source)}\n{_CHANNEL_NAMES[LOCAL]}"


def _type_of(plan: Plan, source: Source) -> str:
    return "TorchTensorType" if source in plan.graph.transfers else "SharedMemoryType"


def short(endpoint: str) -> str:
    if endpoint == DRIVER:
        return "the driver"
    return endpoint if len(endpoint) <= 12 else f"{endpoint[:6]}..."
