"""The places of a graph's boxes, and the routes of its edges between them. Pure.

Boxes lie in layers, each below all that it depends on. The order within the layers is improved, up and down, until the crossings become no
fewer (K. Sugiyama et al. 1981; barycentres, with exchanges of neighbours as in E. R. Gansner et al. 1993). Then every box moves towards the
boxes that it is connected with, as far as its neighbours let it: the positions of a layer are the least-squares fit that keeps the order
and the distances, which is isotonic regression (pool adjacent violators).

An edge that passes layers has a *bend* on each. Edges from one box that carry the same value are one line up to where they part.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

Point = tuple[float, float]

#: Distances in points: between the sides of boxes, and between a bend and its neighbour.
GAP, BEND_GAP = 26.0, 13.0
#: How hard edges pull, by how many of their ends are bends: long lines become straight.
PULLS, WEAK = (1.0, 2.0, 8.0), 0.02
#: The number of sweeps through the layers, up or down.
ORDER_SWEEPS, PLACE_SWEEPS = 24, 80
#: The share of a box's width that edges may end on, and the distance between their ends.
PORTS, PORT_GAP = 0.7, 18.0


@dataclass(frozen=True)
class Layout:
    """`places`: the centres of the boxes. `routes`: points of each edge; a curve, a straight line, a curve, ... lie between them.

    A route that goes up somewhere goes from one column to another, and has corners.
    """

    places: tuple[Point, ...]
    routes: tuple[tuple[Point, ...], ...]
    width: float
    height: float


def lay_out(
    sizes: Sequence[Point],
    edges: Sequence[tuple[int, int]],
    bundles: Sequence[Hashable] = (),
    groups: Mapping[int, int] | None = None,
    gap: float = 60.0,
) -> Layout:
    """Places for boxes of these widths and heights, and routes for edges between their numbers, which have no circle.

    `bundles`: the value that each edge carries; edges from one box with the same value share their line. `groups`: box -> group; the
    boxes of a group lie on one layer. `gap`: the distance between layers.
    """
    layers = page_layers(len(sizes), edges, groups or {})
    drawing = _Drawing(sizes, edges, bundles or [None] * len(edges), layers)
    drawing.order()
    xs = drawing.place()
    made = drawing.result(xs, gap)
    starts = folds(layers, edges)
    return made if len(starts) == 1 else _folded(made, sizes, edges, [bisect_right(starts, layer) - 1 for layer in layers])


# -------------------------------------------------------------------------------------------- layers
#: Boxes of one layer that are side by side; a page has no room for more. A layer of more is rows of so many.
MOST_BESIDE, BESIDE = 12, 8
#: Layers above so many are folded into columns, where the graph is much longer than wide; and edges that a fold may cut.
MOST_BELOW, MOST_CUT = 15, 4


def page_layers(count: int, edges: Sequence[tuple[int, int]], groups: Mapping[int, int], most: int = BESIDE) -> list[int]:
    """The layer of each box: short edges, all point down, and a layer of more boxes than `MOST_BESIDE` is several, of `most` at most."""
    layers = _layers(count, edges, groups)
    made: list[int] = [0] * count
    next_layer = 0
    for layer in sorted(set(layers)):
        row = [box for box in range(count) if layers[box] == layer]
        # Boxes of a group stay side by side.
        rows = 1 if len(row) <= MOST_BESIDE or any(box in groups for box in row) else -(-len(row) // most)
        each = -(-len(row) // rows)
        for place, box in enumerate(row):
            made[box] = next_layer + place // each
        next_layer += rows
    return made


def folds(layers: Sequence[int], edges: Sequence[tuple[int, int]]) -> list[int]:
    """The first layers of columns, if a graph is so long that it reads better in columns; always [0] at least."""
    count = max(layers, default=-1) + 1
    widest = max((layers.count(layer) for layer in range(count)), default=1)
    wanted = round((count / widest) ** 0.5)
    wanted = min(wanted, 8 // widest)
    if count <= MOST_BELOW or wanted < 2:
        return [0]
    # How many edges pass between a layer and the one above it.
    passing = [sum(layers[source] < layer <= layers[target] for source, target in edges) for layer in range(count)]
    starts = [0]
    for number in range(1, wanted):
        ideal = round(number * count / wanted)
        near = [layer for layer in range(ideal - 1, ideal + 2) if starts[-1] + 1 < layer < count]
        best = min(near, key=lambda layer: (passing[layer], abs(layer - ideal)), default=None)
        if best is None or passing[best] > MOST_CUT:
            return [0]
        starts.append(best)
    return starts


#: The room between columns, and for each line in it; the distance of lines from the boxes that they leave and reach.
GUTTER, LINE, OFF = 44.0, 9.0, 24.0


def _folded(made: Layout, sizes: Sequence[Point], edges: Sequence[tuple[int, int]], column: Sequence[int]) -> Layout:
    """The layout with its columns side by side. Edges from one to another run in the gutters between them, and above them all."""
    count = max(column) + 1
    within = [column[source] == column[target] for source, target in edges]
    lefts, tops, rights = [float("inf")] * count, [float("inf")] * count, [0.0] * count
    for box, (x, y) in enumerate(made.places):
        width, height = sizes[box]
        at = column[box]
        lefts[at], rights[at] = min(lefts[at], x - width / 2), max(rights[at], x + width / 2)
        tops[at] = min(tops[at], y - height / 2)
    for number, (source, _target) in enumerate(edges):
        if within[number]:
            at, xs = column[source], [x for x, _y in made.routes[number]]
            lefts[at], rights[at] = min(lefts[at], *xs), max(rights[at], *xs)
    # The lines of each gutter (it lies left of the column of its number), and above all columns.
    lines: list[list[int]] = [[] for _ in range(count + 1)]
    above = []
    for number, (source, target) in enumerate(edges):
        if not within[number]:
            lines[column[target]].append(number)
            if column[target] != column[source] + 1:
                lines[column[source] + 1].append(number)
                above.append(number)
    top = OFF + (len(above) + 1) * LINE if above else OFF
    shift, right = [], -GUTTER - LINE * len(lines[0])
    gutters = []
    for at in range(count):
        gutters.append(right + GUTTER / 2)
        begin = right + GUTTER + LINE * len(lines[at])
        shift.append((begin - lefts[at], top - tops[at]))
        right = begin + rights[at] - lefts[at]

    def moved(point: Point, at: int) -> Point:
        return point[0] + shift[at][0], point[1] + shift[at][1]

    def line(gutter: int, number: int) -> float:
        return gutters[gutter] + LINE * (lines[gutter].index(number) + 0.5)

    routes: list[tuple[Point, ...]] = []
    for number, (source, target) in enumerate(edges):
        route, start, end = made.routes[number], column[source], column[target]
        if within[number]:
            routes.append(tuple(moved(point, start) for point in route))
            continue
        first, last = moved(route[0], start), moved(route[-1], end)
        x, y = line(end, number), last[1] - OFF
        if end == start + 1:
            routes.append((first, (x, first[1] + OFF), (x, y), last))
        else:
            high, out = LINE * (above.index(number) + 0.5), line(start + 1, number)
            routes.append((first, (out, first[1] + OFF), (out, high), (x, high), (x, y), last))
    places = tuple(moved(place, column[box]) for box, place in enumerate(made.places))
    bottom = max(y + sizes[box][1] / 2 for box, (_x, y) in enumerate(places))
    return Layout(places, tuple(routes), right, max(bottom, *(y for route in routes for _x, y in route)))


def _layers(count: int, edges: Sequence[tuple[int, int]], groups: Mapping[int, int]) -> list[int]:
    """The layer of each box: short edges, and all point down."""
    leaders: dict[int, int] = {}
    leader = [leaders.setdefault(groups[box], box) if box in groups else box for box in range(count)]
    found = depths(count, {(leader[source], leader[target]) for source, target in edges})
    if found is None:
        # Boxes of a group depend on each other: then each has a layer of its own.
        leader = list(range(count))
        found = depths(count, set(edges)) or [0] * count
    above: list[list[int]] = [[] for _ in range(count)]
    below: list[list[int]] = [[] for _ in range(count)]
    for source, target in edges:
        above[leader[target]].append(leader[source])
        below[leader[source]].append(leader[target])
    for _ in range(count):
        moved = False
        for box in sorted(range(count), key=lambda box: -found[box]):
            # A box with more edges down than up goes down, which makes them shorter.
            if below[box] and len(above[box]) < len(below[box]):
                lowest = min(found[each] for each in below[box]) - 1
                moved, found[box] = moved or lowest != found[box], lowest
        if not moved:
            break
    used = {depth: place for place, depth in enumerate(sorted({found[each] for each in leader}))}
    return [used[found[each]] for each in leader]


def depths(count: int, edges: set[tuple[int, int]]) -> list[int] | None:
    """The length of the longest path to each box, which is its highest possible layer; None when there is a circle."""
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
    return found if len(ready) == count else None


# -------------------------------------------------------------------------------------------- boxes and bends
class Layers:
    """Boxes and bends in layers. Boxes have their own numbers, bends those after."""

    def __init__(
        self, edges: Sequence[tuple[int, int]], bundles: Sequence[Hashable], layers: Sequence[int], most: float = float("inf")
    ) -> None:
        """`most`: so many long edges reach a box with bends of their own; where there are more, they join."""
        #: The layer of each box and bend.
        self.layer = list(layers)
        #: The box from which the edges of a bend come, and the box to which the first of them leads; for a box, itself.
        self.origin = list(range(len(layers)))
        self.first_target = list(range(len(layers)))
        #: edge -> the boxes and bends on its way.
        self.ways: list[list[int]] = []
        #: The bends in which edges from several boxes to one are one line.
        self.joined: set[int] = set()
        bends: dict[tuple[int, Hashable, int], int] = {}
        arriving = Counter(target for source, target in edges if layers[target] - layers[source] > 1)
        for (source, target), bundle in zip(edges, bundles, strict=True):
            way = [source]
            for layer in range(layers[source] + 1, layers[target]):
                # Negative numbers are those of targets: no box is taken for another.
                meeting = -1 - target if arriving[target] > most else source
                bend = bends.setdefault((meeting, bundle, layer), len(layers) + len(bends))
                if bend == len(self.layer):
                    self.layer.append(layer)
                    self.origin.append(source)
                    self.first_target.append(target)
                if meeting < 0:
                    self.joined.add(bend)
                way.append(bend)
            self.ways.append([*way, target])


class _Drawing:
    """The places of boxes and bends."""

    def __init__(
        self, sizes: Sequence[Point], edges: Sequence[tuple[int, int]], bundles: Sequence[Hashable], layers: Sequence[int]
    ) -> None:
        self._sizes = sizes
        made = Layers(edges, bundles, layers, MOST_BESIDE)
        self._layer, self._ways, self._joined = made.layer, made.ways, made.joined
        self._above: list[dict[int, float]] = [{} for _ in self._layer]
        self._below: list[dict[int, float]] = [{} for _ in self._layer]
        for way in self._ways:
            for upper, lower in pairwise(way):
                bends = self._is_bend(upper) + self._is_bend(lower)
                # Beside the rows of a wide layer, lines that pulled their boxes would shift each row against the one above.
                pull = PULLS[bends] if bends != 1 or not self._joined else WEAK
                self._above[lower][upper] = self._below[upper][lower] = pull
        #: The boxes and bends of each layer, from left to right.
        self._rows: list[list[int]] = [[] for _ in range(max(self._layer, default=-1) + 1)]

    def _is_bend(self, vertex: int) -> bool:
        return vertex >= len(self._sizes)

    def _width(self, vertex: int) -> float:
        return 0.0 if self._is_bend(vertex) else self._sizes[vertex][0]

    def _distance(self, left: int, right: int) -> float:
        """The least distance between the centres of two neighbours."""
        gap = BEND_GAP if self._is_bend(left) or self._is_bend(right) else GAP
        return (self._width(left) + self._width(right)) / 2 + gap

    # ---------------------------------------------------------------------------------- order
    def order(self) -> None:
        """Put the boxes and bends of each layer into an order with few crossings."""
        self._rows = self._first_order()
        best, fewest = [list(row) for row in self._rows], self._crossings()
        for sweep in range(ORDER_SWEEPS):
            if not fewest:
                break
            self._sweep(sweep % 2 == 0)
            self._exchange()
            crossings = self._crossings()
            if crossings < fewest:
                best, fewest = [list(row) for row in self._rows], crossings
        # Lines that pass the rows of a wide layer run beside them: those from above on the left, those to below on the right.
        self._rows = [sorted(row, key=self._side) for row in best] if self._joined else best

    def _side(self, vertex: int) -> int:
        return 1 if vertex in self._joined else -1 if self._is_bend(vertex) else 0

    def _first_order(self) -> list[list[int]]:
        """The order in which a search finds them that follows edges down as far as they go."""
        rows: list[list[int]] = [[] for _ in self._rows]
        found: set[int] = set()
        for start in sorted(range(len(self._layer)), key=lambda vertex: (self._layer[vertex], vertex)):
            stack = [start]
            while stack:
                vertex = stack.pop()
                if vertex not in found:
                    found.add(vertex)
                    rows[self._layer[vertex]].append(vertex)
                    stack.extend(reversed(self._below[vertex]))
        return rows

    def _sweep(self, down: bool) -> None:
        neighbours = self._above if down else self._below
        for row in self._rows[1:] if down else reversed(self._rows[:-1]):
            places = self._places(self._layer[row[0]] + (-1 if down else 1))
            here = {vertex: place for place, vertex in enumerate(row)}

            def centre(vertex: int, places: dict[int, int] = places, here: dict[int, int] = here) -> float:
                others = [places[each] for each in neighbours[vertex]]
                return sum(others) / len(others) if others else float(here[vertex])

            row.sort(key=centre)

    def _exchange(self) -> None:
        """Exchange neighbours while that saves crossings."""
        for row in self._rows:
            layer = self._layer[row[0]]
            upper, lower = self._places(layer - 1), self._places(layer + 1)
            for _ in row:
                improved = False
                for place in range(len(row) - 1):
                    left, right = row[place], row[place + 1]
                    now = _crossed(self._above, upper, left, right) + _crossed(self._below, lower, left, right)
                    then = _crossed(self._above, upper, right, left) + _crossed(self._below, lower, right, left)
                    if then < now:
                        row[place], row[place + 1], improved = right, left, True
                if not improved:
                    break

    def _places(self, layer: int) -> dict[int, int]:
        row = self._rows[layer] if 0 <= layer < len(self._rows) else []
        return {vertex: place for place, vertex in enumerate(row)}

    def _crossings(self) -> int:
        total = 0
        for layer in range(len(self._rows) - 1):
            places = self._places(layer + 1)
            seen: list[int] = []
            for vertex in self._rows[layer]:
                ends = sorted(places[each] for each in self._below[vertex])
                total += sum(len(seen) - bisect_right(seen, end) for end in ends)
                for end in ends:
                    insort(seen, end)
        return total

    # ---------------------------------------------------------------------------------- places
    def place(self) -> list[float]:
        """The centre of each box and bend, from left to right."""
        xs = [0.0] * len(self._layer)
        for row in self._rows:
            self._fit(row, xs, dict.fromkeys(row, (0.0, 1.0)))
        for sweep in range(PLACE_SWEEPS):
            down = sweep % 2 == 0
            # The last sweeps look both ways: a box with none above is pulled by those below.
            both = sweep >= PLACE_SWEEPS - 8
            for row in self._rows if down else reversed(self._rows):
                wanted = {}
                for vertex in row:
                    pulls = {**self._above[vertex], **self._below[vertex]} if both else (self._above if down else self._below)[vertex]
                    weight = sum(pulls.values())
                    pulled = sum(xs[each] * pull for each, pull in pulls.items())
                    wanted[vertex] = (pulled / weight, weight) if pulls else (xs[vertex], 0.01)
                self._fit(row, xs, wanted)
        left = min((x - self._width(vertex) / 2 for vertex, x in enumerate(xs)), default=0.0)
        return [x - left for x in xs]

    def _fit(self, row: Sequence[int], xs: list[float], wanted: Mapping[int, tuple[float, float]]) -> None:
        """Put a layer's centres where they are wanted, with these weights, as far as order and distances allow."""
        offset = 0.0
        #: Runs that touch each other: the sum of wanted places, of weights, and their number.
        blocks: list[list[float]] = []
        offsets = []
        for place, vertex in enumerate(row):
            if place:
                offset += self._distance(row[place - 1], vertex)
            offsets.append(offset)
            x, weight = wanted[vertex]
            blocks.append([(x - offset) * weight, weight, 1])
            while len(blocks) > 1 and blocks[-2][0] / blocks[-2][1] > blocks[-1][0] / blocks[-1][1]:
                last = blocks.pop()
                blocks[-1] = [mine + others for mine, others in zip(blocks[-1], last, strict=True)]
        found = [block[0] / block[1] for block in blocks for _ in range(int(block[2]))]
        for vertex, x, each in zip(row, found, offsets, strict=True):
            xs[vertex] = x + each

    # ---------------------------------------------------------------------------------- result
    def result(self, xs: Sequence[float], gap: float) -> Layout:
        """The layout, with distances of `gap` between layers."""
        heights = [max((self._sizes[vertex][1] for vertex in row if not self._is_bend(vertex)), default=0.0) for row in self._rows]
        tops, top = [], 0.0
        for height in heights:
            tops.append(top)
            top += height + gap
        middles = [top + height / 2 for top, height in zip(tops, heights, strict=True)]
        places = tuple((xs[box], middles[self._layer[box]]) for box in range(len(self._sizes)))
        leaving, arriving = self._ports(xs)
        routes = []
        for number, way in enumerate(self._ways):
            points: list[Point] = [(leaving[number], places[way[0]][1] + self._sizes[way[0]][1] / 2)]
            for bend in way[1:-1]:
                upper = tops[self._layer[bend]]
                points += [(xs[bend], upper), (xs[bend], upper + heights[self._layer[bend]])]
            points.append((arriving[number], places[way[-1]][1] - self._sizes[way[-1]][1] / 2))
            routes.append(tuple(points))
        right = max((x + self._width(vertex) / 2 for vertex, x in enumerate(xs)), default=0.0)
        return Layout(places, tuple(routes), right, max(top - gap, 0.0))

    def _ports(self, xs: Sequence[float]) -> tuple[dict[int, float], dict[int, float]]:
        """The places where edges leave and reach the sides of boxes, by edge; from left to right, in the order of their other ends."""
        leaving: dict[int, float] = {}
        arriving: dict[int, float] = {}
        for box, (width, _height) in enumerate(self._sizes):
            outward = [number for number, way in enumerate(self._ways) if way[0] == box]
            inward = [number for number, way in enumerate(self._ways) if way[-1] == box]
            # Several edges that are one line at first leave from one place, and those that are one line at last arrive at one.
            firsts = sorted({self._ways[number][1] for number in outward}, key=lambda each: xs[each])
            ports = dict(zip(firsts, _spread(xs[box], width, len(firsts)), strict=True))
            leaving.update({number: ports[self._ways[number][1]] for number in outward})
            lasts = {number: self._last(number) for number in inward}
            ordered = sorted(set(lasts.values()), key=lambda last: (xs[last[0]], last))
            places = dict(zip(ordered, _spread(xs[box], width, len(ordered)), strict=True))
            arriving.update({number: places[last] for number, last in lasts.items()})
        return leaving, arriving

    def _last(self, number: int) -> tuple[int, int]:
        """The last line of an edge: that of the edge alone, or the one in which several arrive."""
        before = self._ways[number][-2]
        return before, -1 if before in self._joined else number


def _crossed(neighbours: Sequence[Mapping[int, float]], places: Mapping[int, int], left: int, right: int) -> int:
    """The number of crossings between the edges of two neighbours on the way to another layer."""
    return sum(places[mine] > places[other] for mine in neighbours[left] for other in neighbours[right])


def _spread(middle: float, width: float, count: int) -> list[float]:
    """Places for so many ends on a side of a box."""
    step = min(PORT_GAP, width * PORTS / max(count - 1, 1))
    return [middle + (number - (count - 1) / 2) * step for number in range(count)]
