"""A `Figure` as plain SVG in layers, for notebooks and files where the program ``dot``, which draws better, is not installed. Pure.

Boxes lie below all that they depend on, ordered by the places of their sources; edges are straight from layer to layer.

Every DAG node is a ``<g class="box">`` with its number in ``data-number``, every edge a ``<g class="edge">`` with ``data-source`` and
``data-target``, for scripts and tests.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import pairwise

from mray._graph.structure import CALL
from mray._picture.figure import MAKE, Box, Edge, Figure, collapsed, stroke_of
from mray._picture.layers import Layers, depths

Point = tuple[float, float]

#: Sizes in points: of text and its lines, of a character's width, between boxes, between layers, and around everything.
_TEXT, _LINE, _CHARACTER, _GAP, _BETWEEN, _MARGIN = 11, 14, 6.6, 24, 50, 16


def svg(figure: Figure) -> str:
    """The picture, with its legend."""
    figure = collapsed(figure)
    texts = [_lines(box) for box in figure.boxes]
    sizes = [(max(map(len, lines)) * _CHARACTER + 20, len(lines) * _LINE + 10) for lines in texts]
    labels = max((len(edge.label) for edge in figure.edges), default=0)
    ways, places = _places(figure, sizes, _BETWEEN + _LINE * labels)
    parts = [_meeting(figure, places)]
    for edge, way in zip(figure.edges, ways, strict=True):
        parts.append(_edge(edge, [places[cell] for cell in way], sizes[way[0]][1], sizes[way[-1]][1]))
    for box, lines, place, size in zip(figure.boxes, texts, places, sizes, strict=False):
        parts.append(_box(figure, box, lines, place, size))
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
        f'<defs><marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        f'<path d="M0 0L8 4L0 8z" fill="#444444"/></marker></defs>\n<rect width="100%" height="100%" fill="#FFFFFF"/>\n'
        f'<g transform="translate({_MARGIN} {_MARGIN})">\n' + "\n".join(filter(None, parts)) + "\n</g>\n</svg>\n"
    )


def _lines(box: Box) -> list[str]:
    return [f"{box.number}: {box.title}", *([box.subtitle] if box.subtitle else []), *box.notes]


def _places(figure: Figure, sizes: Sequence[Point], between: float) -> tuple[list[list[int]], list[Point]]:
    """The boxes and bends on the way of each edge, and the centres of all of them."""
    layers = Layers(figure.ends, depths(len(figure.boxes), set(figure.ends)))
    count = len(layers.layer)
    above: list[list[int]] = [[] for _ in range(count)]
    for way in layers.ways:
        for source, target in pairwise(way):
            above[target].append(source)
    places: list[Point] = [(0.0, 0.0)] * count
    top = 0.0
    for row in layers.rows:
        wanted = {cell: sum(places[each][0] for each in above[cell]) / len(above[cell]) for cell in row if above[cell]}
        left = 0.0
        height = max((sizes[cell][1] for cell in row if cell < len(sizes)), default=0.0)
        for cell in sorted(row, key=lambda cell: wanted.get(cell, 0.0)):
            width = sizes[cell][0] if cell < len(sizes) else 0.0
            x = max(left + width / 2, wanted.get(cell, 0.0))
            places[cell] = (x, top + height / 2)
            left = x + width / 2 + _GAP
        top += height + between
    return layers.ways, places


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


def _edge(edge: Edge, way: Sequence[Point], source_height: float, target_height: float) -> str:
    (x, y), (to_x, to_y) = way[0], way[-1]
    points = [(x, y + source_height / 2), *way[1:-1], (to_x, to_y - target_height / 2)]
    stroke = stroke_of(edge.kind)
    dashes = f' stroke-dasharray="{stroke.dashes}"' if stroke.dashes else ""
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    middle_x, middle_y = ((points[0][at] + points[1][at]) / 2 for at in (0, 1))
    text = "".join(_write(middle_x + 4, middle_y + _LINE * number, label, "start") for number, label in enumerate(edge.label))
    return (
        f'<g class="edge" data-source="{edge.source}" data-target="{edge.target}" data-kind="{edge.kind}">'
        f"<title>{escape(chr(10).join(edge.details))}</title>"
        f'<polyline points="{line}" fill="none" stroke="{stroke.color}" stroke-width="{stroke.width}"{dashes} marker-end="url(#arrow)"/>'
        f"{text}</g>"
    )


def _meeting(figure: Figure, places: Sequence[Point]) -> str:
    """Lines between boxes that meet."""
    groups: dict[int, list[Point]] = {}
    for at, group in figure.groups.items():
        groups.setdefault(group, []).append(places[at])
    lines = (" ".join(f"{x:.1f},{y:.1f}" for x, y in group) for group in groups.values())
    return "".join(f'<polyline points="{line}" fill="none" stroke="#AA3377" stroke-width="4"/>' for line in lines)


def _legend(figure: Figure) -> list[tuple[str, str, str]]:
    """Text, fill and line of each entry."""
    rows = [(owner.title, owner.color, "#333333") for owner in figure.owners]
    rows += [(stroke_of(kind).meaning, "#FFFFFF", stroke_of(kind).color) for kind in figure.kinds]
    rows += [("calls that meet", "#AA3377", "#AA3377")] if figure.has_groups else []
    rows += [(figure.bottleneck, "#FFFFFF", "#D62728")] if figure.has_bottleneck else []
    return rows + [(each, "none", "none") for each in figure.remarks]


def _write(x: float, y: float, text: str, anchor: str = "middle") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
