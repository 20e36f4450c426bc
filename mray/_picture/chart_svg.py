"""A `Chart` as SVG: a lane for each actor, time from left to right. Pure."""

from __future__ import annotations

import zlib
from html import escape

from mray._graph.plan import COMPUTE, READ, WRITE
from mray._picture.figure import stroke_of
from mray._picture.measures import in_seconds
from mray._picture.svg import SMALL, TITLE, columns, document, text_width, write
from mray._picture.timing import SCHEDULE, Bar, Chart

#: Heights of a lane and of its bars, in points.
LANE, BAR = 64.0, 30.0
#: Fills of bars that are no computing.
FILLS = {READ: "#DCE9F7", WRITE: "#FDE7CF"}
#: Pictures of measured times are so wide at most, in points.
WIDEST = 3000.0
#: The length of a bar that has only one letter.
SHORTEST = 22.0


def chart_svg(chart: Chart, title: str = SCHEDULE) -> str:
    """The picture, with its legend."""
    scale = points_per_unit(chart)
    left = 24 + max(text_width(lane.title, TITLE) for lane in chart.lanes)
    width = left + 24 + scale * max((bar.end for bar in chart.bars), default=0.0)
    mark = f"s{zlib.crc32(repr(chart).encode()):08x}"
    parts = []
    for number, lane in enumerate(chart.lanes):
        top = 12 + LANE * number
        parts.append(
            f'<g class="lane" data-owner="{escape(lane.key)}"><rect x="0" y="{top:.0f}" width="{width:.1f}" height="{LANE:.0f}" '
            f'fill="{"#F7F7F7" if number % 2 else "#FFFFFF"}"/>{write(12, top + LANE / 2 + 4, lane.title, TITLE, anchor="start")}</g>'
        )
    parts += [_bar(chart, number, bar, left, scale) for number, bar in enumerate(chart.bars)]
    parts += [_arrow(chart, number, left, scale, mark) for number in range(len(chart.arrows))]
    key, (key_width, key_height) = _legend(chart)
    bottom = 24 + LANE * len(chart.lanes)
    parts.append(f'<g class="legend" transform="translate(12 {bottom:.0f})">{key}</g>')
    arrows = "".join(
        f'<marker id="{mark}-{escape(kind)}" viewBox="0 0 8 8" refX="7.5" refY="4" markerWidth="7" markerHeight="7" '
        f'markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0L8 4L0 8z" fill="{stroke_of(kind).color}"/></marker>'
        for kind in _transports(chart)
    )
    body = f"<defs>{arrows}</defs>\n" + "\n".join(parts)
    return document(max(width, key_width + 24), bottom + key_height + 12, body, title)


def points_per_unit(chart: Chart) -> float:
    """The drawn length of a unit of the chart's time: every name fits into its bar, unless that takes too much room."""
    wanted = [(text_width(label(chart, bar), SMALL) + 8) / (bar.end - bar.begin) for bar in chart.bars if bar.kind == COMPUTE]
    end = max((bar.end for bar in chart.bars), default=1.0)
    if not wanted:
        return SHORTEST
    if not chart.is_measured:
        return max(SHORTEST, *wanted)
    return min(sorted(wanted)[len(wanted) // 2], WIDEST / end)


def label(chart: Chart, bar: Bar) -> str:
    """The text on a bar."""
    several = f" #{bar.execution}" if any(each.execution for each in chart.bars) else ""
    if bar.kind == COMPUTE:
        return f"[{chart.numbers[bar.step]}] {chart.titles[bar.step]}{several}"
    return bar.kind[0]


def sentence(chart: Chart, bar: Bar) -> str:
    """The full description of a bar."""
    what = "the input" if bar.step < 0 else f"[{chart.numbers[bar.step]}] {chart.titles[bar.step]}"
    length = f", {in_seconds(bar.end - bar.begin)}" if chart.is_measured and bar.kind == COMPUTE else ""
    channel = f", channel {bar.channel}" if bar.channel >= 0 else ""
    return f"{bar.kind} {what}{channel}, execution {bar.execution}{length}"


def _bar(chart: Chart, number: int, bar: Bar, left: float, scale: float) -> str:
    x, y = left + bar.begin * scale, 12 + LANE * bar.lane + (LANE - BAR) / 2
    width = (bar.end - bar.begin) * scale
    fill = FILLS.get(bar.kind, chart.lanes[bar.lane].color)
    text = label(chart, bar)
    room = text_width(text, SMALL) <= width + 4
    shown = write(x + width / 2, y + BAR / 2 + 4, text, SMALL) if room else ""
    return (
        f'<g class="bar {bar.kind}" data-number="{number}" data-lane="{bar.lane}" data-step="{bar.step}" data-channel="{bar.channel}" '
        f'data-execution="{bar.execution}"><title>{escape(sentence(chart, bar))}</title>'
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width - 1, 1):.1f}" height="{BAR:.0f}" rx="3" fill="{fill}" stroke="#555555" '
        f'stroke-width="0.8"/>{shown}</g>'
    )


def _arrow(chart: Chart, number: int, left: float, scale: float, mark: str) -> str:
    arrow = chart.arrows[number]
    source, target = chart.bars[arrow.source], chart.bars[arrow.target]
    down = target.lane > source.lane
    x, to_x = left + source.end * scale - 3, left + target.begin * scale + 3
    y = 12 + LANE * source.lane + (LANE + BAR) / 2 * down + (LANE - BAR) / 2 * (not down)
    to_y = 12 + LANE * target.lane + (LANE - BAR) / 2 * down + (LANE + BAR) / 2 * (not down)
    middle = (y + to_y) / 2
    stroke = stroke_of(arrow.transport)
    return (
        f'<g class="edge" data-source="{arrow.source}" data-target="{arrow.target}" data-kind="{escape(arrow.transport)}">'
        f"<title>{escape(stroke.meaning)}</title>"
        f'<path d="M{x:.1f} {y:.1f}C{x:.1f} {middle:.1f} {to_x:.1f} {middle:.1f} {to_x:.1f} {to_y:.1f}" fill="none" stroke-opacity="0.75" '
        f'stroke="{stroke.color}" stroke-width="{stroke.width}" marker-end="url(#{mark}-{escape(arrow.transport)})"/></g>'
    )


def _transports(chart: Chart) -> list[str]:
    return sorted({arrow.transport for arrow in chart.arrows})


def _legend(chart: Chart) -> tuple[str, tuple[float, float]]:
    swatch = '<rect x="2" y="-9" width="24" height="12" rx="3" stroke="#555555"'
    rows = [(f'{swatch} fill="{FILLS[kind]}"/>', meaning) for kind, meaning in KINDS]
    compute = "computes, in the colour of the actor: [number of the step] method"
    rows.append((f'{swatch} fill="#DDDDDD"/>', compute))
    for kind in _transports(chart):
        stroke = stroke_of(kind)
        line = f'<line x1="0" y1="-4" x2="28" y2="-4" stroke="{stroke.color}" stroke-width="{stroke.width}"/>'
        rows.append((line, stroke.meaning))
    rows += [("", line) for line in remarks(chart)]
    return columns(rows, 8)


#: The meanings of the letters on bars.
KINDS = ((READ, "R: reads a channel"), (WRITE, "W: writes a channel"))


def remarks(chart: Chart) -> list[str]:
    """Remarks that explain the lengths."""
    times = "lengths of computing as measured (p50)" if chart.is_measured else "only the order counts, not the lengths"
    several = ["#: number of the execution"] if any(bar.execution for bar in chart.bars) else []
    beside = ["communication through nccl runs beside the computing"] if chart.overlaps else []
    return [times, *several, *beside]
