"""Where boxes stand and edges run: nothing overlaps, everything points down, few edges cross."""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mray._picture.layout import BEND_GAP, GAP, Layout, lay_out
from tests.full import examples

SIZE = (100.0, 40.0)


def laid(count: int, edges: list[tuple[int, int]], **options) -> Layout:
    return lay_out([SIZE] * count, edges, **options)


def crossings(layout: Layout) -> int:
    """How many pairs of edges change sides between two layers."""
    hops = {(route[first], route[first + 1]) for route in layout.routes for first in range(0, len(route) - 1, 2)}
    return sum(
        one[0][1] == other[0][1] and (one[0][0] - other[0][0]) * (one[1][0] - other[1][0]) < 0 for one, other in combinations(hops, 2)
    )


@st.composite
def graphs(draw) -> tuple[list[tuple[float, float]], list[tuple[int, int]]]:
    count = draw(st.integers(1, 25))
    sizes = [(draw(st.floats(20, 300)), draw(st.floats(20, 80))) for _ in range(count)]
    ends = [draw(st.lists(st.integers(0, target - 1), max_size=3)) if target else [] for target in range(count)]
    return sizes, [(source, target) for target, sources in enumerate(ends) for source in sources]


@given(graphs())
@settings(max_examples=examples(150), deadline=None)
def test_boxes_never_touch_and_edges_point_down(graph) -> None:
    sizes, edges = graph
    layout = lay_out(sizes, edges)
    boxes = [(x - w / 2, y - h / 2, x + w / 2, y + h / 2) for (x, y), (w, h) in zip(layout.places, sizes, strict=True)]
    for one, other in combinations(boxes, 2):
        beside = one[2] + GAP - 0.01 <= other[0] or other[2] + GAP - 0.01 <= one[0]
        assert beside or one[3] < other[1] or other[3] < one[1]
    assert all(box[0] >= -0.01 and box[2] <= layout.width + 0.01 for box in boxes)
    assert all(box[1] >= -0.01 and box[3] <= layout.height + 0.01 for box in boxes)
    for (source, target), route in zip(edges, layout.routes, strict=True):
        assert len(route) % 2 == 0
        assert all(upper[1] <= lower[1] for upper, lower in pairwise(route))
        assert route[0][1] == pytest.approx(boxes[source][3])
        assert route[-1][1] == pytest.approx(boxes[target][1])
        assert boxes[source][0] <= route[0][0] <= boxes[source][2]
        assert boxes[target][0] <= route[-1][0] <= boxes[target][2]


@given(graphs())
@settings(max_examples=examples(100), deadline=None)
def test_edges_that_pass_a_layer_pass_between_its_boxes(graph) -> None:
    sizes, edges = graph
    layout = lay_out(sizes, edges)
    for route in layout.routes:
        for (x, top), (_x, bottom) in list(pairwise(route))[1::2]:
            for (middle, y), (width, height) in zip(layout.places, sizes, strict=True):
                if top <= y <= bottom and top <= y - height / 2 + 0.01:
                    assert abs(x - middle) >= width / 2 + BEND_GAP - 0.01


def test_a_chain_is_straight() -> None:
    layout = laid(4, [(0, 1), (1, 2), (2, 3)])
    assert len({x for x, _y in layout.places}) == 1
    assert all(abs(route[0][0] - route[-1][0]) < 0.01 for route in layout.routes)


def test_chains_side_by_side_are_straight() -> None:
    edges = [(4 * chain + each, 4 * chain + each + 1) for chain in range(3) for each in range(3)]
    layout = laid(12, edges)
    assert all(abs(route[0][0] - route[-1][0]) < 0.5 for route in layout.routes)


def test_lines_that_need_not_cross_do_not() -> None:
    # Bound in an order that would cross everything.
    assert crossings(laid(8, [(0, 7), (1, 6), (2, 5), (3, 4)])) == 0
    tree = [(0, 2), (0, 1), (1, 6), (2, 5), (1, 4), (2, 3)]
    assert crossings(laid(7, tree)) == 0


def test_a_graph_that_must_cross_crosses_once() -> None:
    # Two boxes that both go to two others.
    assert crossings(laid(4, [(0, 2), (0, 3), (1, 2), (1, 3)])) == 1


def test_a_line_to_many_layers_is_one_line() -> None:
    edges = [(0, 1), (1, 2), (2, 3), (3, 4), (0, 3), (0, 4)]
    layout = laid(5, edges)
    assert layout.routes[5][:3] == layout.routes[4][:3]
    apart = lay_out([SIZE] * 5, edges, ["a", "b", "c", "d", "shm", "nccl"])
    assert apart.routes[5][1] != apart.routes[4][1]


def test_a_box_without_arguments_stands_close_to_where_it_is_used() -> None:
    layout = laid(5, [(0, 1), (1, 2), (2, 3), (4, 3)])
    assert layout.places[4][1] == layout.places[2][1]


def test_those_who_meet_stand_on_one_layer() -> None:
    edges = [(0, 1), (1, 2), (0, 3)]
    assert laid(4, edges).places[3][1] != laid(4, edges).places[2][1]
    layout = laid(4, edges, groups={2: 0, 3: 0})
    assert layout.places[2][1] == layout.places[3][1]


def test_a_group_that_needs_itself_is_drawn_all_the_same() -> None:
    layout = laid(3, [(0, 1), (1, 2)], groups={0: 0, 2: 0})
    assert [y for _x, y in layout.places] == sorted({y for _x, y in layout.places})


def test_nothing_takes_no_room() -> None:
    assert laid(0, []) == Layout((), (), 0.0, 0.0)
