"""The plan of a graph: the frozen data that the passes hand to each other.

    DAG nodes --validate--> Graph --resolve--> + channels --schedule--> + operations --deadlock--> Plan --allocate--> programs

An *endpoint* is the driver (`DRIVER`), an actor, by its id, or a worker that is leased for the graph's functions (``function-0``, ...).
A *source* has a value in each execution: the input, or one output of one step. A *step* is one call of a method or function. All of it
is plain data: it is pickled to the actors, printed, drawn and simulated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from mray._ipc.layout import RingLayout

#: The endpoint of the process that compiled the graph.
DRIVER = ""

READ = "READ"
COMPUTE = "COMPUTE"
WRITE = "WRITE"


class Source(NamedTuple):
    """The origin of a value: output `output` of step `step`; the input is step -1."""

    step: int
    output: int = 0


INPUT = Source(-1)


class Argument(NamedTuple):
    """One argument of a step: a source, a part of it, a constant, or a constant with holes for other arguments.

    `source` None: the endpoint's constant number `constant`, in which `nested` fill the holes (see `mray._graph.holes`). `by`: how `key`
    picks a part of the graph's input: one of `PART`, `ITEM`, `ATTRIBUTE`, or "" for the whole.
    """

    source: Source | None
    key: int | str | None = None
    constant: int = -1
    by: str = ""
    nested: tuple[Any, ...] = ()

    @property
    def sources(self) -> tuple[Source, ...]:
        """The sources in it, in order, perhaps repeated."""
        if self.source is not None:
            return (self.source,)
        return tuple(source for argument in self.nested for source in argument.sources)


#: The argument of `execute` of that position or name.
PART = "part"
#: ``value[key]`` or ``value.key`` of the input's one value.
ITEM = "item"
ATTRIBUTE = "attribute"

#: Forms of the graph's input: the one argument of `execute`; ``(args, kwargs)``, of which steps use parts; the one argument or a
#: `DAGInputData`, of which steps use parts or the whole; only the signal to begin.
DIRECT = "direct"
SPLIT = "split"
MIXED = "mixed"
SIGNAL = "signal"


@dataclass(frozen=True)
class Step:
    """One call of a method of an actor, or of a function, once in each execution."""

    index: int
    actor: str
    method: str
    #: The order in which the methods of one actor were bound.
    bind_index: int
    arguments: tuple[Argument, ...]
    keywords: tuple[tuple[str, Argument], ...] = ()
    num_returns: int = 1
    #: The endpoint's constant that is called instead of a method of this name; -1: a method.
    function: int = -1
    #: Steps of one group synchronize: each blocks until all of them run. -1: no group.
    group: int = -1

    @property
    def sources(self) -> tuple[Source, ...]:
        """The distinct sources that the step waits for, in the order of its arguments; the input if there is no other."""
        used = [*self.arguments, *(argument for _name, argument in self.keywords)]
        return tuple(dict.fromkeys(source for argument in used for source in argument.sources)) or (INPUT,)


class Transfer(NamedTuple):
    """The user's hint about how the tensors of a source travel: a `TorchTensorType` as plain data."""

    transport: str = "auto"
    #: ``"default"`` leaves tensors where they are.
    device: str = "default"
    static_shape: bool = False
    direct_return: bool = False
    #: The graph's communicator that carries them; -1: none.
    communicator: int = -1


_AUTOMATIC = Transfer()


class DevicePair(NamedTuple):
    """Two endpoints of which one opens device memory of the other."""

    writer: str
    reader: str
    #: One of `mray._channel.select.DEVICE`.
    transport: str
    #: The transport of the user's hint, or "".
    asked: str
    #: Whether one is a driver that has not used its device, and would only for the trial: the edge tries when a tensor is sent.
    is_late: bool = False


@dataclass(frozen=True)
class Graph:
    """The user's DAG nodes, checked."""

    steps: tuple[Step, ...]
    #: The caller's results, in order; a source may appear twice.
    outputs: tuple[Argument, ...]
    #: Whether the caller gets a list.
    returns_list: bool
    #: The number of positional arguments that `execute` takes, and the keywords that it must have.
    positional: int
    keywords: tuple[str, ...]
    #: `DIRECT`, `SPLIT`, `MIXED` or `SIGNAL`.
    form: str
    #: Outputs that no step uses: the driver learns of their completion, and of their errors.
    leaves: tuple[Source, ...] = ()
    #: The user's hints about how a source travels.
    transfers: Mapping[Source, Transfer] = field(default_factory=dict)

    @property
    def actors(self) -> tuple[str, ...]:
        """The actors of the graph, in the order of their first steps."""
        return tuple(dict.fromkeys(step.actor for step in self.steps))

    @property
    def results(self) -> tuple[Source, ...]:
        """The distinct sources that the caller waits for; leaves last."""
        return tuple(dict.fromkeys([source for output in self.outputs for source in output.sources] + list(self.leaves)))

    def endpoint_of(self, source: Source) -> str:
        """The endpoint that produces a source."""
        return DRIVER if source.step < 0 else self.steps[source.step].actor


@dataclass(frozen=True)
class Route:
    """One source on its way to endpoints other than its producer: all those that it reaches by one transport."""

    index: int
    source: Source
    writer: str
    readers: tuple[str, ...]
    transport: str
    layout: RingLayout
    #: The ring's start in the graph's segment, in bytes.
    offset: int
    #: Whether messages only report the completion of the value, or its error.
    bare: bool = False
    transfer: Transfer = _AUTOMATIC
    #: The graph's communicator that carries its tensors; -1: none.
    communicator: int = -1
    #: Whether its readers are known to open memory of the writer's device, where that carries it (`DevicePair.is_late`).
    proven: bool = True
    #: Its name in errors: ``the edge from Worker(0123abcd).make to the driver``.
    name: str = ""


class Operation(NamedTuple):
    """One operation of an actor in each execution.

    READ of a channel before the first step that needs it, COMPUTE of a step, WRITE of a channel after the step that fills it, or after
    the READ of a relay (`step` is then the one that needs it).
    """

    kind: str
    step: int
    channel: int = -1


@dataclass(frozen=True)
class Plan:
    """All decisions about a graph, made before any part of it exists."""

    graph_id: str
    graph: Graph
    channels: tuple[Route, ...]
    #: The operations of each actor in each execution, in order.
    schedule: dict[str, tuple[Operation, ...]]
    #: Bytes of the graph's segment.
    size: int
    #: The actors of communicators that edges need besides those of the user, whose numbers come first.
    groups: tuple[tuple[str, ...], ...] = ()
    #: Whether communication through NCCL overlaps with computing.
    overlap: bool = False
    #: The id of the graph that this is a copy of (`mray._graph.caller.copies`), or "".
    copy_of: str = ""

    def part_of(self, actor: str) -> str:
        """An actor's part in the graph, as a sentence."""
        methods = dict.fromkeys(step.method for step in self.graph.steps if step.actor == actor)
        return f"It took part in a compiled graph, with {', '.join(methods)}."

    def channels_of(self, source: Source) -> tuple[Route, ...]:
        """The channels that carry a source, one for each transport that its readers need; none if it does not leave its producer."""
        return tuple(channel for channel in self.channels if channel.source == source)

    def channel_to(self, source: Source, reader: str) -> Route | None:
        """The channel that brings a source to an endpoint."""
        return next((channel for channel in self.channels if channel.source == source and reader in channel.readers), None)


class Profilers(NamedTuple):
    """Other profilers that get the operations of programs, while the graph lives."""

    #: The folder for the traces of the actors' torch profilers; "": they do not run.
    torch: str = ""
    nvtx: bool = False


_NOBODY = Profilers()


@dataclass(frozen=True)
class Assignment:
    """An actor's orders: its part of the plan, and the locations of its channels and constants."""

    graph_id: str
    actor: str
    #: The process that compiled the graph, or has the copy; the name of the graph's segment, and the prefix of all its other names.
    owner: str
    segment: str
    prefix: str
    steps: tuple[Step, ...]
    operations: tuple[Operation, ...]
    channels: tuple[Route, ...]
    #: endpoint -> process, for every endpoint of those channels.
    processes: dict[str, str]
    #: The constants among the arguments: a serialized list as (form, payload); of a copy None, whose constants are the graph's own.
    constants: tuple[int, bytes] | None
    #: The communicators that the actor becomes a member of, as `mray._graph.communicators` takes them.
    memberships: tuple[Any, ...] = ()
    #: communicator number -> endpoint -> rank.
    ranks: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    #: The number of processes that take part in the graph.
    process_count: int = 1
    #: As `Plan.overlap`.
    overlap: bool = False
    profilers: Profilers = _NOBODY
    #: As `Plan.copy_of`.
    copy_of: str = ""
