"""Graphs that Ray refuses to compile and its users ask for; where both can, both do."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass

import pytest


@dataclass
class Pair:
    left: object
    right: object


@pytest.fixture
def actor(ray_session):
    """Makes an actor with the methods that the tests call."""

    class Actor:
        def __init__(self):
            self.seen = []
            self.local = threading.local()
            self.local.value = "set in __init__"

        def echo(self, value=None):
            self.seen.append(value)
            return value

        def add(self, left, right):
            return left + right

        def weigh(self, first, second=1, *, factor=1):
            return first * factor + second

        def split(self, value):
            return value, value + 1

        def fail(self, value):
            raise ValueError(f"cannot take {value}")

        def log(self):
            return list(self.seen)

        def pid(self, value=None):
            return os.getpid()

        def thread_local(self, value):
            return self.local.value, threading.current_thread() is threading.main_thread()

        def until(self, path):
            while not os.path.exists(path):
                time.sleep(0.001)
            return path

    return ray_session.remote(Actor).remote


@pytest.fixture
def outcome(engine):
    """Compiles a graph that Ray refuses: `outcome(dag, error, text)`, which on Ray checks the refusal and returns None."""
    graphs = []

    def compile_or_check(dag, error, text):
        if engine == "ray":
            with pytest.raises(error, match=text):
                dag.experimental_compile()
            return None
        graphs.append(dag.experimental_compile())
        return graphs[-1]

    yield compile_or_check
    for graph in graphs:
        graph.teardown()


# ---------------------------------------------------------------------------------------------- functions
ONLY_METHODS = (NotImplementedError, "Compiled DAGs currently only support actor method nodes")


@pytest.mark.differs("plain functions run on workers that are leased for the graph")
def test_functions_run_in_a_graph(ray_session, actor, outcome):
    ray = ray_session
    offset = 100

    @ray.remote
    def double(value):
        return 2 * value

    @ray.remote
    def shift(value, by=offset):
        return value + by + offset - 100

    a = actor()
    with ray.dag.InputNode() as inp:
        graph = outcome(shift.bind(a.echo.bind(double.bind(inp)), by=1), *ONLY_METHODS)
    if graph:
        assert [ray.get(graph.execute(number)) for number in range(20)] == [2 * number + 1 for number in range(20)]


@pytest.mark.differs("plain functions run on workers that are leased for the graph")
def test_functions_do_not_run_in_the_driver_and_run_beside_each_other(ray_session, outcome):
    ray = ray_session

    @ray.remote
    def where(_value):
        return os.getpid()

    with ray.dag.InputNode() as inp:
        graph = outcome(ray.dag.MultiOutputNode([where.bind(inp), where.bind(inp)]), *ONLY_METHODS)
    if graph:
        pids = ray.get(graph.execute(0))
        assert os.getpid() not in pids
        assert len(set(pids)) == 2


@pytest.mark.differs("plain functions run on workers that are leased for the graph")
def test_a_failing_function_is_an_error_under_its_name(ray_session, outcome):
    ray = ray_session

    @ray.remote
    def divide(value):
        return 1 / value

    with ray.dag.InputNode() as inp:
        graph = outcome(divide.bind(inp), *ONLY_METHODS)
    if graph:
        with pytest.raises(ZeroDivisionError, match="divide"):
            ray.get(graph.execute(0))
        assert ray.get(graph.execute(4)) == 0.25


@pytest.mark.only("mray", "local")
def test_workers_of_functions_end_with_the_graph(ray_session, eventually):
    ray = ray_session

    @ray.remote
    def where(_value):
        return os.getpid()

    with ray.dag.InputNode() as inp:
        graph = where.bind(inp).experimental_compile()
    pid = ray.get(graph.execute(0))
    graph.teardown()
    eventually(lambda: not os.path.exists(f"/proc/{pid}"), what=f"the end of worker {pid}")


@pytest.mark.only("mray")
def test_workers_of_functions_end_when_a_graph_cannot_be_made(ray_session, actor, eventually):
    ray = ray_session
    free = ray.available_resources()["CPU"]
    dead = actor()
    ray.kill(dead)
    with ray.dag.InputNode() as inp:
        dag = dead.echo.bind(ray.remote(num_cpus=1)(lambda value: value).bind(inp))
    with pytest.raises(ray.exceptions.ActorDiedError) as caught:
        dag.experimental_compile()
    eventually(lambda: ray.available_resources().get("CPU", 0) == free)
    assert "ActorDiedError" in repr(caught.value), "who keeps the error keeps no worker"


@pytest.mark.only("mray", "local")
def test_the_death_of_a_functions_worker_is_told(ray_session):
    ray = ray_session

    @ray.remote
    def die(_value):
        os._exit(3)

    with ray.dag.InputNode() as inp:
        graph = die.bind(inp).experimental_compile()
    with pytest.raises(ray.exceptions.ActorDiedError, match="exit code 3"):
        ray.get(graph.execute(0))
    graph.teardown()


# ---------------------------------------------------------------------------------------------- arguments
@pytest.mark.differs("DAG nodes may be keyword arguments")
def test_dag_nodes_are_keyword_arguments(ray_session, actor, outcome):
    a, b = actor(), actor()
    with ray_session.dag.InputNode() as inp:
        dag = a.weigh.bind(inp, second=5, factor=b.echo.bind(inp))
    graph = outcome(dag, ValueError, "does not support binding to other DAG nodes as kwargs")
    if graph:
        assert ray_session.get(graph.execute(3)) == 14


@pytest.mark.differs("DAG nodes may be inside of containers")
def test_dag_nodes_are_found_in_containers(ray_session, actor, outcome):
    a, b = actor(), actor()
    with ray_session.dag.InputNode() as inp:
        other = b.echo.bind(inp)
        value = {"list": [inp, (other, "constant")], "pair": Pair(other, {"deep": [inp]}), "set": frozenset({1})}
        dag = a.echo.bind(value)
    graph = outcome(dag, ValueError, r"(?s)Found 2 DAGNodes from the arg .* in ")
    if graph:
        for number in range(3):
            wanted = {"list": [number, (number, "constant")], "pair": Pair(number, {"deep": [number]}), "set": frozenset({1})}
            assert ray_session.get(graph.execute(number)) == wanted


@pytest.mark.differs("DAG nodes may be inside of containers")
def test_each_execution_has_containers_of_its_own(ray_session, actor, outcome):
    a = actor()
    with ray_session.dag.InputNode() as inp:
        graph = outcome(a.echo.bind([inp, []]), ValueError, r"(?s)Found 1 DAGNodes from the arg .* in ")
    if graph:
        results = [ray_session.get(graph.execute(number)) for number in range(3)]
        assert results == [[0, []], [1, []], [2, []]]
        assert ray_session.get(a.log.remote()) == results


@pytest.mark.differs("an error inside of a container is passed on")
def test_an_error_in_a_container_skips_the_method(ray_session, actor, outcome):
    a, b = actor(), actor()
    with ray_session.dag.InputNode() as inp:
        graph = outcome(a.echo.bind([b.fail.bind(inp)]), ValueError, r"(?s)Found 1 DAGNodes from the arg .* in ")
    if graph:
        with pytest.raises(ValueError, match="cannot take 7"):
            ray_session.get(graph.execute(7))
        assert ray_session.get(a.log.remote()) == []


# -------------------------------------------------------------------------------------------------- input
@pytest.mark.differs("a graph needs no input")
def test_a_graph_without_input_runs_when_it_is_executed(ray_session, actor, outcome):
    a, b = actor(), actor()
    dag = b.add.bind(a.echo.bind(4), 1)
    graph = outcome(dag, ValueError, "No InputNode found in the DAG: when traversing upwards, no upstream node was found for")
    if graph:
        assert ray_session.get(graph.execute()) == 5
        assert [ray_session.get(ref) for ref in [graph.execute() for _ in range(5)]] == [5] * 5
        with pytest.raises(ValueError, match="must be called with 0 positional args, got 1"):
            graph.execute(1)


@pytest.mark.differs("a step needs no DAG node among its arguments")
def test_a_step_without_dag_node_runs_once_in_each_execution(ray_session, actor, outcome):
    a, b = actor(), actor()
    with ray_session.dag.InputNode() as inp:
        dag = ray_session.dag.MultiOutputNode([a.echo.bind(inp), b.echo.bind(1)])
    graph = outcome(dag, ValueError, "Compiled DAGs require each task to take")
    if graph:
        assert [ray_session.get(graph.execute(number)) for number in range(3)] == [[0, 1], [1, 1], [2, 1]]
        assert ray_session.get(b.log.remote()) == [1, 1, 1]


@pytest.mark.differs("the input may be used whole and in parts")
def test_the_input_is_used_whole_and_in_parts(ray_session, actor, outcome):
    a, b = actor(), actor()
    text = "All tasks must either use InputNode"
    with ray_session.dag.InputNode() as inp:
        graph = outcome(ray_session.dag.MultiOutputNode([a.echo.bind(inp), b.add.bind(inp[0], inp[1])]), ValueError, text)
    if graph:
        assert ray_session.get(graph.execute([1, 2])) == [[1, 2], 3]
        whole, total = ray_session.get(graph.execute(3, 4))
        assert (whole[0], whole[1], total) == (3, 4, 7)
        with pytest.raises(ValueError, match="must be called with 2 positional args, got 3"):
            graph.execute(1, 2, 3)


@pytest.mark.differs("the input may be used whole and in parts")
def test_attributes_and_keys_of_the_whole_input(ray_session, actor, outcome):
    a = actor()
    text = "All tasks must either use InputNode"
    with ray_session.dag.InputNode() as inp:
        graph = outcome(ray_session.dag.MultiOutputNode([a.echo.bind(inp), a.add.bind(inp.left, inp.right)]), ValueError, text)
    if graph:
        assert ray_session.get(graph.execute(Pair(1, 2))) == [Pair(1, 2), 3]
        assert ray_session.get(graph.execute(left=5, right=6))[1] == 11


@pytest.mark.differs("the input itself may be an output")
def test_the_input_is_passed_through(ray_session, actor, outcome):
    a = actor()
    with ray_session.dag.InputNode() as inp:
        graph = outcome(ray_session.dag.MultiOutputNode([inp, a.echo.bind(inp)]), AssertionError, "^$")
    if graph:
        assert ray_session.get(graph.execute("x")) == ["x", "x"]


# -------------------------------------------------------------------------------------------------- leaves
@pytest.mark.differs("nodes that nobody reads run too")
def test_nodes_without_a_consumer_run(ray_session, actor, outcome):
    a, b = actor(), actor()
    with ray_session.dag.InputNode() as inp:
        value = a.echo.bind(inp)
        b.echo.bind(value)
        graph = outcome(a.add.bind(value, 1), ValueError, "Compiled DAG doesn't support leaf nodes.*There are 1 leaf nodes in the DAG")
    if graph:
        assert [ray_session.get(graph.execute(number)) for number in range(4)] == [1, 2, 3, 4]
        assert ray_session.get(b.log.remote()) == [0, 1, 2, 3]


@pytest.mark.differs("nodes that nobody reads run too")
def test_the_error_of_a_node_without_a_consumer_is_raised(ray_session, actor, outcome):
    a, b = actor(), actor()
    with ray_session.dag.InputNode() as inp:
        value = a.echo.bind(inp)
        b.fail.bind(value)
        graph = outcome(a.add.bind(value, 1), ValueError, "leaf nodes")
    if graph:
        with pytest.raises(ValueError, match="cannot take 0"):
            ray_session.get(graph.execute(0))


@pytest.mark.differs("nodes that nobody reads run too")
def test_one_of_several_values_may_go_unread(ray_session, actor, outcome):
    a = actor()
    with ray_session.dag.InputNode() as inp:
        low, _high = a.split.options(num_returns=2).bind(inp)
        graph = outcome(low, ValueError, "leaf nodes")
    if graph:
        assert ray_session.get(graph.execute(1)) == 1


# ------------------------------------------------------------------------------------------------ failures
@pytest.mark.only("mray", "local")
def test_a_step_does_not_wait_for_slow_values_beside_a_failed_one(ray_session, actor, tmp_path):
    slow, failing, last = actor(), actor(), actor()
    path = tmp_path / "go"
    with ray_session.dag.InputNode() as inp:
        graph = last.add.bind(slow.until.bind(inp), failing.fail.bind(inp)).experimental_compile()
    for _ in range(3):
        with pytest.raises(ValueError, match="cannot take"):
            ray_session.get(graph.execute(str(path)))
    assert ray_session.get(last.log.remote()) == []
    path.touch()
    with pytest.raises(ValueError, match="cannot take"):
        ray_session.get(graph.execute(str(path)))
    graph.teardown()


# ------------------------------------------------------------------------------------------------ sharing
@pytest.mark.differs("one actor takes part in several graphs at once and answers calls in between")
def test_several_graphs_share_their_actors(ray_session, actor, engine):
    a, b = actor(), actor()
    dags = []
    for order in ([a, b], [b, a], [a, a]):
        with ray_session.dag.InputNode() as inp:
            dags.append(order[1].add.bind(order[0].echo.bind(inp), len(dags)))
    if engine == "ray":
        return
    graphs = [dag.experimental_compile() for dag in dags]
    for number in range(10):
        refs = [graph.execute(number) for graph in graphs]
        call = a.add.remote(number, 0.5)
        assert ray_session.get(list(reversed(refs))) == [number + 2, number + 1, number]
        assert ray_session.get(call) == number + 0.5
    for graph in graphs:
        graph.teardown()


@pytest.mark.differs("a DAG may be compiled again after teardown")
def test_a_dag_is_compiled_again_after_teardown(ray_session, actor):
    a, b = actor(), actor()
    with ray_session.dag.InputNode() as inp:
        dag = b.add.bind(a.echo.bind(inp), 1)
    first = dag.experimental_compile()
    assert ray_session.get(first.execute(1)) == 2
    first.teardown()
    if ray_session.__name__ == "ray":  # behind mray it is another DAG of Ray's each time
        with pytest.raises(ValueError, match="It is not allowed to call `experimental_compile` on the same DAG object multiple times"):
            dag.experimental_compile()
        return
    for _ in range(3):
        again = dag.experimental_compile()
        assert ray_session.get(again.execute(2)) == 3
        again.teardown()


@pytest.mark.processes("has one main thread for all")
@pytest.mark.differs("methods run on the actor's main thread")
def test_methods_run_on_the_main_thread(ray_session, actor, engine):
    a = actor()
    with ray_session.dag.InputNode() as inp:
        graph = a.thread_local.bind(inp).experimental_compile()
    if engine == "ray":
        with pytest.raises(AttributeError):
            ray_session.get(graph.execute(0))
    else:
        assert ray_session.get(graph.execute(0)) == ("set in __init__", True)
    graph.teardown()


# --------------------------------------------------------------------------------------------- async methods
@pytest.mark.only("mray", "local")
def test_async_methods_run_in_one_event_loop(ray_session):
    import asyncio

    class Actor:
        def __init__(self):
            self.loop = None

        async def wait(self, value):
            loop = asyncio.get_running_loop()
            assert self.loop in (None, loop)
            self.loop = loop
            await asyncio.sleep(0)
            return value + 1

        async def fail(self, value):
            await asyncio.sleep(0)
            raise KeyError(value)

        def plain(self, value):
            return value * 2

    ray = ray_session
    a = ray.remote(Actor).remote()
    with ray.dag.InputNode() as inp:
        graph = a.plain.bind(a.wait.bind(inp)).experimental_compile()
    assert [ray.get(graph.execute(number)) for number in range(5)] == [2, 4, 6, 8, 10]
    graph.teardown()
    with ray.dag.InputNode() as inp:
        graph = a.fail.bind(inp).experimental_compile()
    with pytest.raises(KeyError, match="5"):
        ray.get(graph.execute(5))
    graph.teardown()
    assert ray.get(a.wait.remote(1)) == 2  # an ordinary call, in the same loop
