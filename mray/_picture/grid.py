"""A graph as a drawing made of characters. Pure.

DAG nodes stand in layers, each below all that it depends on, in columns of one width. An edge that passes through a layer has a column
there. Between two layers, every row of characters holds edges from one DAG node or to one; ``|`` on such a row is a joint, ``:`` a line
that is crossed.

    0:InputNode
    |
    1:Actor_54777d:two
    |---------------------------->|
    2:Output[0]                   3:Output[1]
    |<----------------------------|
    4:MultiOutputNode

Two lines that swap their columns may be indistinguishable in the drawing; the list of edges beside it is exact.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from mray._picture.layers import Layers, depths

#: Width in characters.
COLUMN = 30

#: From a column of one layer to a column of the next.
Hop = tuple[int, int]


@dataclass(frozen=True)
class _Row:
    """The edges that share a row: from one column, or to one column."""

    hops: tuple[Hop, ...]

    @property
    def sources(self) -> set[int]:
        return {source for source, _target in self.hops}

    @property
    def targets(self) -> set[int]:
        return {target for _source, target in self.hops}


def draw(labels: Sequence[str], edges: Iterable[tuple[int, int]], column: int = COLUMN) -> str:
    """Draw DAG nodes with these labels and acyclic edges between their numbers; columns have at least this width."""
    # By target, and boxes before the lines that pass beside them, so that boxes are in the order of binding.
    ordered = sorted(dict.fromkeys(edges), key=lambda edge: edge[1])
    layers = Layers(ordered, depths(len(labels), set(ordered)))
    upstream: list[dict[int, None]] = [{} for _ in layers.layer]
    for way in layers.ways:
        for source, target in pairwise(way):
            upstream[target][source] = None
    width = max([column, *(len(label) + 2 for label in labels)])
    lines: list[str] = []
    columns: dict[int, int] = {}
    for row in layers.rows:
        hops = [(columns[source], cell) for cell in row for source in upstream[cell]]
        is_first = not columns
        columns = _place({cell: (min((columns[each] for each in upstream[cell]), default=0), layers.origin[cell]) for cell in row})
        if not is_first:
            lines += _gap([(source, columns[cell]) for source, cell in hops], width)
        lines.append(_line({columns[cell] * width: labels[cell] if cell < len(labels) else "|" for cell in row}))
    return "\n".join(lines)


def _place(wanted: Mapping[int, tuple[int, int]]) -> dict[int, int]:
    """A column for each cell: below the leftmost of its sources, or else the next free one to the right."""
    columns: dict[int, int] = {}
    free = 0
    for cell in sorted(wanted, key=lambda cell: (wanted[cell], cell)):
        columns[cell] = max(wanted[cell][0], free)
        free = columns[cell] + 1
    return columns


# ---------------------------------------------------------------------------------------- between layers
def _gap(hops: Sequence[Hop], width: int) -> list[str]:
    straight = {source for source, target in hops if source == target}
    rows = _order(_rows([hop for hop in hops if hop[0] != hop[1]]))
    lines = []
    for number, row in enumerate(rows or [_Row(())]):
        waiting = {source for later in rows[number + 1 :] for source in later.sources}
        arrived = {target for earlier in rows[:number] for target in earlier.targets}
        passing = straight | waiting | arrived
        characters = dict.fromkeys((column * width for column in passing), "|")
        if row.hops:
            ends = row.sources | row.targets
            first, last = min(ends) * width, max(ends) * width
            characters = {place: ":" if first < place < last else sign for place, sign in characters.items()}
            for place in range(first + 1, last):
                characters.setdefault(place, "-")
            characters.update(dict.fromkeys((end * width for end in ends), "|"))
            for source, target in row.hops:
                characters[target * width + (-1 if source < target else 1)] = ">" if source < target else "<"
        lines.append(_line(characters))
    return lines


def _rows(hops: Sequence[Hop]) -> list[_Row]:
    """Group the hops into rows: each with its source or with its target, the one with more hops."""
    outward = {source: [hop for hop in hops if hop[0] == source] for source, _target in hops}
    inward = {target: [hop for hop in hops if hop[1] == target] for _source, target in hops}
    rows: dict[tuple[str, int], list[Hop]] = {}
    for source, target in hops:
        key = ("from", source) if len(outward[source]) >= len(inward[target]) else ("to", target)
        rows.setdefault(key, []).append((source, target))
    return [_Row(tuple(row)) for row in rows.values()]


def _order(rows: list[_Row]) -> list[_Row]:
    """Order the rows so that, if possible, a line enters a column only after the line above has left it."""
    left, ordered = list(rows), []
    while left:
        chosen = next((row for row in left if not any(row.targets & other.sources for other in left if other is not row)), left[0])
        left.remove(chosen)
        ordered.append(chosen)
    return ordered


def _line(texts: dict[int, str]) -> str:
    line = ""
    for place in sorted(texts):
        line = line.ljust(place) + texts[place]
    return line
