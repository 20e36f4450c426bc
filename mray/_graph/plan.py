"""The plan of a graph: frozen data of the passes.

An *endpoint* is the driver (`DRIVER`), an actor, by its id, or a worker that is leased for the graph's functions (``function-0``, ...).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from mray._ipc.layout import RingLayout

DRIVER = ""

READ = "READ"
COMPUTE = "COMPUTE"
WRITE = "WRITE"


class Source(NamedTuple):
    """The origin of a value in each execution; the input is step -1."""

    step: int
    output: int = 0


INPUT = Source(-1)


class Argument(NamedTuple):
    """`source` None: the endpoint's constant number `constant`, whose holes `nested` fill (`mray._graph.holes`). `by`: how `key` picks a
    part of the input: `PART`, `ITEM`, `ATTRIBUTE`, or "" for the whole.
    """

    source: Source | None
    key: int | str | None = None
    constant: int = -1
    by: str = ""
    nested: tuple[Any, ...] = ()

    @property
    def sources(self) -> tuple[Source, ...]:
        """Its sources, perhaps repeated."""
        if self.source is not None:
            return (self.source,)
        return tuple(source for argument in self.nested for source in argument.sources)


#: The argument of `execute` of that position or name.
PART = "part"
#: ``value[key]`` or ``value.key`` of the input's one value.
ITEM = "item"
ATTRIBUTE = "attribute"

#: Forms of the input: one argument; ``(args, kwargs)``, of which steps use parts; one argument or a `DAGInputData`, used in parts or whole;
#: a signal to begin.
DIRECT = "direct"
SPLIT = "split"
MIXED = "mixed"
SIGNAL = "signal"


@dataclass(frozen=True)
class Step:
    """One call of a method or function in each execution."""

    index: int
    actor: str
    method: str
    #: The order in which an actor's methods were bound.
    bind_index: int
    arguments: tuple[Argument, ...]
    keywords: tuple[tuple[str, Argument], ...] = ()
    num_returns: int = 1
    #: The endpoint's constant that is called; -1: the method.
    function: int = -1
    #: Steps of a group block until all of them run; -1: none.
    group: int = -1

    @property
    def sources(self) -> tuple[Source, ...]:
        """Distinct, in the order of the arguments; the input if there is no other."""
        used = [*self.arguments, *(argument for _name, argument in self.keywords)]
        return tuple(dict.fromkeys(source for argument in used for source in argument.sources)) or (INPUT,)


class Transfer(NamedTuple):
    """The user's hint for a source: a `TorchTensorType` as plain data."""

    transport: str = "auto"
    #: ``"default"`` leaves tensors where they are.
    device: str = "default"
    static_shape: bool = False
    direct_return: bool = False
    #: The communicator that carries it; -1: none.
    communicator: int = -1


_AUTOMATIC = Transfer()


class DevicePair(NamedTuple):
    """The reader opens device memory of the writer."""

    writer: str
    reader: str
    #: One of `mray._channel.select.DEVICE`.
    transport: str
    #: The transport of the user's hint, or "".
    asked: str
    #: Whether one is a driver that has not used its device: the edge tries when a tensor is sent.
    is_late: bool = False


@dataclass(frozen=True)
class Graph:
    steps: tuple[Step, ...]
    #: The caller's results; a source may appear twice.
    outputs: tuple[Argument, ...]
    #: Whether the caller gets a list.
    returns_list: bool
    #: Positional arguments and keywords of `execute`.
    positional: int
    keywords: tuple[str, ...]
    #: `DIRECT`, `SPLIT`, `MIXED` or `SIGNAL`.
    form: str
    #: Outputs that no step uses: the driver learns of their completion or error.
    leaves: tuple[Source, ...] = ()
    transfers: Mapping[Source, Transfer] = field(default_factory=dict)

    @property
    def actors(self) -> tuple[str, ...]:
        """Actors in the order of their first steps."""
        return tuple(dict.fromkeys(step.actor for step in self.steps))

    @property
    def results(self) -> tuple[Source, ...]:
        """Distinct sources that the caller waits for; leaves last."""
        return tuple(dict.fromkeys([source for output in self.outputs for source in output.sources] + list(self.leaves)))

    def endpoint_of(self, source: Source) -> str:
        return DRIVER if source.step < 0 else self.steps[source.step].actor


@dataclass(frozen=True)
class Route:
    """A source on its way to all endpoints that it reaches by one transport."""

    index: int
    source: Source
    writer: str
    readers: tuple[str, ...]
    transport: str
    layout: RingLayout
    #: The ring's start in the segment, in bytes.
    offset: int
    #: Whether messages report completion or error only.
    bare: bool = False
    transfer: Transfer = _AUTOMATIC
    #: Number of the communicator; -1: none.
    communicator: int = -1
    #: Whether readers are known to open the writer's device memory (`DevicePair.is_late`).
    proven: bool = True
    #: Its name in errors: ``the edge from Worker(0123abcd).make to the driver``.
    name: str = ""


class Operation(NamedTuple):
    """READ of a channel before the first step that needs it, COMPUTE of a step, WRITE of a channel after the step that fills it, or after a
    relay's READ (`step` is then the one that needs it).
    """

    kind: str
    step: int
    channel: int = -1


@dataclass(frozen=True)
class Plan:
    graph_id: str
    graph: Graph
    channels: tuple[Route, ...]
    #: Each actor's operations, in order.
    schedule: dict[str, tuple[Operation, ...]]
    #: Bytes of the segment.
    size: int
    #: Members of communicators that edges need, numbered after the user's.
    groups: tuple[tuple[str, ...], ...] = ()
    #: Whether NCCL overlaps with computing.
    overlap: bool = False
    #: Id of the copied graph, or "".
    copy_of: str = ""

    def part_of(self, actor: str) -> str:
        methods = dict.fromkeys(step.method for step in self.graph.steps if step.actor == actor)
        return f"It took part in a compiled graph, with {', '.join(methods)}."

    def channels_of(self, source: Source) -> tuple[Route, ...]:
        """The source's channels; empty if it does not leave its producer."""
        return tuple(channel for channel in self.channels if channel.source == source)

    def channel_to(self, source: Source, reader: str) -> Route | None:
        return next((channel for channel in self.channels if channel.source == source and reader in channel.readers), None)


class Profilers(NamedTuple):
    #: Folder for traces of the torch profilers; "": none run.
    torch: str = ""
    nvtx: bool = False


_NOBODY = Profilers()


@dataclass(frozen=True)
class Assignment:
    """An actor's part of the plan, and the locations of its channels and constants."""

    graph_id: str
    actor: str
    #: The process with the graph or copy; the segment's name; the prefix of all other names.
    owner: str
    segment: str
    prefix: str
    steps: tuple[Step, ...]
    operations: tuple[Operation, ...]
    channels: tuple[Route, ...]
    #: Processes of the channels' endpoints.
    processes: dict[str, str]
    #: A serialized list as (form, payload); None: a copy, which uses the graph's.
    constants: tuple[int, bytes] | None
    #: `mray._graph.communicators.Membership` each.
    memberships: tuple[Any, ...] = ()
    #: Communicator number -> endpoint -> rank.
    ranks: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    #: Processes of the whole graph.
    process_count: int = 1
    overlap: bool = False
    profilers: Profilers = _NOBODY
    copy_of: str = ""
