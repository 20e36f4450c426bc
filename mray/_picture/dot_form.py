"""A `Figure` as DOT text, with the legend. Pure.

Boxes are named by their numbers, as in Ray, and have Ray's texts.
"""

from __future__ import annotations

from html import escape
from itertools import pairwise

from mray._api.dag_outline import CALL
from mray._picture.figure import MAKE, Box, Figure, collapsed, stroke_of
from mray._picture.graphviz import attributes

_FONT = "Helvetica"
MOST_IN_COLUMN = 24


def dot(figure: Figure) -> str:
    figure = collapsed(figure)
    lines = [
        f"\tgraph{attributes(fontname=_FONT, ranksep='0.6')}",
        f"\tnode{attributes(fontname=_FONT, style='filled')}",
        f"\tedge{attributes(fontname=_FONT, fontsize='10')}",
    ]
    for box in figure.boxes:
        lines.append(f"\t{box.number}{_box(figure, box)}")
        for edge in figure.edges:
            if edge.source == box.number:
                stroke = stroke_of(edge.kind)
                looks = {"color": stroke.color, "fontcolor": stroke.color, "penwidth": f"{stroke.width}"}
                if stroke.dashes:
                    looks["style"] = "dotted" if stroke.dashes.startswith("2") else "dashed"
                # Padded: browsers' fonts may be wider than dot assumes.
                spoken = (f"   {line}   " if "(p99 " in line else line for line in edge.label)
                label = {"label": "\n".join(spoken)} if edge.label else {}
                lines.append(f"\t{edge.source} -> {edge.target}{attributes(**label, **looks)}")
    lines += _groups(figure)
    return "\n".join([f"digraph {figure.name} {{", *lines, *_legend(figure), "}", ""])


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
    lines = []
    # In quotes, so that a program that searches for edges does not find these.
    looks = attributes(dir="none", color="#AA3377:#AA3377", constraint="false")
    for group in figure.groups:
        members = [str(box.number) for box in group]
        lines.append(f"\t{{rank=same; {'; '.join(members)}}}")
        lines += [f'\t"{left}" -> "{right}"{looks}' for left, right in pairwise(members)]
    return lines


def _legend(figure: Figure) -> list[str]:
    rows = [f'<TD BGCOLOR="{owner.color}">     </TD><TD ALIGN="LEFT" BORDER="0">{escape(owner.title)}</TD>' for owner in figure.owners]
    for kind in figure.kinds:
        stroke = stroke_of(kind)
        sign = "· · ·" if stroke.dashes.startswith("2") else "– – –" if stroke.dashes else "——"
        rows.append(
            f'<TD BORDER="0"><FONT COLOR="{stroke.color}"><B>{sign}</B></FONT></TD>'
            f'<TD ALIGN="LEFT" BORDER="0">{escape(stroke.meaning)}</TD>'
        )
    if figure.groups:
        rows.append('<TD BORDER="0"><FONT COLOR="#AA3377"><B>══</B></FONT></TD><TD ALIGN="LEFT" BORDER="0">calls that meet</TD>')
    if figure.has_bottleneck:
        rows.append(f'<TD COLOR="#D62728" BORDER="3">     </TD><TD ALIGN="LEFT" BORDER="0">{escape(figure.bottleneck)}</TD>')
    if not rows:
        return []
    high = -(-len(rows) // -(-len(rows) // MOST_IN_COLUMN))
    lines = [f"<TR>{''.join(rows[first::high])}</TR>" for first in range(high)]
    table = f'<TABLE BORDER="0" CELLBORDER="1" CELLSPACING="3">{"".join(lines)}</TABLE>'
    return [
        "\tsubgraph cluster_legend {",
        f"\t\tgraph{attributes(label='Legend', color='#BBBBBB')}",
        f'\t\tlegend [label=<{table}> shape=plaintext fontsize=10 fillcolor="#FFFFFF"]',
        "\t}",
        *(f"\t{box.number} -> legend{attributes(style='invis')}" for box in figure.boxes[-1:]),
    ]
