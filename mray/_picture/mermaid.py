"""A `Figure` as a Mermaid flowchart, which many sites render in Markdown. Pure.

See https://mermaid.js.org/syntax/flowchart.html; quotes and markup characters are written as entities.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from mray._api.dag_outline import CALL
from mray._picture.figure import MAKE, Figure, stroke_of


def mermaid(figure: Figure) -> str:
    lines = ["flowchart TD"]
    for box in figure.boxes:
        text = quoted([f"{box.number}: {box.title}", *([box.subtitle] if box.subtitle else []), *box.notes])
        lines.append(f"    n{box.number}({text})" if box.kind in (CALL, MAKE) else f"    n{box.number}[{text}]")
    strokes = []
    for edge in figure.edges:
        stroke = stroke_of(edge.kind)
        arrow = "-.->" if stroke.dashes else "==>" if stroke.accelerated else "-->"
        label = f"|{quoted(edge.label)}|" if edge.label else ""
        lines.append(f"    n{edge.source} {arrow}{label} n{edge.target}")
        strokes.append(stroke.color)
    for group in figure.groups:
        lines += [f"    n{left.number} ---|{quoted(['meets'])}| n{right.number}" for left, right in pairwise(group)]
    lines += [f"    style n{box.number} fill:{figure.color_of(box)},stroke:#333333,color:#000000" for box in figure.boxes]
    lines += [f"    style n{box.number} stroke:#D62728,stroke-width:4px" for box in figure.boxes if box.is_bottleneck]
    for color in dict.fromkeys(strokes):
        numbers = ",".join(str(number) for number, each in enumerate(strokes) if each == color)
        lines.append(f"    linkStyle {numbers} stroke:{color}")
    return "\n".join([*lines, *_legend(figure), ""])


def _legend(figure: Figure) -> list[str]:
    if not figure.owners:
        return []
    lines = ["    subgraph legend"]
    for number, owner in enumerate(figure.owners):
        lines.append(f"        o{number}({quoted([owner.title])})")
    lines += [f"        k_{kind}[{quoted([stroke_of(kind).meaning])}]" for kind in figure.kinds]
    lines.append("    end")
    lines += [f"    style o{number} fill:{owner.color},stroke:#333333,color:#000000" for number, owner in enumerate(figure.owners)]
    lines += [f"    style k_{kind} fill:#FFFFFF,stroke:{stroke_of(kind).color},color:#000000" for kind in figure.kinds]
    return lines


_ENTITIES = {"#": "#35;", '"': "#quot;", "<": "#lt;", ">": "#gt;", "&": "#amp;", "`": "#96;"}


def quoted(lines: Sequence[str]) -> str:
    return '"' + "<br/>".join("".join(_ENTITIES.get(character, character) for character in line) for line in lines) + '"'
