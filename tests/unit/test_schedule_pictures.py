"""The schedule over time: what begins when, and how it is drawn."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings

from mray._channel.select import BLOCKING
from mray._graph.compiler.compile import plan_graph
from mray._graph.plan import COMPUTE, READ, WRITE, Graph, Source, Transfer
from mray._picture.artist import visualize_schedule
from mray._picture.bands import banded
from mray._picture.chart_forms import chart_ascii, chart_dot, chart_mermaid
from mray._picture.chart_svg import BAR, BETWEEN, LANE, LONGEST, chart_svg, cut_names, fitted, label, pages, points_per_unit, route
from mray._picture.measures import measures_of
from mray._picture.timing import Bar, Chart, chart
from tests.full import examples
from tests.unit.test_render import NAMES, ON_ONE_GPU, A, B, plan_of, step
from tests.unit.test_schedule import GRAPHS

SVG = "{http://www.w3.org/2000/svg}"


def on_lane(drawn: Chart, lane: int) -> list[Bar]:
    return sorted((bar for bar in drawn.bars if bar.lane == lane), key=lambda bar: bar.begin)


@given(GRAPHS)
@settings(max_examples=examples(100), deadline=None)
def test_every_operation_of_any_graph_has_its_time(graph: Graph) -> None:
    plan = plan_graph(graph, 4)
    drawn = chart(plan, {}, executions=2)
    for lane, actor in enumerate(plan.schedule, 1):
        assert drawn.lanes[lane].key == actor
        wanted = [(execution, *operation) for execution in range(2) for operation in plan.schedule[actor]]
        assert [(bar.execution, bar.kind, bar.step, bar.channel) for bar in on_lane(drawn, lane)] == wanted
    for lane in range(len(drawn.lanes)):
        bars = on_lane(drawn, lane)
        assert all(before.end <= after.begin for before, after in pairwise(bars))
    # Every channel has one arrow to each reader in each execution, and nothing is read before it was written.
    assert len(drawn.arrows) == 2 * sum(len(channel.readers) for channel in plan.channels)
    for arrow in drawn.arrows:
        source, target = drawn.bars[arrow.source], drawn.bars[arrow.target]
        assert (source.kind, source.channel, source.execution) == (WRITE, target.channel, target.execution)
        assert target.kind == READ
        waits = plan.channels[target.channel].transport in BLOCKING
        assert target.begin >= (source.begin if waits else source.end)


def test_stages_of_a_pipeline_overlap_when_several_executions_follow_each_other() -> None:
    drawn = chart(plan_of(step(0, A, -1), step(1, B, 0)), NAMES, executions=3)
    first = [bar for bar in on_lane(drawn, 1) if bar.kind == COMPUTE]
    second = [bar for bar in on_lane(drawn, 2) if bar.kind == COMPUTE]
    assert first[1].begin < second[0].end
    assert [bar.execution for bar in second] == [0, 1, 2]


def test_calls_that_meet_begin_together() -> None:
    meeting = [replace(step(3 + number, endpoint, 1 + number), group=0) for number, endpoint in enumerate((A, B))]
    plan = plan_of(step(0, A, -1), step(1, A, 0), step(2, B, -1), *meeting, outputs=(Source(3), Source(4)))
    drawn = chart(plan, NAMES)
    begins = {bar.step: bar.begin for bar in drawn.bars if bar.kind == COMPUTE}
    assert begins[3] == begins[4] > begins[2] + 2


def test_whoever_waits_for_its_readers_is_read_while_it_writes() -> None:
    plan = plan_of(step(0, A, -1), step(1, B, 0), transfers={Source(0): Transfer("accelerator")}, sites=ON_ONE_GPU)
    channels = tuple(replace(each, transport="nccl") if each.source == Source(0) else each for each in plan.channels)
    blocking = replace(plan, channels=channels)
    for which, waits in ((plan, False), (blocking, True)):
        drawn = chart(which, NAMES)
        (arrow,) = (arrow for arrow in drawn.arrows if drawn.bars[arrow.source].step == 0)
        assert (drawn.bars[arrow.source].begin == drawn.bars[arrow.target].begin) is waits


def test_measured_times_are_the_lengths() -> None:
    plan = plan_of(step(0, A, -1), step(1, B, 0))
    steps = {1: {"compute_p50": 0.25}, 2: {"compute_p50": 1.0}}
    measures = measures_of({"steps": steps, "edges": {1: {"serialize_p50": 0.125, "deserialize_p50": 0.5}}}, {0: 1, 1: 2})
    drawn = chart(plan, NAMES, 1, measures)
    lengths = {bar.step: bar.end - bar.begin for bar in drawn.bars if bar.kind == COMPUTE}
    assert lengths == {0: pytest.approx(0.25), 1: pytest.approx(1.0)}
    moving = {bar.kind: bar.end - bar.begin for bar in drawn.bars if bar.channel == 1}
    assert moving == {WRITE: pytest.approx(0.125), READ: pytest.approx(0.5)}
    assert "as measured" in chart_svg(drawn)
    assert "only the order counts" in chart_svg(chart(plan, NAMES))


def test_at_least_one_execution_is_drawn() -> None:
    with pytest.raises(ValueError, match="at least one execution, not 0"):
        chart(plan_of(step(0, A, -1)), NAMES, 0)


# ------------------------------------------------------------------------------------------------ forms
@given(GRAPHS)
@settings(max_examples=examples(30), deadline=None)
def test_every_form_shows_every_operation(graph: Graph) -> None:
    drawn = chart(plan_graph(graph, 4), {})
    root = ET.fromstring(chart_svg(drawn))
    groups = list(root.iter(f"{SVG}g"))
    bars = [each for each in groups if each.get("class", "").startswith("bar ")]
    assert [(int(each.attrib["data-lane"]), int(each.attrib["data-step"])) for each in bars] == [(bar.lane, bar.step) for bar in drawn.bars]
    assert sum(each.get("class") == "edge" for each in groups) == len(drawn.arrows)
    text = chart_dot(drawn)
    assert re.findall(r"^\t(\d+) \[", text, re.MULTILINE) == [str(number) for number in range(len(drawn.bars))]
    arrows = re.findall(r"^\t(\d+) -> (\d+) ", text, re.MULTILINE)
    assert arrows == [(str(arrow.source), str(arrow.target)) for arrow in drawn.arrows]
    calls = [bar for bar in drawn.bars if bar.kind == COMPUTE]
    sequence = chart_mermaid(drawn)
    assert sequence.count("    Note over ") == len(calls)
    assert sequence.count("->>") == len(drawn.arrows)
    characters = chart_ascii(drawn).split("\n\n")[0]
    assert characters.count("[") == len(calls)
    assert len(re.findall(r"\b[RW](?:in|\d+)\b", characters)) == len(drawn.bars) - len(calls)


def test_bars_of_one_lane_do_not_hide_each_other_and_names_fit() -> None:
    drawn = chart(plan_of(step(0, A, -1, method="a_method_with_a_long_name"), step(1, B, 0)), NAMES)
    lanes: dict[str, float] = {}
    for group in ET.fromstring(chart_svg(drawn)).iter(f"{SVG}g"):
        if group.get("class", "").startswith("bar "):
            rect = group.find(f"{SVG}rect")
            assert rect is not None
            assert float(rect.attrib["x"]) >= lanes.get(group.attrib["data-lane"], 0.0)
            lanes[group.attrib["data-lane"]] = float(rect.attrib["x"]) + float(rect.attrib["width"])
            assert group.find(f"{SVG}text") is not None


def test_executions_are_told_apart_when_there_are_several() -> None:
    plan = plan_of(step(0, A, -1, method="load"))
    one, two = chart(plan, NAMES), chart(plan, NAMES, executions=2)
    assert [label(one, bar) for bar in one.bars if bar.kind == COMPUTE] == ["[1] load"]
    assert [label(two, bar) for bar in two.bars if bar.kind == COMPUTE] == ["[1] load #0", "[1] load #1"]


def test_the_schedule_in_characters_reads_from_left_to_right() -> None:
    text = visualize_schedule(plan_of(step(0, A, -1, method="load"), step(1, B, 0, method="train")), NAMES, picture_format="ascii")
    assert text.split("\n")[:3] == [
        "driver          Win ........................R2",
        "Worker aaaaaa   .R1 [1 load] W1",
        "Trainer bbbbbb  ..............R2 [2 train] W2",
    ]
    assert "    1  COMPUTE  [1] load" in text


def test_each_format_of_a_schedule_is_written(tmp_path) -> None:
    plan = plan_of(step(0, A, -1), step(1, B, 0))
    name = str(tmp_path / "s")
    assert visualize_schedule(plan, NAMES, name, "svg").startswith("digraph compiled_graph_schedule {")
    assert visualize_schedule(plan, NAMES, name, "mermaid").startswith("sequenceDiagram\n")
    visualize_schedule(plan, NAMES, name, "html")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s", "s.html", "s.mmd", "s.svg"]


# ------------------------------------------------------------------------------------------------ a page
@given(GRAPHS)
@settings(max_examples=examples(30), deadline=None)
def test_no_arrow_runs_through_a_bar(graph: Graph) -> None:
    drawn = chart(plan_graph(graph, 4), {}, 2)
    scale = points_per_unit(drawn)
    bars = [
        (bar.begin * scale, 12 + LANE * bar.lane + (LANE - BAR) / 2, bar.end * scale - BETWEEN, 12 + LANE * bar.lane + (LANE + BAR) / 2)
        for bar in drawn.bars
    ]
    for number in range(len(drawn.arrows)):
        points = route(drawn, number, 0.0, scale)
        for (x, y), (to_x, to_y) in pairwise(points):
            assert x == to_x or y == to_y
            for left, top, right, bottom in bars:
                through = min(x, to_x) < right and max(x, to_x) > left and min(y, to_y) < bottom and max(y, to_y) > top
                assert not through, f"arrow {number}"


def chain(length: int, actors: int) -> Chart:
    ids = [f"{number:03d}" + "abc" * 8 for number in range(actors)]
    steps = (step(number, ids[number % actors], number - 1, method="forward") for number in range(length))
    return chart(plan_of(*steps, outputs=(Source(length - 1),)), dict.fromkeys(ids, "Stage"))


@pytest.mark.parametrize(("length", "actors"), [(2, 2), (8, 4), (30, 1), (30, 4), (100, 4), (100, 100)])
def test_a_schedule_is_as_wide_as_a_page_and_has_everything_once(length: int, actors: int) -> None:
    drawn = chain(length, actors)
    root = ET.fromstring(chart_svg(drawn))
    assert float(root.attrib["width"]) <= 1600
    groups = list(root.iter(f"{SVG}g"))
    bars = [each for each in groups if each.get("class", "").startswith("bar ")]
    assert [int(each.attrib["data-number"]) for each in bars] == list(range(len(drawn.bars)))
    assert [int(each.attrib["data-lane"]) for each in bars] == [bar.lane for bar in drawn.bars]
    edges = [(int(each.attrib["data-source"]), int(each.attrib["data-target"])) for each in groups if each.get("class") == "edge"]
    assert edges == [(arrow.source, arrow.target) for arrow in drawn.arrows]
    places = []
    for bar in bars:
        rect = bar.find(f"{SVG}rect")
        assert rect is not None
        x, y, width, height = (float(rect.attrib[name]) for name in ("x", "y", "width", "height"))
        places.append((y, x, x + width, height))
    places.sort()
    for (y, _left, right, height), (other_y, left, _right, _height) in pairwise(places):
        assert left >= right if y == other_y else other_y >= y + height
    # In DOT, every node has a place of its own in inches, of 96 dots each.
    text = chart_dot(drawn)
    assert len(re.findall(r"^\t\d+ \[", text, re.MULTILINE)) == len(drawn.bars)
    assert re.findall(r"^\t(\d+) -> (\d+) ", text, re.MULTILINE) == [(str(arrow.source), str(arrow.target)) for arrow in drawn.arrows]
    found = re.findall(r'pos="([\d.]+),[-\d.]+!" width=([\d.]+)', text)
    assert max(float(x) + float(width) / 2 for x, width in found) * 96 <= 2200


def test_arrows_from_band_to_band_say_where_they_go() -> None:
    drawn = chain(30, 4)
    page = pages(drawn, points_per_unit(drawn))
    assert page.has_several
    assert page.crossing
    assert {number for edge in page.arriving for number in edge.arrows} == page.crossing
    for text in (chart_svg(drawn), chart_dot(drawn)):
        for edge in (*page.leaving, *page.arriving):
            assert edge.text in text
        for row, lane in enumerate(page.chart.lanes):
            assert lane.title in text, row
        assert "row 2" in text
    for number, arrow in enumerate(page.chart.arrows):
        source, target = page.chart.bars[arrow.source].lane, page.chart.bars[arrow.target].lane
        assert (page.bands[source] != page.bands[target]) is (number in page.crossing)


@given(GRAPHS)
@settings(max_examples=30, deadline=None)
def test_bands_keep_the_order_and_the_lengths_of_every_lane(graph: Graph) -> None:
    drawn = chart(plan_graph(graph, 4), {}, 3)
    page = banded(drawn, 12.0)
    for bar, whole in zip(page.chart.bars, drawn.bars, strict=True):
        assert page.lanes[bar.lane] == whole.lane
        assert bar.end - bar.begin == pytest.approx(whole.end - whole.begin)
        assert 0 <= bar.begin <= 12.0
    for row in range(len(page.lanes)):
        assert all(before.end <= after.begin for before, after in pairwise(on_lane(page.chart, row)))


def test_one_band_is_the_chart_itself() -> None:
    drawn = chain(8, 4)
    assert banded(drawn, 1000.0).chart is drawn
    assert not pages(drawn, points_per_unit(drawn)).has_several


def test_one_long_name_does_not_widen_the_schedule_and_is_in_the_legend() -> None:
    long = "a_method_with_a_name_that_nobody_would_write_but_somebody_does"
    short_one, long_one = (chart(plan_of(step(0, A, -1, method=name), step(1, B, 0)), NAMES) for name in ("f", long))
    assert points_per_unit(long_one) <= LONGEST
    for drawn in (chart_svg(long_one), chart_dot(long_one)):
        assert f"[1] {long[:5]}" in drawn
        assert f"[1] {long}" in drawn
    assert not cut_names(short_one, points_per_unit(short_one))
    assert fitted(long_one, next(bar for bar in long_one.bars if bar.kind == COMPUTE), 80.0).endswith("…")


def test_characters_of_a_schedule_stay_within_the_terminal() -> None:
    drawn = chart(plan_of(*(step(index, A if index % 2 else B, index - 1) for index in range(20))), NAMES)
    whole, narrow = chart_ascii(drawn), chart_ascii(drawn, 80)
    assert max(map(len, whole.splitlines())) > 80
    assert max(map(len, narrow.splitlines())) <= 80
    for number in range(1, 21):
        assert re.search(rf"\[{number} \w+\]", narrow)
