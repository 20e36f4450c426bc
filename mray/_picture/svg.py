"""A `Figure` as SVG. Pure; needs only `layout`.

Text is measured by a table of the widths of Helvetica's characters, with some room: fonts differ from machine to machine.

Every DAG node is a ``<g class="box">`` with its number in ``data-number``, every edge a ``<g class="edge">`` with ``data-source`` and
``data-target``, for scripts and tests.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from html import escape
from itertools import pairwise, product
from math import ceil, inf

from mray._graph.structure import ATTRIBUTE, CALL
from mray._picture.figure import MAKE, Box, Edge, Figure, Stroke, collapsed, stroke_of
from mray._picture.layout import MOST_BESIDE, PORT_GAP, PORTS, Layout, Point, lay_out

FONT = "Helvetica, Arial, sans-serif"
#: Sizes of text in points: titles of boxes, texts beneath them, texts beside edges.
TITLE, SMALL, LABEL = 13.0, 10.5, 9.5
MARGIN = 16.0
#: Widths of boxes are multiples of this.
STEP = 24.0
BOTTLENECK = "#D62728"

Rectangle = tuple[float, float, float, float]


def svg(figure: Figure) -> str:
    """The picture, with its legend."""
    figure = collapsed(figure)
    sizes = _sizes(figure)
    tallest = max((len(edge.label) for edge in figure.edges), default=0)
    layout = lay_out(sizes, figure.ends, [edge.kind for edge in figure.edges], figure.groups, 40.0 + 14.0 * max(tallest, 1))
    mark = f"m{zlib.crc32(repr(figure).encode()):08x}"
    parts = [_group_lines(figure, layout), *(_edge(edge, route, mark) for edge, route in zip(figure.edges, layout.routes, strict=True))]
    parts += [_box(figure, box, place, size) for box, place, size in zip(figure.boxes, layout.places, sizes, strict=True)]
    parts += _labels(figure.edges, layout.routes)
    key, (key_width, key_height) = _legend(figure)
    # Beside a tall picture, below a wide one.
    beside = layout.height > layout.width
    at = (layout.width + 2 * MARGIN, 0.0) if beside else (0.0, layout.height + 2 * MARGIN)
    left = min([0.0, *(x for route in layout.routes for x, _y in route)]) - 4
    width = (at[0] + key_width if beside else max(layout.width, key_width)) + 2 * MARGIN - left
    height = (max(layout.height, key_height) if beside else at[1] + key_height) + 2 * MARGIN
    parts.append(f'<g class="legend" transform="translate({at[0]:.1f} {at[1]:.1f})">{key}</g>')
    body = f'<g transform="translate({MARGIN - left:.1f} {MARGIN:.1f})">\n' + "\n".join(part for part in parts if part) + "\n</g>"
    return document(width, height, _arrows(figure, mark) + body, figure.name)


def document(width: float, height: float, body: str, title: str) -> str:
    """A whole file of SVG."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'font-family="{FONT}">\n<title>{escape(title)}</title>\n'
        f'<rect width="100%" height="100%" fill="#FFFFFF"/>\n{body}\n</svg>\n'
    )


# -------------------------------------------------------------------------------------------- text
def text_width(text: str, size: float) -> float:
    """The width of a text in points, rounded up."""
    return sum(_WIDTHS.get(character, 0.58) for character in text) * size * 1.04


_WIDTHS = {
    **dict.fromkeys("ijl'|", 0.25),
    **dict.fromkeys(" .,:;!/ftI[]\\", 0.3),
    **dict.fromkeys('r()-{}`*"', 0.36),
    **dict.fromkeys("ckszvxyJ", 0.5),
    **dict.fromkeys("ABEKPSVXY&", 0.68),
    **dict.fromkeys("CDHNRUwG", 0.73),
    **dict.fromkeys("OQ", 0.78),
    **dict.fromkeys("mM%", 0.86),
    **dict.fromkeys("W@", 0.97),
}


def write(x: float, y: float, text: str, size: float, *, anchor: str = "middle", color: str = "#000000", bold: bool = False) -> str:
    """A line of text whose middle (or other `anchor`) is at x, and whose base line at y."""
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{color}"{weight}>{escape(text)}</text>'


# -------------------------------------------------------------------------------------------- boxes
def _sizes(figure: Figure) -> list[Point]:
    """Widths and heights. Wide enough for the ends of all edges, and rounded, so that chains are straight."""
    arriving = Counter(edge.target for edge in figure.edges)
    leaving = Counter(edge.source for edge in figure.edges)
    sizes = []
    for box in figure.boxes:
        width, height = _size(box)
        ends = min(max(arriving[box.number], leaving[box.number]) - 1, MOST_BESIDE)
        sizes.append((ceil(max(width, ends * PORT_GAP / PORTS) / STEP) * STEP, height))
    return sizes


def _size(box: Box) -> Point:
    texts = [(box.title, TITLE * 1.06), (box.subtitle, SMALL), *((note, SMALL) for note in box.notes)]
    width = max(text_width(text, size) for text, size in texts)
    number = max(text_width(str(box.number), LABEL), 2 * text_width("0", LABEL)) + 6
    lines = bool(box.subtitle) + len(box.notes)
    return max(width + 18 + 2 * number, 64.0), 24.0 + 14.0 * lines


def _box(figure: Figure, box: Box, place: Point, size: Point) -> str:
    (x, y), (width, height) = place, size
    left, top = x - width / 2, y - height / 2
    radius = 9 if box.kind in (CALL, MAKE) else 0
    color, thickness = (BOTTLENECK, 3.0) if box.is_bottleneck else ("#333333", 1.0)
    dashes = ' stroke-dasharray="5 3"' if box.kind in (MAKE, ATTRIBUTE) else ""
    shape = (
        f'<rect x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}" rx="{radius}" fill="{figure.color_of(box)}" '
        f'stroke="{color}" stroke-width="{thickness}"{dashes}/>'
    )
    lines = [write(left + 4, top + 11, str(box.number), LABEL, anchor="start", color="#555555")]
    base = top + 17.0
    lines.append(write(x, base, box.title, TITLE, bold=box.kind == CALL))
    for text in (*([box.subtitle] if box.subtitle else []), *box.notes):
        base += 14.0
        lines.append(write(x, base, text, SMALL, color="#333333" if text == box.subtitle else "#7A1010"))
    told = escape("\n".join((f"Task {box.number}", *box.lines, *box.notes, *(["bottleneck"] if box.is_bottleneck else []))))
    classes = f"box {box.kind}{' bottleneck' if box.is_bottleneck else ''}"
    facts = f'data-number="{box.number}" data-owner="{escape(box.owner)}"' + (f' data-group="{box.group}"' if box.group >= 0 else "")
    return f'<g class="{classes}" {facts}><title>{told}</title>{shape}{"".join(lines)}</g>'


def _group_lines(figure: Figure, layout: Layout) -> str:
    """A double line through the boxes of each group, behind them."""
    lines = []
    for group in sorted({box.group for box in figure.boxes} - {-1}):
        places = sorted(layout.places[place] for place, box in enumerate(figure.boxes) if box.group == group)
        for (x, y), (other, lower) in pairwise(places):
            line = f'x1="{x:.1f}" y1="{y:.1f}" x2="{other:.1f}" y2="{lower:.1f}"'
            lines += [f'<line {line} stroke="#AA3377" stroke-width="5"/>', f'<line {line} stroke="#FFFFFF" stroke-width="2"/>']
    return f'<g class="groups">{"".join(lines)}</g>' if lines else ""


# -------------------------------------------------------------------------------------------- edges
def _edge(edge: Edge, route: Sequence[Point], mark: str) -> str:
    told = escape("\n".join((f"{edge.source} → {edge.target}", *edge.details)))
    facts = f'data-source="{edge.source}" data-target="{edge.target}" data-kind="{escape(edge.kind)}"'
    return (
        f'<g class="edge" {facts}><title>{told}</title>'
        f'<path d="{path(route)}" fill="none" {_line(stroke_of(edge.kind))} marker-end="url(#{mark}-{escape(edge.kind)})"/></g>'
    )


def _line(stroke: Stroke) -> str:
    dashes = f' stroke-dasharray="{stroke.dashes}"' if stroke.dashes else ""
    return f'stroke="{stroke.color}" stroke-width="{stroke.width}"{dashes}'


def path(route: Sequence[Point]) -> str:
    """The commands that draw a route: curves between layers, straight lines through them; corners where it goes up to another column."""
    made = [f"M{route[0][0]:.1f} {route[0][1]:.1f}"]
    if any(upper[1] > lower[1] for upper, lower in pairwise(route)):
        made += [f"V{y:.1f}H{x:.1f}" for x, y in route[1:-1]]
        return "".join([*made, f"H{route[-1][0]:.1f}V{route[-1][1]:.1f}"])
    for number, (x, y) in enumerate(route[1:]):
        from_x, from_y = route[number]
        if number % 2:
            made.append(f"V{y:.1f}")
        else:
            middle = (from_y + y) / 2
            made.append(f"C{from_x:.1f} {middle:.1f} {x:.1f} {middle:.1f} {x:.1f} {y:.1f}")
    return "".join(made)


def _arrows(figure: Figure, mark: str) -> str:
    markers = [
        f'<marker id="{mark}-{escape(kind)}" viewBox="0 0 8 8" refX="7.5" refY="4" markerWidth="8" markerHeight="8" '
        f'markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0L8 4L0 8z" fill="{stroke_of(kind).color}"/></marker>'
        for kind in sorted({edge.kind for edge in figure.edges})
    ]
    return f"<defs>{''.join(markers)}</defs>\n" if markers else ""


# -------------------------------------------------------------------------------------------- labels of edges
#: Places for a label on its last curve, the best first.
_SPOTS = (0.5, 0.42, 0.58, 0.34, 0.66, 0.26, 0.74, 0.18, 0.82)


def _labels(edges: Sequence[Edge], routes: Sequence[Sequence[Point]]) -> list[str]:
    """The texts beside edges, each where it hides the least; preferably near the edge's target."""
    curves = own_curves(routes)
    taken = _Taken()
    for number, own in enumerate(curves):
        for curve in own:
            for spot in range(1, 10):
                taken.add_point(_on_curve(*curve, spot / 10), number)
    made = []
    for number, edge in enumerate(edges):
        if not edge.label:
            continue
        width = max(text_width(line, LABEL) for line in edge.label) + 4
        height = 11.0 * len(edge.label) + 2
        best, fewest = (0.0, 0.0, 0.0, 0.0), inf
        for middle in (_on_curve(*curve, spot) for curve in reversed(curves[number]) for spot in _SPOTS):
            around = _around(middle, width, height)
            cost = taken.hidden_by(around, number)
            if cost < fewest:
                best, fewest = around, cost
            if not fewest:
                break
        taken.add_label(best)
        made.append(_label(edge, best))
    return made


class _Taken:
    """Points and labels that a label should not hide, by squares, so that only near ones are looked at."""

    #: The sides of a square in points.
    SIDE = 60.0

    def __init__(self) -> None:
        self._points: dict[tuple[int, int], list[tuple[Point, int]]] = {}
        self._labels: dict[tuple[int, int], list[Rectangle]] = {}

    def add_point(self, point: Point, edge: int) -> None:
        """Add a point of an edge."""
        self._points.setdefault((int(point[0] // self.SIDE), int(point[1] // self.SIDE)), []).append((point, edge))

    def add_label(self, at: Rectangle) -> None:
        for square in self._squares(at):
            self._labels.setdefault(square, []).append(at)

    def hidden_by(self, at: Rectangle, edge: int) -> float:
        """The cost of a place for the label of an edge: other labels count most, then other edges."""
        left, top, right, bottom = at
        cost = 0.0
        for square in self._squares(at):
            for other_left, other_top, other_right, other_bottom in self._labels.get(square, ()):
                wide, high = min(right, other_right) - max(left, other_left), min(bottom, other_bottom) - max(top, other_top)
                if wide > 0 and high > 0:
                    cost += 100 + wide * high
            for (x, y), other in self._points.get(square, ()):
                if other != edge and left < x < right and top < y < bottom:
                    cost += 10
        return cost

    def _squares(self, at: Rectangle) -> Iterator[tuple[int, int]]:
        left, top, right, bottom = (int(side // self.SIDE) for side in at)
        return product(range(left, right + 1), range(top, bottom + 1))


def own_curves(routes: Sequence[Sequence[Point]]) -> list[list[tuple[Point, Point]]]:
    """The curves of each route, between layers, that no other one shares; the last of all at least."""
    shared = Counter(curve for route in routes for curve in zip(route[::2], route[1::2], strict=True))
    found = []
    for route in routes:
        curves = list(zip(route[::2], route[1::2], strict=True))
        found.append([curve for curve in curves[:-1] if shared[curve] == 1] + curves[-1:])
    return found


def _label(edge: Edge, at: Rectangle) -> str:
    left, top, right, bottom = at
    color = stroke_of(edge.kind).color
    texts = [write((left + right) / 2, top + 9.5 + 11 * row, line, LABEL, color=color) for row, line in enumerate(edge.label)]
    return (
        f'<g class="label" data-source="{edge.source}" data-target="{edge.target}"><rect x="{left:.1f}" y="{top:.1f}" '
        f'width="{right - left:.1f}" height="{bottom - top:.1f}" fill="#FFFFFF" fill-opacity="0.92"/>{"".join(texts)}</g>'
    )


def _on_curve(start: Point, end: Point, spot: float) -> Point:
    """A point of the curve between two layers (a Bézier curve whose control points are half-way down)."""
    (x, y), (to_x, to_y) = start, end
    rest, middle = 1 - spot, (y + to_y) / 2
    a, b, c, d = rest**3, 3 * rest**2 * spot, 3 * rest * spot**2, spot**3
    return (a + b) * x + (c + d) * to_x, a * y + (b + c) * middle + d * to_y


def _around(middle: Point, width: float, height: float) -> Rectangle:
    x, y = middle
    return x - width / 2, y - height / 2, x + width / 2, y + height / 2


# -------------------------------------------------------------------------------------------- legend
def _legend(figure: Figure) -> tuple[str, Point]:
    """The legend at (0, 0), and its size."""
    rows: list[tuple[str, str]] = []
    for owner in figure.owners:
        calls = sum(box.times for box in figure.boxes if box.owner == owner.key and box.kind == CALL)
        swatch = f'<rect x="2" y="-9" width="24" height="12" rx="4" fill="{owner.color}" stroke="#333333"/>'
        rows.append((swatch, f"{owner.title} ({calls} call{'s' if calls != 1 else ''})"))
    line = '<line x1="0" y1="-4" x2="28" y2="-4"'
    rows += [(f"{line} {_line(stroke_of(kind))}/>", stroke_of(kind).meaning) for kind in figure.kinds]
    if figure.has_groups:
        double = f'{line} stroke="#AA3377" stroke-width="5"/>{line} stroke="#FFFFFF" stroke-width="2"/>'
        rows.append((double, "calls that meet: each waits for all of them"))
    if figure.has_bottleneck:
        frame = f'<rect x="2" y="-9" width="24" height="12" rx="4" fill="none" stroke="{BOTTLENECK}" stroke-width="3"/>'
        rows.append((frame, f"bottleneck: {figure.why}" if figure.why else "bottleneck"))
    return columns(rows)


def columns(rows: Sequence[tuple[str, str]], most: int = 16) -> tuple[str, Point]:
    """Rows of a sign and a text, so many in a column at most; and their size."""
    made, left, height = [], 0.0, 0.0
    for first in range(0, len(rows), most):
        column = rows[first : first + most]
        for number, (sign, text) in enumerate(column):
            y = 14.0 + 18 * number
            made.append(f'<g class="key" transform="translate({left:.1f} {y:.1f})">{sign}{write(36, 0, text, SMALL, anchor="start")}</g>')
        left += 60 + max(text_width(text, SMALL) for _sign, text in column)
        height = max(height, 18.0 * len(column) + 6)
    return "".join(made), (left, height)
