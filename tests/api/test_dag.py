"""Graphs as users write them: binding, looking, executing as ordinary calls."""

from __future__ import annotations

import pickle
import warnings

import pytest


@pytest.fixture
def things(ray_session):
    """Functions and a class to bind."""
    ray = ray_session

    @ray.remote
    def add(left, right=10):
        return left + right

    @ray.remote
    def total(values):
        return sum(ray.get(list(values)))

    @ray.remote
    class Counter:
        def __init__(self, start=0):
            self.value = start

        def increase(self, by):
            self.value += by
            return self.value

        def get(self):
            return self.value

        @ray.method(num_returns=2)
        def pair(self, value):
            return value, -value

    class Things:
        pass

    found = Things()
    found.add, found.total, found.Counter = add, total, Counter
    return found


def execute(ray, dag, *args, **kwargs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray deprecates it
        return dag.execute(*args, **kwargs)


def test_functions(ray_session, things):
    ray = ray_session
    dag = things.add.bind(things.add.bind(1, 2), things.add.bind(3, right=4))
    assert ray.get(execute(ray, dag)) == 10


def test_a_node_that_is_used_twice_is_executed_once(ray_session, things):
    ray = ray_session
    counter = things.Counter.remote()
    once = counter.increase.bind(1)
    assert ray.get(execute(ray, things.add.bind(once, once))) == 2
    assert ray.get(counter.get.remote()) == 1


def test_options_are_kept(ray_session, things):
    ray = ray_session
    node = things.add.options(name="other", num_cpus=0.5).bind(1, 2)
    assert node.get_options()["name"] == "other"
    assert ray.get(execute(ray, node)) == 3


def test_actors_made_by_the_graph_run_their_methods_in_the_order_of_binding(ray_session, things):
    ray = ray_session
    counter = things.Counter.bind(5)
    counter.increase.bind(10)
    counter.increase.bind(100)
    assert ray.get(execute(ray, counter.get.bind())) == 115


def test_existing_actors(ray_session, things):
    ray = ray_session
    counter = things.Counter.remote(1)
    with ray.dag.InputNode() as inp:
        dag = counter.increase.bind(inp)
    assert ray.get(execute(ray, dag, 2)) == 3
    assert ray.get(execute(ray, dag, 3)) == 6


def test_several_returns(ray_session, things):
    ray = ray_session
    counter = things.Counter.remote()
    with ray.dag.InputNode() as inp:
        plus, minus = counter.pair.bind(inp)
    assert ray.get(execute(ray, things.add.bind(plus, minus), 4)) == 0


def test_inputs_by_position_name_and_key(ray_session, things):
    ray = ray_session
    with ray.dag.InputNode() as inp:
        dag = things.add.bind(inp[0], inp.x)
    assert ray.get(execute(ray, dag, 1, x=2)) == 3
    with ray.dag.InputNode() as inp:
        by_index, by_key = things.add.bind(inp[0], inp[1]), things.add.bind(inp["a"], inp["b"])
        by_attribute = things.add.bind(inp.real, inp.imag)
    assert ray.get(execute(ray, by_index, [3, 4])) == 7
    assert ray.get(execute(ray, by_key, {"a": 5, "b": 6})) == 11
    assert ray.get(execute(ray, by_attribute, 3 + 4j)) == 7


def test_several_outputs(ray_session, things):
    ray = ray_session
    with ray.dag.InputNode() as inp:
        dag = ray.dag.MultiOutputNode([things.add.bind(inp, 1), things.add.bind(inp, 2)])
    assert ray.get(execute(ray, dag, 10)) == [11, 12]
    with pytest.raises(ValueError, match="Invalid input type for `args`"):
        ray.dag.MultiOutputNode(1)


def test_nodes_in_containers(ray_session, things):
    ray = ray_session
    dag = things.total.bind([things.add.bind(1, 2), things.add.bind(3, 4)])
    assert ray.get(execute(ray, dag)) == 10


def test_what_a_node_knows(ray_session, things):
    first = things.add.bind(1, 2)
    node = things.add.bind(first, right=3)
    assert list(node.get_args()) == [first]
    assert node.get_kwargs() == {"right": 3}
    assert node._get_all_child_nodes() == [first]
    assert node.get_stable_uuid() != first.get_stable_uuid()
    assert "FunctionNode" in str(node)
    counter = things.Counter.remote()
    call = counter.increase.bind(first)
    assert call.get_method_name() == "increase"
    assert call.is_class_method_call
    assert not call.is_class_method_output
    assert call.num_returns == 1
    assert call._get_bind_index() == 0
    assert counter.increase.bind(first)._get_bind_index() == 1
    plus, minus = counter.pair.bind(1)
    assert (plus.output_idx, minus.output_idx) == (0, 1)
    assert minus.is_class_method_output
    assert plus.class_method_call is minus.class_method_call
    assert plus.num_returns == 2


def test_nodes_are_equal_to_themselves_only(ray_session, things):
    one, other = things.add.bind(1, 2), things.add.bind(1, 2)
    assert one == one
    assert one != other
    assert len({one, other, one}) == 2


def test_apply_recursive_visits_each_node_once_arguments_first(ray_session, things):
    shared = things.add.bind(1, 1)
    root = things.add.bind(shared, things.add.bind(shared, 2))
    seen = []

    def visit(node):
        seen.append(list(node.get_args()))
        return len(seen)

    assert root.apply_recursive(visit) == 3
    assert seen == [[1, 1], [1, 2], [1, 2]]


def test_copies_keep_the_stable_id(ray_session, things):
    node = things.add.bind(things.add.bind(1, 1), 2)
    copies = []
    node.apply_recursive(lambda each: copies.append(each) or each)
    assert copies[-1].get_stable_uuid() == node.get_stable_uuid()


def test_the_scanner_finds_and_replaces(ray):
    scanner_module = __import__(f"{ray.__name__}.dag.py_obj_scanner", fromlist=["_PyObjScanner"])

    class Source:
        pass

    scanner = scanner_module._PyObjScanner(source_type=Source)
    found = scanner.find_nodes([Source(), [Source(), {"key": Source()}], 5])
    assert len(found) == 3
    assert scanner.replace_nodes(dict.fromkeys(found, 1)) == [1, [1, {"key": 1}], 5]
    scanner.clear()


# ---------------------------------------------------------------------------------------- what is refused
def test_input_nodes_take_no_arguments_and_want_their_with(ray_session, things):
    ray = ray_session
    with pytest.raises(ValueError, match="InputNode should not take any args or kwargs"):
        ray.dag.InputNode(0)
    dag = things.add.bind(ray.dag.InputNode(), 1)
    with pytest.raises(AssertionError, match="InputNode is a singleton instance that should be only used in context manager"):
        execute(ray, dag, 1)


def test_one_input_per_graph(ray_session, things):
    ray = ray_session
    with ray.dag.InputNode() as one, ray.dag.InputNode() as two:
        dag = things.add.bind(things.add.bind(one, 1), two)
    with pytest.raises(AssertionError, match="Each DAG should only have one unique InputNode"):
        execute(ray, dag, 1)


def test_constructors_do_not_take_the_input(ray_session, things):
    with (
        ray_session.dag.InputNode() as inp,
        pytest.raises(ValueError, match="InputNode handles user dynamic input the DAG, and cannot be used as"),
    ):
        things.Counter.bind(inp)


def test_bind_and_remote_are_not_for_nodes(ray_session, things):
    node = things.add.bind(1, 2)
    with pytest.raises(AttributeError, match=r"\.bind\(\) cannot be used again on"):
        node.bind()
    with pytest.raises(AttributeError, match=r"\.remote\(\) cannot be used on"):
        node.remote()
    counter = things.Counter.bind()
    with pytest.raises(AttributeError, match=r"\.bind\(\) cannot be used again on"):
        counter.bind()
    with pytest.raises(AttributeError, match="'Counter' has no attribute 'remote'"):
        counter.remote()
    with pytest.raises(AttributeError, match=r"\.remote\(\) cannot be used on ClassMethodNodes"):
        counter.get.remote()
    with pytest.raises(AttributeError, match="'Counter' has no attribute 'missing'"):
        _ = counter.missing


def test_actor_methods_check_their_signature_when_bound(ray_session, things):
    counter = things.Counter.remote()
    with pytest.raises(
        TypeError, match=r"The function `increase` has a signature `\(by\)`, but the given arguments to `bind` doesn't match"
    ):
        counter.increase.bind(1, 2)


def test_the_text_of_a_wrong_binding_has_the_parameters_only(ray_session):
    """Not what the method returns."""
    ray = ray_session

    @ray.remote
    class Annotated:
        def take(self, value: int, other: int = 3) -> int:
            return value

    with pytest.raises(TypeError) as caught:
        Annotated.remote().take.bind()
    assert str(caught.value) == (
        "missing a required argument: 'value'. The function `take` has a signature `(value: 'int', other: 'int' = 3)`, "
        "but the given arguments to `bind` doesn't match. args: (). kwargs: {}."
    )


def test_the_context_of_graphs(ray):
    context = ray.dag.DAGContext.get_current()
    assert context is ray.dag.DAGContext.get_current()
    assert context.max_inflight_executions == 10
    assert context.max_buffered_results == 1000
    assert context.buffer_size_bytes == 1_000_000
    assert context.submit_timeout == 10
    assert context.teardown_timeout == 30


@pytest.mark.only("mray", "local")
def test_nodes_travel(ray_session, things):
    node = things.add.bind(1, 2)
    assert pickle.loads(pickle.dumps(node.get_args())) == node.get_args()


@pytest.mark.differs("interpreted graphs keep the order of binding too")
def test_calls_of_one_actor_are_made_in_the_order_of_binding(ray_session):
    ray = ray_session

    @ray.remote
    class Log:
        def __init__(self):
            self.seen = []

        def note(self, word, *_after):
            self.seen.append(word)
            return word

        def all(self):
            return self.seen

    log, other = Log.remote(), Log.remote()
    with ray.dag.InputNode() as inp:
        first = log.note.bind(inp, 1)
        second = log.note.bind(other.note.bind("second"))
        third = log.note.bind("third", first)
        dag = ray.dag.MultiOutputNode([third, second, first])
    ray.get(execute(ray, dag, "first"))
    assert ray.get(log.all.remote()) == (["first", "third", "second"] if ray.__name__ == "ray" else ["first", "second", "third"])


@pytest.mark.differs("Ray refuses to execute the node that it has bound, because of the max_calls among its options")
def test_a_function_on_a_gpu_is_bound_with_its_max_calls(ray_session, engine):
    ray = ray_session
    node = ray.remote(num_gpus=1)(lambda: 7).bind()
    assert node.get_options() == {"num_gpus": 1, "max_calls": 1}
    assert ray.remote(lambda: 7).options(num_gpus=1).bind().get_options() == {"num_gpus": 1}
    if engine == "ray" and type(node).__module__.startswith("ray."):
        with pytest.raises(ValueError, match="max_calls"):
            node.execute()
        return
    assert ray.get(node.execute()) == 7
