"""What compiled graphs and graphs that are not compiled look like: DOT text, drawings made of characters, picture files."""

from __future__ import annotations

import re
import shutil
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


# ------------------------------------------------------------------------------------------------ DOT
@needs_dot
def test_visualize_returns_dot_and_writes_it_and_a_picture(ray_session, actor, compiled, empty_folder: Path) -> None:
    pytest.importorskip("graphviz")
    with ray_session.dag.InputNode() as given:
        graph = compiled(actor().echo.bind(given))
    text = graph.visualize()
    assert text.startswith("digraph compiled_graph {\n")
    assert (empty_folder / "compiled_graph").read_text() == text
    assert (empty_folder / "compiled_graph.png").read_bytes().startswith(b"\x89PNG")
    graph.visualize(filename="other", format="svg")
    assert "<svg" in (empty_folder / "other.svg").read_text()
    with pytest.raises(ValueError, match="unknown format: 'nope'"):
        graph.visualize(format="nope")


@needs_dot
def test_the_numbers_and_labels_of_a_graph(ray_session, actor, compiled) -> None:
    pytest.importorskip("graphviz")
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
    pytest.importorskip("graphviz")
    with ray_session.dag.InputNode() as given:
        first, second = actor(), actor()
        graph = compiled(first.echo.bind(second.echo.bind(first.echo.bind(given))))
    text = graph.visualize()
    assert "Actor" in boxes_in(text)["1"][0]
    assert re.findall(r"fillcolor=(\S+) shape=oval", text) == ['"#005DC0"', '"#006590"', '"#005DC0"']


@needs_dot
def test_parts_of_the_input_are_boxes(ray_session, actor, compiled) -> None:
    pytest.importorskip("graphviz")
    with ray_session.dag.InputNode() as given:
        worker = actor()
        graph = compiled(actor().add.bind(worker.add.bind(given[0], given.word), given[1]))
    text = graph.visualize()
    boxes = boxes_in(text)
    assert [boxes[number] for number in "123"] == [[f"InputAttributeNode[{key}]"] for key in (0, "word", 1)]
    assert edges_in(text) == pairs("0-1 0-2 0-3 1-4 2-4 3-5 4-5 5-6")


@needs_dot
def test_channel_details_stand_on_the_edges(ray_session, actor, compiled) -> None:
    pytest.importorskip("graphviz")
    with ray_session.dag.InputNode() as given:
        worker = actor()
        graph = compiled(actor().echo.bind(worker.echo.bind(worker.echo.bind(given))))
    labels = dict(re.findall(r'^\t(\d+ -> \d+) \[label="([^"]*)"\]', graph.visualize(channel_details=True), re.MULTILINE))
    assert all(label.startswith("SharedMemoryType\n") for label in labels.values())
    within = {edge for edge, label in labels.items() if "IntraProcessChannel" in label}
    between = {edge for edge, label in labels.items() if "BufferedSharedMemoryChannel" in label}
    assert (within, between) == ({"1 -> 2"}, {"0 -> 1", "2 -> 3", "3 -> 4"})


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


# ------------------------------------------------------------------------------------------------ not compiled
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


@pytest.mark.differs("Ray runs dot for every picture and passes on that it failed")
def test_plot_refuses_a_format_that_nobody_knows(ray_session, engine: str) -> None:
    pytest.importorskip("pydot" if engine == "ray" else "graphviz")

    @ray_session.remote
    def load(*args):
        return 1

    with pytest.raises(AssertionError if engine == "ray" else ValueError):
        ray_session.dag.plot(load.bind(), "graph.nope")
