"""The schedule of a compiled graph as a trace: the earliest time of each operation. Pure.

Time counts in steps, each a microsecond, or in seconds where computing was measured. An operation begins as early as possible: after its
actor's previous one, after the value that it reads was written, and, where several actors meet, when all of them have arrived. The
driver writes the input at 0 and reads each result when it is written; executions follow each other closely.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from mray._inside.plans import call_numbers, select
from mray._inside.plans import plan as plans
from mray._inside.spans import Recording, Span, Trace, kinds
from mray._picture.picture_measures import NOTHING_MEASURED, Measures
from mray._picture.plan_figure import endpoint_title

_KINDS = {plans.READ: kinds.DESERIALIZE, plans.WRITE: kinds.SERIALIZE, plans.COMPUTE: kinds.COMPUTE}
_NANOSECONDS = 1e9
_STEP = 1e3


class Bar(NamedTuple):
    endpoint: str
    begin: float
    end: float
    kind: str
    step: int
    channel: int
    execution: int


def schedule_trace(plan: plans.Plan, names: Mapping[str, str], executions: int = 1, measures: Measures = NOTHING_MEASURED) -> Trace:
    """The schedule of a plan, a row for each endpoint; `names` has the class of each actor, by the actor's id.

    Raises ValueError for less than one execution.
    """
    if executions < 1:
        raise ValueError(f"The trace of a schedule shows at least one execution, not {executions}.")
    clock = _Clock(plan, measures)
    unit = _NANOSECONDS if clock.is_measured else _STEP
    titles = {step.index: step.method for step in plan.graph.steps}
    numbers = call_numbers(plan.graph)
    sources = {channel.index: channel.source.step for channel in plan.channels}
    rows: dict[str, list[Span]] = {endpoint: [] for endpoint in (plans.DRIVER, *plan.schedule)}
    for bar in clock.run(executions):
        if bar.kind == plans.COMPUTE:
            name, place, number = f"[{numbers[bar.step]}] {titles[bar.step]}", bar.step, -1
        else:
            source = sources[bar.channel]
            name, place, number = f"{bar.kind.lower()} {'input' if source < 0 else f'[{numbers[source]}]'}", bar.channel, bar.execution
        name += f" #{bar.execution}" if executions > 1 else ""
        track = endpoint_title(bar.endpoint, names)
        begin, end = (round(time * unit) for time in (bar.begin, bar.end))
        rows[bar.endpoint].append(Span(_KINDS[bar.kind], begin, end, track, name, place, number))
    info = {
        "clock": "from the beginning of the first execution",
        "lengths": "computing as measured (p50)" if clock.is_measured else "not measured: only the order counts",
        **({"overlap": "communication through nccl runs beside the computing"} if plan.overlap else {}),
    }
    return Trace([Recording(0, "schedule", row, plan.graph_id, endpoint) for endpoint, row in rows.items()], info=info)


class _Clock:
    def __init__(self, plan: plans.Plan, measures: Measures) -> None:
        self._plan = plan
        self._channels: dict[int, plans.Route] = {channel.index: channel for channel in plan.channels}
        computed: dict[int, float] = {step: each["compute_p50"] for step, each in measures.steps.items() if each.get("compute_p50")}
        self.is_measured = bool(computed)
        known = sorted(computed.values())
        #: Of unmeasured steps: the median; reading and writing take a small fraction of the longest.
        self._usual = known[len(known) // 2] if known else 2.0
        self._computed = computed
        self._short = max(known) / 12 if known else 1.0
        self._edges = measures.edges
        self._bars: list[Bar] = []
        #: (execution, channel) -> the bar that wrote it.
        self._written: dict[tuple[int, int], int] = {}

    def run(self, executions: int) -> list[Bar]:
        free = dict.fromkeys((plans.DRIVER, *self._plan.schedule), 0.0)
        inputs = tuple(plans.Operation(plans.WRITE, -1, channel.index) for channel in self._plan.channels_of(plans.INPUT))
        lists = {plans.DRIVER: [(execution, each) for execution in range(executions) for each in inputs]}
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
                        free[each] = self._add(each, begin, operation, execution)
                        done[each] += 1
                    moved = True
        self._collect(executions)
        return self._bars

    def _together(
        self, lists: Mapping[str, Sequence[tuple[int, plans.Operation]]], done: Mapping[str, int], endpoint: str
    ) -> list[str] | None:
        """The endpoints that run their next operation at the same time as this one; None while it must wait."""
        execution, operation = lists[endpoint][done[endpoint]]
        if operation.kind == plans.READ:
            return [endpoint] if (execution, operation.channel) in self._written else None
        group = self._plan.graph.steps[operation.step].group if operation.kind == plans.COMPUTE else -1
        if group < 0:
            return [endpoint]
        members = [step.actor for step in self._plan.graph.steps if step.group == group]
        for member in members:
            if done[member] == len(lists[member]):
                return None
            at, next_one = lists[member][done[member]]
            if at != execution or next_one.kind != plans.COMPUTE or self._plan.graph.steps[next_one.step].group != group:
                return None
        return members

    def _arrival(self, execution: int, operation: plans.Operation) -> float:
        """The time at which an operation's value can be read. Where the writer waits for its readers, they read while it writes."""
        if operation.kind != plans.READ:
            return 0.0
        bar = self._bars[self._written[execution, operation.channel]]
        return bar.begin if self._channels[operation.channel].transport in select.BLOCKING else bar.end

    def _add(self, endpoint: str, begin: float, operation: plans.Operation, execution: int) -> float:
        length = self._length(operation)
        self._bars.append(Bar(endpoint, begin, begin + length, operation.kind, operation.step, operation.channel, execution))
        if operation.kind == plans.WRITE:
            self._written[execution, operation.channel] = len(self._bars) - 1
        return begin + length

    def _length(self, operation: plans.Operation) -> float:
        if operation.kind == plans.COMPUTE:
            return self._computed.get(operation.step, self._usual)
        edge = self._edges.get(operation.channel, {}) if self.is_measured else {}
        return float(edge.get("deserialize_p50" if operation.kind == plans.READ else "serialize_p50") or self._short)

    def _collect(self, executions: int) -> None:
        outputs = [channel for channel in self._plan.channels if plans.DRIVER in channel.readers]
        free = max((bar.end for bar in self._bars if bar.endpoint == plans.DRIVER), default=0.0)
        wanted = [(each, channel) for each in range(executions) for channel in outputs if (each, channel.index) in self._written]
        for execution, channel in sorted(wanted, key=lambda each: (each[0], self._bars[self._written[each[0], each[1].index]].end)):
            operation = plans.Operation(plans.READ, channel.source.step, channel.index)
            free = self._add(plans.DRIVER, max(free, self._arrival(execution, operation)), operation, execution)
