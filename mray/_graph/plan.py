"""The plan of a graph: what the passes hand to each other, frozen.

    DAG nodes --validate--> Graph --resolve--> + channels --schedule--> + operations --deadlock--> Plan --allocate--> programs

An *endpoint* is the driver (`DRIVER`) or an actor, by its id. A *source* is something that has a value in each execution: the input, or
one output of one step. A *step* is one call of a method. Everything here is plain data: it is pickled to the actors, printed,
drawn and simulated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from mray._ipc.layout import RingLayout

#: The endpoint of the process that compiled the graph.
DRIVER = ""

READ = "READ"
COMPUTE = "COMPUTE"
WRITE = "WRITE"


class Source(NamedTuple):
    """Where a value comes from: output `output` of step `step`; the input is step -1."""

    step: int
    output: int = 0


INPUT = Source(-1)


class Argument(NamedTuple):
    """One argument of a step: a source, perhaps a part of it, or a constant.

    `source` None: the actor's constant number `constant`. `key` not None: the part of the graph's input of that position or name.
    """

    source: Source | None
    key: int | str | None = None
    constant: int = -1


@dataclass(frozen=True)
class Step:
    """One call of a method of an actor, once in each execution."""

    index: int
    actor: str
    method: str
    #: The order in which the methods of one actor were bound.
    bind_index: int
    arguments: tuple[Argument, ...]
    keywords: tuple[tuple[str, Argument], ...] = ()
    num_returns: int = 1

    @property
    def sources(self) -> tuple[Source, ...]:
        """What the step waits for, each once, in the order of its arguments."""
        used = [*self.arguments, *(argument for _name, argument in self.keywords)]
        return tuple(dict.fromkeys(argument.source for argument in used if argument.source is not None))


@dataclass(frozen=True)
class Graph:
    """What the user wrote, checked."""

    steps: tuple[Step, ...]
    #: What the caller gets, in order; a source may appear twice.
    outputs: tuple[Argument, ...]
    #: Whether the caller gets a list.
    returns_list: bool
    #: How many positional arguments `execute` takes, and which keywords it must have.
    positional: int
    keywords: tuple[str, ...]
    #: Whether the input is the one argument itself, and not (args, kwargs).
    direct_input: bool

    @property
    def actors(self) -> tuple[str, ...]:
        """The actors of the graph, in the order of their first steps."""
        return tuple(dict.fromkeys(step.actor for step in self.steps))

    def endpoint_of(self, source: Source) -> str:
        """Who produces a source."""
        return DRIVER if source.step < 0 else self.steps[source.step].actor


@dataclass(frozen=True)
class Channel:
    """One source on its way to the endpoints that are not its producer."""

    index: int
    source: Source
    writer: str
    readers: tuple[str, ...]
    transport: str
    layout: RingLayout
    #: Where the ring starts in the graph's segment, in bytes.
    offset: int


class Operation(NamedTuple):
    """One thing an actor does in each execution.

    READ of a channel before the first step that needs it, COMPUTE of a step, WRITE of a channel after the step that fills it.
    """

    kind: str
    step: int
    channel: int = -1


@dataclass(frozen=True)
class Plan:
    """Everything about a graph that is decided before anything is made."""

    graph_id: str
    graph: Graph
    channels: tuple[Channel, ...]
    #: What each actor does in each execution, in order.
    schedule: dict[str, tuple[Operation, ...]]
    #: Bytes of the graph's segment.
    size: int

    def channel_of(self, source: Source) -> Channel | None:
        """The channel that carries a source, if it leaves its producer."""
        return next((channel for channel in self.channels if channel.source == source), None)


@dataclass(frozen=True)
class Assignment:
    """What one actor is told: its part of the plan, and where everything is."""

    graph_id: str
    actor: str
    #: The process that compiled the graph, and the name of the graph's segment and of the prefix of what else it makes.
    owner: str
    segment: str
    prefix: str
    steps: tuple[Step, ...]
    operations: tuple[Operation, ...]
    channels: tuple[Channel, ...]
    #: endpoint -> process, for every endpoint of those channels.
    processes: dict[str, str]
    #: The constants among the arguments: a serialized list as (form, payload).
    constants: tuple[int, bytes]
    #: How many processes take part in the graph.
    crowd: int = 1
