"""A `Chart` as text: DOT, a sequence diagram of Mermaid, characters. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from mray._graph.plan import COMPUTE, READ, WRITE
from mray._picture.chart_svg import BAR, BETWEEN, FILLS, KINDS, LANE, cut_names, fitted, label, points_per_unit, remarks, sentence
from mray._picture.figure import stroke_of
from mray._picture.graphviz import attributes, quote
from mray._picture.mermaid import quoted
from mray._picture.svg import SMALL, TITLE, text_width
from mray._picture.timing import SCHEDULE, Chart

#: Points in an inch, the unit of DOT.
INCH = 72.0


# -------------------------------------------------------------------------------------------- DOT
def chart_dot(chart: Chart, name: str = SCHEDULE) -> str:
    """The DOT text. All nodes have places, which the layout ``neato`` keeps."""
    scale = points_per_unit(chart)
    left = 24 + max(text_width(lane.title, TITLE) for lane in chart.lanes)
    lines = [
        f"\tgraph{attributes(layout='neato', splines='true', sep='+1.5', esep='+1', outputorder='nodesfirst', fontname='Helvetica')}",
        f"\tnode{attributes(fontname='Helvetica', fontsize=str(SMALL - 1), fixedsize='true', shape='box', style='filled,rounded')}",
        f"\tedge{attributes(arrowsize='0.6')}",
    ]
    for number, lane in enumerate(chart.lanes):
        size = {"width": f"{left / INCH:.3f}", "height": "0.3"}
        place = _place(0.0, number)
        lines.append(f"\tlane{number}{attributes(label=lane.title, pos=place, shape='plaintext', style='', fontsize=str(TITLE), **size)}")
    for number, bar in enumerate(chart.bars):
        width = (bar.end - bar.begin) * scale
        looks = {
            "label": fitted(chart, bar, width),
            "tooltip": sentence(chart, bar),
            "pos": _place(left / 2 + (bar.begin + bar.end) / 2 * scale + 12, bar.lane),
            "width": f"{max(width - BETWEEN, 1) / INCH:.3f}",
            "height": f"{BAR / INCH:.3f}",
            "fillcolor": FILLS.get(bar.kind, chart.lanes[bar.lane].color),
        }
        lines.append(f"\t{number}{attributes(**looks)}")
    for arrow in chart.arrows:
        stroke = stroke_of(arrow.transport)
        down = chart.bars[arrow.target].lane > chart.bars[arrow.source].lane
        ends = {"tailport": "se" if down else "ne", "headport": "nw" if down else "sw"}
        lines.append(f"\t{arrow.source} -> {arrow.target}{attributes(color=stroke.color, penwidth=f'{stroke.width}', **ends)}")
    texts = [
        *(meaning for _kind, meaning in KINDS),
        *(f"{stroke_of(kind).meaning}" for kind in _transports(chart)),
        *remarks(chart),
        *cut_names(chart, scale),
    ]
    rows = ["  |  ".join(texts), *cut_names(chart, scale)]
    # A machine without Helvetica takes a wider font.
    width = 1.2 * max(text_width(row, SMALL) for row in rows) + 12
    # Below the lanes, however many rows it has.
    place = _place((width - left) / 2, len(chart.lanes) + (len(rows) - 1) * SMALL * 0.6 / LANE)
    looks = {
        "pos": place,
        "width": f"{width / INCH:.3f}",
        "height": f"{len(rows) * SMALL * 1.2 / INCH:.3f}",
        "shape": "plaintext",
        "style": "",
    }
    text = "\n".join(rows)
    lines.append(f"\tlegend{attributes(label=text, **looks)}")
    return "\n".join([f"digraph {quote(name)} {{", *lines, "}", ""])


def _place(x: float, lane: float) -> str:
    return f"{x / INCH:.3f},{-lane * LANE / INCH:.3f}!"


def _transports(chart: Chart) -> list[str]:
    return sorted({arrow.transport for arrow in chart.arrows})


# -------------------------------------------------------------------------------------------- Mermaid
def chart_mermaid(chart: Chart) -> str:
    """A sequence diagram: the calls of each actor and the values that it sends, in the order of time."""
    lines = ["sequenceDiagram"]
    lines += [f"    participant l{number} as {quoted([lane.title])[1:-1]}" for number, lane in enumerate(chart.lanes)]
    events: list[tuple[float, int, str]] = []
    for number, bar in enumerate(chart.bars):
        if bar.kind == COMPUTE:
            events.append((bar.begin, number, f"    Note over l{bar.lane}: {quoted([label(chart, bar)])[1:-1]}"))
    for arrow in chart.arrows:
        source, target = chart.bars[arrow.source], chart.bars[arrow.target]
        what = "input" if source.step < 0 else f"[{chart.numbers[source.step]}]"
        text = f"{what} ({arrow.transport})" + (f" #{source.execution}" if any(bar.execution for bar in chart.bars) else "")
        events.append((target.begin, arrow.target, f"    l{source.lane}->>l{target.lane}: {quoted([text])[1:-1]}"))
    return "\n".join([*lines, *(line for _time, _number, line in sorted(events)), ""])


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
    return "\n".join([*lines, "", "R: reads   W: writes   [number method]: computes   dots: waits", *remarks(chart)])


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
