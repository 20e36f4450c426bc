"""The page of a timeline: a colour for each function, calls that still run, a legend that says both."""

from __future__ import annotations

from mray._picture.timeline_page import MOST_COLOURED, OTHERS, function_colours, function_of, legend
from mray._trace.kinds import CALL, READ_WAIT
from mray._trace.span import RUNNING, Span


def call(name: str, begin: int, end: int) -> Span:
    return Span(CALL, begin, end, "calls, MainThread", name, f"{begin:x}")


def test_each_function_has_a_colour_of_its_own_whether_its_calls_are_over_or_not() -> None:
    colours = function_colours([call("f", 0, 5), call("g", 5, 100), call(f"f{RUNNING}", 100, 120), Span(READ_WAIT, 0, 9, "t", "wait")])
    assert list(colours) == ["g", "f"]
    assert len(set(colours.values())) == 2
    assert function_of(call(f"f{RUNNING}", 0, 1)) == "f"


def test_of_many_functions_the_longest_have_colours() -> None:
    colours = function_colours(call(f"f{number:02}", 0, number + 1) for number in range(30))
    coloured = {name for name, colour in colours.items() if colour != OTHERS}
    assert coloured == {f"f{number:02}" for number in range(30 - MOST_COLOURED, 30)}
    assert len({colours[name] for name in coloured}) == MOST_COLOURED


def test_the_legend_names_functions_and_what_still_runs() -> None:
    spans = [call(f"f{number:02}", 0, 100 - number) for number in range(14)] + [call(f"late{RUNNING}", 0, 16_000)]
    rows = dict(legend(function_colours(spans), {READ_WAIT}, True))
    assert [*rows][:3] == ["late", "f00", "f01"]
    assert [*rows][-3:] == ["5 other functions", "read wait", "a broken line: still running"]
    assert not legend({}, set(), False)
