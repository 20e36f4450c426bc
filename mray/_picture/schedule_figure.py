"""A `Chart` as a `Figure` of operations, as characters, and as a page. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from mray._graph.plan import COMPUTE, READ, WRITE, Operation, Plan, Source
from mray._graph.structure import CALL, call_numbers
from mray._picture.figure import MOVE, ORDER, Box, Edge, Figure, stroke_of
from mray._picture.page import Slice, page
from mray._picture.picture_measures import in_seconds
from mray._picture.plan_figure import short
from mray._picture.timing import SCHEDULE, Bar, Chart

#: Fills of slices that are no computing.
_FILLS = {READ: "#DCE9F7", WRITE: "#FDE7CF"}


def schedule_figure(chart: Chart) -> Figure:
    """The operations of each actor in order, and the values between them."""
    boxes = []
    for number, bar in enumerate(chart.bars):
        is_call = bar.kind == COMPUTE
        measured = (f"compute {in_seconds(bar.end - bar.begin)}",) if is_call and chart.is_measured else ()
        text = _label(chart, bar)
        lane = chart.lanes[bar.lane]
        boxes.append(Box(number, CALL if is_call else MOVE, text, lane.title, (text,), lane.key, notes=measured))
    edges = [
        Edge(before, after, ORDER)
        for lane in range(len(chart.lanes))
        for before, after in pairwise(number for number, bar in enumerate(chart.bars) if bar.lane == lane)
    ]
    edges += [Edge(arrow.source, arrow.target, arrow.transport) for arrow in chart.arrows]
    return Figure(SCHEDULE, tuple(boxes), tuple(edges), chart.lanes, is_schedule=True, remarks=tuple(_remarks(chart)))


def schedule_page(chart: Chart) -> str:
    """The operations over time, as a page."""
    slices = [
        Slice(bar.lane, bar.begin, bar.end, _label(chart, bar), _FILLS.get(bar.kind, chart.lanes[bar.lane].color)) for bar in chart.bars
    ]
    arrows = [(chart.bars[each.source], chart.bars[each.target], each.transport) for each in chart.arrows]
    legend = [*((stroke_of(kind).meaning, stroke_of(kind).color) for kind in sorted({each[2] for each in arrows}))]
    legend += [(text, "none") for text in _remarks(chart)]
    lines = [(source.lane, source.end, target.lane, max(target.begin, source.begin)) for source, target, _kind in arrows]
    return page(SCHEDULE, [lane.title for lane in chart.lanes], slices, lines, legend, "s" if chart.is_measured else "steps")


def _label(chart: Chart, bar: Bar) -> str:
    several = f" #{bar.execution}" if any(each.execution for each in chart.bars) else ""
    if bar.kind == COMPUTE:
        return f"[{chart.numbers[bar.step]}] {chart.titles[bar.step]}{several}"
    value = "input" if bar.step < 0 else f"[{chart.numbers[bar.step]}]"
    return f"{bar.kind.lower()} {value}{several}"


def _remarks(chart: Chart) -> list[str]:
    """Remarks that explain the lengths."""
    times = "lengths of computing as measured (p50)" if chart.is_measured else "only the order counts, not the lengths"
    several = ["#: number of the execution"] if any(bar.execution for bar in chart.bars) else []
    return [times, *several, *(["communication through nccl runs beside the computing"] if chart.overlaps else [])]


# -------------------------------------------------------------------------------------------- characters
def chart_ascii(chart: Chart, most: int | None = None) -> str:
    """A line for each lane: ``R0`` reads for step 0, ``W0`` writes its result, ``[0 name]`` computes it; dots are waiting.

    `most`: characters that a line may have; None: as many as it takes.
    """
    width = max((len(lane.title) for lane in chart.lanes), default=0)
    times = sorted({bar.begin for bar in chart.bars})
    # A column for each moment at which a bar begins, as wide as the widest that begins there and ends before the next.
    cells = {(bar.lane, bar.begin): _word(chart, number) for number, bar in enumerate(chart.bars)}
    ends: dict[int, int] = {}
    place = 0
    begins = {}
    for time in times:
        # The texts of earlier bars of a lane must end before the next begins.
        begins[time] = max([place, *(ends.get(lane, 0) for lane in range(len(chart.lanes)) if (lane, time) in cells)])
        for lane in range(len(chart.lanes)):
            if (lane, time) in cells:
                ends[lane] = begins[time] + len(cells[lane, time]) + 1
        place = begins[time] + 1
    titles = [f"{owner.title:<{width}}  " for owner in chart.lanes]
    rows = []
    for number in range(len(chart.lanes)):
        row = ""
        for time in times:
            if (number, time) in cells:
                row = row.ljust(begins[time], ".") + cells[number, time] + " "
        rows.append(row.rstrip())
    lines = _in_blocks(titles, rows, most)
    return "\n".join([*lines, "", "R: reads   W: writes   [number method]: computes   dots: waits", *_remarks(chart)])


def _in_blocks(titles: Sequence[str], rows: Sequence[str], most: int | None) -> list[str]:
    """The rows behind their titles; where they are longer than a line, the next part of all rows below the first, and so on."""
    longest = max(map(len, rows), default=0)
    room = longest if most is None else max(most - len(titles[0]) if titles else 0, 20)
    lines: list[str] = []
    begin = 0
    while True:
        end = _break(rows, begin, begin + room)
        lines += [(title + row[begin:end]).rstrip() for title, row in zip(titles, rows, strict=True)]
        if end >= longest:
            return lines
        begin = end
        lines.append("")


def _break(rows: Sequence[str], begin: int, most: int) -> int:
    """The last place up to `most` at which no row has a word; `most` where there is none."""
    if all(len(row) <= most for row in rows):
        return most
    for place in range(most, begin + (most - begin) // 2, -1):
        if all(place >= len(row) or row[place - 1] in " ." for row in rows):
            return place
    return most


def _word(chart: Chart, number: int) -> str:
    bar = chart.bars[number]
    what = "in" if bar.step < 0 else f"{chart.numbers[bar.step]}"
    several = f"#{bar.execution}" if any(each.execution for each in chart.bars) else ""
    if bar.kind == COMPUTE:
        return f"[{what} {chart.titles[bar.step]}{several}]"
    return {READ: "R", WRITE: "W"}[bar.kind] + what + several


def operations(plan: Plan, names: Mapping[str, str]) -> str:
    """The operations of each actor in each execution, in order: one line per operation."""
    lines = []
    numbers = call_numbers(plan.graph)
    for actor, program in plan.schedule.items():
        lines.append(f"{names.get(actor, 'Actor')} {short(actor)}:")
        lines += [f"  {place:>3}  {operation.kind:<7}  {_operation(plan, operation, numbers)}" for place, operation in enumerate(program)]
    return "\n".join(lines)


def _operation(plan: Plan, operation: Operation, numbers: Mapping[int, int]) -> str:
    step = plan.graph.steps[operation.step]
    name = f"[{numbers[step.index]}] {step.method}"
    if operation.channel < 0:
        return name
    channel = next(channel for channel in plan.channels if channel.index == operation.channel)
    value = _value(plan, channel.source, numbers)
    if operation.kind == READ:
        return f"{name}: {value} from {short(channel.writer)}"
    return f"{name}: {value} to {', '.join(short(reader) for reader in channel.readers)}"


def _value(plan: Plan, source: Source, numbers: Mapping[int, int]) -> str:
    if source.step < 0:
        return "the input"
    step = plan.graph.steps[source.step]
    return f"result {source.output} of [{numbers[step.index]}]" if step.num_returns > 1 else f"result of [{numbers[step.index]}]"
