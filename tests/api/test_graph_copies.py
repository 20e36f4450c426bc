"""Copies of compiled graphs: another process that executes one has channels of its own to the actors."""

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

pytestmark = pytest.mark.only("mray", "local")


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

        def count_programs(self):
            return len(importlib.import_module("mray._api.current").current_backend().host().service.programs)

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

        def report(self, timeout=None):
            return self.graph.report(timeout)

        def run_stream(self, graph, values):
            async def main():
                return [value async for value in graph.stream(values)]

            return asyncio.run(main())

        def profile(self, graph, values):
            with graph.profile() as profile:
                assert [graph.execute(value).get() for value in values] == list(values)
            return sum(span.kind == "compute" for span in profile.spans), graph.statistics()["finished"]

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
        assert ray_session.get(u.run.remote([first])) == [first]
        return graph, a, u

    return make


def test_a_graph_that_fails_once_its_actors_have_their_programs_leaves_them_none(ray_session, actor, eventually, monkeypatch):
    ray = ray_session
    worker = actor()
    host = importlib.import_module("mray._api.current").current_backend().host()

    def fail(*_parts):
        raise MemoryError("no room for a graph")

    with ray.dag.InputNode() as inp:
        dag = worker.echo.bind(inp)
    with monkeypatch.context() as patch:
        patch.setattr(host, "graph_kind", fail)
        with pytest.raises(MemoryError, match="no room for a graph"):
            dag.experimental_compile()
    eventually(lambda: ray.get(worker.count_programs.remote()) == 0)
    graph = worker.echo.bind(inp).experimental_compile()
    assert ray.get(graph.execute(1)) == 1
    graph.teardown()


def test_a_process_that_executes_a_graph_has_a_copy_of_it(ray_session, shared, copies):
    ray = ray_session
    graph, a, u = shared("note")
    assert copies(graph) == [ray.get(u.pid.remote())]
    assert ray.get(u.run.remote(range(100))) == list(range(100))
    assert graph.execute("own").get() == "own"
    assert ray.get(a.tell.remote()) == [0, *range(100), "own"]
    assert graph.statistics()["submitted"] == 1


def test_a_process_that_only_holds_a_graph_has_no_copy(ray_session, actor, user, compiled, copies):
    ray = ray_session
    a, u = actor(), user()
    with ray.dag.InputNode() as inp:
        graph = compiled(a.echo.bind(inp))
    ray.get(u.hold.remote(graph))
    assert "has not executed" in ray.get(u.report.remote())
    assert "has not executed" in ray.get(u.report.remote(0.1))
    assert copies(graph) == []


def test_one_copy_serves_all_handles_and_threads_of_a_process(ray_session, actor, compiled, copies):
    ray = ray_session
    a = actor()
    with ray.dag.InputNode() as inp:
        graph = compiled(a.echo.bind(inp))

    @ray.remote(num_cpus=0)
    class User:
        def use(self, graphs):
            self.graphs = graphs
            with ThreadPoolExecutor(4) as pool:
                return list(pool.map(lambda number: graphs[number % 2].execute(number).get(), range(8))), os.getpid()

    u = User.remote()
    results, pid = ray.get(u.use.remote([graph, graph]))
    assert results == list(range(8))
    assert copies(graph) == [pid]


def test_a_copy_goes_with_its_last_handle(ray_session, shared, copies, eventually):
    ray = ray_session
    graph, _a, u = shared("echo")
    ray.get(u.drop.remote())
    eventually(lambda: copies(graph) == [])
    assert ray.get(u.run.remote([2], graph)) == [2]
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
    _graph, _a, u = shared("fail")
    assert ray.get(u.add_ones.remote(20)) == list(range(20))
    assert ray.get(u.pass_refs.remote(5)) == list(range(5))
    with pytest.raises(ValueError, match="cannot take fail"):
        ray.get(u.run.remote(["fail"]))
    assert ray.get(u.run.remote([7])) == [7]


def test_event_loops_of_another_process_use_a_copy(ray_session, actor, user, compiled, copies):
    ray = ray_session
    a, u = actor(), user()
    with ray.dag.InputNode() as inp:
        graph = compiled(a.echo.bind(inp), enable_asyncio=True)
    ray.get(u.hold.remote(graph))
    assert ray.get(u.run_async.remote(range(5), 3)) == list(range(5))
    assert copies(graph) == [ray.get(u.pid.remote())]


@pytest.mark.parametrize("when_full", ["raise", "wait"])
def test_the_limits_of_a_copy_are_those_of_the_graph(ray_session, shared, when_full):
    ray = ray_session
    graph, _a, u = shared("echo", _max_inflight_executions=4, _max_buffered_results=60, _when_full=when_full)
    assert ray.get(u.run_at_once.remote([1] * 4)) == [1] * 4
    if when_full == "wait":
        assert ray.get(u.run_at_once.remote([1] * 50)) == [1] * 50
    else:
        refs = [graph.execute(number) for number in range(4)]  # which are no matter to the other process
        with pytest.raises(ray.exceptions.RayCgraphCapacityExceeded, match="can't have more than 4 in-flight executions"):
            ray.get(u.run_at_once.remote([1] * 5))
        assert ray.get(refs) == list(range(4))


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
    ray.get(u.run.remote([1]))
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
    assert ray.get(u.run.remote([""])) == [""]
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
    assert ray.get(a.count_programs.remote()) == 2
    os.kill(ray.get(u.pid.remote()), signal.SIGKILL)
    eventually(lambda: copies(graph) == [])
    eventually(lambda: ray.get(a.count_programs.remote()) == 1)
    assert [graph.execute(number).get() for number in range(5)] == list(range(5))
    other = user()
    ray.get(other.hold.remote(graph))
    assert ray.get(other.run.remote(range(5))) == list(range(5))
    assert len(copies(graph)) == 1
    graph.teardown()
    assert ray.get(a.echo.remote(1)) == 1


def test_a_process_that_tears_a_graph_down_gives_its_copy_back(ray_session, shared, copies, eventually):
    ray = ray_session
    graph, _a, u = shared("echo")
    assert "Channel closed" in ray.get(u.close.remote())
    eventually(lambda: copies(graph) == [])
    assert graph.execute(1).get() == 1


# ---------------------------------------------------------------------------------------- the actors' side
def test_processes_take_turns_at_an_actor(ray_session, shared, user, tmp_path):
    ray = ray_session
    graph, _a, u = shared("nap")
    other = user()
    ray.get(other.hold.remote(graph))
    pending = u.stream.remote(0, str(tmp_path / "flag"))
    assert ray.get(other.run.remote(range(10)), timeout=60) == list(range(10))
    assert [graph.execute(number).get(60) for number in range(10)] == list(range(10))
    assert ray.wait([pending], timeout=0)[0] == []
    (tmp_path / "flag").touch()
    assert ray.get(pending)[1] == ""


def test_copies_that_come_and_go_leave_nothing(ray_session, actor, compiled, eventually):
    ray = ray_session
    a = actor()
    with ray.dag.InputNode() as inp:
        graph = compiled(a.echo.bind(inp))

    @ray.remote(num_cpus=0)
    def use(graph, count):
        return [graph.execute(number).get() for number in range(count)]

    for count in range(5):
        assert ray.get(use.remote(graph, count)) == list(range(count))
    session = importlib.import_module(f"{ray.__name__}._api.current").current_backend().client.info["session"]
    eventually(lambda: not [name for name in os.listdir("/dev/shm") if session in name and "-g" in name])
    state = importlib.import_module(f"{ray.__name__}.util.state")
    eventually(lambda: [row.copy_of for row in state.list_graphs(detail=True) if row.copy_of == graph.get_id()] == [])
    assert graph.execute(1).get() == 1


def test_an_interrupted_making_is_begun_again(ray_session, actor, compiled):
    ray = ray_session
    a = actor()
    with ray.dag.InputNode() as inp:
        graph = compiled(a.echo.bind(inp))

    @ray.remote(num_cpus=0)
    def use(graph):
        module = importlib.import_module("mray._graph.caller.allocation")
        open_ends = module.open_ends

        def interrupted(*arguments):
            module.open_ends = open_ends
            open_ends(*arguments)
            raise KeyboardInterrupt

        module.open_ends = interrupted
        try:
            graph.execute(0)
        except KeyboardInterrupt:
            return [graph.execute(number).get() for number in range(5)]

    assert ray.get(use.remote(graph)) == list(range(5))


def test_actors_that_execute_a_graph_of_theirs_at_the_same_time(ray_session, actor, compiled):
    """Each is asked for its part of the other's copy while its main thread makes its own."""
    ray = ray_session

    @ray.remote(num_cpus=0)
    class Part:
        def add_one(self, value):
            return value + 1

        def run(self, graph, values):
            return [graph.execute(value).get() for value in values]

    parts = [Part.remote() for _ in range(2)]
    with ray.dag.InputNode() as inp:
        graph = compiled(parts[1].add_one.bind(parts[0].add_one.bind(inp)))
    assert ray.get([part.run.remote(graph, range(20)) for part in parts], timeout=60) == [list(range(2, 22))] * 2


def test_the_first_execution_waits_for_no_method(ray_session, actor, user, compiled, tmp_path):
    ray = ray_session
    a, u = actor(), user()
    with ray.dag.InputNode() as inp:
        graph = compiled(a.wait_for.bind(inp))
    ray.get(u.hold.remote(graph))
    busy = a.wait_for.remote(str(tmp_path / "go"))
    ray.get(u.start.remote([str(tmp_path / "go")]), timeout=60)
    (tmp_path / "go").touch()
    assert ray.get([busy, u.take.remote()]) == [str(tmp_path / "go"), [str(tmp_path / "go")]]


def test_a_graph_whose_actors_wait_in_the_middle(ray_session, actor, user, compiled):
    ray = ray_session
    a, b, users = actor(), actor(), [user() for _ in range(2)]
    with ray.dag.InputNode() as inp:
        first = a.echo.bind(inp)
        graph = compiled(a.add.bind(first, b.echo.bind(first)))
    ray.get([u.hold.remote(graph) for u in users])
    runs = [u.run.remote(range(100)) for u in users]
    assert [graph.execute(number).get() for number in range(100)] == [2 * number for number in range(100)]
    assert ray.get(runs) == [[2 * number for number in range(100)]] * 2


def test_a_graph_with_a_collective_operation_says_why_it_is_not_copied(ray_session, actor, user, compiled):
    ray = ray_session
    allreduce = importlib.import_module(f"{ray.__name__}.experimental.collective").allreduce
    group = importlib.import_module(f"{ray.__name__}.experimental.channel.cpu_communicator").CPUCommunicator
    actors, u = [actor(), actor()], user()
    with ray.dag.InputNode() as inp:
        reduced = allreduce.bind([each.echo.bind(inp) for each in actors], transport=group(2, actors))
        graph = compiled(ray.dag.MultiOutputNode(reduced))
    with pytest.raises(NotImplementedError, match="collective operations.*Execute it in the process that compiled it"):
        ray.get(u.run.remote([1], graph))


def test_constants_and_refs_among_them_go_along(ray_session, actor, user, compiled):
    ray = ray_session
    a, u = actor(), user()
    with ray.dag.InputNode() as inp:
        plain = compiled(a.add.bind(inp, np.full(400_000, 5)))
    with ray.dag.InputNode() as inp:
        with_ref = compiled(a.echo.bind([inp, ray.put("inside")]))
    assert [int(each[-1]) for each in ray.get(u.run.remote(range(3), plain))] == [5, 6, 7]
    assert [(number, ray.get(ref)) for number, ref in ray.get(u.run.remote(range(3), with_ref))] == [(n, "inside") for n in range(3)]


def test_another_process_streams_and_profiles_its_executions(ray_session, actor, user, compiled):
    ray = ray_session
    a, u = actor(), user()
    with ray.dag.InputNode() as inp:
        graph = compiled(a.echo.bind(inp), enable_asyncio=True)
    with ray.dag.InputNode() as inp:
        plain = compiled(a.echo.bind(inp))
    assert ray.get(u.run_stream.remote(graph, range(5))) == list(range(5))
    assert ray.get(u.profile.remote(plain, range(5))) == (5, 5)
