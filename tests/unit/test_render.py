"""Figures of plans: numbers of the DAG nodes, DOT text, drawings made of characters."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace

import pytest
from hypothesis import given, settings

from mray._channel.site import Site
from mray._graph.compiler.compile import plan_graph
from mray._graph.depicted import draw_schedule_if_asked
from mray._graph.drawing import channel_details
from mray._graph.plan import DIRECT, DRIVER, INPUT, MIXED, PART, SIGNAL, SPLIT, Argument, Graph, Plan, Source, Step, Transfer
from mray._graph.structure import nodes
from mray._picture import characters
from mray._picture import graph_artist as render
from mray._picture.dot_form import dot
from mray._picture.graphviz import attributes, picture, quote
from mray._picture.grid import COLUMN, draw
from mray._picture.plan_figure import plan_figure
from tests.full import examples
from tests.unit.sites import actor, driver
from tests.unit.test_schedule import GRAPHS

A, B = "aaaaaa" + "0" * 26, "bbbbbb" + "0" * 26
NAMES = {A: "Worker", B: "Trainer"}
#: The driver sees none.
ON_ONE_GPU = {A: actor("Worker", 0), B: actor("Trainer", 0), DRIVER: driver()}


def step(index: int, actor: str, *sources: int | Source | Argument, method: str = "m", num_returns: int = 1, function: int = -1) -> Step:
    """A step whose arguments are results of steps by number (-1: the input), sources or arguments."""
    arguments = [Argument(Source(each)) if isinstance(each, int) else each for each in sources]
    arguments = [each if isinstance(each, Argument) else Argument(each) for each in arguments]
    return Step(index, actor, method, index, tuple(arguments), num_returns=num_returns, function=function)


def plan_of(
    *steps: Step,
    outputs: tuple[Source, ...] | None = None,
    form: str = DIRECT,
    transfers: dict[Source, Transfer] | None = None,
    sites: dict[str, Site] | None = None,
) -> Plan:
    ends = outputs if outputs is not None else (Source(len(steps) - 1),)
    graph = Graph(steps, tuple(map(Argument, ends)), outputs is not None, 1, (), form, (), transfers or {})
    return plan_graph(graph, 4, sites)


def drawn(plan: Plan, names: dict[str, str], with_channels: bool = False) -> str:
    """A plan as DOT text."""
    return dot(plan_figure(plan, names, with_channels=with_channels))


def in_characters(plan: Plan) -> str:
    """A plan in characters."""
    return characters.ascii(plan_figure(plan, NAMES))


def boxes_in(text: str) -> dict[str, str]:
    """DOT text -> number and label of each box."""
    return {number: label.partition("\n")[2] for number, label in re.findall(r'^\t(\d+) \[label="([^"]*)"', text, re.MULTILINE)}


def edges_in(text: str) -> list[tuple[int, int]]:
    """DOT text or the list of the drawing made of characters -> its edges, in order of their numbers."""
    return sorted((int(source), int(target)) for source, target in re.findall(r"^\s*(\d+) (?:->|--->|\+\+\+>) (\d+)", text, re.MULTILINE))


# ------------------------------------------------------------------------------------------------ numbers
def test_a_graph_with_one_output_ends_in_a_node_of_its_own() -> None:
    text = drawn(plan_of(step(0, A, -1), step(1, B, 0)), NAMES)
    assert boxes_in(text) == {
        "0": "InputNode",
        "1": "Actor: Worker\nID: aaaaaa...\nMethod: m",
        "2": "Actor: Trainer\nID: bbbbbb...\nMethod: m",
        "3": "MultiOutputNode",
    }
    assert edges_in(text) == [(0, 1), (1, 2), (2, 3)]


def test_each_of_several_results_is_a_node() -> None:
    plan = plan_of(step(0, A, -1, num_returns=2), step(1, B, Source(0, 0)), step(2, B, Source(0, 1)), outputs=(Source(1), Source(2)))
    text = drawn(plan, NAMES)
    assert [label.rpartition("\n")[2] for label in boxes_in(text).values()] == [
        "InputNode",
        "Method: m",
        "ClassMethodOutputNode[0]",
        "ClassMethodOutputNode[1]",
        "Method: m",
        "Method: m",
        "MultiOutputNode",
    ]
    assert edges_in(text) == [(0, 1), (1, 2), (1, 3), (2, 4), (3, 5), (4, 6), (5, 6)]


def test_nodes_are_numbered_breadth_first() -> None:
    text = drawn(plan_of(step(0, A, -1), step(1, B, -1), step(2, A, 0, 1), step(3, B, 2, -1)), NAMES)
    # The last step takes the input, too: it is found before the one above it.
    assert edges_in(text) == [(0, 1), (0, 2), (0, 3), (1, 4), (2, 4), (3, 5), (4, 3)]


def test_parts_of_the_input_are_nodes_each_once() -> None:
    x, y = Argument(INPUT, "x", by=PART), Argument(INPUT, 0, by=PART)
    text = drawn(plan_of(step(0, A, x, y), step(1, B, x, 0), form=SPLIT), NAMES)
    assert list(boxes_in(text).values())[:3] == ["InputNode", "InputAttributeNode[x]", "InputAttributeNode[0]"]
    assert edges_in(text) == [(0, 1), (0, 2), (1, 3), (1, 4), (2, 3), (3, 4), (4, 5)]


def test_nodes_inside_of_containers_and_keywords_are_arguments() -> None:
    nested = Argument(None, constant=0, nested=(Argument(Source(0)), Argument(INPUT, "x", by=PART)))
    last = replace(step(1, B, nested), keywords=(("word", Argument(INPUT)),))
    text = drawn(plan_of(step(0, A, -1), last, form=MIXED), NAMES)
    number = {label.rpartition("\n")[2]: int(number) for number, label in boxes_in(text).items()}
    part, whole = number["InputAttributeNode[x]"], number["InputNode"]
    into = [source for source, target in edges_in(text) if (target, number["MultiOutputNode"]) in edges_in(text)]
    assert len(into) == 3
    assert {part, whole} < set(into)


def test_a_graph_without_input_has_no_node_for_it() -> None:
    text = drawn(plan_of(step(0, A), step(1, B, 0), form=SIGNAL), NAMES)
    assert "InputNode" not in text
    assert edges_in(text) == [(0, 1), (1, 2)]


def test_a_function_is_shown_with_its_worker() -> None:
    plan = plan_of(step(0, "function-0", -1, method="double", function=0))
    assert boxes_in(drawn(plan, {}))["1"] == "Function: double\nWorker: function-0"
    assert '1 [label="Task 1  Worker: function-0 Function: double"]' in in_characters(plan)
    assert "1:function-0:double" in in_characters(plan)


def test_a_step_that_takes_a_value_twice_has_two_edges() -> None:
    plan = plan_of(step(0, A, -1), step(1, A, 0, 0))
    assert edges_in(drawn(plan, NAMES)) == edges_in(in_characters(plan)) == [(0, 1), (1, 2), (1, 2), (2, 3)]


@given(GRAPHS)
@settings(max_examples=examples(100), deadline=None)
def test_every_node_and_edge_of_any_graph_is_shown_in_both_forms(graph: Graph) -> None:
    plan = plan_graph(graph, 4)
    shown = nodes(graph)
    several = sum(step.num_returns for step in graph.steps if step.num_returns > 1)
    assert sum(box.kind in ("call", "result") for box in shown) == len(graph.steps) + several
    numbers = {box: number for number, box in enumerate(shown)}
    wanted = sorted((numbers[source], numbers[box]) for box, sources in shown.items() for source in sources)
    assert edges_in(drawn(plan, {})) == edges_in(in_characters(plan)) == wanted
    assert list(boxes_in(drawn(plan, {}, with_channels=True))) == [str(number) for number in range(len(shown))]
    drawing = in_characters(plan).partition("Graph Built:\n")[2]
    assert sorted(map(int, re.findall(r"(?<!\S)(\d+):", drawing))) == list(range(len(shown)))


# ------------------------------------------------------------------------------------------------ colours, channels
def test_actors_differ_in_colour() -> None:
    text = drawn(plan_of(step(0, A, -1), step(1, B, 0), step(2, A, 1)), NAMES)
    colours = re.findall(r"fillcolor=(\S+) shape=oval", text)
    assert colours[0] == colours[2] != colours[1]
    assert all(f"BGCOLOR={colour}" in text for colour in colours)


def test_edges_tell_what_carries_them() -> None:
    plan = plan_of(step(0, A, -1), step(1, A, 0), step(2, B, 1), transfers={Source(1): Transfer()})
    labels = re.findall(r'^\t(\d+ -> \d+) \[label="([^"]*)"', drawn(plan, NAMES, with_channels=True), re.MULTILINE)
    ring = plan.channels[0].layout
    measures = f"{ring.entries} entries of {ring.entry_bytes} bytes"
    assert dict(labels) == {
        "0 -> 1": f"SharedMemoryType\nBufferedSharedMemoryChannel\n{measures}",
        "1 -> 2": "SharedMemoryType\nIntraProcessChannel",
        "2 -> 3": f"TorchTensorType\nBufferedSharedMemoryChannel\n{measures}",
        "3 -> 4": f"SharedMemoryType\nBufferedSharedMemoryChannel\n{measures}",
    }


def test_channel_details_name_the_side_of_the_channel() -> None:
    plan = plan_of(step(0, A, -1), step(1, B, 0))
    channel = plan.channel_to(Source(0), B)
    assert "BufferedSharedMemoryChannel" in channel_details(plan, channel, B)
    assert "IntraProcessChannel" in channel_details(plan, channel, A)
    assert channel_details(plan, None, A) == "IntraProcessChannel"
    with pytest.raises(ValueError, match="the driver neither writes nor reads channel 1, which aaaaaa... writes"):
        channel_details(plan, channel, DRIVER)


def test_an_edge_through_an_accelerator_has_an_arrow_of_its_own() -> None:
    plan = plan_of(step(0, A, -1), step(1, B, 0), transfers={Source(0): Transfer("accelerator")}, sites=ON_ONE_GPU)
    told = in_characters(plan)
    assert "\n1 +++> 2\n" in told
    assert "\n0 ---> 1\n" in told


def test_a_value_that_goes_by_two_transports_has_two_kinds_of_edges() -> None:
    plan = plan_of(step(0, A, -1), step(1, B, 0), outputs=(Source(0), Source(1)), sites=ON_ONE_GPU)
    assert [channel_details(plan, plan.channel_to(Source(0), reader), reader).split("\n")[1] for reader in (B, DRIVER)] == [
        "CudaIpcChannel",
        "BufferedSharedMemoryChannel",
    ]
    told = in_characters(plan)
    assert "\n1 +++> 2\n" in told
    assert "\n1 ---> 3\n" in told


# ------------------------------------------------------------------------------------------------ characters
def test_the_drawing_reads_as_the_graph_does() -> None:
    plan = plan_of(step(0, A, -1, num_returns=2), step(1, B, Source(0, 0)), outputs=(Source(1), Source(0, 1)))
    assert in_characters(plan).partition("Graph Built:\n")[2].split("\n") == [
        "0:InputNode",
        "|",
        "1:Actor_aaaaaa:m",
        "|---------------------------->|",
        "2:Output[0]                   3:Output[1]",
        "|                             |",
        "4:Actor_bbbbbb:m              |",
        "|<----------------------------|",
        "5:MultiOutputNode",
    ]


def test_a_line_that_crosses_another_does_not_join_it() -> None:
    lines = draw(["a", "b", "c", "d", "e"], [(0, 3), (2, 3), (1, 4)]).split("\n")
    dashes = "-" * (COLUMN - 1)
    assert lines[1] == f"|<{dashes[1:]}:{dashes}|"
    assert lines[2] == f"{'d':<{COLUMN}}e"


def test_lines_to_the_same_node_join() -> None:
    assert draw(["a", "b", "c", "d"], [(0, 3), (1, 3), (2, 3)]).split("\n")[1].count("|") == 3


def test_a_node_with_two_lines_down_has_a_row_for_each_that_cannot_share() -> None:
    lines = draw(["a", "b", "c", "d"], [(0, 2), (0, 3), (1, 2), (1, 3)]).split("\n")
    assert lines[0].split() == ["a", "b"]
    assert lines[-1].split() == ["c", "d"]
    assert sorted(line.count("<") - line.count(">") for line in lines[1:-1]) == [-1, 1]


def test_long_labels_stay_apart() -> None:
    first = draw(["x" * 50, "y" * 50], []).split("\n")[0]
    assert first == "x" * 50 + "  " + "y" * 50


def test_an_empty_drawing_is_empty() -> None:
    assert draw([], []) == ""


# ------------------------------------------------------------------------------------------------ DOT
@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ("name_1", "name_1"),
        ("-1.5", "-1.5"),
        ("node", '"node"'),
        ("two words", '"two words"'),
        ("#005DC0", '"#005DC0"'),
        ('say "x"', r'"say \"x\""'),
        ("back\\slash", r'"back\\slash"'),
        ("", '""'),
    ],
)
def test_what_dot_would_misread_is_quoted(text: str, quoted: str) -> None:
    assert quote(text) == quoted


def test_attributes_are_left_out_when_there_are_none() -> None:
    assert attributes() == ""
    assert attributes(label="a b", shape="oval") == ' [label="a b" shape=oval]'


# ------------------------------------------------------------------------------------------------ files
def test_without_the_program_the_error_says_what_to_install_and_what_works(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ImportError, match=r"apt install graphviz.*'svg', 'mermaid', 'dot' and 'ascii' need nothing"):
        render.visualize(plan_of(step(0, A, -1)), NAMES, str(tmp_path / "graph"))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("picture_format", "files", "start"),
    [
        ("svg", {"graph", "graph.svg"}, "<svg "),
        ("dot", {"graph", "graph.dot"}, "digraph compiled_graph {"),
        ("mermaid", {"graph.mmd"}, "flowchart TD"),
    ],
)
def test_these_formats_need_no_program(monkeypatch: pytest.MonkeyPatch, tmp_path, picture_format: str, files: set[str], start: str) -> None:
    monkeypatch.setenv("PATH", "")
    plan = plan_of(step(0, A, -1))
    text = render.visualize(plan, NAMES, str(tmp_path / "graph"), picture_format)
    assert {path.name for path in tmp_path.iterdir()} == files
    assert (tmp_path / max(files, key=len)).read_text().startswith(start)
    assert text.startswith("flowchart TD" if picture_format == "mermaid" else "digraph compiled_graph {")


@pytest.mark.parametrize("picture_format", ["nope", "html", "-Kneato", "png -o x", ""])
def test_a_format_that_nobody_knows_is_refused(tmp_path, picture_format: str) -> None:
    if picture_format == "nope" and shutil.which("dot") is None:
        pytest.skip("needs the program dot of graphviz")
    with pytest.raises(ValueError, match=f"unknown format: {picture_format!r}"):
        render.visualize(plan_of(step(0, A, -1)), NAMES, str(tmp_path / "graph"), picture_format)
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(shutil.which("dot") is None, reason="needs the program dot of graphviz")
def test_dot_draws_every_text_that_is_made_of_graphs(tmp_path) -> None:
    plan = plan_of(step(0, A, -1, method='<a> & "b"', num_returns=2), step(1, B, Source(0, 0)), outputs=(Source(1), Source(0, 1)))
    assert picture(drawn(plan, NAMES), "png").startswith(b"\x89PNG")
    render.visualize(plan, NAMES, str(tmp_path / "graph"), "pdf")
    assert (tmp_path / "graph.pdf").read_bytes().startswith(b"%PDF")
    with pytest.raises(RuntimeError, match="exit status"):
        picture("this is no DOT", "png")


def test_a_desktop_that_shows_nothing_is_told_of(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(RuntimeError, match=r"graph.svg is written, but there is no program xdg-open"):
        render.visualize(plan_of(step(0, A, -1)), NAMES, str(tmp_path / "graph"), "svg", view=True)
    assert (tmp_path / "graph.svg").exists()


def test_characters_are_printed_and_not_written(capsys: pytest.CaptureFixture[str], tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = render.visualize(plan_of(step(0, A, -1)), NAMES, picture_format="ascii", view=True)
    assert capsys.readouterr().out == text + "\n"
    assert not list(tmp_path.iterdir())
    with pytest.raises(ValueError, match="'channel_details' are not compatible with 'ascii' format"):
        render.visualize(plan_of(step(0, A, -1)), NAMES, picture_format="ascii", with_channels=True)


# ------------------------------------------------------------------------------------------------ written when compiled
def test_the_schedule_is_written_where_the_environment_asks_for_it(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    plan = plan_of(step(0, A, -1))
    monkeypatch.chdir(tmp_path)
    draw_schedule_if_asked(plan, NAMES)
    assert not list(tmp_path.iterdir())
    monkeypatch.setenv("RAY_CGRAPH_VISUALIZE_SCHEDULE", "1")
    draw_schedule_if_asked(plan, NAMES)
    assert {path.name for path in tmp_path.iterdir()} == {"compiled_graph_schedule.json"}


def test_a_schedule_that_cannot_be_written_stops_nobody(
    monkeypatch: pytest.MonkeyPatch, tmp_path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MRAY_CGRAPH_VISUALIZE_SCHEDULE", "1")
    (tmp_path / "compiled_graph_schedule.json").mkdir()
    plan = plan_of(step(0, A, -1))
    draw_schedule_if_asked(plan, NAMES)
    assert f"The schedule of compiled graph {plan.graph_id} is not written" in caplog.text
