"""The caller's side of compiled graphs: waiting, limits, time-outs that tell, threads, other processes, memory of one's own."""

from __future__ import annotations

import asyncio
import gc
import importlib
import logging
import os
import pickle
import signal
import threading
import time

import numpy as np
import pytest


@pytest.fixture
def actor(ray_session):
    """Makes an actor with the methods that the tests call."""
    ray = ray_session

    class Worker:
        def echo(self, value):
            return value

        def add_one(self, value):
            return value + 1

        def add(self, left, right):
            return left + right

        def fail(self, value):
            raise ValueError(f"cannot take {value}")

        def sleep(self, value):
            time.sleep(value)
            return value

        def wait_for(self, path):
            while not os.path.exists(path):
                time.sleep(0.001)
            return path

        def make(self, size):
            return np.full(size, 7, dtype=np.int64)

        def make_tensor(self, size):
            import torch

            return torch.full((size,), 3.0)

        def pid(self):
            return os.getpid()

    return ray.remote(num_cpus=0)(Worker).remote


@pytest.fixture
def user(ray_session):
    """Makes an actor that uses graphs it is handed."""
    ray = ray_session

    class User:
        def run(self, graph, values, timeout=None):
            return [graph.execute(value).get(timeout) for value in values]

        def run_at_once(self, graph, values):
            return ray.get([graph.execute(value) for value in values])

        def run_several(self, graph, value):
            return ray.get(graph.execute(value))

        def run_async(self, graph, values):
            async def main():
                return await asyncio.gather(*[await graph.execute_async(value) for value in values])

            return asyncio.run(main())

        def hold(self, graph):
            self.graph = graph

        def wait_in_vain(self, value):
            return self.graph.execute(value).get()

        def drop(self, graph, times):
            for _ in range(times):
                graph.execute(b"x" * 1000)
            return graph.execute(b"last").get(), graph.statistics()["kept"]

        def close(self, graph):
            graph.teardown()
            try:
                graph.execute(1)
            except ray.exceptions.RayChannelError as error:
                return graph.is_teardown, str(error)

        def give_back(self, graph):
            return [graph]

        def twice(self, value):
            return 2 * value

        def ready(self, graph, value):
            ref = graph.execute(value)
            ready, rest = ray.wait([ref, ray.put(1)], num_returns=2)
            return len(ready), len(rest), ref.get()

    return ray.remote(num_cpus=0)(User).remote


@pytest.fixture
def graph_of(ray_session, actor, compiled):
    """``graph_of("echo", ...)``: a graph of one actor and one method."""

    def make(method, **options):
        a = actor()
        with ray_session.dag.InputNode() as inp:
            return compiled(getattr(a, method).bind(inp), **options)

    return make


@pytest.fixture
def computes(ray_session):
    """``computes(graph)``: whether so many other processes wait for an execution of the graph."""
    state = importlib.import_module(f"{ray_session.__name__}.util.state")

    def look(graph, processes=1):
        rows = [row for row in state.list_graphs(detail=True) if row.copy_of == graph.get_id()]
        return sum(row.submitted > row.finished for row in rows) >= processes

    return look


# -------------------------------------------------------------------------------------------- waiting
@pytest.mark.differs("Ray refuses refs of graphs in wait()")
def test_wait_tells_which_results_are_there(engine, ray_session, graph_of, tmp_path):
    graph = graph_of("wait_for")
    (tmp_path / "there").touch()
    first, second = graph.execute(str(tmp_path / "there")), graph.execute(str(tmp_path / "later"))
    if engine == "ray":
        with pytest.raises(TypeError, match="wait\\(\\) expected a list of ray.ObjectRef"):
            ray_session.wait([first, second])
    else:
        assert ray_session.wait([second, first]) == ([first], [second])
        assert ray_session.wait([second], timeout=0.01) == ([], [second])
        assert ray_session.wait([second], timeout=0) == ([], [second])
    (tmp_path / "later").touch()
    if engine == "mray":
        assert ray_session.wait([first, second], num_returns=2) == ([first, second], [])
        assert ray_session.wait([second, first]) == ([second], [first])
    assert ray_session.get([first, second]) == [str(tmp_path / "there"), str(tmp_path / "later")]


@pytest.mark.only("mray", "local")
def test_wait_takes_results_of_several_graphs_and_objects_together(ray_session, graph_of, tmp_path):
    ray = ray_session
    one, two = graph_of("wait_for"), graph_of("echo")

    @ray.remote(num_cpus=0)
    def task(path):
        while not os.path.exists(path):
            time.sleep(0.001)

    slow, fast, pending, put = one.execute(str(tmp_path / "a")), two.execute(1), task.remote(str(tmp_path / "b")), ray.put(1)
    assert ray.wait([slow, fast, pending, put], num_returns=2) == ([fast, put], [slow, pending])
    (tmp_path / "b").touch()
    assert ray.wait([slow, pending]) == ([pending], [slow])
    (tmp_path / "a").touch()
    assert ray.wait([slow, fast, pending, put], num_returns=4) == ([slow, fast, pending, put], [])
    assert ray.get([slow, fast]) == [str(tmp_path / "a"), 1]


@pytest.mark.only("mray", "local")
def test_wait_counts_failures_and_ends_as_ready(ray_session, graph_of, tmp_path):
    failing, waiting = graph_of("fail"), graph_of("wait_for")
    ref = failing.execute(1)
    assert ray_session.wait([ref]) == ([ref], [])
    with pytest.raises(ValueError, match="cannot take 1"):
        ref.get()
    ref = waiting.execute(str(tmp_path / "go"))
    (tmp_path / "go").touch()
    waiting.teardown()
    assert ray_session.wait([ref]) == ([ref], [])


@pytest.mark.only("mray", "local")
def test_wait_checks_its_arguments(ray_session, graph_of):
    graph = graph_of("echo")
    ref = graph.execute(1)
    with pytest.raises(ValueError, match="unique"):
        ray_session.wait([ref, ref])
    with pytest.raises(ValueError, match="num_returns cannot be greater"):
        ray_session.wait([ref], num_returns=2)
    assert ref.get() == 1


@pytest.mark.only("mray", "local")
def test_wait_in_one_thread_while_another_gets(ray_session, graph_of):
    graph = graph_of("sleep")
    early, late = graph.execute(0.05), graph.execute(0.05)
    thread = threading.Thread(target=late.get)
    thread.start()
    assert ray_session.wait([early]) == ([early], [])
    thread.join()
    assert early.get() == 0.05


@pytest.mark.only("mray", "local")
def test_the_timeout_of_get_is_for_the_whole_list(ray_session, graph_of):
    graph = graph_of("sleep")
    refs = [graph.execute(0.2) for _ in range(3)]
    with pytest.raises(ray_session.exceptions.RayChannelTimeoutError, match="within 0.3 seconds"):
        ray_session.get(refs, timeout=0.3)
    assert ray_session.get(refs[1:], timeout=60) == [0.2] * 2


# --------------------------------------------------------------------------------------------- limits
@pytest.mark.only("mray", "local")
def test_execute_waits_for_room_and_keeps_results(ray_session, graph_of):
    graph = graph_of("echo", _max_inflight_executions=2, _when_full="wait")
    assert ray_session.get([graph.execute(number) for number in range(50)]) == list(range(50))


@pytest.mark.only("mray", "local")
def test_execute_waits_until_another_thread_has_read(ray_session, graph_of):
    graph = graph_of("echo", _max_inflight_executions=2, _max_buffered_results=2, _when_full="wait")
    refs = []
    submitted = threading.Semaphore(0)

    def submit():
        for number in range(100):
            refs.append(graph.execute(number))
            submitted.release()

    thread = threading.Thread(target=submit)
    thread.start()
    for number in range(100):
        submitted.acquire()
        assert refs[number].get() == number
    thread.join()


@pytest.mark.only("mray", "local")
def test_execute_waits_until_another_thread_has_dropped(ray_session, graph_of):
    graph = graph_of("echo", _max_inflight_executions=1, _max_buffered_results=1, _when_full="wait")
    held = [graph.execute(0), graph.execute(1)]
    done = threading.Event()

    def submit():
        assert graph.execute(2).get() == 2
        done.set()

    thread = threading.Thread(target=submit)
    thread.start()
    held.clear()
    assert done.wait(60)
    thread.join()


@pytest.mark.only("mray", "local")
def test_a_thread_that_would_wait_for_itself_is_told(ray_session, run_program):
    said = run_program(
        """
        import ENGINE as ray

        @ray.remote
        class Echo:
            def echo(self, value):
                return value

        ray.init(num_cpus=1, logging_level="ERROR")
        a = Echo.remote()
        with ray.dag.InputNode() as inp:
            graph = a.echo.bind(inp).experimental_compile(_max_inflight_executions=2, _max_buffered_results=3, _when_full="wait")
        refs = [graph.execute(number) for number in range(5)]
        try:
            graph.execute(5)
        except ray.exceptions.RayCgraphCapacityExceeded as error:
            print("told:", error)
        print(ray.get(refs))
        print(ray.get(graph.execute(6)))
        """
    ).stdout
    assert "there is no other thread that could retrieve any" in said
    assert "[0, 1, 2, 3, 4]\n6\n" in said


@pytest.mark.only("mray", "local")
def test_execute_that_waits_in_vain_says_who_waits_for_whom(ray_session, graph_of, tmp_path):
    graph = graph_of("wait_for", _max_inflight_executions=1, _submit_timeout=0.3, _when_full="wait")
    ref = graph.execute(str(tmp_path / "go"))
    with pytest.raises(ray_session.exceptions.RayChannelTimeoutError, match=r"(?s)took no input within 0.3 seconds.*computes wait_for\(\)"):
        graph.execute(1)
    (tmp_path / "go").touch()
    assert ref.get() == str(tmp_path / "go")


@pytest.mark.only("mray", "local")
def test_execute_that_waits_ends_with_the_graph(ray_session, actor, compiled, eventually, tmp_path):
    a = actor()
    pid = ray_session.get(a.pid.remote())
    with ray_session.dag.InputNode() as inp:
        graph = compiled(a.wait_for.bind(inp), _max_inflight_executions=1, _when_full="wait")
    ref = graph.execute(str(tmp_path / "never"))
    raised = []

    def submit():
        try:
            graph.execute(1)
        except ray_session.exceptions.ActorDiedError as error:
            raised.append(error)

    thread = threading.Thread(target=submit)
    thread.start()
    eventually(lambda: graph.room_wanted)
    os.kill(pid, signal.SIGKILL)
    thread.join()
    assert len(raised) == 1
    with pytest.raises(ray_session.exceptions.ActorDiedError):
        ref.get()


@pytest.mark.only("mray", "local")
def test_execute_that_waits_for_long_says_so_in_the_log(engine, graph_of, monkeypatch, caplog, eventually, tmp_path):
    monkeypatch.setattr(importlib.import_module(f"{engine}._graph.caller.executions"), "PATIENCE", 0.5)
    caplog.set_level(logging.WARNING, logger=engine)
    graph = graph_of("wait_for", _max_inflight_executions=1, _when_full="wait")
    refs = [graph.execute(str(tmp_path / "go"))]
    thread = threading.Thread(target=lambda: refs.append(graph.execute(str(tmp_path / "go"))))
    thread.start()
    eventually(lambda: "execute() has waited" in caplog.text)
    (tmp_path / "go").touch()
    thread.join()
    assert [ref.get() for ref in refs] == [str(tmp_path / "go")] * 2
    assert caplog.text.count("execute() has waited") == 1
    assert "computes wait_for() (COMPUTE)" in caplog.text


@pytest.mark.only("mray", "local")
def test_when_full_is_checked(ray_session, actor):
    a = actor()
    with ray_session.dag.InputNode() as inp, pytest.raises(ValueError, match="`_when_full` must be 'raise' or 'wait'"):
        a.echo.bind(inp).experimental_compile(_when_full="explode")


# -------------------------------------------------------------------------------------------- reports
@pytest.mark.only("mray", "local")
def test_a_time_out_says_who_waits_for_whom(ray_session, actor, compiled, tmp_path):
    a, b, c = actor(), actor(), actor()
    with ray_session.dag.InputNode() as inp:
        graph = compiled(c.add.bind(a.wait_for.bind(inp), b.echo.bind(inp)))
    ref = graph.execute(str(tmp_path / "go"))
    with pytest.raises(ray_session.exceptions.RayChannelTimeoutError) as caught:
        ref.get(timeout=0.5)
    text = str(caught.value)
    assert "1 executions submitted, 0 finished" in text
    assert "the caller waits for execution 0: add() of Worker(" in text
    assert "has finished 0 executions and computes wait_for() (COMPUTE)" in text
    assert "in wait_for\n" in text
    assert "has finished 1 executions and waits for the input from the caller (READ)" in text
    assert "has finished 0 executions and waits for wait_for() of Worker(" in text
    assert "and echo() of Worker(" not in text
    (tmp_path / "go").touch()
    assert ref.get() == 2 * str(tmp_path / "go")


@pytest.mark.only("mray", "local")
def test_a_report_tells_of_several_steps_and_of_ordinary_calls(ray_session, actor, compiled, eventually, tmp_path):
    a = actor()
    with ray_session.dag.InputNode() as inp:
        graph = compiled(a.echo.bind(a.wait_for.bind(a.echo.bind(inp))))
    ref = graph.execute(str(tmp_path / "go"))
    eventually(lambda: "computes wait_for() (COMPUTE)" in graph.report())
    (tmp_path / "go").touch()
    assert ref.get() == str(tmp_path / "go")
    busy = a.wait_for.remote(str(tmp_path / "later"))
    eventually(lambda: "waits for the input from the caller (READ), but its main thread is busy with other work" in graph.report())
    (tmp_path / "later").touch()
    ray_session.get(busy)
    assert "busy" not in graph.report()


@pytest.mark.processes("stops one")
@pytest.mark.only("mray")
def test_a_report_does_not_wait_for_an_actor_that_is_stopped(ray_session, actor, compiled):
    a, b = actor(), actor()
    pid = ray_session.get(a.pid.remote())
    with ray_session.dag.InputNode() as inp:
        graph = compiled(b.echo.bind(a.echo.bind(inp)))
    os.kill(pid, signal.SIGSTOP)
    try:
        ref = graph.execute(1)
        with pytest.raises(ray_session.exceptions.RayChannelTimeoutError, match="does not answer within 0.2 s") as caught:
            ref.get(timeout=0.2)
        assert "waits for echo() of Worker(" in str(caught.value)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert ref.get() == 1


@pytest.mark.only("mray", "local")
def test_a_poll_asks_nobody(ray_session, graph_of, tmp_path):
    graph = graph_of("wait_for")
    ref = graph.execute(str(tmp_path / "go"))
    with pytest.raises(ray_session.exceptions.RayChannelTimeoutError) as caught:
        ref.get(timeout=0)
    assert "the caller waits for execution 0" in str(caught.value)
    assert "computes" not in str(caught.value)
    (tmp_path / "go").touch()
    assert ref.get() == str(tmp_path / "go")


@pytest.mark.only("mray", "local")
def test_a_report_of_a_dead_or_ended_graph(ray_session, actor, compiled, eventually):
    a = actor()
    pid = ray_session.get(a.pid.remote())
    with ray_session.dag.InputNode() as inp:
        graph = compiled(a.echo.bind(inp))
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(ray_session.exceptions.ActorDiedError):
        graph.execute(1).get()
    assert "is dead" in graph.report()
    graph.teardown()
    assert "was torn down" in graph.report()


def test_a_slow_first_step_is_not_dead(ray_session, actor, compiled, monkeypatch):
    """There is no default limit of time; on Ray it is raised here."""
    monkeypatch.setattr(ray_session.dag.DAGContext.get_current(), "get_timeout", -1)
    a = actor()
    with ray_session.dag.InputNode() as inp:
        graph = compiled(a.sleep.bind(inp))
    assert ray_session.get(graph.execute(1.5)) == 1.5
    assert ray_session.get(graph.execute(0)) == 0


@pytest.mark.only("mray", "local")
def test_nothing_limits_the_time_of_a_method_unless_told(ray_session):
    assert ray_session.dag.DAGContext().get_timeout is None


# -------------------------------------------------------------------------------------------- threads
def _in_threads(count, work):
    failures = []

    def run(number):
        try:
            work(number)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


@pytest.mark.only("mray", "local")
@pytest.mark.parametrize("when_full", ["raise", "wait"])
def test_eight_threads_get_their_own_results(ray_session, actor, compiled, when_full):
    a, b = actor(), actor()
    with ray_session.dag.InputNode() as inp:
        graph = compiled(b.add_one.bind(a.add_one.bind(inp)), _max_inflight_executions=8 * 4, _when_full=when_full)

    def work(number):
        for turn in range(0, 200, 4):
            values = [1_000_000 * number + turn + each for each in range(4)]
            refs = [graph.execute(value) for value in values]
            if turn % 3:
                refs.reverse()
                values.reverse()
            if turn % 5 == 0:
                del refs[1], values[1]
            assert [ref.get() for ref in refs] == [value + 2 for value in values]

    _in_threads(8, work)
    assert graph._result_buffer == {}


@pytest.mark.only("mray", "local")
def test_eight_threads_that_wait_for_room(ray_session, graph_of):
    graph = graph_of("echo", _max_inflight_executions=2, _max_buffered_results=3, _when_full="wait")

    def work(number):
        for turn in range(100):
            assert graph.execute((number, turn)).get() == (number, turn)

    _in_threads(8, work)


@pytest.mark.only("mray", "local")
def test_eight_threads_and_several_outputs(ray_session, actor, compiled):
    a, b = actor(), actor()
    with ray_session.dag.InputNode() as inp:
        graph = compiled(ray_session.dag.MultiOutputNode([a.echo.bind(inp), b.add_one.bind(inp)]), _max_inflight_executions=8)

    def work(number):
        for turn in range(100):
            value = 1000 * number + turn
            assert ray_session.get(graph.execute(value)) == [value, value + 1]

    _in_threads(8, work)


# ---------------------------------------------------------------------------------- another process
@pytest.mark.differs("Ray cannot pickle a compiled graph")
def test_a_graph_is_executed_in_a_process_that_it_was_handed_to(engine, ray_session, graph_of, user):
    graph = graph_of("add_one")
    if engine == "ray":
        with pytest.raises(TypeError):
            user().run.remote(graph, [1])
        return
    u = user()
    assert ray_session.get(u.run.remote(graph, range(20))) == list(range(1, 21))
    assert ray_session.get(u.run_at_once.remote(graph, range(10))) == list(range(1, 11))
    assert ray_session.get(graph.execute(1)) == 2


@pytest.mark.only("mray", "local")
def test_a_task_executes_a_graph_with_large_values_and_refs(ray_session, graph_of):
    ray = ray_session
    graph = graph_of("echo")

    @ray.remote(num_cpus=0)
    def task(graph):
        array = np.arange(500_000)
        result = graph.execute(array).get()
        refs = [ray.put("inside"), ray.put(np.ones(200_000))]
        back = graph.execute({"refs": refs}).get()["refs"]
        return bool((result == array).all()), ray.get(back[0]), float(ray.get(back[1]).sum())

    assert ray.get(task.remote(graph)) == (True, "inside", 200_000.0)


@pytest.mark.only("mray", "local")
def test_several_processes_and_the_owner_share_a_graph(ray_session, graph_of, user):
    graph = graph_of("add_one", _max_inflight_executions=4)
    users = [user() for _ in range(3)]
    pending = [each.run.remote(graph, range(1000 * number, 1000 * number + 100)) for number, each in enumerate(users)]
    assert [graph.execute(number).get() for number in range(50)] == list(range(1, 51))
    assert ray_session.get(pending) == [list(range(1000 * n + 1, 1000 * n + 101)) for n in range(3)]


@pytest.mark.only("mray", "local")
def test_errors_and_outputs_of_a_graph_in_another_process(ray_session, actor, compiled, graph_of, user):
    ray = ray_session
    u = user()
    with pytest.raises(ValueError, match="cannot take 1"):
        ray.get(u.run.remote(graph_of("fail"), [1]))
    a, b = actor(), actor()
    with ray.dag.InputNode() as inp:
        graph = compiled(ray.dag.MultiOutputNode([a.echo.bind(inp), b.add_one.bind(inp)]))
    assert ray.get(u.run_several.remote(graph, 1)) == [1, 2]
    with ray.dag.InputNode() as inp:
        two = compiled(a.add.bind(inp[0], inp[1]))
    with pytest.raises(ValueError, match="must be called with 2 positional args, got 1"):
        ray.get(u.run.remote(two, [1]))


@pytest.mark.only("mray", "local")
def test_a_graph_for_asyncio_in_another_process(ray_session, graph_of, user):
    graph = graph_of("add_one", enable_asyncio=True)
    u = user()
    assert ray_session.get(u.run_async.remote(graph, range(8))) == list(range(1, 9))
    with pytest.raises(ValueError, match="Use execute_async if enable_asyncio=True"):
        ray_session.get(u.run.remote(graph, [1]))


@pytest.mark.only("mray", "local")
def test_wait_and_limits_in_another_process(ray_session, graph_of, user, tmp_path):
    ray = ray_session
    u = user()
    assert ray.get(u.ready.remote(graph_of("echo"), 5)) == (2, 0, 5)
    slow = graph_of("wait_for", _max_inflight_executions=2)
    with pytest.raises(ray.exceptions.RayCgraphCapacityExceeded, match="can't have more than 2 in-flight executions"):
        ray.get(u.run_at_once.remote(slow, [str(tmp_path / "go")] * 3))
    (tmp_path / "go").touch()
    waits = graph_of("echo", _max_inflight_executions=2, _when_full="wait")
    assert ray.get(u.run_at_once.remote(waits, range(30))) == list(range(30))


@pytest.mark.only("mray", "local")
def test_a_time_out_in_another_process_says_who_waits_for_whom(ray_session, graph_of, user, tmp_path):
    graph = graph_of("wait_for")
    u = user()
    with pytest.raises(ray_session.exceptions.RayChannelTimeoutError, match=r"computes wait_for\(\)"):
        ray_session.get(u.run.remote(graph, [str(tmp_path / "go")], 0.3))
    (tmp_path / "go").touch()


@pytest.mark.only("mray", "local")
def test_results_that_another_process_drops_are_freed(ray_session, graph_of, user):
    graph = graph_of("echo")
    assert ray_session.get(user().drop.remote(graph, 9)) == (b"last", 0)


@pytest.mark.only("mray", "local")
def test_a_process_stops_using_a_graph_without_ending_it(ray_session, graph_of, user):
    graph = graph_of("echo")
    assert ray_session.get(user().close.remote(graph)) == (True, "System error: Channel closed.")
    assert graph.execute(1).get() == 1


@pytest.mark.only("mray", "local")
def test_a_graph_that_comes_back_is_the_graph(ray_session, graph_of, user):
    graph = graph_of("echo")
    assert ray_session.get(user().give_back.remote(graph))[0] is graph
    assert pickle.loads(pickle.dumps(graph)) is graph


@pytest.mark.only("mray", "local")
def test_a_graph_that_was_torn_down_is_closed_everywhere(ray_session, graph_of, user):
    graph = graph_of("echo")
    u = user()
    assert ray_session.get(u.run.remote(graph, [1])) == [1]
    graph.teardown()
    with pytest.raises(ray_session.exceptions.RayChannelError, match="Channel closed"):
        ray_session.get(u.run.remote(graph, [1]))


@pytest.mark.only("mray", "local")
def test_teardown_ends_the_waits_of_other_processes(ray_session, graph_of, user, eventually, computes, tmp_path):
    graph = graph_of("wait_for")
    u = user()
    ray_session.get(u.hold.remote(graph))
    pending = u.wait_in_vain.remote(str(tmp_path / "go"))
    eventually(lambda: computes(graph))
    threading.Timer(0.2, (tmp_path / "go").touch).start()
    graph.teardown()
    with pytest.raises(ray_session.exceptions.RayChannelError, match="Channel closed"):
        ray_session.get(pending)


@pytest.mark.only("mray", "local")
def test_the_death_of_an_actor_is_told_in_other_processes(ray_session, actor, compiled, user, eventually, computes, tmp_path):
    ray = ray_session
    a, u = actor(), user()
    pid = ray.get(a.pid.remote())
    with ray.dag.InputNode() as inp:
        graph = compiled(a.wait_for.bind(inp))
    ray.get(u.hold.remote(graph))
    pending = u.wait_in_vain.remote(str(tmp_path / "never"))
    eventually(lambda: computes(graph))
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(ray.exceptions.ActorDiedError):
        ray.get(pending)


@pytest.mark.only("mray", "local")
def test_a_failed_operation_that_actors_share_ends_a_graph_that_no_other_process_executes(engine, ray_session, actor, compiled, user):
    ray = ray_session
    actors = [actor(), actor()]
    group = importlib.import_module(f"{engine}.experimental.channel.cpu_communicator").CPUCommunicator(2, actors)
    with ray.dag.InputNode() as inp:
        made = actors[0].echo.bind(inp).with_tensor_transport(transport=group, _direct_return=True)
        graph = compiled(actors[1].echo.bind(made))
    with pytest.raises(NotImplementedError, match="travels by communicator. Execute it in the process that compiled it"):
        ray.get(user().run.remote(graph, ["no tensor"]))
    with pytest.raises(ValueError, match="must return a torch.Tensor"):
        graph.execute("no tensor").get()
    with pytest.raises(ray.exceptions.RayChannelError, match="Channel closed"):
        graph.execute(1)


@pytest.mark.only("mray", "local")
def test_the_death_of_the_owner_is_told(ray_session, actor, user, eventually, computes, tmp_path):
    ray = ray_session

    @ray.remote(num_cpus=0)
    class Owner:
        def compile(self, worker):
            with ray.dag.InputNode() as inp:
                self.graph = worker.wait_for.bind(inp).experimental_compile()
            return self.graph

    owner, u, a = Owner.remote(), user(), actor()
    graph = ray.get(owner.compile.remote(a))
    (tmp_path / "there").touch()
    assert graph.execute(str(tmp_path / "there")).get() == str(tmp_path / "there")
    ray.get(u.hold.remote(graph))
    mine = graph.execute(str(tmp_path / "never"))
    pending = u.wait_in_vain.remote(str(tmp_path / "never"))
    eventually(lambda: computes(graph, 2))
    ray.kill(owner)
    for wait in (mine.get, lambda: ray.get(pending), lambda: graph.execute("x").get()):
        with pytest.raises(ray.exceptions.RayChannelError, match="that compiled the graph .* has died"):
            wait()
    (tmp_path / "never").touch()


@pytest.mark.only("mray", "local")
def test_an_actor_of_the_graph_is_handed_the_graph(ray_session, user, compiled):
    """Its main thread runs its part of the graph while it waits for the whole."""
    ray = ray_session
    u = user()
    with ray.dag.InputNode() as inp:
        graph = compiled(u.twice.bind(inp))
    assert ray.get(u.run.remote(graph, range(10))) == [2 * number for number in range(10)]


# -------------------------------------------------------------------------------- memory of one's own
@pytest.mark.only("mray", "local")
def test_get_receives_into_an_array(graph_of, ray_session):
    graph = graph_of("make")
    out = np.zeros(200_000, dtype=np.int64)
    for _ in range(5):
        out[:] = 0
        assert graph.execute(200_000).get(out=out) is out
        assert (out == 7).all()
    (channel,) = [counters for name, counters in graph.statistics()["channels"].items() if name.startswith("make()")]
    assert channel["in_use"] == 0
    assert channel["slots"] == 1
    strided = np.zeros((100, 2), dtype=np.int64)
    assert (graph.execute(100).get(60, out=strided[:, 1]) == 7).all()
    assert strided.sum() == 700


@pytest.mark.only("mray", "local")
def test_get_receives_into_a_tensor(graph_of):
    torch = pytest.importorskip("torch")
    graph = graph_of("make_tensor")
    out = torch.zeros(100_000)
    assert graph.execute(100_000).get(out=out) is out
    assert bool((out == 3).all())
    with pytest.raises(ValueError, match="dtype"):
        graph.execute(100_000).get(out=torch.zeros(100_000, dtype=torch.int32))


@pytest.mark.only("mray", "local")
def test_what_does_not_fit_is_refused_and_not_lost(graph_of):
    graph = graph_of("make")
    ref = graph.execute(3)
    frozen = np.zeros(3, dtype=np.int64)
    frozen.flags.writeable = False
    for out, match in [
        (np.zeros(4, dtype=np.int64), "shape"),
        (np.zeros(3, dtype=np.int32), "dtype"),
        (frozen, "read-only"),
        ([0, 0, 0], "must be a numpy array or a torch tensor"),
    ]:
        with pytest.raises(ValueError, match=match):
            ref.get(out=out)
    assert (ref.get(out=np.zeros(3, dtype=np.int64)) == 7).all()
    with pytest.raises(ValueError, match="can only be called once"):
        ref.get()
    echo = graph_of("echo")
    with pytest.raises(ValueError, match="is of <class 'int'>"):
        echo.execute(1).get(out=np.zeros(1))


# --------------------------------------------------------------------------------- results kept for long
@pytest.mark.only("mray", "local")
def test_results_that_are_kept_neither_block_nor_change(graph_of):
    graph = graph_of("echo", _max_inflight_executions=2)
    size = 50_000
    kept = []
    for number in range(40):
        result = graph.execute(np.full(size, number)).get()
        if number % 2 == 0:
            kept.append((number, result))
    for number, result in kept:
        assert (result == number).all()
    total = sum(counters["given_away"] + counters["in_use"] for counters in graph.statistics()["channels"].values())
    assert total >= len(kept)
    del kept, result
    gc.collect()
    graph.execute(np.zeros(size)).get()
    for counters in graph.statistics()["channels"].values():
        assert counters["slots"] <= 10
        assert counters["in_use"] <= counters["slots"]


@pytest.mark.only("mray", "local")
def test_statistics_tell_what_has_been_done(graph_of):
    graph = graph_of("echo")
    refs = [graph.execute(number) for number in range(3)]
    assert refs[2].get() == 2
    statistics = graph.statistics()
    assert (statistics["submitted"], statistics["finished"], statistics["kept"]) == (3, 3, 2)
    assert [counters["written"] for counters in statistics["channels"].values()] == [3, 3]
    assert next(iter(statistics["channels"])) == "the input from the caller"


def test_the_schedule_is_by_actor_handle(ray_session, actor, compiled):
    a, b = actor(), actor()
    with ray_session.dag.InputNode() as inp:
        graph = compiled(b.echo.bind(a.echo.bind(inp)))
    schedule = graph.actor_to_execution_schedule
    assert set(schedule) == {a, b}
    assert [len(operations) for operations in schedule.values()] == [3, 3]
