"""A `Chart` as text: DOT, a sequence diagram of Mermaid, characters. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from mray._graph.plan import COMPUTE, READ, WRITE
from mray._picture.chart_svg import (
    BAR,
    BETWEEN,
    FILLS,
    KINDS,
    LANE,
    ROOM_BESIDE,
    cut_names,
    first_rows,
    fitted,
    label,
    left_of,
    pages,
    points_per_unit,
    remarks,
    row_title,
    sentence,
)
from mray._picture.figure import stroke_of
from mray._picture.graphviz import attributes, quote
from mray._picture.mermaid import quoted
from mray._picture.svg import LABEL, SMALL, TITLE, text_width
from mray._picture.timing import SCHEDULE, Chart

#: Points in an inch, the unit of DOT.
INCH = 72.0


# -------------------------------------------------------------------------------------------- DOT
def chart_dot(chart: Chart, name: str = SCHEDULE) -> str:
    """The DOT text. All nodes have places, which the layout ``neato`` keeps."""
    scale = points_per_unit(chart)
    page = pages(chart, scale)
    drawn, crossing = page.chart, page.crossing
    titles = left_of(chart, page)
    right = titles + 12 + scale * max((bar.end for bar in drawn.bars), default=0.0)
    lines = [
        f"\tgraph{attributes(layout='neato', splines='true', sep='+1.5', esep='+1', outputorder='nodesfirst', fontname='Helvetica')}",
        f"\tnode{attributes(fontname='Helvetica', fontsize=str(SMALL - 1), fixedsize='true', shape='box', style='filled,rounded')}",
        f"\tedge{attributes(arrowsize='0.6')}",
    ]
    for row, lane in enumerate(drawn.lanes):
        lines.append(f"\tlane{row}{_text(lane.title, text_width(lane.title, TITLE) + 24, row, 0.0, TITLE)}")
    lines += [f"\tband{page.bands[row]}{_text(row_title(page, row), 40.0, row - 0.3, 0.0, SMALL - 1)}" for row in first_rows(page)]
    for number, bar in enumerate(drawn.bars):
        width = (bar.end - bar.begin) * scale
        looks = {
            "label": fitted(chart, bar, width),
            "tooltip": sentence(chart, bar),
            "pos": _place(titles + (bar.begin + bar.end) / 2 * scale, bar.lane),
            "width": f"{max(width - BETWEEN, 1) / INCH:.3f}",
            "height": f"{BAR / INCH:.3f}",
            "fillcolor": FILLS.get(bar.kind, drawn.lanes[bar.lane].color),
        }
        lines.append(f"\t{number}{attributes(**looks)}")
    for number, arrow in enumerate(drawn.arrows):
        stroke = stroke_of(arrow.transport)
        down = drawn.bars[arrow.target].lane > drawn.bars[arrow.source].lane
        ends = {"tailport": "se" if down else "ne", "headport": "nw" if down else "sw"}
        # An arrow to another band is drawn in two parts, below.
        shown = {"style": "invis"} if number in crossing else {"color": stroke.color, "penwidth": f"{stroke.width}", **ends}
        lines.append(f"\t{arrow.source} -> {arrow.target}{attributes(**shown)}")
    for edge in page.leaving:
        lines.append(f"\tto{edge.row}{_text(edge.text, ROOM_BESIDE, edge.row + 0.35, right, LABEL)}")
        for source, kind in sorted({drawn.arrows[number][::2] for number in edge.arrows}):
            stroke = stroke_of(kind)
            looks = {"color": stroke.color, "penwidth": f"{stroke.width}", "tailport": "se", "headport": "w"}
            lines.append(f"\t{source} -> to{edge.row}{attributes(**looks)}")
    for edge in page.arriving:
        lines.append(f"\tfrom{edge.row}{_text(edge.text, ROOM_BESIDE, edge.row - 0.35, titles - ROOM_BESIDE - 6, LABEL)}")
        for number in edge.arrows:
            stroke = stroke_of(drawn.arrows[number].transport)
            looks = {"color": stroke.color, "penwidth": f"{stroke.width}", "tailport": "e", "headport": "nw"}
            lines.append(f"\tfrom{edge.row} -> {drawn.arrows[number].target}{attributes(**looks)}")
    meanings = [*(meaning for _kind, meaning in KINDS), *(stroke_of(kind).meaning for kind in _transports(chart))]
    rows = ["  |  ".join(meanings), "  |  ".join(remarks(chart, page)), *cut_names(chart, scale)]
    # A machine without Helvetica takes a wider font.
    width = 1.2 * max(text_width(row, SMALL) for row in rows) + 12
    # Below the lanes, however many rows it has.
    place = _place(width / 2, len(drawn.lanes) + (len(rows) - 1) * SMALL * 0.6 / LANE)
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


def _text(text: str, width: float, row: float, left: float, size: float) -> str:
    """The attributes of a text without a box, on a row."""
    looks = {"width": f"{width / INCH:.3f}", "height": f"{size * 1.2 / INCH:.3f}", "fontsize": str(size)}
    return attributes(label=text, pos=_place(left + width / 2, row), shape="plaintext", style="", **looks)


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
