"""A graph in characters: its DAG nodes, its edges, a legend and a drawing. Pure."""

from __future__ import annotations

from mray._graph.plan import Graph, Plan
from mray._graph.structure import ATTRIBUTE, CALL, INPUT_KIND, RESULT, Node, nodes
from mray._picture.figure import Box, Figure, stroke_of
from mray._picture.grid import draw
from mray._picture.plan_figure import is_accelerated, is_worker, title_of


def ascii(plan: Plan, most: int | None = None) -> str:  # noqa: A001
    """A compiled graph, in Ray's form. `most`: characters that a line may have, if that is possible; None: any number."""
    shown = nodes(plan.graph)
    numbers = {node: number for number, node in enumerate(shown)}
    edges = [(source, node) for node, sources in shown.items() for source in sources]
    return _page(
        [f'{number} [label="Task {number}  {_sentence(plan.graph, node)}"] ' for node, number in numbers.items()],
        [(numbers[source], numbers[target], is_accelerated(plan, source, target)) for source, target in edges],
        [f"{number}:{_word(plan.graph, node)}" for node, number in numbers.items()],
        [f"{number}:{title_of(node) if node.kind != CALL else plan.graph.steps[node.step].method}" for node, number in numbers.items()],
        most,
    )


def figure_ascii(figure: Figure, most: int | None = None) -> str:
    """A graph that is not compiled, in the same form."""
    return _page(
        [f'{box.number} [label="Task {box.number}  {" ".join(box.lines)}"] ' for box in figure.boxes],
        [(edge.source, edge.target, stroke_of(edge.kind).accelerated) for edge in figure.edges],
        [f"{box.number}:{_box_word(box)}" for box in figure.boxes],
        [f"{box.number}:{box.title}" for box in figure.boxes],
        most,
    )


def _page(nodes: list[str], edges: list[tuple[int, int, bool]], words: list[str], short: list[str], most: int | None) -> str:
    """`short`: words for a drawing that is too wide with the others."""
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
    """The drawing; with less text in it, and then with numbers alone, where it is wider than a line may be."""
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


def _sentence(graph: Graph, node: Node) -> str:
    if node.kind != CALL:
        return title_of(node)
    step = graph.steps[node.step]
    if is_worker(step.actor):
        return f"Worker: {step.actor} Function: {step.method}"
    return f"Actor: {step.actor[:6]}... Method: {step.method}"


def _word(graph: Graph, node: Node) -> str:
    if node.kind == RESULT:
        return f"Output[{node.key}]"
    if node.kind != CALL:
        return title_of(node)
    step = graph.steps[node.step]
    return f"{step.actor}:{step.method}" if is_worker(step.actor) else f"Actor_{step.actor[:6]}:{step.method}"


def _box_word(box: Box) -> str:
    if box.kind in (INPUT_KIND, ATTRIBUTE, RESULT) or not box.subtitle:
        return box.lines[0]
    return f"{box.subtitle.replace(' ', '_')}:{box.title}"
