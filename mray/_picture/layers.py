"""The layers of a graph's boxes, each below all that it depends on, and the bends of edges that pass through a layer. Pure."""

from __future__ import annotations

from collections.abc import Sequence


def depths(count: int, edges: set[tuple[int, int]]) -> list[int]:
    """The length of the longest path to each box, its highest possible layer; 0 for boxes of a cycle."""
    below: list[list[int]] = [[] for _ in range(count)]
    missing = [0] * count
    for source, target in edges:
        below[source].append(target)
        missing[target] += 1
    found = [0] * count
    ready = [box for box in range(count) if not missing[box]]
    for box in ready:
        for target in below[box]:
            found[target] = max(found[target], found[box] + 1)
            missing[target] -= 1
            if not missing[target]:
                ready.append(target)
    return found


class Layers:
    """Boxes and bends in layers. Bends are numbered after the boxes."""

    def __init__(self, edges: Sequence[tuple[int, int]], layers: Sequence[int]) -> None:
        self.layer = list(layers)
        #: The box that the edges of a bend come from, and the box that the first of them leads to; for a box, itself.
        self.origin = list(range(len(layers)))
        self.first_target = list(range(len(layers)))
        #: Edge -> the boxes and bends on its path. Edges from one box share their bends up to where they part.
        self.ways: list[list[int]] = []
        bends: dict[tuple[int, int], int] = {}
        for source, target in edges:
            way = [source]
            for layer in range(layers[source] + 1, layers[target]):
                bend = bends.setdefault((source, layer), len(layers) + len(bends))
                if bend == len(self.layer):
                    self.layer.append(layer)
                    self.origin.append(source)
                    self.first_target.append(target)
                way.append(bend)
            self.ways.append([*way, target])

    @property
    def rows(self) -> list[list[int]]:
        """The boxes and bends of each layer, in the order in which they are reached."""
        found: list[list[int]] = [[] for _ in range(max(self.layer, default=-1) + 1)]
        for cell in sorted(range(len(self.layer)), key=lambda cell: (self.first_target[cell], cell)):
            found[self.layer[cell]].append(cell)
        return found
