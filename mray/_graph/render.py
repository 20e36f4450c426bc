"""What a plan looks like: DOT text, a drawing made of characters, the order of operations. Pure, but for `visualize`, which writes files.

In the process that compiled the graph; everything is read off the `Plan`. The figures show what the user bound, numbered as Ray numbers it:
breadth first from the input, so that names of DAG nodes in programs for Ray mean the same here.

    InputNode --> InputAttributeNode --> call --> one of several results --> call --> MultiOutputNode
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from mray._channel.select import COMMUNICATOR, CUDA_IPC, LOCAL, NCCL, PINNED, SHM
from mray._graph.dot import attributes, write_picture
from mray._graph.grid import draw
from mray._graph.plan import DRIVER, INPUT, READ, Argument, Channel, Graph, Operation, Plan, Source, Step

#: What the user asked for, and what carries it, where no accelerator is needed.
HOST = {"auto", "cpu", LOCAL, SHM, COMMUNICATOR}
#: What the channels of these transports are called: by Ray, where it has them.
CHANNEL_NAMES = {
    LOCAL: "IntraProcessChannel",
    SHM: "BufferedSharedMemoryChannel",
    COMMUNICATOR: "TorchTensorAcceleratorChannel",
    NCCL: "TorchTensorAcceleratorChannel (NCCL)",
    CUDA_IPC: "CudaIpcChannel",
    PINNED: "PinnedMemoryChannel",
}
#: The fill colours of actors are numbers so far apart, from the first on; all of them leave black text readable.
FIRST_COLOR, COLOR_STEP = 24000, 2000

_INPUT, _ATTRIBUTE, _CALL, _RESULT, _END = "input", "attribute", "call", "result", "end"


class Box(NamedTuple):
    """A DAG node of the figures: the input, the attribute `key` of it, a step, result `key` of a step with several, or the end."""

    kind: str
    step: int = -1
    key: int | str | None = None


#: box -> the boxes among its arguments, perhaps repeated; in the order of their numbers.
Boxes = dict[Box, list[Box]]

_START, _FINISH = Box(_INPUT), Box(_END)


# -------------------------------------------------------------------------------------------- structure
def boxes(graph: Graph) -> Boxes:
    """The DAG nodes of a graph, in the order of their numbers."""
    upstream = _upstream(graph)
    downstream: dict[Box, list[Box]] = {box: [] for box in upstream}
    for box in sorted(upstream, key=_binding_order(graph)):
        for source in dict.fromkeys(upstream[box]):
            downstream[source].append(box)
    starts = sorted(upstream, key=lambda box: (box != _START, box == _FINISH, box.step))
    found: dict[Box, None] = {}
    queue: list[Box] = []
    for start in starts:
        queue.append(start)
        for box in queue:
            if box not in found:
                found[box] = None
                if box != _FINISH or graph.returns_list:
                    queue += [*downstream[box], *upstream[box]]
        queue.clear()
    if not graph.returns_list:
        # The user wrote no MultiOutputNode: Ray adds it after everything else.
        del found[_FINISH]
        found[_FINISH] = None
    return {box: upstream[box] for box in found}


def _upstream(graph: Graph) -> Boxes:
    found: Boxes = {}
    for step in graph.steps:
        call = Box(_CALL, step.index)
        found[call] = [_box_of(graph, argument) for argument in _used(step)]
        if step.num_returns > 1:
            found.update({Box(_RESULT, step.index, output): [call] for output in range(step.num_returns)})
    found[_FINISH] = [_box_of(graph, argument) for output in graph.outputs for argument in _parts(output)]
    for box in [box for sources in found.values() for box in sources if box.kind in (_INPUT, _ATTRIBUTE)]:
        found[box] = [_START] if box.kind == _ATTRIBUTE else []
        found.setdefault(_START, [])
    return found


def _used(step: Step) -> Iterator[Argument]:
    """The DAG nodes among a step's arguments."""
    for argument in (*step.arguments, *(argument for _name, argument in step.keywords)):
        yield from _parts(argument)


def _parts(argument: Argument) -> Iterator[Argument]:
    if argument.source is not None:
        yield argument
    for part in argument.nested:
        yield from _parts(part)


def _box_of(graph: Graph, argument: Argument) -> Box:
    source = argument.source
    assert source is not None
    if source.step < 0:
        return _START if argument.key is None else Box(_ATTRIBUTE, -1, argument.key)
    return Box(_RESULT, source.step, source.output) if graph.steps[source.step].num_returns > 1 else Box(_CALL, source.step)


def _binding_order(graph: Graph) -> Callable[[Box], tuple[int, int, int]]:
    """Sorts boxes by when they were bound: steps are numbered so; a part of the input comes before the first step that uses it."""
    end = len(graph.steps)
    users = [(step.index, list(_used(step))) for step in graph.steps]
    users.append((end, [part for output in graph.outputs for part in _parts(output)]))
    first_use: dict[Box, tuple[int, int]] = {}
    for user, used in users:
        for place, argument in enumerate(used):
            first_use.setdefault(_box_of(graph, argument), (user, place))

    def key(box: Box) -> tuple[int, int, int]:
        if box.kind == _ATTRIBUTE:
            user, place = first_use[box]
            return user, 0, place
        if box.kind == _RESULT:
            assert isinstance(box.key, int)
            return box.step, 2, box.key
        return {_INPUT: -1, _END: end}.get(box.kind, box.step), 1, 0

    return key


# -------------------------------------------------------------------------------------------- channels
def channel_details(plan: Plan, channel: Channel | None, endpoint: str) -> str:
    """How a value reaches an endpoint, in lines: the type of the edge, the mechanism, its measures.

    `channel` None, or one that the endpoint itself writes: the value stays in the process. Raises ValueError when the endpoint does not
    read the channel.
    """
    if channel is None:
        return CHANNEL_NAMES[LOCAL]
    if endpoint not in (channel.writer, *channel.readers):
        raise ValueError(f"{_short(endpoint)} neither writes nor reads channel {channel.index}, which {_short(channel.writer)} writes.")
    if endpoint not in channel.readers:
        return _local_details(plan, channel.source)
    ring = f"{channel.layout.entries} entries of {channel.layout.entry_bytes} bytes"
    return "\n".join([_type_of(plan, channel.source), CHANNEL_NAMES.get(channel.transport, channel.transport), ring])


def _local_details(plan: Plan, source: Source) -> str:
    return f"{_type_of(plan, source)}\n{CHANNEL_NAMES[LOCAL]}"


def _type_of(plan: Plan, source: Source) -> str:
    """The type of an edge, as Ray calls it."""
    return "TorchTensorType" if source in plan.graph.transfers else "SharedMemoryType"


def _edge_details(plan: Plan, source: Box, target: Box) -> str:
    """What stands beside an edge; nothing beside an edge that only takes a value apart."""
    if target.kind in (_ATTRIBUTE, _RESULT):
        return ""
    endpoint = plan.graph.steps[target.step].actor if target.kind == _CALL else DRIVER
    value = _source_of(source)
    if plan.graph.endpoint_of(value) == endpoint != DRIVER:
        return _local_details(plan, value)
    return channel_details(plan, plan.channel_to(value, endpoint), endpoint)


def _source_of(box: Box) -> Source:
    if box.kind in (_INPUT, _ATTRIBUTE):
        return INPUT
    return Source(box.step, box.key if isinstance(box.key, int) else 0)


def _is_accelerated(plan: Plan, source: Box, target: Box) -> bool:
    value = _source_of(source)
    transfer = plan.graph.transfers.get(value)
    endpoint = plan.graph.steps[target.step].actor if target.kind == _CALL else DRIVER
    channel = None if target.kind in (_ATTRIBUTE, _RESULT) else plan.channel_to(value, endpoint)
    return (transfer is not None and transfer.transport not in HOST) or (channel is not None and channel.transport not in HOST)


# -------------------------------------------------------------------------------------------- DOT
def dot(plan: Plan, names: Mapping[str, str], with_channels: bool = False) -> str:
    """The graph as DOT text; `names` has the class of each actor, by the actor's id. `with_channels` tells on each edge what carries it."""
    shown = boxes(plan.graph)
    numbers = {box: number for number, box in enumerate(shown)}
    downstream: dict[Box, list[Box]] = {box: [] for box in shown}
    for box, sources in shown.items():
        for source in sources:
            downstream[source].append(box)
    actors = {actor: f"#{FIRST_COLOR + COLOR_STEP * number:06X}" for number, actor in enumerate(plan.graph.actors)}
    lines = []
    for box, number in numbers.items():
        label = "\n".join([f"Task {number}", *_lines(plan.graph, box, names)])
        color = actors[plan.graph.steps[box.step].actor] if box.kind == _CALL else _COLORS[box.kind]
        shape = "oval" if box.kind == _CALL else "rectangle"
        lines.append(f"\t{number}{attributes(label=label, fillcolor=color, shape=shape, style='filled')}")
        for target in downstream[box]:
            details = _edge_details(plan, box, target) if with_channels else ""
            lines.append(f"\t{number} -> {numbers[target]}{attributes(label=details) if details else ''}")
    return "\n".join(["digraph compiled_graph {", *lines, "}", ""])


_COLORS = {_INPUT: "lightblue", _ATTRIBUTE: "lightblue", _RESULT: "orange", _END: "yellow"}


def _lines(graph: Graph, box: Box, names: Mapping[str, str]) -> list[str]:
    """What a box says."""
    if box.kind == _CALL:
        step = graph.steps[box.step]
        if step.function >= 0:
            return [f"Function: {step.method}", f"Worker: {step.actor}"]
        name = [f"Actor: {names[step.actor]}"] if step.actor in names else []
        return [*name, f"ID: {step.actor[:6]}...", f"Method: {step.method}"]
    return [_title(box)]


def _title(box: Box) -> str:
    return {
        _INPUT: "InputNode",
        _ATTRIBUTE: f"InputAttributeNode[{box.key}]",
        _RESULT: f"ClassMethodOutputNode[{box.key}]",
        _END: "MultiOutputNode",
    }[box.kind]


# -------------------------------------------------------------------------------------------- characters
def ascii(plan: Plan) -> str:  # noqa: A001
    """The graph in characters: its DAG nodes, its edges, a legend and a drawing."""
    shown = boxes(plan.graph)
    numbers = {box: number for number, box in enumerate(shown)}
    edges = [(source, box) for box, sources in shown.items() for source in sources]
    arrows = {True: "+++>", False: "--->"}
    return "\n".join(
        [
            "Nodes Information:",
            *(f'{number} [label="Task {number}  {_sentence(plan.graph, box)}"] ' for box, number in numbers.items()),
            "",
            "Edges Information:",
            *(f"{numbers[source]} {arrows[_is_accelerated(plan, source, target)]} {numbers[target]}" for source, target in edges),
            "",
            "Legend:",
            "+++> : Represents Accelerator-type data channels",
            "---> : Represents Shared Memory data channels",
            "",
            "Graph Built:",
            draw(
                [f"{number}:{_word(plan.graph, box)}" for box, number in numbers.items()],
                [(numbers[source], numbers[target]) for source, target in edges],
            ),
        ]
    )


def _sentence(graph: Graph, box: Box) -> str:
    if box.kind != _CALL:
        return _title(box)
    step = graph.steps[box.step]
    if step.function >= 0:
        return f"Worker: {step.actor} Function: {step.method}"
    return f"Actor: {step.actor[:6]}... Method: {step.method}"


def _word(graph: Graph, box: Box) -> str:
    if box.kind == _RESULT:
        return f"Output[{box.key}]"
    if box.kind != _CALL:
        return _title(box)
    step = graph.steps[box.step]
    return f"{step.actor}:{step.method}" if step.function >= 0 else f"Actor_{step.actor[:6]}:{step.method}"


# -------------------------------------------------------------------------------------------- the order of operations
def operations(plan: Plan, names: Mapping[str, str]) -> str:
    """What each actor does in each execution, in order: one line per operation."""
    lines = []
    for actor, program in plan.schedule.items():
        lines.append(f"{names.get(actor, 'Actor')} {_short(actor)}:")
        lines += [f"  {number:>3}  {operation.kind:<7}  {_operation(plan, operation)}" for number, operation in enumerate(program)]
    return "\n".join(lines)


def _operation(plan: Plan, operation: Operation) -> str:
    step = plan.graph.steps[operation.step]
    name = f"[{step.index}] {step.method}"
    if operation.channel < 0:
        return name
    channel = plan.channels[operation.channel]
    value = _value(plan.graph, channel.source)
    if operation.kind == READ:
        return f"{name}: {value} from {_short(channel.writer)}"
    return f"{name}: {value} to {', '.join(_short(reader) for reader in channel.readers)}"


def _value(graph: Graph, source: Source) -> str:
    if source.step < 0:
        return "the input"
    step = graph.steps[source.step]
    return f"result {source.output} of [{step.index}]" if step.num_returns > 1 else f"result of [{step.index}]"


def _short(endpoint: str) -> str:
    """An endpoint in a few characters."""
    if endpoint == DRIVER:
        return "the driver"
    return endpoint if len(endpoint) <= 12 else f"{endpoint[:6]}..."


# -------------------------------------------------------------------------------------------- files
def visualize(
    plan: Plan,
    names: Mapping[str, str],
    filename: str = "compiled_graph",
    picture_format: str = "png",
    view: bool = False,
    with_channels: bool = False,
) -> str:
    """What `CompiledGraph.visualize` does: the text of the graph, also as a picture unless the format is ``"ascii"``.

    Writes ``filename`` (DOT text) and ``filename.<format>``. `view` opens the picture; for ``"ascii"`` it prints the text. Raises
    ImportError when what makes pictures is not installed, ValueError for a format that it does not know.
    """
    if picture_format == "ascii":
        if with_channels:
            raise ValueError("Parameters 'channel_details' are not compatible with 'ascii' format.")
        text = ascii(plan)
        if view:
            print(text)  # noqa: T201
        return text
    text = dot(plan, names, with_channels)
    write_picture(text, filename, picture_format, view)
    return text
