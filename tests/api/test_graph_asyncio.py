"""Compiled graphs in event loops: futures, cancellation, many at once, limits, death, streams."""

from __future__ import annotations

import asyncio
import copy
import errno
import gc
import importlib
import logging
import os
import pickle
import select
import signal
import threading
import time

import pytest


@pytest.fixture
def actor(ray_session):
    """Makes an actor with the methods that the tests call."""
    ray = ray_session

    class Actor:
        def echo(self, value):
            return value

        def add_one(self, value):
            return value + 1

        def fail(self, value):
            raise ValueError(f"cannot take {value}")

        def sleep(self, value):
            time.sleep(value)
            return value

        def wait_for(self, path):
            while not os.path.exists(path):
                time.sleep(0.001)
            return path

        def pid(self):
            return os.getpid()

    return ray.remote(num_cpus=0)(Actor).remote


@pytest.fixture
def run():
    """Runs a coroutine in the event loop of the test; Ray's graphs are compiled for the current one."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield loop.run_until_complete
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.run_until_complete(asyncio.sleep(0))
    asyncio.set_event_loop(None)
    loop.close()


@pytest.fixture
def compiled(run):
    """Compiles for asyncio, and tears down at the end."""
    graphs = []

    def compile_graph(node, **options):
        graph = node.experimental_compile(enable_asyncio=True, **options)
        graphs.append(graph)
        return graph

    yield compile_graph
    for graph in graphs:
        graph.teardown()
    gc.collect()


@pytest.fixture
def echo(ray_session, actor, compiled):
    """A graph of one actor that echoes."""
    a = actor()
    with ray_session.dag.InputNode() as inp:
        graph = compiled(a.echo.bind(inp))
    graph.first_actor = a
    return graph


# ------------------------------------------------------------------------------------------ futures
def test_execute_async_gives_a_future_and_the_future_the_value(run, echo):
    async def main():
        for value in (1, b"bytes", "x" * 300_000, {"a": [1, 2]}):
            future = await echo.execute_async(value)
            assert type(future).__name__ == "CompiledDAGFuture"
            assert await future == value

    run(main())


def test_several_outputs_give_a_list_of_futures(run, ray_session, actor, compiled):
    a, b = actor(), actor()
    with ray_session.dag.InputNode() as inp:
        graph = compiled(ray_session.dag.MultiOutputNode([a.echo.bind(inp), b.add_one.bind(inp)]))

    async def main():
        futures = await graph.execute_async(1)
        assert isinstance(futures, list)
        assert await asyncio.gather(*futures) == [1, 2]
        first, second = await graph.execute_async(5)
        assert await second == 6
        assert await first == 5

    run(main())


@pytest.mark.only("mray", "local", reason="on Ray an output waits for the others of its execution")
def test_an_output_is_awaited_before_the_others_have_come(run, ray_session, actor, compiled, tmp_path):
    a, b, gate = actor(), actor(), tmp_path / "gate"
    with ray_session.dag.InputNode() as inp:
        graph = compiled(ray_session.dag.MultiOutputNode([a.wait_for.bind(inp), b.echo.bind(inp)]))

    async def main():
        first, second = await graph.execute_async(str(gate)), await graph.execute_async(str(gate))
        assert [await second[1], await first[1]] == [str(gate)] * 2
        slow = asyncio.ensure_future(wait_for(second[0]))
        await asyncio.sleep(0.05)
        assert not slow.done()
        gate.touch()
        assert [await first[0], await slow] == [str(gate)] * 2

    async def wait_for(future):
        return await future

    run(main())


def test_a_future_says_which_execution_it_is(run, echo):
    async def main():
        future = await echo.execute_async(1)
        assert str(future) == f"CompiledDAGFuture({echo.get_id()}, execution_index=0, channel_index=None)"
        await future

    run(main())


def test_a_future_is_awaited_once(run, echo):
    async def main():
        future = await echo.execute_async(1)
        assert await future == 1
        with pytest.raises(ValueError, match="CompiledDAGFuture can only be awaited upon once, and it has already been awaited upon."):
            await future

    run(main())


def test_a_future_is_neither_copied_nor_pickled(run, echo):
    async def main():
        future = await echo.execute_async(1)
        with pytest.raises(ValueError, match="CompiledDAGFuture cannot be copied."):
            copy.copy(future)
        with pytest.raises(ValueError, match="CompiledDAGFuture cannot be deep copied."):
            copy.deepcopy(future)
        with pytest.raises(ValueError, match="CompiledDAGFuture cannot be pickled."):
            pickle.dumps(future)
        assert await future == 1

    run(main())


def test_a_future_is_not_for_get_or_wait_or_tasks(run, ray_session, echo):
    ray = ray_session

    @ray.remote(num_cpus=0)
    def task(value):
        return value

    async def main():
        future = await echo.execute_async(1)
        with pytest.raises(ValueError, match="Invalid type of object refs"):
            ray.get(future)
        with pytest.raises(TypeError, match="wait\\(\\) expected a list of ray.ObjectRef"):
            ray.wait([future])
        with pytest.raises((TypeError, ValueError)):
            task.remote(future)
        assert await future == 1

    run(main())


def test_execute_is_for_graphs_without_asyncio_and_execute_async_for_those_with(run, ray_session, actor, echo):
    a = actor()
    with ray_session.dag.InputNode() as inp:
        plain = a.echo.bind(inp).experimental_compile()

    async def main():
        with pytest.raises(ValueError, match="Use execute if enable_asyncio=False"):
            await plain.execute_async(1)

    run(main())
    with pytest.raises(ValueError, match="Use execute_async if enable_asyncio=True"):
        echo.execute(1)
    plain.teardown()


def test_arguments_are_checked(run, echo):
    async def main():
        with pytest.raises(ValueError, match=r"dag.execute\(\) or dag.execute_async\(\) must be called with 1 positional args, got 2"):
            await echo.execute_async(1, 2)

    run(main())


def test_an_exception_is_raised_at_await_and_the_graph_goes_on(run, ray_session, actor, compiled):
    a = actor()
    with ray_session.dag.InputNode() as inp:
        graph = compiled(a.fail.bind(inp))

    async def main():
        for value in (1, 2):
            future = await graph.execute_async(value)
            with pytest.raises(ValueError, match=f"cannot take {value}") as caught:
                await future
            assert isinstance(caught.value, ray_session.exceptions.RayTaskError)

    run(main())


# ---------------------------------------------------------------------------------------- many at once
def test_gather_gives_results_in_its_own_order(run, echo):
    async def main():
        futures = [await echo.execute_async(number) for number in range(8)]
        assert await asyncio.gather(*reversed(futures)) == list(reversed(range(8)))

    run(main())


@pytest.mark.differs("Ray's coroutines wait for each other's results in the order of execution; these for their own alone")
def test_many_coroutines_get_their_own_results(run, engine, ray_session, actor, compiled):
    a, b = actor(), actor()
    with ray_session.dag.InputNode() as inp:
        graph = compiled(b.add_one.bind(a.add_one.bind(inp)), _max_inflight_executions=10)

    async def user(number, times):
        for turn in range(times):
            assert await (await graph.execute_async(1000 * number + turn)) == 1000 * number + turn + 2
        return number

    async def main():
        users = 8 if engine == "mray" else 1
        assert await asyncio.gather(*(user(number, 20) for number in range(users))) == list(range(users))

    run(main())


@pytest.mark.only("mray", "local")
def test_other_coroutines_run_while_one_waits(run, actor, ray_session, compiled, tmp_path):
    a = actor()
    with ray_session.dag.InputNode() as inp:
        graph = compiled(a.wait_for.bind(inp))

    async def main():
        future = await graph.execute_async(str(tmp_path / "go"))
        waiting = asyncio.ensure_future(future)
        await asyncio.sleep(0)
        assert not waiting.done()
        (tmp_path / "go").touch()
        assert await waiting == str(tmp_path / "go")

    run(main())


@pytest.mark.only("mray", "local")
def test_a_coroutine_that_never_waits_lets_others_run(run, echo):
    async def main():
        stop = False

        async def stopper():
            nonlocal stop
            for _ in range(10):
                await asyncio.sleep(0)
            stop = True

        task = asyncio.ensure_future(stopper())
        while not stop:
            assert await (await echo.execute_async(1)) == 1
        await task

    run(main())


@pytest.mark.only("mray", "local")
def test_several_event_loops_in_several_threads_use_one_graph(echo):
    failures = []

    async def main(base):
        for number in range(100):
            value = base + number
            if await (await echo.execute_async(value)) != value:
                failures.append(value)

    def run(base):
        try:
            asyncio.run(main(base))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(1000 * number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


@pytest.mark.only("mray", "local")
def test_a_future_is_awaited_in_another_event_loop(echo):
    async def submit():
        return await echo.execute_async(5)

    async def fetch(future):
        return await future

    future = asyncio.run(submit())
    assert asyncio.run(fetch(future)) == 5


@pytest.mark.only("mray", "local")
def test_several_graphs_are_awaited_at_once(run, ray_session, actor, compiled):
    graphs = []
    for _ in range(3):
        a = actor()
        with ray_session.dag.InputNode() as inp:
            graphs.append(compiled(a.echo.bind(inp)))

    async def user(graph, base):
        return [await (await graph.execute_async(base + number)) for number in range(30)]

    async def main():
        lists = await asyncio.gather(*(user(graph, 100 * number) for number, graph in enumerate(graphs)))
        assert lists == [[100 * number + turn for turn in range(30)] for number in range(3)]

    run(main())


@pytest.mark.only("mray", "local")
def test_a_result_that_another_thread_has_read_reaches_the_coroutine(ray_session, actor, compiled):
    """Two loops: the one that awaits the later execution reads the earlier one's result too."""
    a = actor()
    with ray_session.dag.InputNode() as inp:
        graph = compiled(a.sleep.bind(inp))

    async def submit():
        return [await graph.execute_async(0.05) for _ in range(2)]

    async def fetch(future):
        return await future

    early, late = asyncio.run(submit())
    got = []
    thread = threading.Thread(target=lambda: got.append(asyncio.run(fetch(late))))
    thread.start()
    assert asyncio.run(fetch(early)) == 0.05
    thread.join()
    assert got == [0.05]


@pytest.mark.only("mray", "local")
def test_coroutines_and_threads_share_a_process(run, ray_session, actor, echo):
    """Threads that wait for other graphs and tasks read, and stop reading, while the loop waits."""
    a = actor()
    with ray_session.dag.InputNode() as inp:
        plain = a.echo.bind(inp).experimental_compile()
    stop = threading.Event()
    failures = []

    def work():
        try:
            number = 0
            while not stop.is_set():
                number += 1
                assert plain.execute(number).get() == number
                assert ray_session.get(a.echo.remote(number)) == number
        except BaseException as error:
            failures.append(error)

    async def main():
        for number in range(300):
            assert await (await echo.execute_async(number)) == number

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        run(main())
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        plain.teardown()
    assert failures == []


# ---------------------------------------------------------------------------------------- cancellation
@pytest.mark.only("mray", "local")
def test_wait_for_that_times_out_loses_nothing(run, ray_session, actor, compiled, tmp_path):
    a = actor()
    with ray_session.dag.InputNode() as inp:
        graph = compiled(a.wait_for.bind(inp))

    async def main():
        path = str(tmp_path / "go")
        future = await graph.execute_async(path)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(future, 0.01)
        (tmp_path / "go").touch()
        assert await future == path
        assert await (await graph.execute_async(path)) == path

    run(main())


@pytest.mark.only("mray", "local")
def test_a_cancelled_wait_leaves_the_future_and_the_others_alone(run, ray_session, actor, compiled, tmp_path):
    a = actor()
    with ray_session.dag.InputNode() as inp:
        graph = compiled(a.wait_for.bind(inp))

    async def main():
        path = str(tmp_path / "go")
        futures = [await graph.execute_async(path) for _ in range(3)]
        tasks = [asyncio.ensure_future(future) for future in futures]
        await asyncio.sleep(0)
        tasks[1].cancel()
        with pytest.raises(asyncio.CancelledError):
            await tasks[1]
        (tmp_path / "go").touch()
        assert [await tasks[0], await tasks[2], await futures[1]] == [path] * 3

    run(main())


@pytest.mark.only("mray", "local")
def test_two_coroutines_cannot_await_one_future(run, ray_session, actor, compiled, tmp_path):
    a = actor()
    with ray_session.dag.InputNode() as inp:
        graph = compiled(a.wait_for.bind(inp))

    async def main():
        future = await graph.execute_async(str(tmp_path / "go"))
        task = asyncio.ensure_future(future)
        await asyncio.sleep(0)
        with pytest.raises(ValueError, match="can only be awaited upon once"):
            await future
        (tmp_path / "go").touch()
        assert await task == str(tmp_path / "go")

    run(main())


@pytest.mark.differs("Ray's graph for asyncio breaks")
def test_futures_that_are_dropped_free_their_results(engine, run, echo):
    if engine == "ray":
        return

    async def main():
        for number in range(50):
            future = await echo.execute_async(number)
            if number % 3 == 0:
                assert await future == number
            del future

    run(main())
    assert echo._result_buffer == {}


@pytest.mark.only("mray", "local")
def test_execute_async_that_waits_for_long_says_so_in_the_log(run, engine, ray_session, actor, compiled, monkeypatch, caplog, tmp_path):
    monkeypatch.setattr(importlib.import_module(f"{engine}._graph.caller.future"), "PATIENCE", 0.05)
    caplog.set_level(logging.WARNING, logger=engine)
    a = actor()
    with ray_session.dag.InputNode() as inp:
        graph = compiled(a.wait_for.bind(inp), _max_inflight_executions=1, _when_full="wait")

    async def main():
        first = await graph.execute_async(str(tmp_path / "go"))
        second = asyncio.ensure_future(graph.execute_async(str(tmp_path / "go")))
        while "execute() has waited" not in caplog.text:
            await asyncio.sleep(0.005)
        (tmp_path / "go").touch()
        assert await first == await (await second) == str(tmp_path / "go")

    run(main())
    assert caplog.text.count("execute() has waited") == 1


@pytest.mark.only("mray", "local")
def test_a_session_ends_and_begins_in_one_event_loop(fresh, init, run):
    async def use(graph):
        return [await (await graph.execute_async(number)) for number in range(200)]

    for _ in range(2):
        init(num_cpus=1)

        @fresh.remote(num_cpus=0)
        class Echo:
            def echo(self, value):
                return value

        a = Echo.remote()
        with fresh.dag.InputNode() as inp:
            graph = a.echo.bind(inp).experimental_compile(enable_asyncio=True)
        assert run(use(graph)) == list(range(200))
        fresh.shutdown()


@pytest.mark.only("mray", "local")
def test_a_loop_that_ends_in_the_middle_leaves_the_graph_usable(ray_session, actor, compiled, tmp_path):
    a = actor()
    with ray_session.dag.InputNode() as inp:
        graph = compiled(a.wait_for.bind(inp))
    path = str(tmp_path / "go")

    async def leave():
        future = await graph.execute_async(path)
        waiting = asyncio.ensure_future(future)
        await asyncio.sleep(0)
        assert not waiting.done()

    async def use():
        return await (await graph.execute_async(path))

    asyncio.run(leave())
    (tmp_path / "go").touch()
    assert asyncio.run(use()) == path


@pytest.mark.differs("a graph of Ray's is for one event loop")
def test_a_loop_that_is_gone_leaves_no_descriptor(engine, ray_session, actor, compiled):
    if engine == "ray":
        return
    a = actor()
    with ray_session.dag.InputNode() as inp:
        graph = compiled(a.sleep.bind(inp))

    def polls():
        names = [os.path.realpath(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")]
        return sum(name.endswith("anon_inode:[eventpoll]") for name in names)

    async def use():
        return await (await graph.execute_async(0.01))

    before = polls()
    gc.disable()
    try:
        for _ in range(3):
            asyncio.run(use())
        assert polls() == before
    finally:
        gc.enable()


# -------------------------------------------------------------------------------------------- limits
def test_one_execution_too_many_is_refused(run, ray_session, actor, compiled, tmp_path):
    a, gate = actor(), tmp_path / "gate"
    with ray_session.dag.InputNode() as inp:
        graph = compiled(a.wait_for.bind(inp), _max_inflight_executions=2)

    async def main():
        futures = [await graph.execute_async(str(gate)) for _ in range(2)]
        with pytest.raises(ray_session.exceptions.RayCgraphCapacityExceeded, match="can't have more than 2 in-flight executions"):
            await graph.execute_async(str(gate))
        gate.touch()
        assert await asyncio.gather(*futures) == [str(gate)] * 2

    run(main())


@pytest.mark.only("mray", "local")
def test_execute_async_waits_for_room_when_asked_to(run, ray_session, actor, compiled):
    a = actor()
    with ray_session.dag.InputNode() as inp:
        graph = compiled(a.echo.bind(inp), _max_inflight_executions=2, _max_buffered_results=2, _when_full="wait")

    async def user(number):
        return await (await graph.execute_async(number))

    async def main():
        assert await asyncio.gather(*(user(number) for number in range(40))) == list(range(40))

    run(main())


@pytest.mark.only("mray", "local")
def test_execute_async_that_waits_in_vain_says_who_waits_for_whom(run, ray_session, actor, compiled, tmp_path):
    a = actor()
    with ray_session.dag.InputNode() as inp:
        graph = compiled(a.wait_for.bind(inp), _max_inflight_executions=1, _submit_timeout=0.2, _when_full="wait")

    async def main():
        future = await graph.execute_async(str(tmp_path / "go"))
        with pytest.raises(ray_session.exceptions.RayChannelTimeoutError, match=r"computes wait_for\(\)"):
            await graph.execute_async(1)
        (tmp_path / "go").touch()
        assert await future == str(tmp_path / "go")

    run(main())


# ------------------------------------------------------------------------------------------- streams
@pytest.mark.only("mray", "local")
def test_a_stream_gives_the_results_in_the_order_of_its_inputs(run, echo):
    async def numbers():
        for number in range(30):
            yield number
            await asyncio.sleep(0)

    async def main():
        assert [value async for value in echo.stream(range(30))] == list(range(30))
        assert [value async for value in echo.stream(numbers())] == list(range(30))

    run(main())


@pytest.mark.only("mray", "local")
def test_a_stream_is_left_in_the_middle(run, echo):
    async def main():
        async for value in echo.stream(range(1000)):
            if value == 5:
                break
        assert await (await echo.execute_async("after")) == "after"

    run(main())


@pytest.mark.only("mray", "local")
def test_streams_share_the_limit_of_their_graph(run, echo):
    async def main():
        async def total(start):
            return sum([value async for value in echo.stream(range(start, start + 50))])

        assert await asyncio.gather(*(total(start) for start in (0, 100, 200))) == [sum(range(s, s + 50)) for s in (0, 100, 200)]

    run(main())


@pytest.mark.only("mray", "local")
def test_a_stream_raises_what_a_method_raises(run, ray_session, actor, compiled):
    a = actor()
    with ray_session.dag.InputNode() as inp:
        graph = compiled(a.fail.bind(inp))

    async def main():
        with pytest.raises(ValueError, match="cannot take 0"):
            async for _ in graph.stream(range(3)):
                pytest.fail("there is no result")

    run(main())


# -------------------------------------------------------------------------------------------- endings
@pytest.mark.only("mray", "local")
def test_a_failed_operation_that_actors_share_ends_the_graph(run, engine, ray_session, actor, compiled):
    """The await raises it, once; other awaits and submissions are told that the graph has ended."""
    ray = ray_session
    actors = [actor(), actor()]
    group = importlib.import_module(f"{engine}.experimental.channel.cpu_communicator").CPUCommunicator(2, actors)
    with ray.dag.InputNode() as inp:
        made = actors[0].echo.bind(inp).with_tensor_transport(transport=group, _direct_return=True)
        graph = compiled(actors[1].echo.bind(made))

    async def main():
        first, second = await graph.execute_async("no tensor"), await graph.execute_async("no tensor")
        with pytest.raises(ValueError, match="must return a torch.Tensor"):
            await first
        with pytest.raises((ray.exceptions.RayChannelError, ValueError)):
            await second
        with pytest.raises(ray.exceptions.RayChannelError, match="Channel closed"):
            await graph.execute_async(1)

    run(main())
    assert ray.get([each.echo.remote(1) for each in actors]) == [1, 1]


@pytest.mark.only("mray", "local")
def test_an_await_ends_when_an_actor_dies(run, ray_session, actor, compiled, tmp_path):
    a = actor()
    pid = ray_session.get(a.pid.remote())
    with ray_session.dag.InputNode() as inp:
        graph = compiled(a.wait_for.bind(inp))

    async def main():
        future = await graph.execute_async(str(tmp_path / "never"))
        task = asyncio.ensure_future(future)
        await asyncio.sleep(0.01)
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(ray_session.exceptions.ActorDiedError):
            await task
        with pytest.raises(ray_session.exceptions.ActorDiedError):
            await graph.execute_async(1)

    run(main())


@pytest.mark.only("mray", "local")
def test_an_await_ends_with_teardown(run, ray_session, actor, compiled, tmp_path):
    a = actor()
    with ray_session.dag.InputNode() as inp:
        graph = compiled(a.wait_for.bind(inp))

    async def main():
        future = await graph.execute_async(str(tmp_path / "go"))
        task = asyncio.ensure_future(future)
        await asyncio.sleep(0)
        thread = threading.Thread(target=graph.teardown)
        thread.start()
        with pytest.raises(ray_session.exceptions.RayChannelError, match="Channel closed"):
            await task
        (tmp_path / "go").touch()
        await asyncio.get_running_loop().run_in_executor(None, thread.join)
        with pytest.raises(ray_session.exceptions.RayChannelError, match="Channel closed"):
            await graph.execute_async(1)

    run(main())


@pytest.mark.only("mray", "local")
def test_an_actor_awaits_a_graph_that_it_takes_part_in(ray_session, actor):
    ray = ray_session

    @ray.remote(num_cpus=0)
    class Driver:
        def echo(self, value):
            return value + 1

        def drive(self, other, me):
            with ray.dag.InputNode() as inp:
                graph = me.echo.bind(other.add_one.bind(me.echo.bind(inp))).experimental_compile(enable_asyncio=True)

            async def main():
                return [await (await graph.execute_async(number)) for number in range(20)]

            try:
                return asyncio.run(main())
            finally:
                graph.teardown()

    me = Driver.remote()
    assert ray.get(me.drive.remote(actor(), me)) == [number + 3 for number in range(20)]


@pytest.mark.only("mray")
def test_those_who_wait_are_told_that_the_loop_cannot(ray_session, actor, compiled, monkeypatch, tmp_path):
    """Also where that is found after it has looked for a while."""
    a, gate = actor(), tmp_path / "gate"
    with ray_session.dag.InputNode() as inp:
        graph = compiled(a.wait_for.bind(inp))

    def refuse(*_args):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    async def main():
        future = await graph.execute_async(str(gate))
        with monkeypatch.context() as patch:
            patch.setattr(select, "epoll", refuse)
            with pytest.raises(OSError, match="could not wait for the graph"):
                await asyncio.wait_for(future, 60)
        gate.touch()

    asyncio.run(main())


# ------------------------------------------------------------------------------------------ loops that end
@pytest.mark.only("mray", "local")
def test_an_execution_whose_loop_was_closed_disturbs_no_other_loop(ray_session, actor, compiled):
    a = actor()
    with ray_session.dag.InputNode() as inp:
        graph = compiled(a.sleep.bind(inp))

    async def ask(seconds):
        return await (await graph.execute_async(seconds))

    stopped, other = asyncio.new_event_loop(), asyncio.new_event_loop()
    told = []
    other.set_exception_handler(lambda _loop, context: told.append(context))
    task = stopped.create_task(ask(0.2))
    stopped.call_later(0.05, stopped.stop)
    stopped.run_forever()
    assert not task.done()
    stopped.close()
    assert [other.run_until_complete(asyncio.wait_for(ask(0.001), 30)) for _ in range(3)] == [0.001] * 3
    assert told == []
    other.close()
    task._log_destroy_pending = False
