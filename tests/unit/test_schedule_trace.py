"""The schedule over time: what begins when, and how it is drawn."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings

from mray._channel.select import BLOCKING
from mray._graph.compiler.compile import plan_graph
from mray._graph.plan import COMPUTE, READ, WRITE, Graph, Source, Transfer
from mray._picture.dot_form import dot
from mray._picture.figure import ORDER
from mray._picture.graph_artist import visualize_schedule
from mray._picture.mermaid import mermaid
from mray._picture.picture_measures import measures_of
from mray._picture.schedule_figure import chart_ascii, schedule_figure, schedule_page
from mray._picture.svg import svg
from mray._picture.timing import Bar, Chart, chart
from tests.full import examples
from tests.unit.test_render import NAMES, ON_ONE_GPU, A, B, plan_of, step
from tests.unit.test_schedule import GRAPHS


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
    assert "as measured" in dot(schedule_figure(drawn))
    assert [box.notes for box in schedule_figure(drawn).boxes if box.kind == "call"] == [("compute 250 ms",), ("compute 1 s",)]
    assert "only the order counts" in svg(schedule_figure(chart(plan, NAMES)))


def test_at_least_one_execution_is_drawn() -> None:
    with pytest.raises(ValueError, match="at least one execution, not 0"):
        chart(plan_of(step(0, A, -1)), NAMES, 0)


# ------------------------------------------------------------------------------------------------ forms
@given(GRAPHS)
@settings(max_examples=examples(30), deadline=None)
def test_every_form_shows_every_operation(graph: Graph) -> None:
    drawn = chart(plan_graph(graph, 4), {})
    figure = schedule_figure(drawn)
    numbers = [str(number) for number in range(len(drawn.bars))]
    text = dot(figure)
    assert re.findall(r"^\t(\d+) \[", text, re.MULTILINE) == numbers
    edges = sorted((edge.source, edge.target) for edge in figure.edges)
    assert sorted((int(one), int(other)) for one, other in re.findall(r"^\t(\d+) -> (\d+) ", text, re.MULTILINE)) == edges
    assert len(edges) == len(drawn.arrows) + sum(edge.kind == ORDER for edge in figure.edges)
    assert re.findall(r"^ {4}n(\d+)[(\[]", mermaid(figure), re.MULTILINE) == numbers
    (facts,) = re.findall(r"<script type='application/json'>(.*)</script>", schedule_page(drawn))
    document = json.loads(facts)
    assert [(lane, begin, end) for lane, begin, end, *_rest in document["slices"]] == [(bar.lane, bar.begin, bar.end) for bar in drawn.bars]
    assert len(document["arrows"]) == len(drawn.arrows)
    calls = [bar for bar in drawn.bars if bar.kind == COMPUTE]
    characters = chart_ascii(drawn).split("\n\n")[0]
    assert characters.count("[") == len(calls)
    assert len(re.findall(r"\b[RW](?:in|\d+)\b", characters)) == len(drawn.bars) - len(calls)


def test_operations_of_an_actor_stand_together_in_their_order() -> None:
    figure = schedule_figure(chart(plan_of(step(0, A, -1, method="load"), step(1, B, 0)), NAMES))
    mine = [box.number for box in figure.boxes if box.owner == A]
    assert [figure.boxes[number].title for number in mine] == ["read [1]", "[1] load", "write [1]"]
    assert {(edge.source, edge.target) for edge in figure.edges if edge.kind == ORDER} >= set(pairwise(mine))
    assert f'{{graph [label="Worker aaaaaa"]; {"; ".join(map(str, mine))}}}' in dot(figure)


def test_executions_are_told_apart_when_there_are_several() -> None:
    plan = plan_of(step(0, A, -1, method="load"))
    titles = [[box.title for box in schedule_figure(chart(plan, NAMES, count)).boxes if box.kind == "call"] for count in (1, 2)]
    assert titles == [["[1] load"], ["[1] load #0", "[1] load #1"]]


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
    assert visualize_schedule(plan, NAMES, name, "mermaid").startswith("flowchart TD\n")
    visualize_schedule(plan, NAMES, name, "html")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s", "s.html", "s.mmd", "s.svg"]


def test_characters_of_a_schedule_stay_within_the_terminal() -> None:
    drawn = chart(plan_of(*(step(index, A if index % 2 else B, index - 1) for index in range(20))), NAMES)
    whole, narrow = chart_ascii(drawn), chart_ascii(drawn, 80)
    assert max(map(len, whole.splitlines())) > 80
    assert max(map(len, narrow.splitlines())) <= 80
    for number in range(1, 21):
        assert re.search(rf"\[{number} \w+\]", narrow)
