"""Drawings of graphs in characters stay within the terminal, or say that they do not."""

from __future__ import annotations

import pytest

from mray._graph.plan import Plan, Source
from mray._picture.characters import ascii as figure_ascii
from mray._picture.plan_figure import plan_figure
from tests.unit.test_render import A, B, plan_of, step


def plan_ascii(plan: Plan, most: int | None = None) -> str:
    return figure_ascii(plan_figure(plan, {}), most)


@pytest.mark.parametrize(("width", "most"), [(3, 80), (6, 80), (10, 80), (4, 132)])
def test_a_wide_drawing_is_made_narrow_with_every_node_in_it(width: int, most: int) -> None:
    plan = plan_of(*(step(number, A if number % 2 else B, -1) for number in range(width)), outputs=tuple(map(Source, range(width))))
    drawing = plan_ascii(plan, most).partition("Graph Built:\n")[2]
    assert max(map(len, drawing.splitlines())) <= most
    for number in range(width + 2):
        assert f"{number}" in drawing
    # Where there is no terminal it is as it always was.
    assert "Actor_aaaaaa:m" in plan_ascii(plan).partition("Graph Built:\n")[2]


def test_a_drawing_that_has_no_room_says_so() -> None:
    plan = plan_of(*(step(number, A, -1) for number in range(60)), outputs=tuple(map(Source, range(60))))
    last = plan_ascii(plan, 80).splitlines()[-1]
    assert "characters wide and the terminal 80" in last
    assert "format='svg'" in last
