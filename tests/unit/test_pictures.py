"""Pictures as SVG, HTML, Mermaid and DOT: each shows every DAG node and edge, whose they are and what carries them."""

from __future__ import annotations

import re
import shutil
import xml.etree.ElementTree as ET
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise

import pytest
from hypothesis import given, settings

from mray._graph.compiler.compile import plan_graph
from mray._graph.plan import Graph, Source, Transfer
from mray._picture.dot_form import dot
from mray._picture.figure import Box, Edge, Figure, owner_colors
from mray._picture.graphviz import picture
from mray._picture.measures import EdgeMeasure, Measures, StepMeasure, in_bytes, in_seconds, measures_of
from mray._picture.mermaid import mermaid
from mray._picture.page import page
from mray._picture.plan_figure import plan_figure
from mray._picture.svg import own_curves, svg
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


def test_sixty_nodes_are_drawn_with_a_name_in_each_box_that_fits_into_it() -> None:
    steps = [step(index, A if index % 2 else B, *({index - 1, max(-1, index - 4)}), method=f"method_{index}") for index in range(58)]
    drawn = svg(plan_figure(plan_of(*steps), NAMES))
    boxes = parts(drawn, "box")
    assert len(boxes) == 60
    for box in boxes:
        rect = box.find(f"{SVG}rect")
        assert rect is not None
        assert float(rect.attrib["width"]) >= 6 * max(map(len, texts(box)))
    labels = [each.find(f"{SVG}rect") for each in parts(drawn, "label")]
    areas = [tuple(float(each.attrib[name]) for name in ("x", "y", "width", "height")) for each in labels if each is not None]
    assert len(areas) == len(parts(drawn, "edge"))
    # Nothing that is written hides something else that is written.
    hidden = [
        (one, other)
        for number, one in enumerate(areas)
        for other in areas[:number]
        if abs(one[0] - other[0]) < (one[2] + other[2]) / 2 and abs(one[1] - other[1]) < (one[3] + other[3]) / 2
    ]
    assert not hidden


def test_names_with_signs_of_markup_stay_what_they_are() -> None:
    figure = Figure("f", (Box(0, "call", '<a> & "b"', "#`x`"), Box(1, "end", "end")), (Edge(0, 1, "shm", ("<1>",)),), ())
    assert texts(parts(svg(figure), "box")[0])[1:] == ['<a> & "b"', "#`x`"]
    assert texts(parts(svg(figure), "label")[0]) == ["<1>"]
    assert '    n0("0: #lt;a#gt; #amp; #quot;b#quot;<br/>#35;#96;x#96;")' in mermaid(figure)


# ------------------------------------------------------------------------------------------------ colours and labels
def test_tasks_of_one_actor_have_one_colour_and_the_legend_says_whose() -> None:
    drawn = svg(plan_figure(plan_of(step(0, A, -1), step(1, B, 0), step(2, A, 1)), NAMES))
    first, second, third = map(fill, parts(drawn, "call"))
    assert first == third != second
    legend = {texts(key)[0]: fill(key) for key in parts(drawn, "key") if key.find(f"{SVG}rect") is not None}
    assert legend == {"Worker aaaaaa (2 calls)": first, "Trainer bbbbbb (1 call)": second}


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
    assert tooltip(parts(brief, "edge")[0]).split("\n") == ["0 → 1", *lines]
    assert texts(parts(long, "label")[0]) == lines


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
    assert [each.attrib["data-group"] for each in parts(drawn, "call") if "data-group" in each.attrib] == ["0", "0"]
    assert len(parts(drawn, "groups")) == 1
    assert "{rank=same; 3; 4}" in dot(figure)
    assert '    n3 ---|"meets"| n4' in mermaid(figure)
    assert any("meet" in texts(key)[0] for key in parts(drawn, "key"))


def test_a_part_of_a_collective_is_shown_with_its_actor() -> None:
    plan = plan_of(replace(step(0, A, -1, method="allreduce.SUM", function=0), group=0))
    assert boxes_in(dot(plan_figure(plan, NAMES)))["1"] == "Actor: Worker\nID: aaaaaa...\nMethod: allreduce.SUM"


def test_a_label_stands_where_its_edge_is_alone() -> None:
    shared = ((0.0, 0.0), (1.0, 10.0), (1.0, 20.0), (2.0, 30.0))
    other = ((0.0, 0.0), (1.0, 10.0), (1.0, 20.0), (9.0, 30.0))
    alone = ((5.0, 0.0), (6.0, 10.0), (6.0, 20.0), (7.0, 30.0))
    routes = [shared, other, alone]
    own = own_curves(routes)
    assert own[0] == [(shared[2], shared[3])]
    assert own[2] == [(alone[0], alone[1]), (alone[2], alone[3])]


# ------------------------------------------------------------------------------------------------ what was measured
MEASURED = {
    "submitted": 100,
    "steps": {1: {"count": 100, "compute_p50": 0.0015, "compute_p99": 0.004, "wait_p50": 2e-5, "other": 1}, 2: {"compute_p50": 0.02}},
    "edges": {0: {"count": 100, "bytes": 1.5e8, "transfer_p50": 3e-6, "wait_p50": 4e-6, "serialize_p50": 1e-3, "name": "the input"}},
    "endpoints": {A: {"name": "Worker", "busy": 0.25}, "": {"busy": 0.01}},
}


def test_measurements_stand_in_boxes_and_beside_edges_and_the_bottleneck_is_marked() -> None:
    plan = plan_of(step(0, A, -1), step(1, B, 0))
    drawn = svg(plan_figure(plan, NAMES, measures=measures_of(MEASURED, {0: 1, 1: 2})))
    first, second = parts(drawn, "call")
    assert texts(first)[3:] == ["compute 1.5 ms (p99 4 ms)", "wait 20 µs"]
    assert texts(second)[3:] == ["compute 20 ms"]
    assert [each.attrib["data-number"] for each in parts(drawn, "bottleneck")] == ["2"]
    assert {ends(each): texts(each) for each in parts(drawn, "label")}[0, 1] == ["shm", "100× 1.5 MB each", "transfer 3 µs", "wait 4 µs"]
    assert "serialize 1 ms" in tooltip(parts(drawn, "edge")[0])
    legend = [texts(key)[0] for key in parts(drawn, "key")]
    assert legend[0] == "Worker aaaaaa, 25% busy (1 call)"
    assert legend[-1] == "bottleneck"
    text = dot(plan_figure(plan, NAMES, measures=measures_of(MEASURED, {0: 1, 1: 2})))
    assert boxes_in(text)["2"].endswith("compute 20 ms")
    assert re.findall(r'^\t(\d+) .*?color="#D62728" penwidth=4\]', text, re.MULTILINE | re.DOTALL)


def test_without_measurements_nothing_is_marked() -> None:
    plan = plan_of(step(0, A, -1))
    for statistics in ({}, {"submitted": 3, "channels": {"the input": {"written": 3}}}, {"steps": None, "edges": {}}):
        assert svg(plan_figure(plan, NAMES, measures=measures_of(statistics, {0: 1}))) == svg(plan_figure(plan, NAMES))


def test_the_bottleneck_is_the_longest_step_of_the_busiest_actor() -> None:
    actors = {0: A, 1: A, 2: B}
    steps = {0: StepMeasure(compute_p50=2.0), 1: StepMeasure(compute_p50=3.0), 2: StepMeasure(compute_p50=4.0)}
    assert Measures(steps).bottleneck_among(actors) == 1
    assert Measures(steps, bottleneck=2).bottleneck_among(actors) == 2
    assert Measures(steps, why="the caller was busy for 90% of 1 s").bottleneck_among(actors) is None
    assert Measures({0: StepMeasure(count=1)}).bottleneck_among(actors) is None


def test_measurements_may_be_records() -> None:
    record = StepMeasure(3, 0.5)
    statistics = {"steps": {"1": record}, "edges": {1: EdgeMeasure(bytes=10)}}
    assert measures_of(statistics, {0: 1}) == Measures({0: record}, {1: EdgeMeasure(bytes=10)})


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


# ------------------------------------------------------------------------------------------------ HTML
class _Tags(HTMLParser):
    """Checks that every element that is opened is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.seen.append(tag)
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_a_page_holds_its_pictures_and_fetches_nothing() -> None:
    plan = plan_of(step(0, A, -1))
    text = page("<title>", [("Graph", svg(plan_figure(plan, NAMES))), ("Other", svg(plan_figure(plan, NAMES)))])
    tags = _Tags()
    tags.feed(text)
    assert not tags.open
    assert tags.seen.count("svg") == 2
    assert "&lt;title&gt;" in text
    assert re.findall(r"(?:src|href)=|https?://(?!www\.w3\.org/2000/svg)", text) == []


# ------------------------------------------------------------------------------------------------ a page
def areas(drawn: str, kind: str = "box") -> dict[int, tuple[float, float, float, float]]:
    """Number of a box -> its left, top, right and bottom."""
    found = {}
    for each in parts(drawn, kind):
        rect = each.find(f"{SVG}rect")
        assert rect is not None
        x, y, width, height = (float(rect.attrib[name]) for name in ("x", "y", "width", "height"))
        found[int(each.attrib["data-number"])] = (x, y, x + width, y + height)
    return found


def size(drawn: str) -> tuple[float, float]:
    root = ET.fromstring(drawn)
    return float(root.attrib["width"]), float(root.attrib["height"])


def corners(text: str) -> list[tuple[float, float]]:
    """The points of a path of straight lines."""
    points: list[tuple[float, float]] = []
    for sign, first, second in re.findall(r"([MLHV])([\d.-]+)(?: ([\d.-]+))?", text):
        x, y = points[-1] if points else (0.0, 0.0)
        points.append((float(first), float(second)) if sign in "ML" else (float(first), y) if sign == "H" else (x, float(first)))
    return points


def chain(length: int) -> Figure:
    return plan_figure(plan_of(*(step(index, A if index % 2 else B, index - 1) for index in range(length))), NAMES)


def fan(width: int) -> Figure:
    steps = [step(index, f"{index:06x}", -1) for index in range(width)]
    return plan_figure(plan_of(*steps, outputs=tuple(map(Source, range(width)))), {})


@pytest.mark.parametrize("length", [30, 100])
def test_a_long_chain_is_folded_into_columns_and_no_line_runs_through_a_box(length: int) -> None:
    drawn = svg(chain(length))
    width, height = size(drawn)
    assert width < 1700
    assert height < 1.5 * width
    boxes = areas(drawn)
    assert len(boxes) == length + 1 + (length + 1 in boxes)
    for number, one in boxes.items():
        for other, two in boxes.items():
            apart = one[2] <= two[0] or two[2] <= one[0] or one[3] <= two[1] or two[3] <= one[1]
            assert number == other or apart
    folded = 0
    for edge in parts(drawn, "edge"):
        found = edge.find(f"{SVG}path")
        assert found is not None
        text = found.attrib["d"]
        if "H" not in text:
            continue
        folded += 1
        points = corners(text)
        for (x, y), (to_x, to_y) in pairwise(points):
            for left, top, right, bottom in boxes.values():
                through = min(x, to_x) < right - 1 and max(x, to_x) > left + 1 and min(y, to_y) < bottom - 1 and max(y, to_y) > top + 1
                assert not through
    assert folded >= 3
    labels = [each.find(f"{SVG}rect") for each in parts(drawn, "label")]
    for rect in labels:
        assert rect is not None
        x, y, wide, high = (float(rect.attrib[name]) for name in ("x", "y", "width", "height"))
        assert not any(x < right and x + wide > left and y < bottom and y + high > top for left, top, right, bottom in boxes.values())


def test_dot_is_told_of_columns_and_of_rows() -> None:
    text = dot(chain(30))
    assert text.count("constraint=false") == len(re.findall(r"\d+ -> \d+ .*constraint=false", text)) >= 3
    assert re.search(r"\d+ -> legend \[style=invis\]", text)
    assert "constraint" not in dot(chain(8))
    assert "minlen" not in dot(chain(30))
    assert max(int(length) for length in re.findall(r"minlen=(\d+)", dot(fan(40)))) >= 3


def test_a_wide_layer_is_drawn_in_rows() -> None:
    drawn = svg(fan(40))
    rows: dict[float, int] = {}
    for _left, top, _right, _bottom in areas(drawn).values():
        rows[top] = rows.get(top, 0) + 1
    assert max(rows.values()) <= 12


@pytest.mark.parametrize("width", [2, 8, 28, 98])
def test_a_fan_of_different_actors_is_as_wide_as_a_page_and_has_everything_once(width: int) -> None:
    steps = [step(0, "a" * 6, -1), *(step(index, f"{index:06x}", 0) for index in range(1, width + 1))]
    figure = plan_figure(plan_of(*steps, step(width + 1, "b" * 6, *range(1, width + 1))), {})
    drawn = svg(figure)
    assert size(drawn)[0] <= 2600
    boxes = areas(drawn)
    assert sorted(boxes) == [box.number for box in figure.boxes]
    for number, one in boxes.items():
        for other, two in boxes.items():
            assert number == other or one[2] <= two[0] or two[2] <= one[0] or one[3] <= two[1] or two[3] <= one[1]
    wanted = sorted((edge.source, edge.target) for edge in figure.edges)
    assert sorted(ends(each) for each in parts(drawn, "edge")) == wanted
    text = dot(figure)
    assert sorted(boxes_in(text)) == sorted(str(box.number) for box in figure.boxes)
    assert sorted(edges_in(text)) == wanted


@pytest.mark.skipif(shutil.which("dot") is None, reason="needs the program dot of graphviz")
def test_a_fan_is_as_wide_as_a_page_as_dot_draws_it() -> None:
    steps = [step(0, "a" * 6, -1), *(step(index, f"{index:06x}", 0) for index in range(1, 29))]
    figure = plan_figure(plan_of(*steps, step(29, "b" * 6, *range(1, 29))), {})
    drawn = picture(dot(figure), "png")
    assert int.from_bytes(drawn[16:20], "big") <= 2600


def test_boxes_that_repeat_each_other_are_one_with_their_number() -> None:
    steps = [step(index, A if index % 2 else B, -1) for index in range(60)]
    figure = plan_figure(plan_of(*steps, outputs=tuple(map(Source, range(60)))), NAMES)
    drawn = svg(figure)
    calls = parts(drawn, "call")
    assert [texts(each)[1] for each in calls] == [f"{steps[0].method} ×30"] * 2
    assert "×30: 1, 3, ..., 59" in tooltip(calls[0])
    assert len(boxes_in(dot(figure))) == len(parts(drawn, "box")) == len(figure.boxes) - 58
    assert "(30 calls)" in drawn
    # Mermaid has all of them.
    assert len(re.findall(r"^ {4}n(\d+)[(\[]", mermaid(figure), re.MULTILINE)) == len(figure.boxes)


def test_boxes_of_different_actors_are_not_taken_together() -> None:
    assert len(parts(svg(fan(40)), "call")) == 40
