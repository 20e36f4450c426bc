"""A graph as text: its DAG nodes, its edges, a legend and a drawing. Pure."""

from __future__ import annotations

from mray._api.dag_outline import RESULT
from mray._picture.figure import Box, Figure
from mray._picture.grid import draw


def ascii(figure: Figure, most: int | None = None) -> str:  # noqa: A001
    """A graph, in Ray's form. `most`: the wanted maximum of characters per line; None: unlimited."""
    boxes = figure.boxes
    return _page(
        [f'{box.number} [label="Task {box.number}  {box.sentence or " ".join(box.lines)}"] ' for box in boxes],
        [(edge.source, edge.target, edge.accelerated) for edge in figure.edges],
        [f"{box.number}:{_word(box)}" for box in boxes],
        [f"{box.number}:{box.title}" for box in boxes],
        most,
    )


def _page(nodes: list[str], edges: list[tuple[int, int, bool]], words: list[str], short: list[str], most: int | None) -> str:
    """`short`: short texts for a drawing that is too wide otherwise."""
    arrows = {True: "+++>", False: "--->"}
    return "\n".join(
        [
            "Nodes Information:",
            *nodes,
            "",
            "Edges Information:",
            *(f"{source} {arrows[accelerated]} {target}" for source, target, accelerated in edges),
            "",
            "Legend:",
            "+++> : Represents Accelerator-type data channels",
            "---> : Represents Shared Memory data channels",
            "",
            "Graph Built:",
            _drawn(words, short, [(source, target) for source, target, _accelerated in edges], most),
        ]
    )


def _drawn(words: list[str], short: list[str], edges: list[tuple[int, int]], most: int | None) -> str:
    made = draw(words, edges)
    if most is None or _width(made) <= most:
        return made
    numbers = [word.partition(":")[0] for word in words]
    for texts in (short, numbers):
        made = draw(texts, edges, max(map(len, texts)) + 3)
        if _width(made) <= most:
            return made
    return (
        f"{made}\n\n(The drawing is {_width(made)} characters wide and the terminal {most}: lines are broken. format='svg' has a picture.)"
    )


def _width(text: str) -> int:
    return max(map(len, text.splitlines()), default=0)


def _word(box: Box) -> str:
    if box.word or box.kind == RESULT or not box.subtitle:
        return box.word or box.lines[0]
    return f"{box.subtitle.replace(' ', '_')}:{box.title}"
