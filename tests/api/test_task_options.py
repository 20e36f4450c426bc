"""Options of tasks and actors are checked when the decorator or `.options` runs."""

from __future__ import annotations

import enum
import os

import pytest


def nothing():
    return None


class Nothing:
    def f(self):
        return None


TEXTS_OF_TASKS = [
    ({"max_retries": 1.5}, TypeError, (r"The type of keyword 'max_retries' must be "
     r"\(<class 'int'>, <class 'NoneType'>\), but received type <class 'float'>")),
    ({"max_calls": -1}, ValueError, "The keyword 'max_calls' only accepts None, 0 or a positive integer"),
    ({"max_retries": -2}, ValueError, "The keyword 'max_retries' only accepts None, 0, -1 or a positive integer"),
    ({"num_returns": -1}, ValueError, (r"The keyword 'num_returns' only accepts None, "
     r"a non-negative integer, 'streaming' \(for generators\), or 'dynamic'")),
    ({"num_returns": "many"}, (ValueError, TypeError), ""),
    ({"num_cpus": -1}, ValueError, "quantity of resource num_cpus cannot be negative"),
    ({"num_gpus": 0.00001}, ValueError, "The precision of the fractional quantity of resource num_gpus cannot go beyond 0.0001"),
    ({"num_cpus": "1"}, TypeError, "The type of keyword 'num_cpus' must be"),
    ({"resources": {"CPU": 1}}, ValueError, "Use the 'num_cpus' and 'num_gpus' keyword instead of 'CPU' and 'GPU' in 'resources' keyword"),
    ({"resources": [1]}, TypeError, "The type of keyword 'resources' must be"),
    ({"name": 3}, TypeError, "The type of keyword 'name' must be"),
    ({"runtime_env": 3}, TypeError, "The type of keyword 'runtime_env' must be"),
    ({"memory": -1}, ValueError, "quantity of resource memory cannot be negative"),
]  # fmt: skip

TEXTS_OF_ACTORS = [
    ({"max_restarts": -2}, ValueError, ("The keyword 'max_restarts' only accepts None, 0, -1 or a positive integer, "
     "where -1 represents infinity.")),
    ({"max_task_retries": -2}, ValueError, "The keyword 'max_task_retries' only accepts None, 0, -1 or a positive integer"),
    ({"max_concurrency": -1}, ValueError, "The keyword 'max_concurrency' only accepts"),
    ({"num_cpus": -1}, ValueError, "quantity of resource num_cpus cannot be negative"),
    ({"lifetime": "for ever"}, ValueError, "(?i)lifetime"),
    ({"name": 3}, TypeError, "The type of keyword 'name' must be"),
    ({"namespace": 3}, TypeError, "The type of keyword 'namespace' must be"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "error", "text"), TEXTS_OF_TASKS)
def test_the_decorator_checks_options_of_a_task(ray, options, error, text):
    with pytest.raises(error, match=text or None):
        ray.remote(**options)(nothing)


@pytest.mark.parametrize(("options", "error", "text"), [row for row in TEXTS_OF_TASKS if "max_calls" not in row[0]])
def test_options_checks_options_of_a_task(ray, options, error, text):
    f = ray.remote(nothing)
    with pytest.raises(error, match=text or None):
        f.options(**options)


@pytest.mark.parametrize(("options", "error", "text"), TEXTS_OF_ACTORS)
def test_the_decorator_checks_options_of_an_actor(ray, options, error, text):
    with pytest.raises(error, match=text or None):
        ray.remote(**options)(Nothing)


@pytest.mark.parametrize(("options", "error", "text"), TEXTS_OF_ACTORS)
def test_options_checks_options_of_an_actor(ray, options, error, text):
    A = ray.remote(Nothing)
    with pytest.raises(error, match=text or None):
        A.options(**options).remote()


def test_an_unknown_option_is_named(ray):
    with pytest.raises(ValueError, match="Invalid option keyword no_such for remote functions"):
        ray.remote(no_such=1)(nothing)
    with pytest.raises(ValueError, match="Invalid option keyword no_such for actors"):
        ray.remote(no_such=1)(Nothing)
    with pytest.raises(ValueError, match="Invalid option keyword no_such"):
        ray.remote(nothing).options(no_such=1)


def test_options_of_actors_are_not_options_of_tasks(ray):
    with pytest.raises(ValueError, match="Invalid option keyword max_restarts for remote functions"):
        ray.remote(max_restarts=1)(nothing)
    with pytest.raises(ValueError, match="Invalid option keyword max_retries for actors"):
        ray.remote(max_retries=1)(Nothing)


def test_max_calls_may_not_be_given_to_options(ray):
    with pytest.raises(ValueError, match="max_calls"):
        ray.remote(nothing).options(max_calls=1)


def test_empty_parentheses_are_an_error(ray):
    with pytest.raises(AssertionError, match="The @ray.remote decorator must be applied"):
        ray.remote()(nothing)


def test_positional_arguments_of_the_decorator_are_an_error(ray):
    with pytest.raises((AssertionError, TypeError)):
        ray.remote(1)
    with pytest.raises((AssertionError, TypeError)):
        ray.remote(1, 2)


@pytest.mark.filterwarnings("ignore:num_returns='dynamic' is deprecated")
def test_dynamic_returns_need_a_generator(ray):
    with pytest.raises(ValueError, match="can only be used with generator"):
        ray.remote(num_returns="dynamic")(nothing)


def test_options_override_the_decorator_and_leave_it_alone(ray_session):
    ray = ray_session

    @ray.remote(num_returns=2)
    def f():
        return 1, 2

    g = f.options(num_returns=1)
    assert ray.get(g.remote()) == (1, 2)
    assert len(f.remote()) == 2


def test_options_may_be_kept_and_reused(ray_session):
    ray = ray_session

    @ray.remote
    def f(x):
        return x

    g = f.options(num_cpus=0.5)
    assert ray.get([g.remote(i) for i in range(4)]) == [0, 1, 2, 3]


def test_a_fraction_of_a_cpu_above_one_is_refused_for_gpus(ray):
    with pytest.raises(ValueError, match="(?i)gpu"):
        ray.remote(num_gpus=1.5)(nothing).remote()


def test_method_options_are_checked(ray):
    with pytest.raises((ValueError, AssertionError, TypeError)):
        ray.method(no_such=1)(nothing)


class Text(str):
    pass


class Number(enum.IntEnum):
    TWO = 2


def test_options_may_be_of_classes_of_their_own(ray_session):
    ray = ray_session

    @ray.remote(num_cpus=0)
    def two():
        return os.environ.get("CLASSY"), 2

    @ray.remote(num_cpus=0, concurrency_groups={"io": 1})
    class Actor:
        def name(self):
            return ray.get_runtime_context().get_actor_name()

    options = {"name": Text("titled"), "num_returns": Number.TWO, "max_retries": Number.TWO}
    environment = {"env_vars": {Text("CLASSY"): Text("yes")}}
    assert ray.get(two.options(**options, runtime_env=environment).remote()) == ["yes", 2]
    actor = Actor.options(name=Text("classy"), namespace=Text("own"), max_concurrency=Number.TWO, max_restarts=Number.TWO).remote()
    assert ray.get(actor.name.options(name=Text("asked"), concurrency_group=Text("io")).remote()) == "classy"
    assert ray.get(ray.get_actor(Text("classy"), Text("own")).name.remote()) == "classy"
    assert ray.get(two.options(num_returns=2).remote())[1] == 2


def test_options_of_single_calls_are_told_apart_by_value_and_type(ray_session):
    ray = ray_session

    @ray.remote
    def resources():
        return ray.get_runtime_context().get_assigned_resources().get("CPU", 0)

    for _ in range(2):  # the second time what is known of the first
        assert ray.get([resources.options(num_cpus=cpus).remote() for cpus in (1, 0.5, 1.0, 0, 0.25)]) == [1, 0.5, 1, 0, 0.25]
        with pytest.raises(TypeError):
            resources.options(num_cpus="1")
        with pytest.raises(ValueError, match="cannot be negative"):
            resources.options(num_cpus=-1)
        with pytest.raises(TypeError, match="num_returns"):
            resources.options(num_returns=1.5)
        # More of them than are kept.
        many = [resources.options(num_cpus=number / 100) for number in range(100)]
        assert ray.get([many[0].remote(), many[50].remote()]) == [0, 0.5]


def test_a_changed_dict_of_options_counts_as_it_is(ray_session):
    ray = ray_session

    @ray.remote
    def resources():
        return ray.get_runtime_context().get_assigned_resources().get("CPU", 0)

    options = {"num_cpus": 1}
    assert ray.get(resources.options(**options).remote()) == 1
    options["num_cpus"] = 0.5
    assert ray.get(resources.options(**options).remote()) == 0.5
