"""A `Figure` as plain SVG in layers, where the program ``dot``, which draws better, is not installed. Pure.

Boxes lie below all that they depend on, as close to the centre of their neighbours as there is room; edges are straight from layer to
layer. The label of an edge has its own cell between two layers, so that it covers no box or other label.

Every DAG node is a ``<g class="box">`` with its number in ``data-number``, every edge a ``<g class="edge">`` with ``data-source``,
``data-target`` and ``data-channel``, and its text a ``<g class="label">``, for scripts and tests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from itertools import accumulate, chain, pairwise

from mray._api.dag_outline import CALL
from mray._picture.figure import MAKE, Box, Edge, Figure, collapsed, stroke_of
from mray._picture.layers import Layers, depths

Point = tuple[float, float]

#: In points: of text and its lines, of a character's width, between boxes, between layers, and of the margin.
_TEXT, _LINE, _CHARACTER, _GAP, _BETWEEN, _MARGIN = 11, 14, 6.6, 24, 50, 16
#: With more edges, only the legend shows transports.
MOST_NAMED = 40
_SWEEPS = 12


def svg(figure: Figure) -> str:
    figure = collapsed(figure)
    boxes, count = figure.boxes, len(figure.boxes)
    texts = [_lines(box) for box in boxes]
    many = len(figure.edges) > MOST_NAMED
    named = [edge for edge in dict.fromkeys(figure.edges) if edge.label and not (many and edge.label == (edge.kind,))]
    sizes = [(max(map(len, lines)) * _CHARACTER + 20, len(lines) * _LINE + 10) for lines in [*texts, *(edge.label for edge in named)]]
    ways, places = _places(figure, named, sizes)
    parts = [_meeting(figure, places)]
    heights = [size[1] for size in sizes] + [0.0] * (len(places) - len(sizes))
    for edge in figure.edges:
        tops, bottoms = ([(places[cell][0], places[cell][1] + sign * heights[cell] / 2) for cell in ways[edge]] for sign in (-1, 1))
        parts.append(_edge(edge, [bottoms[0], *chain.from_iterable(zip(tops[1:-1], bottoms[1:-1], strict=True)), tops[-1]]))
    parts += [_label(edge, place, size) for edge, place, size in zip(named, places[count:], sizes[count:], strict=False)]
    parts += [_box(figure, *each) for each in zip(boxes, texts, places, sizes, strict=False)]
    right = max((place[0] + size[0] / 2 for place, size in zip(places, sizes, strict=False)), default=0.0)
    bottom = max((place[1] + size[1] / 2 for place, size in zip(places, sizes, strict=False)), default=0.0) + _GAP
    rows = _legend(figure)
    parts += [
        f'<g class="key"><rect x="0" y="{bottom + _LINE * row}" width="18" height="10" fill="{fill}" stroke="{stroke}"/>'
        f"{_write(26, bottom + _LINE * row + 9, text, 'start')}</g>"
        for row, (text, fill, stroke) in enumerate(rows)
    ]
    width = max([right, *(26 + len(text) * _CHARACTER for text, _fill, _stroke in rows)]) + 2 * _MARGIN
    height = bottom + _LINE * len(rows) + 2 * _MARGIN
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'font-family="Helvetica, Arial, sans-serif" font-size="{_TEXT}">\n<title>{escape(figure.name)}</title>\n'
        f'<defs><marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerUnits="userSpaceOnUse" markerWidth="9" markerHeight="9" '
        f'orient="auto">'
        f'<path d="M0 0L8 4L0 8z" fill="#444444"/></marker></defs>\n<rect width="100%" height="100%" fill="#FFFFFF"/>\n'
        f'<g transform="translate({_MARGIN} {_MARGIN})">\n' + "\n".join(filter(None, parts)) + "\n</g>\n</svg>\n"
    )


def _lines(box: Box) -> list[str]:
    return [f"{box.number}: {box.title}", *([box.subtitle] if box.subtitle else []), *box.notes]


def _places(figure: Figure, named: Sequence[Edge], sizes: Sequence[Point]) -> tuple[dict[Edge, list[int]], list[Point]]:
    """The boxes, labels and bends on the path of each edge, and the centres of all of them; labels are numbered after boxes."""
    layer = depths(len(figure.boxes), set(figure.ends))
    cells = {edge: len(layer) + number for number, edge in enumerate(named)}
    ends = dict(zip(figure.edges, figure.ends, strict=True))
    if named:  # every second layer holds labels
        layer = [2 * each for each in layer]
        layer += [abs(layer[ends[edge][1]] - 1) for edge in named]
    hops: list[tuple[int, int]] = []
    for edge, (source, target) in ends.items():
        hops += [(source, cells[edge]), (cells[edge], target)] if edge in cells else [(source, target)]
    layers = Layers(hops, layer)
    widths = [size[0] for size in sizes] + [0.0] * (len(layers.layer) - len(sizes))
    columns = _columns(layers, widths)
    places: list[Point] = [(0.0, 0.0)] * len(layers.layer)
    top = 0.0
    for row in layers.rows:
        height = max((sizes[cell][1] for cell in row if cell < len(sizes)), default=0.0)
        for cell in row:
            places[cell] = (columns[cell], top + height / 2)
        top += height + (_BETWEEN if not named else _BETWEEN * 0.7)
    ways, found = iter(layers.ways), {}
    for edge in ends:
        found[edge] = [*next(ways), *(next(ways)[1:] if edge in cells else ())]
    return found, places


def _columns(layers: Layers, widths: Sequence[float]) -> list[float]:
    """The centres of the cells, close to those of its neighbours, in an order that follows them."""
    above: list[list[int]] = [[] for _ in widths]
    below: list[list[int]] = [[] for _ in widths]
    for way in layers.ways:
        for source, target in pairwise(way):
            above[target].append(source)
            below[source].append(target)
    columns = [0.0] * len(widths)
    rows = layers.rows
    for row in rows:
        _settle(row, {cell: float(number) for number, cell in enumerate(row)}, widths, columns)
    for sweep in range(_SWEEPS):
        upward = sweep % 2
        for row in reversed(rows) if upward else rows:
            wanted = {}
            for cell in row:
                joined = (below if upward else above)[cell] or (above if upward else below)[cell]
                wanted[cell] = sum(columns[each] for each in joined) / len(joined) if joined else columns[cell]
            _settle(sorted(row, key=wanted.__getitem__), wanted, widths, columns)
    left = min((column - width / 2 for column, width in zip(columns, widths, strict=True)), default=0.0)
    return [column - left for column in columns]


def _settle(row: Sequence[int], wanted: Mapping[int, float], widths: Sequence[float], columns: list[float]) -> None:
    """Assign the cells of a row the columns closest to the wanted ones, by least squares, with a gap between neighbours.

    Without the gaps this is an isotonic regression: neighbours that would swap share their mean.
    """
    offsets = list(accumulate(((widths[left] + widths[right]) / 2 + _GAP for left, right in pairwise(row)), initial=0.0))
    blocks: list[tuple[float, int]] = []
    for cell, offset in zip(row, offsets, strict=False):
        total, count = wanted[cell] - offset, 1
        while blocks and blocks[-1][0] / blocks[-1][1] > total / count:
            before = blocks.pop()
            total, count = total + before[0], count + before[1]
        blocks.append((total, count))
    means = [total / count for total, count in blocks for _ in range(count)]
    for cell, mean, offset in zip(row, means, offsets, strict=False):
        columns[cell] = mean + offset


def _box(figure: Figure, box: Box, lines: Sequence[str], place: Point, size: Point) -> str:
    x, y = place[0] - size[0] / 2, place[1] - size[1] / 2
    border = 'stroke="#D62728" stroke-width="4"' if box.is_bottleneck else 'stroke="#333333"'
    dashes = ' stroke-dasharray="5 3"' if box.kind == MAKE else ""
    text = "".join(_write(place[0], y + _LINE * (number + 1) + 1, line) for number, line in enumerate(lines))
    kinds = f"box {box.kind}{' bottleneck' if box.is_bottleneck else ''}"
    return (
        f'<g class="{kinds}" data-number="{box.number}"><title>{escape(chr(10).join([*box.lines, *box.notes]))}</title>'
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{size[0]:.1f}" height="{size[1]:.1f}" rx="{10 if box.kind in (CALL, MAKE) else 0}" '
        f'fill="{figure.color_of(box)}" {border}{dashes}/>{text}</g>'
    )


def _edge(edge: Edge, points: Sequence[Point]) -> str:
    stroke = stroke_of(edge.kind)
    dashes = f' stroke-dasharray="{stroke.dashes}"' if stroke.dashes else ""
    return (
        f'<g class="edge" data-source="{edge.source}" data-target="{edge.target}" data-kind="{edge.kind}" data-channel="{edge.channel}">'
        f"<title>{escape(chr(10).join(edge.details))}</title>"
        f'<polyline points="{_joined(points)}" fill="none" stroke="{stroke.color}" stroke-width="{stroke.width}"{dashes} '
        f'marker-end="url(#arrow)"/>'
        "</g>"
    )


def _label(edge: Edge, place: Point, size: Point) -> str:
    x, y = place[0] - size[0] / 2, place[1] - size[1] / 2
    text = "".join(_write(place[0], y + _LINE * (number + 1) + 1, line) for number, line in enumerate(edge.label))
    return (
        f'<g class="label" data-source="{edge.source}" data-target="{edge.target}" fill="{stroke_of(edge.kind).color}">'
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{size[0]:.1f}" height="{size[1]:.1f}" fill="#FFFFFF" fill-opacity="0.9"/>{text}</g>'
    )


def _meeting(figure: Figure, places: Sequence[Point]) -> str:
    of_box = dict(zip(figure.boxes, places, strict=False))
    lines = [_joined([of_box[box] for box in group]) for group in figure.groups]
    return "".join(f'<polyline points="{line}" fill="none" stroke="#AA3377" stroke-width="4"/>' for line in lines)


def _joined(points: Sequence[Point]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _legend(figure: Figure) -> list[tuple[str, str, str]]:
    rows = [(owner.title, owner.color, "#333333") for owner in figure.owners]
    rows += [(stroke_of(kind).meaning, "#FFFFFF", stroke_of(kind).color) for kind in figure.kinds]
    rows += [("calls that meet", "#AA3377", "#AA3377")] if figure.groups else []
    return [*rows, (figure.bottleneck, "#FFFFFF", "#D62728")] if figure.has_bottleneck else rows


def _write(x: float, y: float, text: str, anchor: str = "middle") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
