"""The earliest time of each operation of a schedule: the schedule as a `Chart`. Pure.

Time counts in steps, or in seconds where computing was measured. An operation begins as early as it can: after its actor's earlier one,
after the value that it reads was written, and, where several actors meet, when all of them have come. The driver writes the input at 0 and
reads each result when it is written. Several executions follow each other as closely as the actors allow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from mray._channel.select import BLOCKING
from mray._graph.plan import COMPUTE, DRIVER, INPUT, READ, WRITE, Operation, Plan, Route
from mray._graph.structure import call_numbers
from mray._picture.figure import FigureOwner
from mray._picture.picture_measures import NOTHING_MEASURED, Measures
from mray._picture.plan_figure import endpoint_title, plan_owners

#: The default file name of a schedule's picture: Ray's.
SCHEDULE = "compiled_graph_schedule"


class Bar(NamedTuple):
    """One operation in one execution: when, and on which lane (the driver's is 0)."""

    lane: int
    begin: float
    end: float
    kind: str
    step: int
    channel: int
    execution: int


class Arrow(NamedTuple):
    """A value on its way from one bar to another, by their places among the bars."""

    source: int
    target: int
    transport: str


@dataclass(frozen=True)
class Chart:
    """Lanes, the bars on them, and the arrows between them."""

    lanes: tuple[FigureOwner, ...]
    bars: tuple[Bar, ...]
    arrows: tuple[Arrow, ...]
    #: step index -> its name and number.
    titles: dict[int, str]
    numbers: dict[int, int]
    #: Whether lengths are seconds that were measured.
    is_measured: bool
    #: Whether communication through NCCL runs beside the computing, so that its bars are only its beginning.
    overlaps: bool = False


def chart(plan: Plan, names: Mapping[str, str], executions: int = 1, measures: Measures = NOTHING_MEASURED) -> Chart:
    """The schedule of a plan; `names` has the class of each actor, by the actor's id. Raises ValueError for less than one execution."""
    if executions < 1:
        raise ValueError(f"A picture of a schedule shows at least one execution, not {executions}.")
    driver = FigureOwner(DRIVER, endpoint_title(DRIVER, names), "#EEEEEE")
    return _Clock(plan, measures).run(executions, (driver, *plan_owners(plan, names, measures)))


class _Clock:
    """Runs a schedule."""

    def __init__(self, plan: Plan, measures: Measures) -> None:
        self._plan = plan
        self._channels: dict[int, Route] = {channel.index: channel for channel in plan.channels}
        computed: dict[int, float] = {step: each["compute_p50"] for step, each in measures.steps.items() if each.get("compute_p50")}
        self._is_measured = bool(computed)
        known = sorted(computed.values())
        #: The length of steps that were not measured: the median; reading and writing take a small part of the longest.
        self._usual = known[len(known) // 2] if known else 2.0
        self._computed = computed
        self._short = max(known) / 12 if known else 1.0
        self._edges = measures.edges
        self._bars: list[Bar] = []
        self._arrows: list[Arrow] = []
        #: (execution, channel) -> the bar that wrote it.
        self._written: dict[tuple[int, int], int] = {}

    def run(self, executions: int, lanes: tuple[FigureOwner, ...]) -> Chart:
        places = {lane.key: number for number, lane in enumerate(lanes)}
        free = dict.fromkeys(places, 0.0)
        inputs = tuple(Operation(WRITE, -1, channel.index) for channel in self._plan.channels_of(INPUT))
        lists = {DRIVER: [(execution, each) for execution in range(executions) for each in inputs]}
        for actor, operations in self._plan.schedule.items():
            lists[actor] = [(execution, each) for execution in range(executions) for each in operations]
        done = dict.fromkeys(lists, 0)
        moved = True
        while moved:
            moved = False
            for endpoint, todo in lists.items():
                while done[endpoint] < len(todo):
                    together = self._together(lists, done, endpoint)
                    if together is None:
                        break
                    begin = max([free[each] for each in together] + [self._arrival(*lists[each][done[each]]) for each in together])
                    for each in together:
                        execution, operation = lists[each][done[each]]
                        free[each] = self._add(places[each], begin, operation, execution)
                        done[each] += 1
                    moved = True
        self._collect(executions)
        titles = {step.index: step.method for step in self._plan.graph.steps}
        numbers = call_numbers(self._plan.graph)
        return Chart(lanes, tuple(self._bars), tuple(self._arrows), titles, numbers, self._is_measured, self._plan.overlap)

    def _together(self, lists: Mapping[str, Sequence[tuple[int, Operation]]], done: Mapping[str, int], endpoint: str) -> list[str] | None:
        """The endpoints that run their next operation at the same time as this one; None while it has to wait."""
        execution, operation = lists[endpoint][done[endpoint]]
        if operation.kind == READ:
            return [endpoint] if (execution, operation.channel) in self._written else None
        group = self._plan.graph.steps[operation.step].group if operation.kind == COMPUTE else -1
        if group < 0:
            return [endpoint]
        members = [step.actor for step in self._plan.graph.steps if step.group == group]
        for member in members:
            if done[member] == len(lists[member]):
                return None
            at, next_one = lists[member][done[member]]
            if at != execution or next_one.kind != COMPUTE or self._plan.graph.steps[next_one.step].group != group:
                return None
        return members

    def _arrival(self, execution: int, operation: Operation) -> float:
        """The time at which an operation's value is there to be read. Where the writer waits for its readers, they read while it writes."""
        if operation.kind != READ:
            return 0.0
        bar = self._bars[self._written[execution, operation.channel]]
        return bar.begin if self._channels[operation.channel].transport in BLOCKING else bar.end

    def _add(self, lane: int, begin: float, operation: Operation, execution: int) -> float:
        length = self._length(operation)
        self._bars.append(Bar(lane, begin, begin + length, operation.kind, operation.step, operation.channel, execution))
        key = execution, operation.channel
        if operation.kind == WRITE:
            self._written[key] = len(self._bars) - 1
        elif operation.kind == READ:
            self._arrows.append(Arrow(self._written[key], len(self._bars) - 1, self._channels[operation.channel].transport))
        return begin + length

    def _length(self, operation: Operation) -> float:
        if operation.kind == COMPUTE:
            return self._computed.get(operation.step, self._usual)
        edge = self._edges.get(operation.channel, {}) if self._is_measured else {}
        return float(edge.get("deserialize_p50" if operation.kind == READ else "serialize_p50") or self._short)

    def _collect(self, executions: int) -> None:
        """Add the driver's reads of its results."""
        outputs = [channel for channel in self._plan.channels if DRIVER in channel.readers]
        free = max((bar.end for bar in self._bars if bar.lane == 0), default=0.0)
        wanted = [(each, channel) for each in range(executions) for channel in outputs if (each, channel.index) in self._written]
        for execution, channel in sorted(wanted, key=lambda each: (each[0], self._bars[self._written[each[0], each[1].index]].end)):
            operation = Operation(READ, channel.source.step, channel.index)
            free = self._add(0, max(free, self._arrival(execution, operation)), operation, execution)
