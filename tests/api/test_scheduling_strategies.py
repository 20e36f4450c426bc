"""Scheduling strategies, labels and their selectors: one node satisfies them or does not."""

from __future__ import annotations

import importlib
import os

import pytest

ENGINE = "ray" if os.environ.get("MRAY_TEST_ENGINE") == "ray" else "mray"
strategies = importlib.import_module(f"{ENGINE}.util.scheduling_strategies")
groups = importlib.import_module(f"{ENGINE}.util.placement_group")
Node, Label = strategies.NodeAffinitySchedulingStrategy, strategies.NodeLabelSchedulingStrategy
In, NotIn, Exists, DoesNotExist = strategies.In, strategies.NotIn, strategies.Exists, strategies.DoesNotExist
ELSEWHERE = "ab" * 28


#: The node of the session has labels.
SESSION = {"labels": {"zone": "a", "disk": "ssd"}}


@pytest.fixture
def labelled(ray_session):
    return ray_session


@pytest.fixture
def run(labelled):
    """``run(**options)``: what a task with these options returns."""

    @labelled.remote
    def task():
        return "ran"

    return lambda timeout=30, **options: labelled.get(task.options(**options).remote(), timeout=timeout)


@pytest.fixture
def call(labelled):
    """``call(**options)``: what a method of an actor with these options returns."""

    @labelled.remote
    class Actor:
        def method(self):
            return "ran"

    return lambda timeout=30, **options: labelled.get(Actor.options(**options).remote().method.remote(), timeout=timeout)


def test_the_node_of_the_session_satisfies(labelled, run, call):
    here = labelled.get_runtime_context().get_node_id()
    assert labelled.nodes()[0]["NodeID"] == here
    for soft in (True, False):
        assert run(scheduling_strategy=Node(here, soft)) == "ran"
    assert call(scheduling_strategy=Node(here, False)) == "ran"
    assert run(scheduling_strategy=Node(ELSEWHERE, True)) == "ran"


def test_another_node_is_unschedulable(labelled, run, call):
    text = "doesn't exist any more or is infeasible, and soft=False was specified"
    with pytest.raises(labelled.exceptions.TaskUnschedulableError, match=text):
        run(scheduling_strategy=Node(ELSEWHERE, False))
    with pytest.raises(labelled.exceptions.ActorUnschedulableError, match=text):
        call(scheduling_strategy=Node(ELSEWHERE, False))


def test_a_full_node_is_not_waited_for_if_so_wished(labelled, run, call):
    ray = labelled
    at_once = Node(ray.get_runtime_context().get_node_id(), False, _fail_on_unavailable=True)
    assert run(scheduling_strategy=at_once, resources={"custom": 1}) == "ran"

    @ray.remote(resources={"custom": 1.5}, num_cpus=0)
    class Holder:
        def hold(self):
            return True

    holder = Holder.remote()
    assert ray.get(holder.hold.remote())
    with pytest.raises(ray.exceptions.TaskUnschedulableError, match="The node specified via NodeAffinitySchedulingStrategy"):
        run(scheduling_strategy=at_once, resources={"custom": 1})
    with pytest.raises(ray.exceptions.ActorUnschedulableError, match="The node specified via NodeAffinitySchedulingStrategy"):
        call(scheduling_strategy=at_once, resources={"custom": 1})
    assert run(scheduling_strategy=at_once, resources={"custom": 0.5}) == "ran"
    assert call(scheduling_strategy=at_once, resources={"custom": 0.5}) == "ran"
    waits = ray.remote(lambda: "ran").options(resources={"custom": 1}).remote()
    ray.kill(holder)
    assert ray.get(waits) == "ran"


@pytest.mark.parametrize("wrong", ["xyz", "ab", "", "ff" * 28])
def test_ids_of_nodes_are_checked(labelled, wrong):
    with pytest.raises(ValueError, match=f"Invalid node_id '{wrong}'"):
        Node(wrong, False)


def test_contradictions_of_node_affinity_are_refused(labelled):
    with pytest.raises(ValueError, match="_spill_on_unavailable cannot be set when soft is False"):
        Node(ELSEWHERE, False, _spill_on_unavailable=True)
    with pytest.raises(ValueError, match="_fail_on_unavailable cannot be set when soft is True"):
        Node(ELSEWHERE, True, _fail_on_unavailable=True)


@pytest.mark.parametrize("strategy", [None, "DEFAULT", "SPREAD"])
def test_spread_and_default_are_the_same_on_one_node(run, call, strategy):
    assert run(scheduling_strategy=strategy) == call(scheduling_strategy=strategy) == "ran"


def test_other_strategies_are_refused(run):
    with pytest.raises(ValueError, match="Invalid scheduling_strategy value BEST"):
        run(scheduling_strategy="BEST")
    with pytest.raises(TypeError, match="'scheduling_strategy' must be"):
        run(scheduling_strategy=3)


# ---------------------------------------------------------------------------------------------- labels
@pytest.mark.parametrize(
    "selector",
    [
        {},
        {"zone": "a"},
        {"zone": "!b"},
        {"zone": "in(a,b)"},
        {"zone": "in(b,a)", "disk": "ssd"},
        {"zone": "!in(c,d)"},
        {"colour": "!red"},
        {"colour": "!in(red,green)"},
    ],
)
def test_selectors_that_the_node_meets(run, call, selector):
    assert run(label_selector=selector) == "ran"
    assert call(label_selector=selector) == "ran"


def test_the_id_of_the_node_is_a_label(labelled, run):
    assert run(label_selector={"ray.io/node-id": labelled.get_runtime_context().get_node_id()}) == "ran"


@pytest.mark.differs("what the one node cannot meet is an error at once; Ray waits for a node that may join")
@pytest.mark.parametrize(
    "options",
    [
        {"label_selector": {"zone": "b"}},
        {"label_selector": {"zone": "!a"}},
        {"label_selector": {"zone": "!in(a,b)"}},
        {"label_selector": {"zone": "a", "colour": "red"}},
        {"label_selector": {"zone": "b"}, "fallback_strategy": [{"label_selector": {"zone": "c"}}]},
        {"scheduling_strategy": Label({"zone": In("b")})},
        {"scheduling_strategy": Label({"zone": NotIn("a")})},
        {"scheduling_strategy": Label({"colour": Exists()})},
        {"scheduling_strategy": Label({"disk": DoesNotExist()})},
    ],
)
def test_what_the_node_does_not_meet(labelled, run, call, engine, options):
    if engine == "ray":
        with pytest.raises(labelled.exceptions.GetTimeoutError):
            run(timeout=0.2, **options)
        return
    with pytest.raises(labelled.exceptions.TaskUnschedulableError, match="the session has one node, with the labels"):
        run(**options)
    with pytest.raises(labelled.exceptions.ActorUnschedulableError, match="the session has one node, with the labels"):
        call(**options)


@pytest.mark.parametrize(
    "strategy",
    [
        Label({"zone": In("a", "b")}),
        Label({"zone": NotIn("b")}),
        Label({"zone": Exists(), "colour": DoesNotExist()}),
        Label({}, soft={"zone": In("b")}),
    ],
)
def test_expressions_that_the_node_meets(run, call, strategy):
    assert run(scheduling_strategy=strategy) == call(scheduling_strategy=strategy) == "ran"


def test_a_fallback_is_taken(run, call):
    fallbacks = [{"label_selector": {"zone": "c"}}, {"label_selector": {"disk": "ssd"}}]
    options = {"label_selector": {"zone": "b"}, "fallback_strategy": fallbacks}
    assert run(**options) == call(**options) == "ran"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"label_selector": {"zone": "a b"}}, "Invalid label selector value `a b`"),
        ({"label_selector": {"zone": "in()"}}, r"Invalid label selector value `in\(\)`"),
        ({"label_selector": {"zo ne": "a"}}, "Invalid label key name `zo ne`"),
        ({"label_selector": {"a b/zone": "a"}}, "Invalid label key prefix `a b`"),
        ({"fallback_strategy": [{"resources": {}}]}, "Unsupported option found: 'resources'"),
        ({"fallback_strategy": [{}]}, "Empty dictionary found in `fallback_strategy`"),
        ({"fallback_strategy": ["zone"]}, "Each element in fallback_strategy must be a dictionary"),
        ({"fallback_strategy": [{"label_selector": {"zone": "?"}}]}, r"Invalid label selector value `\?`"),
    ],
)
def test_the_syntax_of_selectors_is_checked(run, options, text):
    with pytest.raises(ValueError, match=text):
        run(**options)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: In(), "The variadic parameter of the In operator must be a non-empty tuple"),
        (lambda: NotIn(1), "Type of value in position 0 for the NotIn operator must be str"),
        (lambda: Label({}), "cannot both be empty"),
        (lambda: Label({"a": 1}), "must be one of the `In`, `NotIn`, `Exists` or `DoesNotExist` operator"),
        (lambda: Label({1: Exists()}), "The map key of the hard parameter must be of type str"),
        (lambda: Label({"a": Exists()}, soft=[1]), "The soft parameter must be a map"),
    ],
)
def test_expressions_are_checked(make, text):
    with pytest.raises(ValueError, match=text):
        make()


def test_bundles_select_by_labels_too(labelled):
    met = groups.placement_group([{"CPU": 1}], bundle_label_selector=[{"zone": "a"}])
    unmet = groups.placement_group([{"CPU": 0.5}], bundle_label_selector=[{"zone": "b"}])
    assert met.wait(30)
    assert not unmet.wait(0.1)
    for group in (met, unmet):
        groups.remove_placement_group(group)
