"""Copies of compiled graphs: another process that executes one often gets channels of its own to the actors."""

from __future__ import annotations

import asyncio
import importlib
import os
import signal
import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from mray._trace.span import COMPUTE

pytestmark = pytest.mark.only("mray")

#: Executions after which the copy is there, with a wait for each.
ENOUGH = 30


@pytest.fixture
def actor(ray_session):
    """Makes an actor with the methods that the tests call."""

    class Worker:
        def __init__(self):
            self.seen = []

        def echo(self, value):
            return value

        def note(self, value):
            self.seen.append(value)
            return value

        def add(self, left, right):
            return left + right

        def tell(self):
            return self.seen

        def fail(self, value):
            if isinstance(value, str) and value == "fail":
                raise ValueError(f"cannot take {value}")
            return value

        def wait_for(self, path):
            while path and not os.path.exists(path):
                time.sleep(0.001)
            return path

        def nap(self, value):
            time.sleep(0.01)
            return value

        def pid(self):
            return os.getpid()

    return ray_session.remote(num_cpus=0)(Worker).remote


@pytest.fixture
def user(ray_session):
    """Makes an actor that uses graphs it is handed."""
    ray = ray_session

    class User:
        def hold(self, graph):
            self.graph = graph

        def drop(self):
            del self.graph

        def run(self, values, graph=None):
            graph = graph or self.graph
            return [graph.execute(value).get() for value in values]

        def run_at_once(self, values):
            return ray.get([self.graph.execute(value) for value in values])

        def run_async(self, values, rounds):
            async def main():
                for _ in range(rounds):
                    results = await asyncio.gather(*[await self.graph.execute_async(value) for value in values])
                return results

            return asyncio.run(main())

        def stream(self, value, flag):
            """Keep six executions in flight until the flag is there; tells how many there were, and the error that ended it."""
            refs = deque()
            count = 0
            try:
                while not os.path.exists(flag):
                    while len(refs) < 6:
                        refs.append(self.graph.execute(value))
                        count += 1
                    refs.popleft().get()
                return count, ""
            except ray.exceptions.RayError as error:
                return count, str(error)

        def start(self, values):
            self.refs = [self.graph.execute(value) for value in values]

        def take(self):
            refs, self.refs = self.refs, None
            return ray.get(refs)

        def close(self):
            self.graph.teardown()
            try:
                self.graph.execute(1)
            except ray.exceptions.RayChannelError as error:
                return str(error)

        def add_ones(self, count):
            return [int(self.graph.execute(np.full(200_000, number)).get()[-1]) for number in range(count)]

        def pass_refs(self, count):
            refs = [ray.put(number) for number in range(count)]
            return ray.get([self.graph.execute([ref]).get()[0] for ref in refs])

        def compile(self, actor):
            with ray.dag.InputNode() as value:
                self.made = actor.wait_for.bind(value).experimental_compile()
            return [self.made]

        def pid(self):
            return os.getpid()

    return ray.remote(num_cpus=0, max_concurrency=1)(User).remote


@pytest.fixture
def copies(ray_session):
    """``copies(graph)``: the processes that have a copy of a graph."""
    state = importlib.import_module(f"{ray_session.__name__}.util.state")
    return lambda graph: sorted(row.pid for row in state.list_graphs(detail=True) if row.copy_of == graph.get_id())


@pytest.fixture
def shared(ray_session, actor, user, compiled):
    """``shared("echo", ...)``: a graph of one actor and one method, its actor, and another process that has a copy of it."""

    def make(method, first=0, **options):
        a, u = actor(), user()
        with ray_session.dag.InputNode() as inp:
            graph = compiled(getattr(a, method).bind(inp), **options)
        ray_session.get(u.hold.remote(graph))
        assert ray_session.get(u.run.remote([first] * ENOUGH)) == [first] * ENOUGH
        return graph, a, u

    return make


def test_a_process_that_executes_a_graph_often_has_a_copy_of_it(ray_session, shared, copies):
    ray = ray_session
    graph, a, u = shared("note")
    assert copies(graph) == [ray.get(u.pid.remote())]
    before = graph.statistics()["submitted"]
    assert ray.get(u.run.remote(range(100))) == list(range(100))
    assert graph.statistics()["submitted"] == before < ENOUGH
    assert graph.execute("own").get() == "own"
    assert ray.get(a.tell.remote()) == [0] * ENOUGH + [*range(100), "own"]


def test_one_copy_serves_all_handles_of_a_process(ray_session, shared, copies):
    ray = ray_session
    graph, _a, u = shared("echo")
    before = graph.statistics()["submitted"]
    for number in range(5):
        assert ray.get(u.run.remote([number], graph)) == [number]
    assert graph.statistics()["submitted"] == before
    assert copies(graph) == [ray.get(u.pid.remote())]


def test_a_copy_goes_with_its_last_handle(ray_session, shared, copies, eventually):
    ray = ray_session
    graph, _a, u = shared("echo")
    ray.get(u.drop.remote())
    eventually(lambda: copies(graph) == [])
    assert ray.get(u.run.remote(range(ENOUGH), graph)) == list(range(ENOUGH))
    assert graph.execute(1).get() == 1


def test_each_process_keeps_its_own_order(ray_session, actor, user, compiled, copies):
    ray = ray_session
    a, b, users = actor(), actor(), [user() for _ in range(3)]
    with ray.dag.InputNode() as inp:
        graph = compiled(b.note.bind(a.note.bind(inp)))
    ray.get([u.hold.remote(graph) for u in users])
    runs = [u.run.remote([(number, each) for each in range(300)]) for number, u in enumerate(users)]
    own = [graph.execute((3, each)).get() for each in range(300)]
    expected = [[(number, each) for each in range(300)] for number in range(4)]
    assert [*ray.get(runs), own] == expected
    assert len(copies(graph)) == 3
    for each in (a, b):
        seen = ray.get(each.tell.remote())
        assert [[value for value in seen if value[0] == number] for number in range(4)] == expected


def test_large_values_refs_and_errors_go_through_a_copy(ray_session, shared):
    ray = ray_session
    graph, _a, u = shared("fail")
    before = graph.statistics()["submitted"]
    assert ray.get(u.add_ones.remote(20)) == list(range(20))
    assert ray.get(u.pass_refs.remote(5)) == list(range(5))
    with pytest.raises(ValueError, match="cannot take fail"):
        ray.get(u.run.remote(["fail"]))
    assert ray.get(u.run.remote([7])) == [7]
    assert graph.statistics()["submitted"] == before


def test_event_loops_of_another_process_use_a_copy(ray_session, actor, user, compiled, copies):
    ray = ray_session
    a, u = actor(), user()
    with ray.dag.InputNode() as inp:
        graph = compiled(a.echo.bind(inp), enable_asyncio=True)
    ray.get(u.hold.remote(graph))
    assert ray.get(u.run_async.remote(range(5), ENOUGH)) == list(range(5))
    assert copies(graph) == [ray.get(u.pid.remote())]


@pytest.mark.parametrize("when_full", ["raise", "wait"])
def test_the_limits_of_a_copy_are_those_by_way_of_the_owner(ray_session, shared, tmp_path, when_full):
    """An execution is in flight until its results are there, and these are kept."""
    ray = ray_session
    _graph, _a, u = shared("wait_for", "", _max_inflight_executions=4, _max_buffered_results=2, _when_full=when_full)
    for _ in range(20):
        ray.get(u.start.remote(["", "", "", ""]))
        assert ray.get(u.take.remote()) == ["", "", "", ""]
    if when_full == "wait":
        assert ray.get(u.run_at_once.remote([""] * 50)) == [""] * 50
    else:
        with pytest.raises(ray.exceptions.RayCgraphCapacityExceeded, match="can't have more than 4 in-flight executions"):
            ray.get(u.run_at_once.remote([str(tmp_path / "go")] * 5))
        (tmp_path / "go").touch()


# ------------------------------------------------------------------------------------------------- ends
def test_when_the_owner_has_torn_the_graph_down_it_is_closed_in_the_copy(ray_session, shared, copies):
    ray = ray_session
    graph, a, u = shared("echo")
    graph.teardown()
    with pytest.raises(ray.exceptions.RayChannelError, match="Channel closed"):
        ray.get(u.run.remote([1]))
    assert copies(graph) == []
    assert ray.get(a.echo.remote(1)) == 1


def test_teardown_ends_the_waits_of_a_copy(ray_session, shared, eventually, tmp_path):
    ray = ray_session
    state = importlib.import_module(f"{ray.__name__}.util.state")
    graph, _a, u = shared("wait_for", "")
    pending = u.run.remote(["", str(tmp_path / "go")])
    eventually(lambda: any("computes wait_for()" in row.waits for row in state.list_graphs(detail=True) if row.copy_of))
    threading.Timer(0.2, (tmp_path / "go").touch).start()
    graph.teardown()
    with pytest.raises(ray.exceptions.RayChannelError, match="Channel closed"):
        ray.get(pending)


def test_a_graph_that_its_owner_drops_is_closed_in_the_copy(ray_session, actor, user, eventually, copies):
    ray = ray_session
    a, u = actor(), user()
    with ray.dag.InputNode() as inp:
        graph = a.echo.bind(inp).experimental_compile()
    ray.get(u.hold.remote(graph))
    ray.get(u.run.remote([1] * ENOUGH))
    assert len(copies(graph)) == 1
    del graph

    def is_closed():
        try:
            ray.get(u.run.remote([1]))
        except ray.exceptions.RayChannelError:
            return True
        return False

    eventually(is_closed)


def test_the_death_of_the_owner_is_told_to_those_who_have_a_copy(ray_session, actor, user, eventually, tmp_path):
    ray = ray_session
    a, owner, u = actor(), user(), user()
    (graph,) = ray.get(owner.compile.remote(a))
    ray.get(u.hold.remote(graph))
    del graph
    assert ray.get(u.run.remote([""] * ENOUGH)) == [""] * ENOUGH
    pending = u.run.remote([str(tmp_path / "go")])
    os.kill(ray.get(owner.pid.remote()), signal.SIGKILL)
    with pytest.raises(ray.exceptions.RayChannelError, match="that compiled the graph .* has died"):
        ray.get(pending)
    with pytest.raises(ray.exceptions.RayChannelError, match="that compiled the graph .* has died"):
        ray.get(u.run.remote([""]))
    (tmp_path / "go").touch()
    assert ray.get(a.echo.remote(1)) == 1


def test_the_death_of_an_actor_is_told_to_those_who_have_a_copy(ray_session, shared, tmp_path):
    ray = ray_session
    graph, a, u = shared("wait_for", "")
    pid = ray.get(a.pid.remote())
    pending = u.run.remote([str(tmp_path / "go")])
    os.kill(pid, signal.SIGKILL)
    for _ in range(2):
        with pytest.raises(ray.exceptions.ActorDiedError):
            ray.get(pending)
        pending = u.run.remote([""])
    with pytest.raises(ray.exceptions.ActorDiedError):
        graph.execute("").get()


def test_the_death_of_a_process_with_a_copy_is_no_matter_to_others(ray_session, shared, user, copies, eventually):
    ray = ray_session
    graph, a, u = shared("echo")
    os.kill(ray.get(u.pid.remote()), signal.SIGKILL)
    eventually(lambda: copies(graph) == [])
    assert [graph.execute(number).get() for number in range(5)] == list(range(5))
    other = user()
    ray.get(other.hold.remote(graph))
    assert ray.get(other.run.remote(range(ENOUGH))) == list(range(ENOUGH))
    assert len(copies(graph)) == 1
    graph.teardown()
    assert ray.get(a.echo.remote(1)) == 1


def test_a_process_that_tears_a_graph_down_gives_its_copy_back(ray_session, shared, copies, eventually):
    ray = ray_session
    graph, _a, u = shared("echo")
    assert "Channel closed" in ray.get(u.close.remote())
    eventually(lambda: copies(graph) == [])
    assert graph.execute(1).get() == 1


# -------------------------------------------------------------------------------------- by way of the owner
def test_a_profile_sees_the_executions_of_other_processes(ray_session, shared, copies, eventually):
    ray = ray_session
    graph, _a, u = shared("echo")
    with graph.profile() as profile:
        eventually(lambda: ray.get(u.run.remote([1])) == [1] and copies(graph) == [])
        before = graph.statistics()["submitted"]
        assert ray.get(u.run.remote([1] * ENOUGH)) == [1] * ENOUGH
        assert graph.statistics()["submitted"] == before + ENOUGH
    assert sum(span.kind == COMPUTE for span in profile.spans) >= ENOUGH
    assert ray.get(u.run.remote([1] * 2 * ENOUGH)) == [1] * 2 * ENOUGH
    assert len(copies(graph)) == 1


def test_processes_take_turns_at_an_actor(ray_session, shared, user, tmp_path):
    ray = ray_session
    graph, _a, u = shared("nap")
    other = user()
    ray.get(other.hold.remote(graph))
    ray.get(other.run.remote([0] * ENOUGH))
    pending = u.stream.remote(0, str(tmp_path / "flag"))
    assert ray.get(other.run.remote(range(10)), timeout=60) == list(range(10))
    assert [graph.execute(number).get(60) for number in range(10)] == list(range(10))
    assert ray.wait([pending], timeout=0)[0] == []
    (tmp_path / "flag").touch()
    assert ray.get(pending)[1] == ""


def test_a_copy_that_is_always_busy_is_recalled_and_ended_all_the_same(ray_session, shared, copies, tmp_path):
    ray = ray_session
    graph, _a, u = shared("nap")
    pending = u.stream.remote(0, str(tmp_path / "flag"))
    with graph.profile() as profile:
        before = graph.statistics()["submitted"]
        while graph.statistics()["submitted"] < before + 10:
            time.sleep(0.01)
    assert sum(span.kind == COMPUTE for span in profile.spans) >= 4
    graph.teardown()
    assert "Channel closed" in ray.get(pending)[1]
    assert copies(graph) == []


def test_a_copy_that_is_dropped_half_made_is_given_back(ray_session, actor, user, compiled, eventually):
    ray = ray_session
    a = actor()
    with ray.dag.InputNode() as inp:
        graph = compiled(a.echo.bind(inp))

    @ray.remote(num_cpus=0)
    def use(graph, count):
        return [graph.execute(number).get() for number in range(count)]

    for count in range(15, 24):
        assert ray.get(use.remote(graph, count)) == list(range(count))
    session = importlib.import_module(f"{ray.__name__}._api.current").current_backend().client.facts["session"]
    eventually(lambda: not [name for name in os.listdir("/dev/shm") if session in name and "-g" in name])
    state = importlib.import_module(f"{ray.__name__}.util.state")
    eventually(lambda: [row.copy_of for row in state.list_graphs(detail=True) if row.copy_of == graph.get_id()] == [])
    assert graph.execute(1).get() == 1


def test_threads_keep_their_order_when_the_way_changes(ray_session, actor, compiled):
    ray = ray_session
    a = actor()
    with ray.dag.InputNode() as inp:
        graph = compiled(a.note.bind(inp), _max_inflight_executions=500)

    @ray.remote(num_cpus=0)
    def use(graph, task):
        def work(number):
            values = [(task, number, each) for each in range(40)]
            return ray.get([graph.execute(value) for value in values]) == values

        with ThreadPoolExecutor(4) as pool:  # between two rounds nothing is under way
            return all(all(list(pool.map(work, range(begin, begin + 3)))) for begin in range(0, 12, 3))

    assert ray.get([use.remote(graph, task) for task in range(3)]) == [True] * 3
    assert graph.statistics()["submitted"] < 3 * 12 * 40
    seen = {}
    for task, number, each in ray.get(a.tell.remote()):
        seen.setdefault((task, number), []).append(each)
    assert seen == {(task, number): list(range(40)) for task in range(3) for number in range(12)}


def test_an_interrupted_step_of_the_making_leaves_the_way_by_the_owner(ray_session, actor, user, compiled):
    ray = ray_session
    a = actor()
    with ray.dag.InputNode() as inp:
        graph = compiled(a.echo.bind(inp))

    @ray.remote(num_cpus=0)
    def use(graph):
        from mray._graph.caller.allocation import Allocation

        open_ends, calls = Allocation.open, []

        def interrupted(made, parts):
            open_ends(made, parts)
            calls.append(1)
            raise KeyboardInterrupt

        Allocation.open = interrupted
        told = 0
        try:
            for number in range(60):
                try:
                    assert graph.execute(number).get() == number
                except KeyboardInterrupt:
                    told += 1
        finally:
            Allocation.open = open_ends
        return told, len(calls)

    assert ray.get(use.remote(graph)) == (1, 1)


def test_a_graph_whose_actors_wait_in_the_middle_is_not_copied(ray_session, actor, user, compiled, copies):
    ray = ray_session
    a, b, u = actor(), actor(), user()
    with ray.dag.InputNode() as inp:
        first = a.echo.bind(inp)
        graph = compiled(a.add.bind(first, b.echo.bind(first)))
    ray.get(u.hold.remote(graph))
    assert ray.get(u.run.remote(range(ENOUGH))) == [2 * number for number in range(ENOUGH)]
    assert copies(graph) == []


def test_constants_go_along_unless_refs_are_among_them(ray_session, actor, user, compiled, copies):
    ray = ray_session
    a, u = actor(), user()
    with ray.dag.InputNode() as inp:
        plain = compiled(a.add.bind(inp, 5))
    with ray.dag.InputNode() as inp:
        with_ref = compiled(a.echo.bind([inp, ray.put(1)]))
    assert ray.get(u.run.remote(range(ENOUGH), plain)) == list(range(5, ENOUGH + 5))
    ray.get(u.hold.remote(plain))
    assert ray.get(u.run.remote(range(ENOUGH))) == list(range(5, ENOUGH + 5))
    assert len(copies(plain)) == 1
    ray.get(u.hold.remote(with_ref))
    assert [number for number, _ref in ray.get(u.run.remote(range(ENOUGH)))] == list(range(ENOUGH))
    assert copies(with_ref) == []
