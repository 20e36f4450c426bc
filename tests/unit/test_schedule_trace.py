"""The schedule as a trace: what begins when, and what the file says of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings

from mray._channel.select import BLOCKING
from mray._graph.compiler.compile import plan_graph
from mray._graph.plan import COMPUTE, READ, WRITE, Graph, Plan, Source, Transfer
from mray._picture.graph_artist import visualize_schedule
from mray._picture.picture_measures import measures_of
from mray._picture.schedule_trace import schedule_trace
from mray._trace import kinds
from mray._trace.chrome import Trace, messages
from mray._trace.span import Span
from tests.full import examples
from tests.unit.test_render import NAMES, ON_ONE_GPU, A, B, plan_of, step
from tests.unit.test_schedule import GRAPHS

KINDS = {kinds.DESERIALIZE: READ, kinds.SERIALIZE: WRITE, kinds.COMPUTE: COMPUTE}


def rows(trace: Trace) -> dict[str, list[Span]]:
    return {each.endpoint: list(each.spans) for each in trace.recordings}


@given(GRAPHS)
@settings(max_examples=examples(100), deadline=None)
def test_every_operation_of_any_graph_has_its_time(graph: Graph) -> None:
    plan = plan_graph(graph, 4)
    trace = schedule_trace(plan, {}, executions=2)
    for actor, row in rows(trace).items():
        assert all(before.end <= after.begin for before, after in pairwise(row))
        if actor in plan.schedule:
            wanted = [
                (operation.kind, operation.step if operation.kind == COMPUTE else operation.channel) for operation in plan.schedule[actor]
            ]
            assert [(KINDS[span.kind], span.place) for span in row] == wanted * 2
    # Every channel has one arrow to each reader in each execution, and nothing is read before it was written.
    arrows = list(messages(trace.recordings))
    assert len(arrows) == 2 * sum(len(channel.readers) for channel in plan.channels)
    for arrow in arrows:
        written, read = arrow.write[1], arrow.read[1]
        waits = plan.channels[int(written.place)].transport in BLOCKING
        assert read.begin >= (written.begin if waits else written.end)


def test_stages_of_a_pipeline_overlap_when_several_executions_follow_each_other() -> None:
    found = rows(schedule_trace(plan_of(step(0, A, -1), step(1, B, 0)), NAMES, executions=3))
    first, second = ([span for span in found[actor] if span.kind == kinds.COMPUTE] for actor in (A, B))
    assert first[1].begin < second[0].end
    assert [span.name for span in second] == ["[2] m #0", "[2] m #1", "[2] m #2"]


def test_calls_that_meet_begin_together() -> None:
    meeting = [replace(step(3 + number, endpoint, 1 + number), group=0) for number, endpoint in enumerate((A, B))]
    plan = plan_of(step(0, A, -1), step(1, A, 0), step(2, B, -1), *meeting, outputs=(Source(3), Source(4)))
    begins = {span.place: span.begin for row in rows(schedule_trace(plan, NAMES)).values() for span in row if span.kind == kinds.COMPUTE}
    assert begins[3] == begins[4] > begins[2] + 2


def test_a_writer_that_waits_for_its_readers_is_read_while_it_writes() -> None:
    plan = plan_of(step(0, A, -1), step(1, B, 0), transfers={Source(0): Transfer("accelerator")}, sites=ON_ONE_GPU)
    channels = tuple(replace(each, transport="nccl") if each.source == Source(0) else each for each in plan.channels)

    def together(plan: Plan) -> bool:
        (arrow,) = (each for each in messages(schedule_trace(plan, NAMES).recordings) if each.write[1].name == "write [1]")
        return arrow.write[1].begin == arrow.read[1].begin

    assert not together(plan)
    assert together(replace(plan, channels=channels))


def test_measured_times_are_the_lengths() -> None:
    plan = plan_of(step(0, A, -1), step(1, B, 0))
    steps = {1: {"compute_p50": 0.25}, 2: {"compute_p50": 1.0}}
    measures = measures_of({"steps": steps, "edges": {1: {"serialize_p50": 0.125, "deserialize_p50": 0.5}}}, {0: 1, 1: 2})
    trace = schedule_trace(plan, NAMES, 1, measures)
    lengths = {(span.kind, span.place): (span.end - span.begin) / 1e9 for row in rows(trace).values() for span in row}
    assert (lengths[kinds.COMPUTE, 0], lengths[kinds.COMPUTE, 1]) == (0.25, 1.0)
    assert (lengths[kinds.SERIALIZE, 1], lengths[kinds.DESERIALIZE, 1]) == (0.125, 0.5)
    assert "as measured" in trace.metadata()["lengths"]
    assert "only the order counts" in schedule_trace(plan, NAMES).metadata()["lengths"]


def test_at_least_one_execution_is_shown() -> None:
    with pytest.raises(ValueError, match="at least one execution, not 0"):
        schedule_trace(plan_of(step(0, A, -1)), NAMES, 0)


def test_the_file_has_a_row_for_each_endpoint_and_an_arrow_for_each_value(tmp_path: Path) -> None:
    plan = plan_of(step(0, A, -1, method="load"), step(1, B, 0, method="train"))
    path = visualize_schedule(plan, NAMES, str(tmp_path / "new" / "s"))
    assert path == str(tmp_path / "new" / "s.json")
    events = json.loads(Path(path).read_text())["traceEvents"]

    def named(wanted: Callable[[dict[str, object]], bool]) -> list[object]:
        return [event["args"]["name"] for event in events if wanted(event)]

    assert named(lambda event: event["name"] == "process_name") == ["schedule"]
    assert named(lambda event: event["name"] == "thread_name") == ["driver", "Worker aaaaaa", "Trainer bbbbbb"]
    assert [event["name"] for event in events if event["ph"] == "X"] == [
        *("write input", "read [2]"),
        *("read input", "[1] load", "write [1]"),
        *("read [1]", "[2] train", "write [2]"),
    ]
    assert len([event for event in events if event["ph"] == "s"]) == len([event for event in events if event["ph"] == "f"]) == 3
