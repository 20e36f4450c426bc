"""The page of a timeline: a colour for each function, calls that still run, a legend that says both."""

from __future__ import annotations

import pytest

from mray._inside.spans import Recording
from mray._picture import timeline_page as timeline_picture
from mray._picture.timeline_page import MOST_NAMED, function_colours, function_of, left_out, legend, longest_functions, timeline_page
from mray._trace.kinds import CALL, READ_WAIT
from mray._trace.span import RUNNING, Span


def call(name: str, begin: int, end: int) -> Span:
    return Span(CALL, begin, end, "calls, MainThread", name, f"{begin:x}")


def test_each_function_has_a_colour_of_its_own_whether_its_calls_are_over_or_not() -> None:
    colours = function_colours([call("f", 0, 5), call("g", 5, 100), call(f"f{RUNNING}", 100, 120), Span(READ_WAIT, 0, 9, "t", "wait")])
    assert set(colours) == {"f", "g"}
    assert len(set(colours.values())) == 2
    assert function_of(call(f"f{RUNNING}", 0, 1)) == "f"


def test_a_function_keeps_its_colour_whatever_runs_after_it_and_however_long_it_takes() -> None:
    spans = [call(f"f{number:02}", number, 100 - number) for number in range(30)]
    colours = function_colours(spans)
    assert len(set(colours.values())) == 30
    longer = [*spans, *(call(f"later{number}", 1000, 9000) for number in range(50)), call("f29", 200, 90_000)]
    assert {name: colour for name, colour in function_colours(longer).items() if name in colours} == colours
    for each in spans:  # alone on a page as among others, unless another function has chosen the same colour before
        alone = function_colours([each])[each.name]
        assert alone == colours[each.name] or alone in {colours[f"f{number:02}"] for number in range(each.begin)}


def test_the_legend_names_the_longest_functions_and_what_still_runs() -> None:
    spans = [call(f"f{number:02}", 0, 100 - number) for number in range(14)] + [call(f"late{RUNNING}", 0, 16_000)]
    colours = function_colours(spans)
    rows = dict(legend({name: colours[name] for name in longest_functions(spans)}, {READ_WAIT}, True))
    assert [*rows][:3] == ["late", "f00", "f01"]
    assert [*rows][MOST_NAMED:] == ["and 5 other functions", "read wait", "a broken line: still running"]
    assert not legend({}, set(), False)


def test_processes_without_calls_are_named_once_for_each_reason() -> None:
    lost = {**{f"the worker of pid {pid}": "has ended" for pid in range(7)}, "the driver of pid 9": "does not answer"}
    sentences = left_out(lost)
    assert len(sentences) == 2
    assert sentences[0].startswith("Left out (has ended): the worker of pid 0, ") and sentences[0].endswith(" and 2 more.")
    text, _count = timeline_page([Recording(5, "driver", [call("f", 0, 5)])], lost=lost)
    assert all(sentence in text for sentence in sentences)


def test_of_too_many_slices_a_page_shows_the_latest_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline_picture, "MOST_SLICES", 10)
    text, count = timeline_page([Recording(5, "driver", [call("f", 10 * number, 10 * number + 5) for number in range(25)])])
    assert count == 10
    assert "The latest 10 of 25 slices" in text


def test_a_function_has_the_colour_of_its_first_call_though_a_page_shows_later_ones() -> None:
    names = [f"f{number:02}" for number in range(30)]
    colours = function_colours(call(name, place, place + 1) for place, name in enumerate(names))
    called = {name: place for place, name in enumerate(names)}
    for name in names:
        assert function_colours([call(name, 1000, 2000)], called)[name] == colours[name]
