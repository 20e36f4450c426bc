"""Values that travel through graphs that are executed as ordinary calls."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.filterwarnings("ignore:DAGNode.execute:DeprecationWarning")


@pytest.fixture
def add(ray):
    return ray.remote(lambda a, b=0: a + b)


@pytest.fixture
def adder(ray):
    class Adder:
        def __init__(self, base=0):
            self.base = base

        def add(self, x):
            self.base += x
            return self.base

        def read(self):
            return self.base

    return ray.remote(Adder)


def test_one_container_given_is_indexed_directly(ray_session, add):
    ray = ray_session
    with ray.dag.InputNode() as inp:
        by_index = add.bind(inp[0], inp[1])
    assert ray.get(by_index.execute([3, 4])) == 7
    with ray.dag.InputNode() as inp:
        by_key = add.bind(inp["a"], inp["b"])
    assert ray.get(by_key.execute({"a": 3, "b": 4})) == 7

    class Values:
        a, b = 5, 6

    with ray.dag.InputNode() as inp:
        by_attribute = add.bind(inp.a, inp.b)
    assert ray.get(by_attribute.execute(Values())) == 11


def test_positional_and_keyword_inputs_mix(ray_session, add):
    ray = ray_session
    with ray.dag.InputNode() as inp:
        dag = add.bind(inp[0], inp.key)
    assert ray.get(dag.execute(1, key=2)) == 3


def test_constructor_arguments_may_be_nodes(ray_session, adder, add):
    ray = ray_session
    actor = adder.bind(add.bind(1, 2))
    assert ray.get(actor.read.bind().execute()) == 3


def test_a_chain_over_existing_actors(ray_session, adder):
    ray = ray_session
    actors = [adder.remote(i) for i in range(3)]
    with ray.dag.InputNode() as inp:
        dag = inp
        for actor in actors:
            dag = actor.add.bind(dag)
    assert [ray.get(dag.execute(1)), ray.get(actors[2].read.remote())] == [4, 4]


def test_errors_of_a_graphs_function_reach_get(ray_session):
    ray = ray_session

    @ray.remote
    def fails(x):
        raise ValueError("in the graph")

    @ray.remote
    def after(x):
        return x

    with pytest.raises(ValueError, match="in the graph"):
        ray.get(after.bind(fails.bind(1)).execute())


def test_refs_may_be_bound(ray_session, add):
    ray = ray_session
    assert ray.get(add.bind(ray.put(1), b=ray.put(2)).execute()) == 3


def test_a_graph_may_be_executed_in_a_task(ray_session, add):
    ray = ray_session
    dag = add.bind(1, 2)

    @ray.remote
    def run():
        return ray.get(dag.execute())

    assert ray.get(run.remote()) == 3


def test_large_inputs_pass(ray_session):
    import numpy

    ray = ray_session

    @ray.remote
    def total(array):
        return int(array.sum())

    with ray.dag.InputNode() as inp:
        dag = total.bind(inp)
    assert ray.get(dag.execute(numpy.ones(500_000, dtype=numpy.int64))) == 500_000


def test_a_shared_node_runs_once_per_execution(ray_session, adder, add):
    ray = ray_session
    actor = adder.remote()
    shared = actor.add.bind(1)
    dag = add.bind(shared, b=shared)
    assert [ray.get(dag.execute()) for _ in range(3)] == [2, 4, 6]
