"""Pictures of compiled graphs and of graphs that are not compiled: DOT text, drawings made of characters, picture files."""

from __future__ import annotations

import json
import re
import shutil
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

needs_dot = pytest.mark.skipif(shutil.which("dot") is None, reason="needs the program dot of graphviz")


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Pictures fall into the current folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def actor(ray_session):
    """Makes actors."""
    ray = ray_session

    class Actor:
        def echo(self, value):
            return value

        def add(self, left, right):
            return left + right

        @ray.method(num_returns=2)
        def two(self, value):
            return value, value + 1

    return ray.remote(num_cpus=0)(Actor).remote


@pytest.fixture
def compiled(ray_session):
    """Compiles graphs, and tears them down."""
    graphs = []

    def compile_graph(root):
        graphs.append(root.experimental_compile())
        return graphs[-1]

    yield compile_graph
    for graph in graphs:
        graph.teardown()


def boxes_in(text: str) -> dict[str, list[str]]:
    """DOT text -> number and lines of each box, without the first, which repeats the number."""
    return {number: label.split("\n")[1:] for number, label in re.findall(r'^\t(\d+) \[label="([^"]*)"', text, re.MULTILINE)}


def edges_in(text: str) -> set[tuple[str, str]]:
    return set(re.findall(r"^\s*(\d+) (?:->|--->|\+\+\+>) (\d+)", text, re.MULTILINE))


def pairs(text: str) -> set[tuple[str, str]]:
    """``"0-1 1-2"`` as edges."""
    return {tuple(pair.split("-")) for pair in text.split()}


@pytest.fixture(autouse=True)
def graphviz(engine: str) -> None:
    """Ray makes pictures, and DOT text, through the Python package; mray asks the program itself."""
    if engine == "ray":
        pytest.importorskip("graphviz")


# ------------------------------------------------------------------------------------------------ DOT
@needs_dot
def test_visualize_returns_dot_and_writes_it_and_a_picture(ray_session, actor, compiled, empty_folder: Path) -> None:
    with ray_session.dag.InputNode() as given:
        graph = compiled(actor().echo.bind(given))
    text = graph.visualize()
    assert text.startswith("digraph compiled_graph {\n")
    assert (empty_folder / "compiled_graph").read_text() == text
    assert (empty_folder / "compiled_graph.png").read_bytes().startswith(b"\x89PNG")
    graph.visualize(filename="other", format="svg")
    assert "<svg" in (empty_folder / "other.svg").read_text()
    graph.visualize(filename="nested/third", format="pdf")
    assert (empty_folder / "nested" / "third.pdf").read_bytes().startswith(b"%PDF")
    with pytest.raises(ValueError, match="unknown format: 'nope'"):
        graph.visualize(format="nope")


@needs_dot
def test_the_numbers_and_labels_of_a_graph(ray_session, actor, compiled) -> None:
    ray = ray_session
    first, second = actor(), actor()
    with ray.dag.InputNode() as given:
        low, high = first.two.bind(given)
        graph = compiled(ray.dag.MultiOutputNode([second.echo.bind(low), second.echo.bind(high)]))
    text = graph.visualize()
    assert edges_in(text) == pairs("0-1 1-2 1-3 2-4 3-5 4-6 5-6")
    boxes = boxes_in(text)
    ids = [f"ID: {handle._actor_id.hex()[:6]}..." for handle in (first, second)]
    assert boxes.pop("1")[1:] == [ids[0], "Method: two"]
    assert boxes.pop("4")[1:] == boxes.pop("5")[1:] == [ids[1], "Method: echo"]
    assert boxes == {"0": ["InputNode"], "2": ["ClassMethodOutputNode[0]"], "3": ["ClassMethodOutputNode[1]"], "6": ["MultiOutputNode"]}


@needs_dot
def test_boxes_name_the_class_of_the_actor_and_have_its_colour(ray_session, actor, compiled) -> None:
    with ray_session.dag.InputNode() as given:
        first, second = actor(), actor()
        graph = compiled(first.echo.bind(second.echo.bind(first.echo.bind(given))))
    text = graph.visualize()
    assert "Actor" in boxes_in(text)["1"][0]
    first, second, third = re.findall(r"fillcolor=(\S+) shape=oval", text)
    assert first == third != second


@needs_dot
def test_parts_of_the_input_are_boxes(ray_session, actor, compiled) -> None:
    with ray_session.dag.InputNode() as given:
        worker = actor()
        graph = compiled(actor().add.bind(worker.add.bind(given[0], given.word), given[1]))
    text = graph.visualize()
    boxes = boxes_in(text)
    assert [boxes[number] for number in "123"] == [[f"InputAttributeNode[{key}]"] for key in (0, "word", 1)]
    assert edges_in(text) == pairs("0-1 0-2 0-3 1-4 2-4 3-5 4-5 5-6")


@needs_dot
def test_channel_details_stand_on_the_edges(ray_session, actor, compiled) -> None:
    with ray_session.dag.InputNode() as given:
        worker = actor()
        graph = compiled(actor().echo.bind(worker.echo.bind(worker.echo.bind(given))))
    labels = dict(re.findall(r'^\t(\d+ -> \d+) \[label="([^"]*)"', graph.visualize(channel_details=True), re.MULTILINE))
    assert all(label.startswith("SharedMemoryType\n") for label in labels.values())
    within = {edge for edge, label in labels.items() if "IntraProcessChannel" in label}
    between = {edge for edge, label in labels.items() if "BufferedSharedMemoryChannel" in label}
    assert (within, between) == ({"1 -> 2"}, {"0 -> 1", "2 -> 3", "3 -> 4"})


@pytest.mark.differs("Ray draws the schedule only while it compiles; mray writes a trace")
def test_the_schedule_is_a_trace(ray_session, actor, compiled, empty_folder: Path, engine: str) -> None:
    first, second = actor(), actor()
    with ray_session.dag.InputNode() as given:
        graph = compiled(second.echo.bind(first.echo.bind(given)))
    if engine == "ray":
        assert not hasattr(graph, "visualize_schedule")
        return
    assert graph.visualize_schedule(executions=2) == "compiled_graph_schedule.json"
    events = json.loads((empty_folder / "compiled_graph_schedule.json").read_text())["traceEvents"]
    rows = [event["args"]["name"].split()[0] for event in events if event["name"] == "thread_name"]
    assert rows == ["driver", "Actor", "Actor"]
    assert sorted(event["name"] for event in events if event.get("cat") == "compute") == [
        f"[{number}] echo #{execution}" for number in (1, 2) for execution in (0, 1)
    ]


@pytest.mark.only("mray", "Ray reads the variable when it is imported")
def test_compiling_writes_the_schedule_where_the_environment_asks_for_it(
    ray_session, actor, compiled, empty_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_CGRAPH_VISUALIZE_SCHEDULE", "1")
    with ray_session.dag.InputNode() as given:
        graph = compiled(actor().echo.bind(given))
    assert ray_session.get(graph.execute(5)) == 5
    assert (empty_folder / "compiled_graph_schedule.json").exists()


# ------------------------------------------------------------------------------------------------ characters
def test_the_graph_in_characters(ray_session, actor, compiled, empty_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ray = ray_session
    first, second = actor(), actor()
    with ray.dag.InputNode() as given:
        low, high = first.two.bind(given)
        graph = compiled(ray.dag.MultiOutputNode([second.echo.bind(low), high]))
    text = graph.visualize(format="ascii", view=True)
    assert capsys.readouterr().out.strip() == text.strip()
    assert not list(empty_folder.iterdir())
    one, two = (handle._actor_id.hex()[:6] for handle in (first, second))
    assert [line.rstrip() for line in text.split("\n")] == [
        "Nodes Information:",
        '0 [label="Task 0  InputNode"]',
        f'1 [label="Task 1  Actor: {one}... Method: two"]',
        '2 [label="Task 2  ClassMethodOutputNode[0]"]',
        '3 [label="Task 3  ClassMethodOutputNode[1]"]',
        f'4 [label="Task 4  Actor: {two}... Method: echo"]',
        '5 [label="Task 5  MultiOutputNode"]',
        "",
        "Edges Information:",
        "0 ---> 1",
        "1 ---> 2",
        "1 ---> 3",
        "2 ---> 4",
        "4 ---> 5",
        "3 ---> 5",
        "",
        "Legend:",
        "+++> : Represents Accelerator-type data channels",
        "---> : Represents Shared Memory data channels",
        "",
        "Graph Built:",
        "0:InputNode",
        "|",
        f"1:Actor_{one}:two",
        "|---------------------------->|",
        "2:Output[0]                   3:Output[1]",
        "|                             |",
        f"4:Actor_{two}:echo           |",
        "|<----------------------------|",
        "5:MultiOutputNode",
    ]


def test_characters_show_no_channel_details(ray_session, actor, compiled) -> None:
    with ray_session.dag.InputNode() as given:
        graph = compiled(actor().echo.bind(given))
    with pytest.raises(ValueError, match="'channel_details' are not compatible with 'ascii' format"):
        graph.visualize(format="ascii", channel_details=True)


@pytest.mark.differs("Ray's drawing fails with ValueError or IndexError where the input has parts")
def test_parts_of_the_input_in_characters(ray_session, actor, compiled, engine: str) -> None:
    with ray_session.dag.InputNode() as given:
        graph = compiled(actor().add.bind(given.left, given.right))
    if engine == "ray":
        with pytest.raises((ValueError, IndexError)):
            graph.visualize(format="ascii")
    else:
        text = graph.visualize(format="ascii")
        assert edges_in(text) == pairs("0-1 0-2 1-3 2-3 3-4")
        assert "1:InputAttributeNode[left]" in text


# ------------------------------------------------------------------------------------------------ without a program
@pytest.mark.differs("Ray needs the program dot for all but characters")
def test_formats_that_need_nothing(ray_session, actor, compiled, empty_folder: Path, monkeypatch: pytest.MonkeyPatch, engine: str) -> None:
    worker = actor()
    with ray_session.dag.InputNode() as given:
        graph = compiled(worker.echo.bind(worker.echo.bind(given)))
    monkeypatch.setenv("PATH", "")
    if engine == "ray":
        with pytest.raises(Exception, match="dot"):
            graph.visualize(format="svg")
        return
    for picture_format in ("svg", "mermaid", "dot"):
        graph.visualize(format=picture_format)
    names = {"compiled_graph", "compiled_graph.svg", "compiled_graph.mmd", "compiled_graph.dot"}
    assert {path.name for path in empty_folder.iterdir()} == names
    root = ET.parse(empty_folder / "compiled_graph.svg").getroot()
    groups = list(root.iter("{http://www.w3.org/2000/svg}g"))
    assert [each.get("data-number") for each in groups if "box" in each.get("class", "").split()] == ["0", "1", "2", "3"]
    kinds = [(each.get("data-source"), each.get("data-kind")) for each in groups if each.get("class") == "edge"]
    assert kinds == [("0", "shm"), ("1", "local"), ("2", "shm")]
    with pytest.raises(ImportError, match="install graphviz.*'svg'"):
        graph.visualize()


@pytest.mark.only("mray", "Ray's graphs do not draw themselves in notebooks")
def test_notebooks_draw_graphs(ray_session, actor, compiled) -> None:
    with ray_session.dag.InputNode() as given:
        root = actor().add.bind(given[0], given[1])
        for shown in (given, root, graph := compiled(root)):
            for name in ("_ipython_canary_method_should_not_exist_", "_ipython_display_", "_repr_html_", "_repr_png_"):
                assert not hasattr(shown, name)
            bundle = shown._repr_mimebundle_(include=None, exclude=None)
            assert bundle["image/svg+xml"] == shown._repr_svg_()
            ET.fromstring(bundle["image/svg+xml"])
            assert bundle["text/plain"]
    assert ray_session.get(graph.execute(1, 2)) == 3


@pytest.mark.only("mray", "Ray measures nothing")
def test_statistics_are_drawn(ray_session, actor, compiled, empty_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ray_session.dag.InputNode() as given:
        graph = compiled(actor().echo.bind(given))
    with graph.profile():
        for value in range(3):
            assert ray_session.get(graph.execute(value)) == value
    monkeypatch.setenv("PATH", "")
    graph.visualize(format="svg", statistics=True)
    graph.visualize_schedule(statistics=True)
    written = [each.text or "" for each in ET.parse(empty_folder / "compiled_graph.svg").iter("{http://www.w3.org/2000/svg}text")]
    assert sum(line.startswith("3× ") for line in written) == 2
    assert sum(line.startswith("compute ") for line in written) == 1
    assert "as measured" in (empty_folder / "compiled_graph_schedule.json").read_text()


# ------------------------------------------------------------------------------------------------ not compiled
@pytest.mark.only("mray", "Ray draws these by dag.plot alone")
def test_a_graph_is_drawn_before_it_is_compiled_with_the_same_numbers(ray_session, actor, compiled, empty_folder: Path) -> None:
    ray = ray_session
    first, second = actor(), actor()
    with ray.dag.InputNode() as given:
        low, high = first.two.bind(given[0])
        last = second.add.bind(low, given.word).with_tensor_transport()
        root = ray.dag.MultiOutputNode([second.echo.bind(last), high])
    before = root.visualize(format="dot")
    assert (empty_folder / "dag.dot").read_text() == before
    after = compiled(root).visualize(format="dot")
    assert edges_in(before) == edges_in(after)
    assert boxes_in(before) == boxes_in(after)
    labels = dict(re.findall(r"^\t(\d+ -> \d+) \[label=(\S+)", before, re.MULTILINE))
    assert len(labels) == 1
    assert labels.popitem()[1] == "AutoTransportType"
    text = root.visualize(format="ascii")
    assert edges_in(text) == edges_in(after)


@pytest.mark.only("mray", "Ray draws these by dag.plot alone")
def test_functions_and_the_making_of_actors_are_drawn(ray_session, empty_folder: Path) -> None:
    ray = ray_session

    @ray.remote
    def load(*args):
        return 1

    @ray.remote(num_cpus=0)
    class Worker:
        def train(self, *args):
            return 1

    worker = Worker.bind()
    root = worker.train.bind(worker.train.bind(load.bind()), load.options(name="other").bind())
    text = root.visualize(format="dot")
    boxes = boxes_in(text)
    assert sorted(lines[-1] for lines in boxes.values()) == [
        "Actor: Worker",
        "Function: load",
        "Function: other",
        "Method: train",
        "Method: train",
    ]
    dashed = re.findall(r"^\t(\d+) -> (\d+) \[.*style=dashed\]", text, re.MULTILINE)
    (maker,) = (number for number, lines in boxes.items() if lines == ["Actor: Worker"])
    calls = {number for number, lines in boxes.items() if lines[-1] == "Method: train"}
    assert {target for source, target in dashed if source == maker} == calls
    assert root.visualize(format="mermaid").startswith("flowchart TD\n")


@pytest.fixture
def drawn(ray_session, engine: str):
    """DAG node -> the edges above it in DOT."""
    if engine == "ray":
        pytest.importorskip("pydot")
    vis_utils = pytest.importorskip(f"{engine}.dag.vis_utils")
    return lambda root: re.findall(r"^.* -> .*(?=;$)", vis_utils._dag_to_dot(root).to_string(), re.MULTILINE)


def test_names_of_functions_are_numbered(ray_session, drawn) -> None:
    @ray_session.remote
    def load(*args, **kwargs):
        return 1

    @ray_session.remote
    def train(*args, **kwargs):
        return 1

    first = load.bind()
    second = load.bind(first)
    assert drawn(train.bind([first, {"key": second}], word=first)) == ["load -> load_1", "load -> train", "load_1 -> train"]
    assert drawn(load.options(name="two words").bind(first)) == ['load -> "two words"']


def test_actors_and_their_methods_are_drawn(ray_session, drawn) -> None:
    ray = ray_session

    @ray.remote(num_cpus=0)
    class Worker:
        def __init__(self, *args):
            pass

        def load(self, *args):
            return 1

        def train(self, *args):
            return 1

    with ray.dag.InputNode() as given:
        worker = Worker.bind()
        loaded = worker.load.bind(given[0])
        root = ray.dag.MultiOutputNode([worker.train.bind(loaded, given.word), loaded])
    assert sorted(drawn(root)) == sorted(
        [
            "INPUT_NODE -> INPUT_ATTRIBUTE_NODE_0",
            "INPUT_NODE -> INPUT_ATTRIBUTE_NODE_word",
            "INPUT_ATTRIBUTE_NODE_0 -> load",
            "INPUT_ATTRIBUTE_NODE_word -> train",
            "Worker -> load",
            "Worker -> train",
            # Methods of an actor that the graph makes come one after the other, whatever they take.
            "load -> train",
            "load -> MultiOutputNode",
            "train -> MultiOutputNode",
        ]
    )


@needs_dot
def test_plot_writes_a_picture(ray_session, empty_folder: Path, engine: str) -> None:
    pytest.importorskip("pydot" if engine == "ray" else "graphviz")

    @ray_session.remote
    def load(*args):
        return 1

    root = load.bind(load.bind())
    ray_session.dag.plot(root)
    assert not list(empty_folder.iterdir())
    for name, start in {"graph.png": b"\x89PNG", "graph.svg": b"<?xml", "graph": b"\x89PNG"}.items():
        ray_session.dag.plot(root, name)
        assert (empty_folder / name).read_bytes().startswith(start)


@needs_dot
@pytest.mark.differs("Ray runs dot for every picture and passes on that it failed")
def test_plot_refuses_a_format_that_nobody_knows(ray_session, engine: str) -> None:
    pytest.importorskip("pydot" if engine == "ray" else "graphviz")

    @ray_session.remote
    def load(*args):
        return 1

    with pytest.raises(AssertionError if engine == "ray" else ValueError):
        ray_session.dag.plot(load.bind(), "graph.nope")
