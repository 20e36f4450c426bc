"""A `Chart` as SVG: a lane for each actor, time from left to right, in bands where a page is too narrow. Pure."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from html import escape

from mray._graph.plan import COMPUTE, READ, WRITE
from mray._picture.bands import Banded, banded, value_of
from mray._picture.figure import stroke_of
from mray._picture.layout import Point
from mray._picture.measures import in_seconds
from mray._picture.svg import LABEL, SMALL, TITLE, columns, document, text_width, write
from mray._picture.timing import SCHEDULE, Bar, Chart

#: Heights of a lane and of its bars, in points.
LANE, BAR = 64.0, 30.0
#: Fills of bars that are no computing.
FILLS = {READ: "#DCE9F7", WRITE: "#FDE7CF"}
#: Pictures are so wide at most, in points, and measured times so many times as long.
WIDEST, MOST_BANDS = 1500.0, 12
#: The room for texts of arrows at each edge of a band, and the places of these arrows: below the bars that they leave, above the others.
ROOM_BESIDE, LEAVE, ARRIVE = 100.0, 3.0, 10.5
#: The size of the texts of values, in points.
SMALLEST = 7.5
#: The length of a bar that has only one letter, and the room for a unit of time that names of methods may ask for.
SHORTEST, LONGEST = 22.0, 52.0
#: The room between two bars that follow each other: arrows pass there.
BETWEEN = 4.0
#: So many names that are cut on their bars are in the legend.
MOST_NAMES = 12


def chart_svg(chart: Chart, title: str = SCHEDULE) -> str:
    """The picture, with its legend."""
    scale = points_per_unit(chart)
    page = pages(chart, scale)
    drawn, crossing = page.chart, page.crossing
    left = left_of(chart, page)
    inner = left + 24 + scale * max((bar.end for bar in drawn.bars), default=0.0)
    width = inner + (ROOM_BESIDE if page.has_several else 0.0)
    mark = f"s{zlib.crc32(repr(chart).encode()):08x}"
    parts = []
    for row, lane in enumerate(drawn.lanes):
        top = 12 + LANE * row
        parts.append(
            f'<g class="lane" data-owner="{escape(lane.key)}" data-band="{page.bands[row]}"><rect x="0" y="{top:.0f}" '
            f'width="{width:.1f}" height="{LANE:.0f}" fill="{"#F7F7F7" if page.lanes[row] % 2 else "#FFFFFF"}"/>'
            f"{write(12, top + LANE / 2 + 4, lane.title, TITLE, anchor='start')}</g>"
        )
    for row in first_rows(page):
        top = 12 + LANE * row
        line = f'<line x1="0" y1="{top:.0f}" x2="{width:.1f}" y2="{top:.0f}" stroke="#888888"/>'
        parts.append(f'<g class="band">{line}{write(12, top + 13, row_title(page, row), SMALL, anchor="start", color="#666666")}</g>')
    parts += [_bar(drawn, number, bar, left, scale, page.lanes[bar.lane]) for number, bar in enumerate(drawn.bars)]
    parts += [
        _arrow(drawn, number, _ways(page, number, left, inner, scale) if number in crossing else [route(drawn, number, left, scale)], mark)
        for number in range(len(chart.arrows))
    ]
    for edge in page.leaving:
        parts.append(write(inner + 4, _side(edge.row, True) + LEAVE + 3, edge.text, LABEL, anchor="start", color="#333333"))
    for edge in page.arriving:
        parts.append(write(left - 12, _side(edge.row, False) - ARRIVE + 3, edge.text, LABEL, anchor="end", color="#333333"))
        for number in edge.arrows:
            x = _arrival(drawn, number, left, scale) + 3
            parts.append(write(x, _side(edge.row, False) - 2, value_of(chart, number), SMALLEST, anchor="start", color="#333333"))
    key, (key_width, key_height) = _legend(chart, page)
    bottom = 24 + LANE * len(drawn.lanes)
    parts.append(f'<g class="legend" transform="translate(12 {bottom:.0f})">{key}</g>')
    arrows = "".join(
        f'<marker id="{mark}-{escape(kind)}" viewBox="0 0 8 8" refX="7.5" refY="4" markerWidth="7" markerHeight="7" '
        f'markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0L8 4L0 8z" fill="{stroke_of(kind).color}"/></marker>'
        for kind in _transports(chart)
    )
    body = f"<defs>{arrows}</defs>\n" + "\n".join(parts)
    return document(max(width, key_width + 24), bottom + key_height + 12, body, title)


# -------------------------------------------------------------------------------------------- bands
def pages(chart: Chart, scale: float) -> Banded:
    """The chart in bands that a page has room for."""
    return banded(chart, _room(chart) / scale)


def left_of(chart: Chart, page: Banded) -> float:
    """The place where time begins: right of the titles of lanes, and of the texts of arrows that come in."""
    return _titles(chart) + (ROOM_BESIDE if page.has_several else 0.0)


def first_rows(page: Banded) -> list[int]:
    """The first row of each band; none where there is one band."""
    return [page.bands.index(band) for band in range(page.bands[-1] + 1)] if page.has_several else []


def row_title(page: Banded, row: int) -> str:
    """The name of a band, for the arrows that name it."""
    return f"row {page.bands[row] + 1}"


def _titles(chart: Chart) -> float:
    return 24 + max(text_width(lane.title, TITLE) for lane in chart.lanes)


def _room(chart: Chart) -> float:
    """The length of a band in points."""
    return max(WIDEST - _titles(chart) - 2 * ROOM_BESIDE - 24, WIDEST / 3)


def points_per_unit(chart: Chart) -> float:
    """The drawn length of a unit of the chart's time: every name fits into its bar, unless that takes too much room."""
    wanted = [(text_width(label(chart, bar), SMALL) + 8) / (bar.end - bar.begin) for bar in chart.bars if bar.kind == COMPUTE]
    if not wanted:
        return SHORTEST
    if not chart.is_measured:
        return max(SHORTEST, min(LONGEST, max(wanted)))
    room, end = _room(chart), max(bar.end for bar in chart.bars)
    return min(sorted(wanted)[len(wanted) // 2], room / max(bar.end - bar.begin for bar in chart.bars), MOST_BANDS * room / end)


def label(chart: Chart, bar: Bar) -> str:
    """The text on a bar."""
    several = f" #{bar.execution}" if any(each.execution for each in chart.bars) else ""
    if bar.kind == COMPUTE:
        return f"[{chart.numbers[bar.step]}] {chart.titles[bar.step]}{several}"
    return bar.kind[0]


def fitted(chart: Chart, bar: Bar, width: float) -> str:
    """The text on a bar that is so wide; "" where there is no room for some letters of it."""
    text = label(chart, bar)
    if text_width(text, SMALL) <= width:
        return text
    number, _space, name = text.partition(" ")
    while name and text_width(f"{number} {name}…", SMALL) > width:
        name = name[:-1]
    return f"{number} {name}…" if name else number if text_width(number, SMALL) <= width else ""


def cut_names(chart: Chart, scale: float) -> list[str]:
    """Names of methods in full that are cut on their bars, with their numbers."""
    cut = {
        bar.step: f"[{chart.numbers[bar.step]}] {chart.titles[bar.step]}"
        for bar in chart.bars
        if bar.kind == COMPUTE and fitted(chart, bar, (bar.end - bar.begin) * scale) != label(chart, bar)
    }
    names = [cut[step] for step in sorted(cut, key=lambda step: chart.numbers[step])]
    # With every name cut, a list of them all is longer than the picture.
    more = [f"... and {len(names) - MOST_NAMES + 1} more names"] if len(names) > MOST_NAMES else []
    return names if not more else names[: MOST_NAMES - 1] + more


def sentence(chart: Chart, bar: Bar) -> str:
    """The full description of a bar."""
    what = "the input" if bar.step < 0 else f"[{chart.numbers[bar.step]}] {chart.titles[bar.step]}"
    length = f", {in_seconds(bar.end - bar.begin)}" if chart.is_measured and bar.kind == COMPUTE else ""
    channel = f", channel {bar.channel}" if bar.channel >= 0 else ""
    return f"{bar.kind} {what}{channel}, execution {bar.execution}{length}"


def _bar(chart: Chart, number: int, bar: Bar, left: float, scale: float, lane: int) -> str:
    x, y = left + bar.begin * scale, 12 + LANE * bar.lane + (LANE - BAR) / 2
    width = (bar.end - bar.begin) * scale
    fill = FILLS.get(bar.kind, chart.lanes[bar.lane].color)
    text = fitted(chart, bar, width)
    shown = write(x + width / 2, y + BAR / 2 + 4, text, SMALL) if text else ""
    return (
        f'<g class="bar {bar.kind}" data-number="{number}" data-lane="{lane}" data-step="{bar.step}" data-channel="{bar.channel}" '
        f'data-execution="{bar.execution}"><title>{escape(sentence(chart, bar))}</title>'
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width - BETWEEN, 1):.1f}" height="{BAR:.0f}" rx="3" fill="{fill}" stroke="#555555" '
        f'stroke-width="0.8"/>{shown}</g>'
    )


def _arrow(chart: Chart, number: int, ways: Sequence[Sequence[Point]], mark: str) -> str:
    arrow = chart.arrows[number]
    stroke = stroke_of(arrow.transport)
    return (
        f'<g class="edge" data-source="{arrow.source}" data-target="{arrow.target}" data-kind="{escape(arrow.transport)}">'
        f"<title>{escape(stroke.meaning)}</title>"
        f'<path d="{"".join(map(path, ways))}" fill="none" stroke-opacity="0.75" '
        f'stroke="{stroke.color}" stroke-width="{stroke.width}" marker-end="url(#{mark}-{escape(arrow.transport)})"/></g>'
    )


def _ways(page: Banded, number: int, left: float, right: float, scale: float) -> list[list[Point]]:
    """The corners of an arrow from one band to another: to the right edge, and from the left edge."""
    arrow = page.chart.arrows[number]
    source, target = page.chart.bars[arrow.source], page.chart.bars[arrow.target]
    x, below = left + source.end * scale - BETWEEN - 1, _side(source.lane, True)
    to_x, above = _arrival(page.chart, number, left, scale), _side(target.lane, False)
    return [
        [(x, below), (x, below + LEAVE), (right, below + LEAVE)],
        [(left - 8, above - ARRIVE), (to_x, above - ARRIVE), (to_x, above)],
    ]


def _arrival(chart: Chart, number: int, left: float, scale: float) -> float:
    """The place where an arrow reaches its bar."""
    return left + chart.bars[chart.arrows[number].target].begin * scale + 2


def route(chart: Chart, number: int, left: float, scale: float) -> list[Point]:
    """The corners of an arrow: through the gaps between lanes, and on the way through a lane where it has no bar."""
    arrow = chart.arrows[number]
    source, target = chart.bars[arrow.source], chart.bars[arrow.target]
    down = target.lane >= source.lane
    step = 1 if down else -1
    x, to_x = left + source.end * scale - BETWEEN - 1, _arrival(chart, number, left, scale)
    points = [(x, _side(source.lane, down))]
    if source.lane == target.lane:  # it leaves and comes below
        gap = points[0][1] + 6.0 + 5.0 * (number % 4)
        return [*points, (x, gap), (to_x, gap), (to_x, points[0][1])]
    for lane in range(source.lane + step, target.lane, step):
        through = _free(chart, lane, to_x, left, scale)
        # Arrows that run beside each other have places of their own.
        gap = _side(lane, not down) - step * (6.0 + 5.0 * (number % 4))
        points += [(points[-1][0], gap), (through, gap), (through, _side(lane, down))]
    gap = _side(target.lane, not down) - step * (8.0 + 5.0 * (number % 4))
    return [*points, (points[-1][0], gap), (to_x, gap), (to_x, _side(target.lane, not down))]


def path(corners: Sequence[Point]) -> str:
    """The commands that draw a line with corners."""
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in corners)


def _side(lane: int, is_lower: bool) -> float:
    """The lower or the upper side of the bars of a lane."""
    return 12 + LANE * lane + (LANE + BAR if is_lower else LANE - BAR) / 2


def _free(chart: Chart, lane: int, wanted: float, left: float, scale: float) -> float:
    """The place nearest to the wanted one where a line may pass a lane."""
    nearest = wanted
    for bar in sorted((bar for bar in chart.bars if bar.lane == lane), key=lambda bar: bar.begin):
        begin, end = left + bar.begin * scale, left + bar.end * scale - BETWEEN
        if begin - 1 < wanted < end + 1:
            before, after = begin - BETWEEN / 2, end + BETWEEN / 2
            nearest = before if wanted - before < after - wanted else after
    return nearest


def _transports(chart: Chart) -> list[str]:
    return sorted({arrow.transport for arrow in chart.arrows})


def _legend(chart: Chart, page: Banded) -> tuple[str, tuple[float, float]]:
    swatch = '<rect x="2" y="-9" width="24" height="12" rx="3" stroke="#555555"'
    rows = [(f'{swatch} fill="{FILLS[kind]}"/>', meaning) for kind, meaning in KINDS]
    compute = "computes, in the colour of the actor: [number of the step] method"
    rows.append((f'{swatch} fill="#DDDDDD"/>', compute))
    for kind in _transports(chart):
        stroke = stroke_of(kind)
        line = f'<line x1="0" y1="-4" x2="28" y2="-4" stroke="{stroke.color}" stroke-width="{stroke.width}"/>'
        rows.append((line, stroke.meaning))
    rows += [("", line) for line in (*remarks(chart, page), *cut_names(chart, points_per_unit(chart)))]
    return columns(rows, 8)


#: The meanings of the letters on bars.
KINDS = ((READ, "R: reads a channel"), (WRITE, "W: writes a channel"))


def remarks(chart: Chart, page: Banded | None = None) -> list[str]:
    """Remarks that explain the lengths, and the bands if there are several."""
    times = "lengths of computing as measured (p50)" if chart.is_measured else "only the order counts, not the lengths"
    several = ["#: number of the execution"] if any(bar.execution for bar in chart.bars) else []
    beside = ["communication through nccl runs beside the computing"] if chart.overlaps else []
    is_banded = page is not None and page.has_several
    rows = ["time goes on in the row below; arrows on its edges name the other row"] if is_banded else []
    if page is not None and len(page.lanes) < len(chart.lanes) * (page.bands[-1] + 1):
        rows.append("rows have only the actors that begin something in them")
    return [times, *several, *beside, *rows]
