"""`CompiledGraph.profile` and `statistics`: what a graph does, noted down while it runs."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import re
from pathlib import Path

import pytest

from mray._trace.chrome import spans_by_track
from mray._trace.kinds import CALL, COMPUTE, DESERIALIZE, EXECUTE, READ_WAIT, SERIALIZE, SUBMIT

pytestmark = pytest.mark.only("mray", "local")

#: Microseconds by which times in a file may be rounded.
ROUNDING = 0.01


class Worker:
    def echo(self, value):
        return value

    def double(self, value):
        return value * 2

    def add(self, left, right):
        return left + right

    def fail(self, value):
        if value == "bad":
            raise ValueError("this value is bad")
        return value

    def slow(self, value):
        import time

        end = time.perf_counter() + value
        while time.perf_counter() < end:
            pass
        return value

    def wait_for(self, path):
        open(path + ".begun", "w").close()
        while not os.path.exists(path):
            pass
        return path

    def leave(self, _value):
        os._exit(7)

    def pid(self):
        return os.getpid()


@pytest.fixture
def worker(ray_session):
    return ray_session.remote(num_cpus=0)(Worker).remote


def chain(ray, worker):
    """caller -> a.echo -> b.double -> caller."""
    a, b = worker(), worker()
    with ray.dag.InputNode() as value:
        return b.double.bind(a.echo.bind(value)), (a, b)


def fan_out(ray, worker):
    """One actor's value to two others, whose values a fourth one adds."""
    a, b, c, d = (worker() for _ in range(4))
    with ray.dag.InputNode() as value:
        first = a.echo.bind(value)
        return d.add.bind(b.double.bind(first), c.echo.bind(first)), (a, b, c, d)


def inside(ray, worker):
    """Steps of one actor between which no channel is."""
    a = worker()
    with ray.dag.InputNode() as value:
        return a.double.bind(a.double.bind(a.echo.bind(value))), (a,)


def count(profile, kind, name=None):
    return sum(span.kind == kind and (name is None or span.name == name) for span in profile.spans)


def check(profile, tmp_path: Path) -> list[dict]:
    """Check every trace, and return the events of the written file."""
    path = tmp_path / "checked.json"
    profile.save(path)
    return check_events(json.loads(path.read_text())["traceEvents"], profile.seconds)


def check_events(events: list[dict], seconds: float) -> list[dict]:
    """Rows are named, slices nest, arrows have both ends."""
    slices = [event for event in events if event["ph"] == "X" and event["cat"] in KNOWN]
    rows: dict[tuple[int, int], list[dict]] = {}
    for event in slices:
        rows.setdefault((event["pid"], event["tid"]), []).append(event)
    named = {(event["pid"], event["tid"]) for event in events if event["name"] == "thread_name"}
    assert rows.keys() <= named
    assert {pid for pid, _tid in rows} <= {event["pid"] for event in events if event["name"] == "process_name"}
    window = seconds * 1e6
    for row in rows.values():
        row.sort(key=lambda event: (event["ts"], -event["dur"]))
        open_until: list[float] = []
        busy = 0.0
        for event in row:
            while open_until and open_until[-1] <= event["ts"] + ROUNDING:
                open_until.pop()
            assert not open_until or event["ts"] + event["dur"] <= open_until[-1] + ROUNDING, f"{event} overlaps another slice"
            busy += 0.0 if open_until else event["dur"]
            open_until.append(event["ts"] + event["dur"])
        span = max(event["ts"] + event["dur"] for event in row) - row[0]["ts"]
        assert busy <= span + ROUNDING * len(row)
        assert span <= window + 1e6
    begins = [event for event in events if event["ph"] == "s"]
    ends = {event["id"]: event for event in events if event["ph"] == "f"}
    assert len({event["id"] for event in begins}) == len(begins)
    assert {event["id"] for event in begins} == ends.keys()
    for event in begins:
        assert event["ts"] <= ends[event["id"]]["ts"]
    for event in (*begins, *ends.values()):
        around = rows[event["pid"], event["tid"]]
        assert any(each["ts"] - ROUNDING <= event["ts"] <= each["ts"] + each["dur"] + ROUNDING for each in around)
    return events


KNOWN = {
    "serialize", "deserialize", "compute", "read wait", "write wait", "transfer", "receive", "device", "submit_task", "get",
    "task:deserialize_arguments", "task:execute", "task:store_outputs", "task::Worker.echo", "task::Worker.pid",
}  # fmt: skip


# ------------------------------------------------------------------------------------------- what it has
@pytest.mark.parametrize("shape", [chain, fan_out, inside])
def test_every_step_and_message_of_the_time_is_in_the_profile(ray_session, worker, compiled, tmp_path: Path, shape) -> None:
    root, actors = shape(ray_session, worker)
    graph = compiled(root)
    ray_session.get(graph.execute(1))
    with graph.profile() as profile:
        for number in range(20):
            ray_session.get(graph.execute(number))
    ray_session.get(graph.execute(1))
    plan = graph._plan
    assert not profile.lost
    assert not profile.dropped
    assert count(profile, COMPUTE) == 20 * len(plan.graph.steps)
    assert count(profile, SERIALIZE) == 20 * len(plan.channels)
    assert count(profile, DESERIALIZE) == 20 * sum(len(channel.readers) for channel in plan.channels)
    assert len({each.pid for each in profile.recordings}) == 1 + len(actors)
    events = check(profile, tmp_path)
    arrows = [event for event in events if event["ph"] == "s" and event["cat"] == "message"]
    assert len(arrows) == 20 * sum(len(channel.readers) for channel in plan.channels)
    assert len({event["id"] for event in arrows}) == len(arrows)


def test_times_of_all_processes_are_of_one_clock(ray_session, worker, compiled) -> None:
    root, _actors = chain(ray_session, worker)
    graph = compiled(root)
    with graph.profile() as profile:
        ray_session.get(graph.execute(3))
    assert all(profile.begun <= span.begin <= span.end for span in profile.spans)
    order = [(span.kind, span.name) for span in profile.spans if span.kind in (SERIALIZE, COMPUTE)]
    # Causes come before effects although three processes have noted them down.
    edges = [channel.name for channel in graph._plan.channels]
    assert order == [
        (SERIALIZE, edges[0]), (COMPUTE, "Worker.echo"), (SERIALIZE, edges[1]), (COMPUTE, "Worker.double"), (SERIALIZE, edges[2]),
    ]  # fmt: skip


def test_sums_agree_with_the_clock_on_the_wall(ray_session, worker, compiled, tmp_path: Path) -> None:
    a = worker()
    with ray_session.dag.InputNode() as value:
        graph = compiled(a.slow.bind(value))
    with graph.profile() as profile:
        for _ in range(5):
            ray_session.get(graph.execute(0.01))
    computed = sum(span.end - span.begin for span in profile.spans if span.kind == COMPUTE) * 1e-9
    assert 0.05 <= computed <= profile.seconds
    (track,) = [spans for (_pid, name), spans in spans_by_track(profile.recordings).items() if name == f"graph {graph.get_id()[:8]}"]
    # The loop's own steps lie between spans, and now and then the time of another process.
    between = sorted(later.begin - earlier.end for earlier, later in itertools.pairwise(track))
    assert 0 <= between[len(between) // 2] <= 1_000_000, between
    check(profile, tmp_path)


@pytest.mark.processes("spans of ordinary calls are not taken")
def test_ordinary_calls_of_the_actors_are_in_it_too(ray_session, worker, compiled, tmp_path: Path) -> None:
    root, (a, _b) = chain(ray_session, worker)
    graph = compiled(root)
    with graph.profile() as profile:
        ray_session.get(graph.execute(1))
        refs = [a.echo.remote(number) for number in range(5)]
        assert ray_session.get(refs) == [0, 1, 2, 3, 4]
    ray_session.get(a.echo.remote(1))
    calls = [span for span in profile.spans if span.kind == CALL]
    assert [span.place for span in calls] == [ref.task_id().hex() for ref in refs]
    assert count(profile, SUBMIT) == count(profile, EXECUTE) == 5
    events = check(profile, tmp_path)
    assert sum(event["ph"] == "s" and event["cat"] == "call" for event in events) == 5
    assert sum(event["ph"] == "b" and event["cat"] == "queue" for event in events) == 5


def test_without_calls_there_are_only_those_of_the_graph(ray_session, worker, compiled) -> None:
    root, (a, _b) = chain(ray_session, worker)
    graph = compiled(root)
    with graph.profile(calls=False) as profile:
        ray_session.get([graph.execute(1)])
        ray_session.get(a.echo.remote(1))
    assert count(profile, COMPUTE) == 2
    assert not {CALL, SUBMIT} & {span.kind for span in profile.spans}


@pytest.mark.processes("spans of ordinary calls are not taken")
def test_nothing_covers_calls_when_no_profile_wants_them_any_more(ray_session, worker, compiled) -> None:
    from mray._api.current import current_backend

    root, (a, _b) = chain(ray_session, worker)
    graph = compiled(root)
    before = set(vars(current_backend()))
    with graph.profile():
        assert "get" in vars(current_backend())
        ray_session.get(a.echo.remote(1))
    assert set(vars(current_backend())) == before
    covered = "__import__('mray')._api.current.current_backend()._worker.executor.__dict__"
    assert "run_method" not in ray_session.get(a.__ray_call__.remote(lambda _self: list(eval(covered))))


def test_errors_are_spans_that_failed_and_reach_the_caller_as_ever(ray_session, worker, compiled, tmp_path: Path) -> None:
    a, b = worker(), worker()
    with ray_session.dag.InputNode() as value:
        graph = compiled(b.echo.bind(a.fail.bind(value)))
    with pytest.raises(ValueError, match="this value is bad") as plain:
        ray_session.get(graph.execute("bad"))
    with graph.profile() as profile:
        with pytest.raises(ValueError, match="this value is bad") as traced:
            ray_session.get(graph.execute("bad"))
        assert ray_session.get(graph.execute("good")) == "good"
    assert str(plain.value) == str(traced.value)
    assert [span.failed for span in profile.spans if span.name == "Worker.fail"] == [True, False]
    assert count(profile, COMPUTE, "Worker.echo") == 1
    check(profile, tmp_path)


def test_collectives_are_spans_of_every_member(ray_session, worker, compiled, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from mray.experimental.collective import allreduce

    workers = [worker() for _ in range(2)]
    with ray_session.dag.InputNode() as value:
        made = [each.double.bind(value) for each in workers]
        graph = compiled(ray_session.dag.MultiOutputNode(allreduce.bind(made)))
    with graph.profile() as profile:
        for _ in range(3):
            results = ray_session.get(graph.execute(torch.ones(10)))
    assert [float(each.sum()) for each in results] == [40.0, 40.0]
    assert count(profile, COMPUTE) == 3 * len(graph._plan.graph.steps)
    check(profile, tmp_path)


def test_executions_that_are_awaited_are_in_it(ray_session, worker, compiled, tmp_path: Path) -> None:
    root, _actors = chain(ray_session, worker)
    graph = compiled(root, enable_asyncio=True)

    async def several():
        futures = [await graph.execute_async(number) for number in range(8)]
        return [await future for future in futures]

    with graph.profile() as profile:
        assert asyncio.run(several()) == [2 * number for number in range(8)]
    assert count(profile, COMPUTE) == 16
    check(profile, tmp_path)


def test_several_inputs_and_kinds_of_values_are_told_with_their_bytes(ray_session, worker, compiled) -> None:
    numpy = pytest.importorskip("numpy")
    root, _actors = chain(ray_session, worker)
    graph = compiled(root)
    values = ["text", b"bytes", numpy.ones(10), numpy.ones(100_000), [numpy.ones(100_000), "more"]]
    with graph.profile() as profile:
        for value in values[:4]:
            ray_session.get(graph.execute(value))
    first = [span.size for span in profile.spans if span.kind == SERIALIZE and span.place == 0]
    assert first[:2] == [4, 5]
    assert 80 <= first[2] < 400
    assert 800_000 <= first[3] < 801_000
    # Passed on without a copy by the first actor: as large all the same.
    second = [span.size for span in profile.spans if span.kind == SERIALIZE and span.place == 1]
    assert 800_000 <= second[3] < 801_000


# ------------------------------------------------------------------------------------------- on and off
def test_on_and_off_many_times_while_the_graph_runs(ray_session, worker, compiled, tmp_path: Path) -> None:
    root, _actors = fan_out(ray_session, worker)
    graph = compiled(root, _max_inflight_executions=8)
    flying = []
    expected = 0
    for number in range(20):
        flying.append(graph.execute(number))
        with graph.profile(calls=bool(number % 2)) as profile:
            for _ in range(5):
                flying.append(graph.execute(number))
                while len(flying) > 4:
                    assert ray_session.get(flying.pop(0)) % 3 == 0
                expected += 1
        check(profile, tmp_path)
    assert ray_session.get(flying[-1]) == 3 * 19
    assert expected == 100
    assert not any("run" in line for line in graph.report().splitlines() if "probes" in line)


def test_two_graphs_of_the_same_actors_are_profiled_apart(ray_session, worker, compiled, tmp_path: Path) -> None:
    a, b = worker(), worker()
    with ray_session.dag.InputNode() as value:
        first = compiled(b.double.bind(a.echo.bind(value)))
    with ray_session.dag.InputNode() as value:
        second = compiled(a.double.bind(b.fail.bind(value)))
    with first.profile() as one:
        ray_session.get([first.execute(1)])
        with second.profile() as two:
            for number in range(4):
                refs = [first.execute(number), second.execute(number)]
                assert ray_session.get(refs) == [2 * number, 2 * number]
        ray_session.get([first.execute(1)])
    assert count(one, COMPUTE, "Worker.echo") == 6
    assert count(two, COMPUTE, "Worker.fail") == 4
    assert not count(two, COMPUTE, "Worker.echo")
    check(one, tmp_path)
    check(two, tmp_path)


def test_one_profile_at_a_time_and_none_of_a_graph_that_has_ended(ray_session, worker, compiled) -> None:
    root, _actors = chain(ray_session, worker)
    graph = compiled(root)
    with graph.profile() as profile, pytest.raises(ValueError, match="is already being profiled"):
        graph.profile().start()
    with pytest.raises(ValueError, match="This profile has ended; create another one"):
        profile.start()
    with pytest.raises(ValueError, match="keeps at least 1 span"):
        graph.profile(limit=0)
    with graph.profile() as open_profile:
        ray_session.get(graph.execute(1))
        graph.teardown()
    assert not open_profile.lost
    assert count(open_profile, COMPUTE) == 2
    with pytest.raises(ray_session.exceptions.RayChannelError):
        graph.profile().start()


def test_what_does_not_fit_is_counted(ray_session, worker, compiled) -> None:
    root, _actors = chain(ray_session, worker)
    graph = compiled(root)
    with graph.profile(limit=10, calls=False) as profile:
        for number in range(20):
            ray_session.get(graph.execute(number))
    assert len(profile.spans) == 30
    assert profile.dropped > 50
    assert sum(profile.trace.metadata()["dropped"].values()) == profile.dropped


def test_an_actor_that_dies_while_profiled_is_missing_and_nobody_waits(ray_session, worker, compiled, tmp_path: Path) -> None:
    a, b = worker(), worker()
    with ray_session.dag.InputNode() as value:
        graph = compiled(b.fail.bind(a.leave.bind(value)))
    path = tmp_path / "trace.json"
    with graph.profile(str(path)) as profile, pytest.raises(ray_session.exceptions.ActorDiedError):
        ray_session.get(graph.execute(1))
    (name,) = profile.lost
    assert name.startswith("Worker(")
    assert json.loads(path.read_text())["otherData"]["lost"][name].startswith("is dead")
    assert count(profile, SERIALIZE) >= 1


@pytest.mark.processes("computes, and gives nobody a turn")
def test_an_actor_that_computes_tells_what_it_has_so_far(ray_session, worker, compiled, tmp_path: Path, monkeypatch, eventually) -> None:
    monkeypatch.setattr("mray._graph.watch.profile.PATIENCE", 0.3)
    a, b = worker(), worker()
    with ray_session.dag.InputNode() as value:
        graph = compiled(b.wait_for.bind(a.echo.bind(value)))
    gate = tmp_path / "gate"
    with graph.profile() as profile:
        ref = graph.execute(str(gate))
        eventually((tmp_path / "gate.begun").exists)
    assert not profile.lost
    assert count(profile, COMPUTE, "Worker.echo") == 1
    assert count(profile, READ_WAIT) + count(profile, DESERIALIZE) >= 2
    assert not count(profile, COMPUTE, "Worker.wait_for")
    gate.touch()
    assert ray_session.get(ref) == str(gate)
    with graph.profile() as again:
        ray_session.get(graph.execute(str(gate)))
    assert count(again, COMPUTE, "Worker.wait_for") == 1


@pytest.mark.processes("the timeline is asked of processes")
def test_the_timeline_shows_what_a_profile_has_left(ray_session, worker, compiled) -> None:
    root, (a, _b) = chain(ray_session, worker)
    graph = compiled(root)
    with graph.profile():
        ray_session.get([graph.execute(5)])
        ray_session.get(a.echo.remote(1))
    events = ray_session.timeline()
    pids = {event["pid"] for event in events if event["ph"] == "X" and event["cat"] == "compute"}
    assert ray_session.get(a.pid.remote()) in pids
    assert any(event["ph"] == "s" and event["id"].startswith(graph.get_id()[:16]) for event in events)


# ------------------------------------------------------------------------------------------- statistics
def test_statistics_tell_of_steps_and_edges_and_name_the_bottleneck(ray_session, worker, compiled, tmp_path: Path, monkeypatch) -> None:
    a, b = worker(), worker()
    with ray_session.dag.InputNode() as value:
        graph = compiled(b.slow.bind(a.echo.bind(value)))
    before = graph.statistics()
    assert before["bottleneck"] is None
    assert before["steps"][2]["name"] == "slow"
    assert "compute_p50" not in before["steps"][2]
    with graph.profile():
        for _ in range(10):
            ray_session.get(graph.execute(0.005))
    found = graph.statistics()
    slow, echo = found["steps"][2], found["steps"][1]
    assert slow["count"] == echo["count"] == 10
    assert 0.005 <= slow["compute_p50"] <= slow["compute_p99"]
    assert echo["compute_p50"] < slow["compute_p50"]
    # By one name and number: in the statistics, the schedule, and the picture, where the frame says it too.
    assert found["bottleneck"] == "[2] slow"
    assert '"[2] slow"' in Path(graph.visualize_schedule(str(tmp_path / "schedule"))).read_text()
    monkeypatch.setenv("PATH", str(tmp_path))  # without dot, whose drawing has no marks
    graph.visualize(str(tmp_path / "graph"), format="svg", statistics=True)
    monkeypatch.undo()
    drawn = (tmp_path / "graph.svg").read_text()
    assert re.findall(r'class="box[^"]* bottleneck" data-number="(\d+)"', drawn) == ["2"]
    assert "slow()" in found["why"]
    assert {edge["count"] for edge in found["edges"].values()} == {10}
    for edge in found["edges"].values():
        assert edge["bytes"] > 0
        assert edge["occupancy"] == 0.0
        assert edge["written"] == 10
        assert {"transfer_p50", "transfer_p99", "serialize_p50", "deserialize_p99"} <= edge.keys()
    assert found["submitted"] == found["finished"] == 10


def test_edges_of_steps_of_the_same_method_have_counters_of_their_own(ray_session, worker, compiled) -> None:
    a = worker()
    with ray_session.dag.InputNode() as value:
        graph = compiled(ray_session.dag.MultiOutputNode([a.echo.bind(value), a.echo.bind(value)]))
    ray_session.get(graph.execute(1))
    channels = graph.statistics()["channels"]
    assert len(channels) == 3
    assert sum("echo() of Worker" in name for name in channels) == 2


@pytest.mark.processes("memory of a device is lent to other processes")
# ----------------------------------------------------------------------------------------------- devices
def test_edges_of_devices_are_spans_on_their_streams(run_program, tmp_path: Path) -> None:
    run_program(
        """
        import ENGINE as ray
        from ENGINE.dag import InputNode
        from mray.testing import null
        from mray._trace.kinds import DEVICE, SERIALIZE

        ray.init(num_cpus=2, num_gpus=2)

        @ray.remote(num_cpus=0, num_gpus=1)
        class Worker:
            def make(self, value):
                return null.full(1000, value, dtype="float32")

            def total(self, array):
                return float(array.sum())

        first, second = Worker.remote(), Worker.remote()
        with InputNode() as value:
            graph = second.total.bind(first.make.bind(value)).experimental_compile()
        ray.get(graph.execute(1))

        def sent():
            return sum(each.get("device_copied", 0) for each in graph.statistics()["channels"].values())

        plainly = sent()
        assert plainly
        with graph.profile("trace.json") as profile:
            for _ in range(4):
                assert ray.get(graph.execute(2)) == 2000.0
        (edge,) = [channel for channel in graph._plan.channels if channel.writer and all(channel.readers)]
        spans = [span for span in profile.spans if span.kind == DEVICE and span.name == edge.name]
        assert len(spans) == 8, spans  # at both ends
        late = [span for span in spans if span.end - span.begin >= 2e6]
        assert len(late) >= 4, spans  # a copy of a pretended device takes as long as it is told to
        sizes = {span.size for span in profile.spans if span.kind == SERIALIZE and span.place == edge.index}
        assert all(4000 <= size < 5000 for size in sizes), sizes
        assert graph.statistics()["edges"][edge.index]["bytes"] >= 16000
        assert sent() == 5 * plainly  # whoever looks on changes nothing of that
        graph.teardown()
        """,
        env={"MRAY_NULL_DEVICES": f"2,late=0.002,scope=test-profile-{os.getpid()}"},
    )
    events = check_events(json.loads((tmp_path / "trace.json").read_text())["traceEvents"], 60.0)
    rows = {(event["pid"], event["tid"]): event["args"]["name"] for event in events if event["name"] == "thread_name"}
    on_devices = {(event["pid"], event["tid"]) for event in events if event["ph"] == "X" and event["cat"] == "device"}
    assert len(on_devices) == 3
    assert all("stream" in rows[row] for row in on_devices)
