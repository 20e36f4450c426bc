"""Spans, the files made of them, and probes around programs: no processes, clocks read by hand."""

from __future__ import annotations

import itertools
import json
import pickle
import re
from pathlib import Path
from typing import Any

import pytest

from mray._channel.base import Failed
from mray._graph.graph_messages import ProfileRequest
from mray._graph.plan import Argument, Assignment, Source, Step
from mray._graph.watch.probes import RangeProbe, SpanProbe
from mray._graph.watch.profiled import profile, unprofile
from mray._picture import timeline_page as picture
from mray._picture.page import Slice, page
from mray._trace import nvtx
from mray._trace.chrome import Recording, Trace
from mray._trace.digest import Digest, distribution
from mray._trace.kinds import CALL, COMPUTE, DESERIALIZE, DEVICE, READ_WAIT, SERIALIZE, SUBMIT, WRITE_WAIT
from mray._trace.span import Buffer, Span, SpanBuffers
from mray._trace.torch_profiler import on_our_clock
from tests.unit.graphs import make_graph
from tests.unit.test_program import World

MESSAGE = 1000


def probed(world: World) -> list[Buffer]:
    """A probe on every program; their buffers."""
    buffers = []
    for program in world.programs:
        buffers.append(Buffer())
        program.probe(SpanProbe(buffers[-1], "graph"))
    return buffers


def spans(buffer: Buffer) -> list[Span]:
    return [Span(*fields) for fields in buffer.spans]


# ---------------------------------------------------------------------------------------------- buffers
def test_a_buffer_keeps_so_many_spans_and_counts_the_rest() -> None:
    buffer = Buffer(limit=2)
    for number in range(5):
        buffer.add((COMPUTE, number, number + 1, "t", "n"))
    sheet = buffer.sheet()
    assert [fields[1] for fields in sheet["spans"]] == [0, 1]
    assert sheet["dropped"] == 3


def test_a_process_keeps_the_spans_of_the_last_graphs_only() -> None:
    shelf = SpanBuffers()
    for number in range(SpanBuffers.MOST + 3):
        shelf.open(f"g{number}", "a", 10)
    assert [sheet["graph"] for sheet in shelf.sheets()] == [f"g{number}" for number in range(3, SpanBuffers.MOST + 3)]


def test_opening_again_forgets_the_earlier_spans() -> None:
    shelf = SpanBuffers()
    shelf.open("g", "a", 10).add((COMPUTE, 1, 2, "t", "n"))
    shelf.open("g", "a", 10)
    assert [sheet["spans"] for sheet in shelf.sheets()] == [[]]


# ------------------------------------------------------------------------------------- probes on programs
@pytest.mark.parametrize(
    "graph", [make_graph(("a", (-1,))), make_graph(("a", (-1,)), ("a", (0,)), ("a", (1, -1)))], ids=["fused", "general"]
)
def test_every_operation_of_an_execution_is_a_span(graph: Any) -> None:
    world = World(graph)
    (buffer,) = probed(world)
    world.execute(1)
    kinds = [span.kind for span in spans(buffer) if span.kind != READ_WAIT]
    assert kinds == [DESERIALIZE, *[COMPUTE] * len(graph.steps), SERIALIZE]
    assert [span.name for span in spans(buffer) if span.kind == COMPUTE] == [f"Actor.m{step.index}" for step in graph.steps]


def test_spans_of_a_program_follow_each_other_without_overlapping() -> None:
    world = World(make_graph(("a", (-1,)), ("b", (-1,)), ("a", (0, 1))), capacity=2)
    buffers = probed(world)
    for number in range(4):
        world.input.try_write(number)
        world.run()
    for buffer in buffers:
        found = spans(buffer)
        assert all(span.begin <= span.end for span in found)
        assert all(first.end <= second.begin for first, second in itertools.pairwise(found))


def test_messages_have_the_same_number_at_both_ends_also_when_looking_begins_later() -> None:
    world = World(make_graph(("a", (-1,)), ("b", (0,))))
    world.execute(0)
    first, second = probed(world)
    world.execute(1)
    world.execute(2)
    written = [(span.place, span.number) for span in spans(first) if span.kind == SERIALIZE]
    read = [(span.place, span.number) for span in spans(second) if span.kind == DESERIALIZE]
    assert written == read
    assert [number for _place, number in written] == [1, 2]


def test_waiting_for_a_message_and_for_room_are_spans() -> None:
    world = World(make_graph(("a", (-1,))), capacity=1)
    (buffer,) = probed(world)
    (program,) = world.programs
    program.run(lambda: False)
    world.input.try_write(1)
    world.run()
    world.input.try_write(2)
    world.run()
    assert [span.kind for span in spans(buffer)].count(READ_WAIT) == 2
    assert WRITE_WAIT not in [span.kind for span in spans(buffer)]
    world.outputs[0].try_read()
    world.run()
    wait, write = spans(buffer)[-2:]
    assert (wait.kind, write.kind) == (WRITE_WAIT, SERIALIZE)
    assert wait.number == write.number == 1
    assert wait.end <= write.begin


def test_an_error_in_a_method_is_a_span_that_failed_and_the_result_is_the_same() -> None:
    world = World(make_graph(("a", (-1,)), ("a", (0,))))
    (plain,) = world.execute("bad")
    (buffer,) = probed(world)
    (failed,) = world.execute("bad")
    assert type(plain) is type(failed) is Failed
    assert repr(pickle.loads(plain.payload)) == repr(pickle.loads(failed.payload))
    assert [(span.name, span.failed) for span in spans(buffer) if span.kind == COMPUTE] == [("Actor.m0", True)]


def test_a_value_that_cannot_be_sent_is_a_failed_span_and_its_error_is_sent() -> None:
    world = World(make_graph(("a", (-1,)), ("a", (0,))))
    writer = world.programs[0].ends.writers[1]
    (buffer,) = probed(world)
    real = type(writer).try_write
    refused: list[Any] = []

    def refuse(self: Any, value: Any) -> bool:
        if self is writer and type(value) is not Failed:
            refused.append(value)
            raise TypeError("no")
        return real(self, value)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(writer), "try_write", refuse)
        (failed,) = world.execute(1)
    assert refused
    assert type(failed) is Failed
    writes = [span for span in spans(buffer) if span.kind == SERIALIZE]
    assert [(span.failed, span.number) for span in writes] == [(True, -1), (False, 0)]


def test_nothing_of_a_probe_is_left_when_nobody_looks_on() -> None:
    world = World(make_graph(("a", (-1,)), ("b", (0,))))
    before = [(program._actions, program._waits) for program in world.programs]
    buffers = probed(world)
    world.execute(1)
    counts = [len(buffer.spans) for buffer in buffers]
    assert all(counts)
    for program in world.programs:
        program.probe(None)
    world.execute(2)
    assert world.execute(3) == [("m1", ("m0", 3))]
    assert [(program._actions, program._waits) for program in world.programs] == before
    assert all(now[0] is then[0] for now, then in zip([(p._actions,) for p in world.programs], before, strict=True))
    assert not any("run" in vars(program) for program in world.programs)
    assert [len(buffer.spans) for buffer in buffers] == counts


def test_actions_are_exchanged_between_executions_only() -> None:
    world = World(make_graph(("a", (-1,)), ("b", (0,)), ("a", (1,))))
    a, b = world.programs
    world.input.try_write(1)
    a.run(lambda: False)  # it waits for b in the middle of its execution
    plain = a._actions
    buffer = Buffer()
    a.probe(SpanProbe(buffer, "graph"))
    a.run(lambda: False)
    assert a._actions is plain
    b.run(lambda: False)
    a.run(lambda: False)
    assert a._actions is not plain
    assert world.outputs[0].try_read() == ("m2", ("m1", ("m0", 1)))
    assert [span.kind for span in spans(buffer) if span.kind == COMPUTE] == []
    assert world.execute(2) == [("m2", ("m1", ("m0", 2)))]
    assert [span.name for span in spans(buffer) if span.kind == COMPUTE] == ["Actor.m0", "Actor.m2"]


def test_what_a_first_step_has_gathered_and_what_is_owed_survive_the_exchange() -> None:
    steps = (
        Step(0, "a", "m0", 0, (Argument(Source(-1)),)),
        Step(1, "b", "m1", 0, (Argument(Source(-1)),)),
        Step(2, "c", "m2", 0, (Argument(Source(0)), Argument(Source(1)))),
    )
    world = World(make_graph(("a", (-1,)), ("b", (-1,)), ("c", (0, 1))))
    assert len(world.programs) == len(steps)
    slow, failing, last = world.programs
    world.input.try_write("bad")
    failing.run(lambda: False)
    last.run(lambda: False)  # skips, and owes the slow one's message
    buffer = Buffer()
    last.probe(SpanProbe(buffer, "graph"))
    world.input.try_write(1)
    failing.run(lambda: False)
    last.run(lambda: False)  # gathers the fast one's value
    last.probe(None)
    last.run(lambda: False)
    slow.run(lambda: False)
    slow.run(lambda: False)
    last.run(lambda: False)
    assert type(world.outputs[0].try_read()) is Failed
    assert world.outputs[0].try_read() == ("m2", ("m0", 1), ("m1", 1))


def test_looking_on_and_off_many_times_while_values_flow_loses_none() -> None:
    world = World(make_graph(("a", (-1,)), ("b", (0,)), ("a", (1, -1)), ("c", (2, 0))), capacity=3)
    for number in range(60):
        for program in world.programs:
            program.probe(SpanProbe(Buffer(), "graph") if number % 2 else None)
        world.input.try_write(number)
        world.programs[number % 3].run(lambda: False)
        world.run()
        m0 = ("m0", number)
        assert world.outputs[0].try_read() == ("m3", ("m2", ("m1", m0), number), m0)


class Host:
    """A process without calls."""

    def look_at_calls(self, who: str, on: bool) -> None:
        del who, on


def test_a_request_to_end_a_profile_that_comes_late_ends_no_other_one() -> None:
    host: Any = Host()
    world = World(make_graph(("a", (-1,))))

    def begin(token: str) -> None:
        assert pickle.loads(profile(host, world.programs, pickle.dumps(ProfileRequest("g", token, 100, calls=False, torch=False)))) == ""

    def end(token: str) -> list[int]:
        sheets = pickle.loads(unprofile(host, world.programs, f"g/{token}".encode(), at_once=True))
        return [len(sheet["spans"]) for sheet in sheets]

    begin("first")
    world.execute(1)
    assert end("first") == [3]
    begin("second")
    assert end("first") == []
    world.execute(2)
    assert end("second") == [3]
    world.execute(3)
    begin("third")
    world.execute(4)
    world.programs[0].close()
    world.programs.clear()
    assert end("third") == [3]


# ------------------------------------------------------------------------------------ other profilers
class FakeDomain:
    """Notes what a tool would be told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, ...]] = []
        self.open: list[str] = []
        self.started: dict[int, str] = {}

    def get_event_attributes(self, message: str, color: str, category: str) -> tuple[str, str, str]:
        return message, color, category

    def push_range(self, attributes: tuple[str, str, str]) -> None:
        self.open.append(attributes[0])
        self.told.append(("push", *attributes))

    def pop_range(self) -> None:
        self.told.append(("pop", self.open.pop()))

    def start_range(self, attributes: tuple[str, str, str]) -> int:
        number = len(self.told)
        self.started[number] = attributes[0]
        self.told.append(("start", *attributes))
        return number

    def end_range(self, number: int) -> None:
        self.told.append(("end", self.started.pop(number)))


@pytest.fixture
def domain() -> FakeDomain:
    return FakeDomain()


def annotated(world: World, domain: FakeDomain) -> None:
    for program in world.programs:
        program.probe(RangeProbe(nvtx.NvtxRanges(domain)))


def test_nvtx_is_told_of_every_read_method_write_and_wait_in_colours_by_kind(domain: FakeDomain) -> None:
    world = World(make_graph(("a", (-1,)), ("a", (0,))), capacity=1)
    annotated(world, domain)
    world.execute(1)
    world.input.try_write(2)
    world.run()
    world.input.try_write(3)
    world.run()
    world.outputs[0].try_read()
    world.run()
    kinds = {told[3]: told[2] for told in domain.told if told[0] in ("push", "start")}
    assert kinds == {kind: nvtx.COLOURS[kind] for kind in (DESERIALIZE, COMPUTE, SERIALIZE, READ_WAIT, WRITE_WAIT)}
    assert len(set(kinds.values())) == len(kinds)
    assert not domain.open
    assert [told[1] for told in domain.told if told[0] == "push" and told[3] == COMPUTE][:2] == ["compute: Actor.m0", "compute: Actor.m1"]


def test_ranges_of_nvtx_end_also_when_a_method_raises(domain: FakeDomain) -> None:
    world = World(make_graph(("a", (-1,))))
    annotated(world, domain)
    world.execute("bad")
    assert not domain.open
    assert ("pop", "compute: Actor.m0") in domain.told


def test_a_program_annotates_from_the_beginning_and_can_be_profiled_besides(domain: FakeDomain) -> None:
    world = World(make_graph(("a", (-1,))))
    annotated(world, domain)
    world.execute(1)
    before = len(domain.told)
    (program,) = world.programs
    program._probes = (RangeProbe(nvtx.NvtxRanges(domain)),)
    program.probe(SpanProbe(buffer := Buffer(), "graph"))
    world.execute(2)
    world.execute(3)
    assert len(domain.told) > before
    assert [span.kind for span in spans(buffer)].count(COMPUTE) == 2


def test_the_package_takes_what_it_is_told() -> None:
    pytest.importorskip("nvtx")
    ranges = nvtx.NvtxRanges(nvtx.nvtx_domain())
    ranges.push(COMPUTE, "f")
    wait = ranges.start(READ_WAIT, "edge")
    assert wait is not None
    ranges.pop(None)
    ranges.stop(wait)


def test_times_of_torch_are_moved_to_our_clock() -> None:
    events = [
        {"ph": "X", "name": "aten::mm", "ts": 110.0, "dur": 5, "pid": 7, "tid": 7},
        {"ph": "X", "name": "mray clock 5000000", "ts": 100.0, "dur": 1, "pid": 7, "tid": 7},
        {"ph": "X", "name": "mray clock 5050000", "ts": 450.0, "dur": 1, "pid": 7, "tid": 7},
        {"ph": "M", "name": "process_name", "ts": 0.0, "pid": 7, "args": {}},
        {"ph": "M", "name": "thread_name", "pid": 7, "tid": 7, "args": {}},
    ]
    moved = on_our_clock(events)
    assert [(event["name"], event.get("ts")) for event in moved] == [("aten::mm", 5010.0), ("thread_name", None)]
    assert on_our_clock(events[:1]) == []


# ----------------------------------------------------------------------------------------------- files
def recordings() -> list[Recording]:
    """A writer, its two readers, of which one has not come to the message yet, and a call."""
    write = Span(SERIALIZE, 10_000, 20_000, "graph", "edge", 3, 0, 99)
    lonely = Span(SERIALIZE, 30_000, 40_000, "graph", "edge", 3, 1, 99)
    read = Span(DESERIALIZE, 25_000, 26_000, "graph", "edge", 3, 0)
    early = Span(DESERIALIZE, 15_000, 16_000, "graph", "edge", 3, 0)
    submit = Span(SUBMIT, 1_000, 2_000, "calls", "A.f", "aa")
    call = Span(CALL, 5_000, 6_000, "calls", "A.f", "aa")
    return [
        Recording(1, "caller", [write, lonely], "g", ""),
        Recording(2, "A(1)", [read], "g", "x"),
        Recording(3, "A(2)", [early], "g", "y", dropped=4),
        Recording(1, "caller", [submit]),
        Recording(2, "A(1)", [call]),
    ]


def test_every_arrow_has_both_ends_within_slices_and_points_forward() -> None:
    events = Trace(recordings()).events()
    slices = [event for event in events if event["ph"] == "X"]
    begins = {event["id"]: event for event in events if event["ph"] == "s"}
    ends = {event["id"]: event for event in events if event["ph"] == "f"}
    assert begins.keys() == ends.keys() == {"g/3/0/x", "g/3/0/y", "call/aa"}
    for event in (*begins.values(), *ends.values()):
        rows = [each for each in slices if (each["pid"], each["tid"]) == (event["pid"], event["tid"])]
        assert any(each["ts"] <= event["ts"] <= each["ts"] + each["dur"] for each in rows)
    assert all(begins[key]["ts"] <= ends[key]["ts"] for key in begins)
    assert all(event["bp"] == "e" for event in ends.values())


def test_rows_and_processes_are_named_and_what_did_not_fit_is_said(tmp_path: Path) -> None:
    trace = Trace(recordings(), info={"lost": {"B(3)": "is dead"}})
    trace.save(tmp_path / "trace.json")
    document = json.loads((tmp_path / "trace.json").read_text())
    events = document["traceEvents"]
    named = {(event["pid"], event["tid"]) for event in events if event["name"] == "thread_name"}
    assert {(event["pid"], event["tid"]) for event in events if event["ph"] == "X"} == named
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert names == {1: "caller pid 1", 2: "A(1) pid 2", 3: "A(2) pid 3"}
    assert document["otherData"]["dropped"] == {"A(2) (pid 3)": 4}
    assert document["otherData"]["lost"] == {"B(3)": "is dead"}
    assert list(tmp_path.iterdir()) == [tmp_path / "trace.json"]


def test_messages_on_their_way_begin_and_end() -> None:
    events = Trace(recordings()).events()
    assert [(event["ph"], event["ts"]) for event in events if event.get("cat") == "on its way"] == [("b", 20.0), ("e", 25.0)]
    assert [(event["ph"], event["ts"]) for event in events if event.get("cat") == "queue"] == [("b", 2.0), ("e", 5.0)]


def test_a_file_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    trace = Trace(recordings(), info={"broken": object()})
    with pytest.raises(TypeError):
        trace.save(tmp_path / "trace.json")
    assert list(tmp_path.iterdir()) == []


# --------------------------------------------------------------------------------------------- numbers
def test_percentiles_are_of_the_durations_in_seconds() -> None:
    found = distribution("compute", [1_000 * number for number in range(1, 102)])
    assert found["compute_p50"] == pytest.approx(51e-6)
    assert found["compute_p99"] == pytest.approx(100e-6)
    assert found["compute_total"] == pytest.approx(sum(range(1, 102)) * 1e-6)
    assert distribution("compute", []) == {}


def test_steps_and_edges_are_told_apart_and_the_busiest_endpoint_is_found() -> None:
    writer = [Span(SERIALIZE, MESSAGE * n, MESSAGE * n + 100, "t", "e", 0, n, 10) for n in range(4)]
    reader = [
        *[Span(DESERIALIZE, MESSAGE * n + 150, MESSAGE * n + 170, "t", "e", 0, n) for n in range(4)],
        *[Span(COMPUTE, MESSAGE * n + 170, MESSAGE * n + 900, "t", "A.f", 2) for n in range(4)],
        Span(READ_WAIT, 0, 140, "t", "e", 0, 0),
    ]
    digest = Digest({"": writer, "a": reader}, 4 * MESSAGE * 1e-9)
    edge = digest.edge(0, ["a"])
    assert (edge["count"], edge["bytes"]) == (4, 40)
    assert edge["transfer_p50"] == pytest.approx(50e-9)
    assert edge["wait_p50"] == pytest.approx(140e-9)
    assert digest.step(2, [(0, "a")])["count"] == 4
    assert digest.step(2, [(0, "a")])["wait_p50"] == pytest.approx(140e-9)
    assert digest.step(1, []) == {"count": 0}
    assert digest.utilization("a") == pytest.approx(0.75)
    assert digest.busiest(["", "a"]) == "a"
    assert Digest({}, 1.0).busiest(["", "a"]) is None


# --------------------------------------------------------------------------------------------- pictures
def test_a_page_shows_every_slice_of_its_window_and_fetches_nothing() -> None:
    text, count = picture.timeline_page(recordings())
    assert count == 6
    (info,) = re.findall(r"<script type='application/json'>(.*)</script>", text)
    assert len(json.loads(info)["slices"]) == 6
    assert not re.findall(r"(?:src|href)=|https?://", text)
    assert picture.timeline_page(recordings(), begin=0.0, seconds=6e-6)[1] == 2
    with pytest.raises(ValueError, match="nothing happened in this window"):
        picture.timeline_page(recordings(), begin=1.0, seconds=1.0)
    with pytest.raises(ValueError, match="no spans"):
        picture.timeline_page([])


def test_no_name_ends_the_script_of_a_page() -> None:
    text = page("<title>", [("a", "<b>")], [Slice(0, 0.0, 1.0, "</script><script>alert(1)", "#FFFFFF")], [], [("<i>", "none")], ["<p>"])
    assert text.count("</script>") == 2
    assert "&lt;title&gt;" in text
    assert "&lt;i&gt;" in text
    assert "&lt;p&gt;" in text


def test_every_kind_of_span_has_a_colour() -> None:
    assert set(nvtx.COLOURS) - {COMPUTE} <= set(picture.COLOURS)  # computing has the colour of its function
    assert DEVICE in picture.COLOURS


def test_assignments_are_pickled_with_their_profilers() -> None:
    assignment = Assignment("g", "a", "", "", "", (), (), (), {}, (0, b""))
    assert pickle.loads(pickle.dumps(assignment)).profilers == assignment.profilers
