"""A `Figure` as DOT text, with the legend. Pure.

Boxes are named by their numbers, as in Ray, and have Ray's texts.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from html import escape
from itertools import pairwise

from mray._graph.structure import CALL
from mray._picture.figure import MAKE, Box, Figure, collapsed, stroke_of
from mray._picture.graphviz import attributes
from mray._picture.layout import MOST_BESIDE, depths, folds, page_layers

_FONT = "Helvetica"
#: Boxes in a row of a wide layer: ``dot`` keeps room between them for every line to and from the other rows.
BESIDE = 6
#: Entries of the legend below each other.
MOST_IN_COLUMN = 24


def dot(figure: Figure) -> str:
    """The text."""
    figure = collapsed(figure)
    is_wide = max(Counter(depths(len(figure.boxes), set(figure.ends)) or []).values(), default=0) > MOST_BESIDE
    lines = [
        f"\tgraph{attributes(fontname=_FONT, ranksep='0.6', **({'nodesep': '0.05'} if is_wide else {}))}",
        f"\tnode{attributes(fontname=_FONT, style='filled')}",
        f"\tedge{attributes(fontname=_FONT, fontsize='10')}",
    ]
    layers = page_layers(len(figure.boxes), figure.ends, figure.groups, BESIDE)
    columns = folds(layers, figure.ends)
    bends = _bends(figure, layers, columns, is_wide)
    for box in figure.boxes:
        lines.append(f"\t{box.number}{_box(figure, box)}")
        for edge in figure.edges:
            if edge.source == box.number:
                stroke = stroke_of(edge.kind)
                looks = {"color": stroke.color, "fontcolor": stroke.color, "penwidth": f"{stroke.width}"}
                if stroke.dashes:
                    looks["style"] = "dotted" if stroke.dashes.startswith("2") else "dashed"
                # `dot` keeps no room for outer labels: between the rows of a wide layer there is none.
                label = {"xlabel" if is_wide else "label": "\n".join(edge.label)} if edge.label else {}
                lines.append(f"\t{edge.source} -> {edge.target}{attributes(**label, **looks, **bends.get((edge.source, edge.target), {}))}")
    lines += _groups(figure)
    return "\n".join([f"digraph {figure.name} {{", *lines, *_legend(figure, _lowest(figure, layers, columns)), "}", ""])


def _bends(figure: Figure, layers: Sequence[int], columns: Sequence[int], is_wide: bool) -> dict[tuple[int, int], dict[str, str]]:
    """The attributes by which ``dot`` lays out a wide layer in rows, and a long graph in columns: of the edges that they concern."""
    ends = figure.ends
    found: dict[tuple[int, int], dict[str, str]] = {}
    for edge, (source, target) in zip(figure.edges, ends, strict=True):
        # An edge that does not hold the boxes of two columns below each other lets `dot` put the columns side by side.
        if bisect_right(columns, layers[source]) != bisect_right(columns, layers[target]):
            found[edge.source, edge.target] = {"constraint": "false"}
        elif is_wide and (length := layers[target] - layers[source]) > 1:
            found[edge.source, edge.target] = {"minlen": str(length)}
    return found


def _box(figure: Figure, box: Box) -> str:
    label = "\n".join([f"Task {box.number}", *box.lines, *box.notes])
    shape = "oval" if box.kind in (CALL, MAKE) else "rectangle"
    looks = {"label": label, "fillcolor": figure.color_of(box), "shape": shape, "style": "filled"}
    if box.is_bottleneck:
        looks.update(color="#D62728", penwidth="4")
    if box.kind == MAKE:
        looks["style"] = "filled,dashed"
    return attributes(**looks)


def _groups(figure: Figure) -> list[str]:
    """Put boxes that meet side by side, with double lines between them."""
    lines = []
    # In quotes, so that a program that looks for edges does not find these: for DOT they are the same nodes.
    looks = attributes(dir="none", color="#AA3377:#AA3377", constraint="false")
    for group in sorted({box.group for box in figure.boxes} - {-1}):
        members = [str(box.number) for box in figure.boxes if box.group == group]
        lines.append(f"\t{{rank=same; {'; '.join(members)}}}")
        lines += [f'\t"{left}" -> "{right}"{looks}' for left, right in pairwise(members)]
    return lines


def _lowest(figure: Figure, layers: Sequence[int], columns: Sequence[int]) -> int:
    """The number of a box that has no other below it in the picture."""
    ranks = [layer - columns[bisect_right(columns, layer) - 1] for layer in layers]
    return max(zip(ranks, (box.number for box in figure.boxes), strict=True), default=(0, 0))[1]


def _legend(figure: Figure, above: int) -> list[str]:
    rows = [f'<TD BGCOLOR="{owner.color}">     </TD><TD ALIGN="LEFT" BORDER="0">{escape(owner.title)}</TD>' for owner in figure.owners]
    for kind in figure.kinds:
        stroke = stroke_of(kind)
        sign = "· · ·" if stroke.dashes.startswith("2") else "– – –" if stroke.dashes else "——"
        rows.append(
            f'<TD BORDER="0"><FONT COLOR="{stroke.color}"><B>{sign}</B></FONT></TD>'
            f'<TD ALIGN="LEFT" BORDER="0">{escape(stroke.meaning)}</TD>'
        )
    if figure.has_groups:
        rows.append('<TD BORDER="0"><FONT COLOR="#AA3377"><B>══</B></FONT></TD><TD ALIGN="LEFT" BORDER="0">calls that meet</TD>')
    if figure.has_bottleneck:
        why = f"bottleneck: {figure.why}" if figure.why else "bottleneck"
        rows.append(f'<TD COLOR="#D62728" BORDER="3">     </TD><TD ALIGN="LEFT" BORDER="0">{escape(why)}</TD>')
    if not rows:
        return []
    # Many entries stand in columns.
    high = -(-len(rows) // -(-len(rows) // MOST_IN_COLUMN))
    lines = [f"<TR>{''.join(rows[first::high])}</TR>" for first in range(high)]
    table = f'<TABLE BORDER="0" CELLBORDER="1" CELLSPACING="3">{"".join(lines)}</TABLE>'
    return [
        "\tsubgraph cluster_legend {",
        f"\t\tgraph{attributes(label='Legend', color='#BBBBBB')}",
        f'\t\tlegend [label=<{table}> shape=plaintext fontsize=10 fillcolor="#FFFFFF"]',
        "\t}",
        # Below all boxes, where no edge is in the way.
        f"\t{above} -> legend{attributes(style='invis')}",
    ]
