"""A graph as a drawing made of characters. Pure.

DAG nodes stand in layers, each below all that it depends on, in columns of one width. An edge that passes a layer has a column there.
Between two layers, every row of characters holds edges from one DAG node or to one; ``|`` on such a row is a joint, ``:`` a line that
is crossed.

    0:InputNode
    |
    1:Actor_54777d:two
    |---------------------------->|
    2:Output[0]                   3:Output[1]
    |<----------------------------|
    4:MultiOutputNode

Where two lines have to swap their columns the drawing cannot tell them apart; whoever needs to know lists the edges beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

#: Columns are at least so many characters wide.
COLUMN = 30

#: A DAG node on its layer, or the line of one that passes a layer: the DAG node, and whether it is only the line.
Cell = tuple[int, bool]
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


def draw(labels: Sequence[str], edges: Iterable[tuple[int, int]]) -> str:
    """The drawing of DAG nodes with these labels and of edges between their numbers, which have no circle."""
    upstream: list[list[int]] = [[] for _ in labels]
    for source, target in dict.fromkeys(edges):
        upstream[target].append(source)
    depths = _depths(upstream)
    width = max([COLUMN, *(len(label) + 2 for label in labels)])
    lines: list[str] = []
    columns: dict[Cell, int] = {}
    for cells in _layers(upstream, depths):
        above, columns = columns, _place(cells, columns)
        if above:
            hops = [(above[_above(each, above)], columns[cell]) for cell, sources in cells.items() for each in sources]
            lines += _gap(hops, width)
        lines.append(_line({columns[cell] * width: "|" if cell[1] else labels[cell[0]] for cell in cells}))
    return "\n".join(lines)


def _depths(upstream: Sequence[Sequence[int]]) -> list[int]:
    """The layer of each DAG node: the length of the longest way to it."""
    depths = [0] * len(upstream)
    for _ in upstream:
        deeper = [max((depths[source] + 1 for source in sources), default=0) for sources in upstream]
        if deeper == depths:
            break
        depths = deeper
    return depths


def _layers(upstream: Sequence[Sequence[int]], depths: Sequence[int]) -> list[dict[Cell, list[int]]]:
    """What stands on each layer, with the DAG nodes whose lines come to it from above."""
    layers: list[dict[Cell, list[int]]] = [{} for _ in range(max(depths, default=-1) + 1)]
    for node, sources in enumerate(upstream):
        layers[depths[node]][node, False] = list(sources)
        for source in sources:
            for depth in range(depths[source] + 1, depths[node]):
                layers[depth][source, True] = [source]
    return layers


def _above(source: int, above: dict[Cell, int]) -> Cell:
    return (source, False) if (source, False) in above else (source, True)


def _place(cells: dict[Cell, list[int]], above: dict[Cell, int]) -> dict[Cell, int]:
    """A column for each cell: below the leftmost of its sources, or else as near to the right of it as there is room."""
    wanted = {cell: min((above[_above(source, above)] for source in sources), default=0) for cell, sources in cells.items()}
    columns: dict[Cell, int] = {}
    free = 0
    for cell in sorted(cells, key=lambda cell: (wanted[cell], cell)):
        columns[cell] = max(wanted[cell], free)
        free = columns[cell] + 1
    return columns


# ---------------------------------------------------------------------------------------- between layers
def _gap(hops: Sequence[Hop], width: int) -> list[str]:
    """The rows of characters between two layers."""
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
    """The hops in rows: each goes with its source or with its target, whichever has more of them."""
    outward = {source: [hop for hop in hops if hop[0] == source] for source, _target in hops}
    inward = {target: [hop for hop in hops if hop[1] == target] for _source, target in hops}
    rows: dict[tuple[str, int], list[Hop]] = {}
    for source, target in hops:
        key = ("from", source) if len(outward[source]) >= len(inward[target]) else ("to", target)
        rows.setdefault(key, []).append((source, target))
    return [_Row(tuple(row)) for row in rows.values()]


def _order(rows: list[_Row]) -> list[_Row]:
    """The rows so that, if possible, a line comes down in a column only after what stood above has left it."""
    left, ordered = list(rows), []
    while left:
        chosen = next((row for row in left if not any(row.targets & other.sources for other in left if other is not row)), left[0])
        left.remove(chosen)
        ordered.append(chosen)
    return ordered


def _line(texts: dict[int, str]) -> str:
    """Texts at their places."""
    line = ""
    for place in sorted(texts):
        line = line.ljust(place) + texts[place]
    return line
