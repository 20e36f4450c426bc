"""Pictures as plain SVG, Mermaid and DOT: each shows every DAG node and edge, whose they are and what carries them."""

from __future__ import annotations

import os
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings

from mray._channel import select
from mray._graph.compiler.compile import plan_graph
from mray._graph.drawing import _CHANNEL_NAMES
from mray._graph.plan import Graph, Source, Transfer
from mray._picture.dot_form import dot
from mray._picture.figure import STROKES, Box, Edge, Figure, owner_colors
from mray._picture.graphviz import picture
from mray._picture.mermaid import mermaid
from mray._picture.picture_measures import in_bytes, in_seconds, measures_of
from mray._picture.plan_figure import plan_figure
from mray._picture.svg import svg
from tests.full import examples
from tests.unit.test_render import NAMES, ON_ONE_GPU, A, B, boxes_in, edges_in, plan_of, step
from tests.unit.test_schedule import GRAPHS

SVG = "{http://www.w3.org/2000/svg}"


def parts(text: str, kind: str) -> list[ET.Element]:
    """The groups of a class in SVG."""
    return [each for each in ET.fromstring(text).iter(f"{SVG}g") if kind in each.get("class", "").split()]


def texts(element: ET.Element) -> list[str]:
    return [each.text or "" for each in element.iter(f"{SVG}text")]


def tooltip(element: ET.Element) -> str:
    found = element.find(f"{SVG}title")
    assert found is not None
    return found.text or ""


def ends(element: ET.Element) -> tuple[int, int]:
    return int(element.attrib["data-source"]), int(element.attrib["data-target"])


def fill(element: ET.Element) -> str:
    found = element.find(f"{SVG}rect")
    assert found is not None
    return found.attrib["fill"]


# ------------------------------------------------------------------------------------------------ everything is there
@given(GRAPHS)
@settings(max_examples=examples(50), deadline=None)
def test_every_form_shows_every_node_and_edge_of_any_graph(graph: Graph) -> None:
    figure = plan_figure(plan_graph(graph, 4), {})
    numbers = [box.number for box in figure.boxes]
    edges = sorted((edge.source, edge.target) for edge in figure.edges)
    drawn = svg(figure)
    assert [int(each.attrib["data-number"]) for each in parts(drawn, "box")] == numbers
    assert sorted(map(ends, parts(drawn, "edge"))) == edges
    text = dot(figure)
    assert list(map(int, boxes_in(text))) == numbers
    assert edges_in(text) == edges
    chart = mermaid(figure)
    assert [int(number) for number in re.findall(r"^ {4}n(\d+)[(\[]", chart, re.MULTILINE)] == numbers
    arrows = re.findall(r"^ {4}n(\d+) (?:-->|==>|-\.->)(?:\|[^|]*\|)? n(\d+)$", chart, re.MULTILINE)
    assert sorted((int(source), int(target)) for source, target in arrows) == edges


def test_boxes_do_not_touch_names_fit_into_them_and_edges_go_down() -> None:
    steps = [step(index, A if index % 2 else B, *({index - 1, max(-1, index - 4)}), method=f"method_{index}") for index in range(58)]
    drawn = svg(plan_figure(plan_of(*steps), NAMES))
    areas = []
    for box in parts(drawn, "box"):
        rect = box.find(f"{SVG}rect")
        assert rect is not None
        x, y, width, height = (float(rect.attrib[name]) for name in ("x", "y", "width", "height"))
        assert width >= 6 * max(map(len, texts(box)))
        assert not any(x < right and left < x + width and y < bottom and top < y + height for left, top, right, bottom in areas)
        areas.append((x, y, x + width, y + height))
    assert len(areas) == 60
    assert not parts(drawn, "label")  # the legend says it of so many
    for edge in parts(drawn, "edge"):
        line = edge.find(f"{SVG}polyline")
        assert line is not None
        downs = [float(point.split(",")[1]) for point in line.attrib["points"].split()]
        assert downs == sorted(downs)


def area(element: ET.Element) -> tuple[float, float, float, float]:
    rect = element.find(f"{SVG}rect")
    assert rect is not None
    x, y, width, height = (float(rect.attrib[name]) for name in ("x", "y", "width", "height"))
    return x, y, x + width, y + height


def test_texts_of_edges_cover_neither_boxes_nor_each_other_and_are_as_wide_as_their_lines() -> None:
    steps = [step(0, A, -1), step(1, B, 0), step(2, A, 0, 1), step(3, B, 0, 1, 2), step(4, A, 3), step(5, B, 3, 0)]
    plan = plan_of(*steps)
    measured = {"count": 1000, "bytes": 10**9, "transfer_p50": 1e-5, "transfer_p99": 1e-3, "wait_p50": 1e-5, "wait_p99": 1e-3}
    edges = dict.fromkeys((channel.index for channel in plan.channels), measured)
    for with_channels in (False, True):
        drawn = svg(plan_figure(plan, NAMES, with_channels=with_channels, measures=measures_of({"edges": edges}, {})))
        labels = parts(drawn, "label")
        assert len(labels) == len(parts(drawn, "edge"))
        for label in labels:
            left, _top, right, _bottom = area(label)
            assert right - left >= 6 * max(map(len, texts(label)))
        areas = [area(each) for each in (*labels, *parts(drawn, "box"))]
        for number, (left, top, right, bottom) in enumerate(areas):
            assert not [each for each in areas[:number] if left < each[2] and each[0] < right and top < each[3] and each[1] < bottom]


def test_a_wide_graph_of_many_steps_takes_no_more_width_than_its_widest_row() -> None:
    # Lanes that exchange values: what lies below each other stays below each other.
    steps = [step(5 * row + lane, A if lane % 2 else B, *({-1} if not row else {5 * row - 5 + lane, 5 * row - 5 + (lane + row) % 5}))
             for row in range(30) for lane in range(5)]  # fmt: skip
    drawn = svg(plan_figure(plan_of(*steps), NAMES))
    areas = [area(box) for box in parts(drawn, "call")]
    assert len(areas) == 150
    widest = max(right - left for left, _top, right, _bottom in areas)
    assert max(each[2] for each in areas) - min(each[0] for each in areas) < 10 * widest


def test_names_with_signs_of_markup_stay_what_they_are() -> None:
    figure = Figure("f", (Box(0, "call", '<a> & "b"', "#`x`"), Box(1, "end", "end")), (Edge(0, 1, "shm", ("<1>",)),), ())
    assert texts(parts(svg(figure), "box")[0]) == ['0: <a> & "b"', "#`x`"]
    assert texts(parts(svg(figure), "label")[0]) == ["<1>"]
    assert '    n0("0: #lt;a#gt; #amp; #quot;b#quot;<br/>#35;#96;x#96;")' in mermaid(figure)


# ------------------------------------------------------------------------------------------------ colours and labels
def test_tasks_of_one_actor_have_one_colour_and_the_legend_says_whose() -> None:
    drawn = svg(plan_figure(plan_of(step(0, A, -1), step(1, B, 0), step(2, A, 1)), NAMES))
    first, second, third = map(fill, parts(drawn, "call"))
    assert first == third != second
    legend = {texts(key)[0]: fill(key) for key in parts(drawn, "key")}
    assert (legend["Worker aaaaaa"], legend["Trainer bbbbbb"]) == (first, second)


def test_edges_say_their_transport_and_what_was_said_of_them() -> None:
    plan = plan_of(step(0, A, -1), step(1, A, 0), step(2, B, 1), transfers={Source(1): Transfer("accelerator")}, sites=ON_ONE_GPU)
    drawn = svg(plan_figure(plan, NAMES))
    assert {ends(each): texts(each) for each in parts(drawn, "label")} == {
        (0, 1): ["shm"],
        (1, 2): ["local"],
        (2, 3): ["cuda_ipc", "TorchTensorType (accelerator)"],
        (3, 4): ["shm"],
    }
    told = [texts(key)[0] for key in parts(drawn, "key")]
    assert [each for each in told if ": " in each] == [
        "shm: ring in shared memory",
        "local: inside one process, no copy",
        "cuda_ipc: device memory that both map",
    ]
    assert '    n2 ==>|"cuda_ipc<br/>TorchTensorType (accelerator)"| n3' in mermaid(plan_figure(plan, NAMES))


def test_all_about_a_channel_is_in_the_tooltip_and_on_the_edge_when_asked_for() -> None:
    plan = plan_of(step(0, A, -1))
    brief, long = (svg(plan_figure(plan, NAMES, with_channels=wanted)) for wanted in (False, True))
    ring = plan.channels[0].layout
    lines = ["SharedMemoryType", "BufferedSharedMemoryChannel", f"{ring.entries} entries of {ring.entry_bytes} bytes"]
    assert tooltip(parts(brief, "edge")[0]).split("\n") == lines
    assert texts(parts(long, "label")[0]) == lines


def test_every_transport_has_a_stroke_and_the_name_of_its_channel() -> None:
    transports = {value for name, value in vars(select).items() if name.isupper() and isinstance(value, str) and " " not in value}
    transports -= {select.AUTO, select.ACCELERATOR}
    assert select.CUDA_IPC in transports
    assert transports <= STROKES.keys()
    assert transports <= _CHANNEL_NAMES.keys()


def test_there_is_a_colour_for_every_actor() -> None:
    colours = owner_colors(60)
    assert len(set(colours)) == 60
    for colour in colours:
        red, green, blue = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
        # So light that black text has a contrast of seven to one, as W3C wants it.
        assert 0.2126 * (red / 255) ** 2.2 + 0.7152 * (green / 255) ** 2.2 + 0.0722 * (blue / 255) ** 2.2 > 0.3


def test_calls_that_meet_are_drawn_together() -> None:
    meeting = [replace(step(2 + number, endpoint, number, method="allreduce"), group=0) for number, endpoint in enumerate((A, B))]
    figure = plan_figure(plan_of(step(0, A, -1), step(1, B, -1), *meeting, outputs=(Source(2), Source(3))), NAMES)
    drawn = svg(figure)
    assert "{rank=same; 3; 4}" in dot(figure)
    assert '    n3 ---|"meets"| n4' in mermaid(figure)
    assert any("meet" in texts(key)[0] for key in parts(drawn, "key"))


def test_a_part_of_a_collective_is_shown_with_its_actor() -> None:
    plan = plan_of(replace(step(0, A, -1, method="allreduce.SUM", function=0), group=0))
    assert boxes_in(dot(plan_figure(plan, NAMES)))["1"] == "Actor: Worker\nID: aaaaaa...\nMethod: allreduce.SUM"


# ------------------------------------------------------------------------------------------------ what was measured
MEASURED = {
    "submitted": 100,
    "steps": {1: {"count": 100, "compute_p50": 0.0015, "compute_p99": 0.004, "wait_p50": 2e-5, "other": 1}, 2: {"compute_p50": 0.02}},
    "edges": {0: {"count": 100, "bytes": 1.5e8, "transfer_p50": 3e-6, "wait_p50": 4e-6, "serialize_p50": 1e-3, "name": "the input"}},
    "endpoints": {A: {"name": "Worker", "busy": 0.25}, "": {"busy": 0.01}},
    "bottleneck": "[2] m",
}


def test_measurements_stand_in_boxes_and_beside_edges_and_the_bottleneck_is_marked() -> None:
    plan = plan_of(step(0, A, -1), step(1, B, 0))
    drawn = svg(plan_figure(plan, NAMES, measures=measures_of(MEASURED, {0: 1, 1: 2})))
    first, second = parts(drawn, "call")
    assert texts(first)[2:] == ["compute 1.5 ms (p99 4 ms)", "wait 20 µs"]
    assert texts(second)[2:] == ["compute 20 ms"]
    assert [each.attrib["data-number"] for each in parts(drawn, "bottleneck")] == ["2"]
    assert {ends(each): texts(each) for each in parts(drawn, "label")}[0, 1] == ["shm", "100× 1.5 MB each", "transfer 3 µs", "wait 4 µs"]
    assert "serialize 1 ms" in tooltip(parts(drawn, "edge")[0])
    legend = [texts(key)[0] for key in parts(drawn, "key")]
    assert legend[0] == "Worker aaaaaa, 25% busy"
    assert legend[-1] == "bottleneck"
    text = dot(plan_figure(plan, NAMES, measures=measures_of(MEASURED, {0: 1, 1: 2})))
    assert boxes_in(text)["2"].endswith("compute 20 ms")
    assert re.findall(r'^\t(\d+) .*?color="#D62728" penwidth=4\]', text, re.MULTILINE | re.DOTALL)


def test_without_measurements_nothing_is_marked() -> None:
    plan = plan_of(step(0, A, -1))
    for statistics in ({}, {"submitted": 3, "channels": {"the input": {"written": 3}}}, {"steps": None, "edges": {}}):
        assert svg(plan_figure(plan, NAMES, measures=measures_of(statistics, {0: 1}))) == svg(plan_figure(plan, NAMES))


def test_the_bottleneck_of_statistics_is_found_by_its_number() -> None:
    numbers = {0: 1, 1: 4, 2: 12}
    said = {name: measures_of({"bottleneck": name, "why": "so"}, numbers).bottleneck for name in ("[4] f", "[12] f", "[1] f", "the caller")}
    assert said == {"[4] f": 1, "[12] f": 2, "[1] f": 0, "the caller": None}


@pytest.mark.parametrize(
    ("seconds", "text"), [(3e-8, "30 ns"), (1.2345e-6, "1.23 µs"), (0.0123, "12.3 ms"), (0.9996, "1000 ms"), (61.0, "61 s"), (0.0, "0 ns")]
)
def test_durations_are_short(seconds: float, text: str) -> None:
    assert in_seconds(seconds) == text


@pytest.mark.parametrize(("size", "text"), [(0, "0 B"), (999, "999 B"), (1234, "1.23 kB"), (1.5e6, "1.5 MB"), (2e12, "2000 GB")])
def test_sizes_are_short(size: float, text: str) -> None:
    assert in_bytes(size) == text


# ------------------------------------------------------------------------------------------------ many boxes
def fan(width: int) -> Figure:
    steps = [step(index, f"{index:06x}", -1) for index in range(width)]
    return plan_figure(plan_of(*steps, outputs=tuple(map(Source, range(width)))), {})


def test_boxes_that_repeat_each_other_are_one_with_their_number() -> None:
    steps = [step(index, A if index % 2 else B, -1) for index in range(60)]
    figure = plan_figure(plan_of(*steps, outputs=tuple(map(Source, range(60)))), NAMES)
    drawn = svg(figure)
    calls = parts(drawn, "call")
    assert [texts(each)[0] for each in calls] == [f"{number}: {steps[0].method} ×30" for number in (1, 2)]
    assert "×30: 1, 3, ..., 59" in tooltip(calls[0])
    assert len(boxes_in(dot(figure))) == len(parts(drawn, "box")) == len(figure.boxes) - 58
    # Mermaid has all of them.
    assert len(re.findall(r"^ {4}n(\d+)[(\[]", mermaid(figure), re.MULTILINE)) == len(figure.boxes)


def test_boxes_of_different_actors_are_not_taken_together() -> None:
    assert len(parts(svg(fan(40)), "call")) == 40


def test_the_error_of_graphviz_has_its_status_and_its_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "dot"
    program.write_text("#!/bin/sh\necho out of ink >&2; exit 3\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with pytest.raises(RuntimeError, match="`dot -Tpng` failed with exit status 3: out of ink"):
        picture("digraph {}", "png")
