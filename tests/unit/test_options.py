"""Options of tasks, actors and sessions: Ray's texts, defaults, resources."""

from __future__ import annotations

import re
from typing import Any

import pytest

from mray._common import settings
from mray._common.options import (
    ACTOR_OPTIONS,
    TASK_OPTIONS,
    actor_resources,
    check_actor_options,
    check_method_options,
    check_task_options,
    complete_actor_options,
    complete_task_options,
    session_options,
    task_resources,
)

WRONG_FOR_TASKS: list[tuple[dict[str, Any], type[Exception], str]] = [
    (
        {"max_retries": 1.5},
        TypeError,
        "The type of keyword 'max_retries' must be (<class 'int'>, <class 'NoneType'>), but received type <class 'float'>",
    ),
    ({"max_calls": -1}, ValueError, "The keyword 'max_calls' only accepts None, 0 or a positive integer."),
    (
        {"num_returns": -1},
        ValueError,
        "The keyword 'num_returns' only accepts None, a non-negative integer, 'streaming' (for generators), or 'dynamic'.",
    ),
    (
        {"max_retries": -2},
        ValueError,
        "The keyword 'max_retries' only accepts None, 0, -1 or a positive integer, where -1 represents infinity.",
    ),
    ({"num_gpus": 0.00001}, ValueError, "The precision of the fractional quantity of resource num_gpus cannot go beyond 0.0001"),
    ({"num_gpus": 1.5}, ValueError, "must be whole numbers. The specified quantity 1.5 is invalid."),
    ({"num_cpus": -1}, ValueError, "The quantity of resource num_cpus cannot be negative"),
    (
        {"num_cpus": "1"},
        TypeError,
        "The type of keyword 'num_cpus' must be (<class 'float'>, <class 'int'>, <class 'NoneType'>), but received type <class 'str'>",
    ),
    ({"resources": {"CPU": 1}}, ValueError, "Use the 'num_cpus' and 'num_gpus' keyword instead of 'CPU' and 'GPU' in 'resources' keyword"),
    ({"resources": {"a": -1}}, ValueError, "The quantity of resource a cannot be negative"),
    ({"resources": {"a": 1e-5}}, ValueError, "The precision of the fractional quantity of resource a cannot go beyond 0.0001"),
    ({"resources": {"a": "x"}}, TypeError, "The quantity of resource a"),
    ({"resources": {"bundle": 1}}, ValueError, "bundle"),
    ({"memory": -1}, ValueError, "The quantity of resource memory cannot be negative"),
    ({"timeout_s": 0}, ValueError, "The keyword 'timeout_s' takes a positive number of seconds, got 0."),
    ({"timeout_s": float("nan")}, ValueError, "The keyword 'timeout_s' takes a positive number of seconds, got nan."),
    ({"timeout_s": "3"}, TypeError, "The type of keyword 'timeout_s' must be "),
    ({"retry_delay_s": -1}, ValueError, "The keyword 'retry_delay_s' takes seconds, or a list of the seconds before each retry, got -1."),
    ({"retry_delay_s": []}, ValueError, "The keyword 'retry_delay_s' takes seconds, or a list of the seconds before each retry, got []."),
    ({"retry_delay_s": [1, "2"]}, ValueError, "The keyword 'retry_delay_s' takes seconds, or a list of the seconds before each retry"),
    ({"retry_exceptions": [3]}, ValueError, "retry_exceptions must be either a boolean or a list of exceptions"),
    (
        {"runtime_env": {"env_vars": {"a": 1}}},
        TypeError,
        "runtime_env['env_vars'] must be of type Dict[str, str], but the value 1 is of type",
    ),
    ({"object_store_memory": 1}, ValueError, "Setting 'object_store_memory' is not implemented for tasks"),
    ({"_generator_backpressure_num_objects": 0}, ValueError, "_generator_backpressure_num_objects=0 is not allowed."),
    (
        {"max_restarts": 1},
        ValueError,
        "Invalid option keyword max_restarts for remote functions. Did you mean 'max_retries'? Valid ones are [",
    ),
    ({"num_returns": "streaming"}, ValueError, "num_returns='streaming' can only be used with generator functions"),
    ({"fallback_strategy": [{"x": 1}]}, ValueError, "Unsupported option found: 'x'. Only ['label_selector'] is currently supported."),
    (
        {"enable_task_events": 3},
        TypeError,
        "The type of keyword 'enable_task_events' must be <class 'bool'>, but received type <class 'int'>",
    ),
    ({"scheduling_strategy": 3}, TypeError, "The type of keyword 'scheduling_strategy' must be"),
    ({"num_cpus": float("nan")}, ValueError, "The quantity of resource num_cpus must be a number, not NaN"),
    ({"num_gpus": float("inf")}, OverflowError, "The quantity of resource num_gpus must be finite, not inf"),
    ({"resources": {"a": float("nan")}}, ValueError, "The quantity of resource a must be a number, not NaN"),
]


@pytest.mark.parametrize(("given", "kind", "text"), WRONG_FOR_TASKS, ids=lambda value: str(value)[:40])
def test_wrong_task_options_are_refused_in_rays_words(given: dict[str, Any], kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=re.escape(text)):
        check_task_options(given, is_generator=False)


WRONG_FOR_ACTORS: list[tuple[dict[str, Any], type[Exception], str]] = [
    (
        {"max_restarts": -2},
        ValueError,
        "The keyword 'max_restarts' only accepts None, 0, -1 or a positive integer, where -1 represents infinity.",
    ),
    ({"max_task_retries": -2}, ValueError, "The keyword 'max_task_retries' only accepts None, 0, -1"),
    ({"max_concurrency": -1}, ValueError, "The keyword 'max_concurrency' only accepts None, 0 or a positive integer."),
    ({"lifetime": "foo"}, ValueError, "actor `lifetime` argument must be one of 'detached', 'non_detached' and 'None'."),
    ({"get_if_exists": True}, ValueError, "The actor name must be specified to use `get_if_exists`."),
    ({"get_if_exists": "a"}, TypeError, "The type of keyword 'get_if_exists' must be <class 'bool'>"),
    ({"num_returns": 1}, ValueError, "Invalid option keyword num_returns for actors. Valid ones are ["),
    ({"namespace": 3}, TypeError, "The type of keyword 'namespace' must be (<class 'str'>, <class 'NoneType'>)"),
    ({"name": 3}, TypeError, "The type of keyword 'name' must be (<class 'str'>, <class 'NoneType'>), but received type <class 'int'>"),
    (
        {"concurrency_groups": 3},
        TypeError,
        "The type of keyword 'concurrency_groups' must be (<class 'list'>, <class 'dict'>, <class 'NoneType'>)",
    ),
    (
        {"concurrency_groups": {"io": 0}},
        ValueError,
        "The keyword 'concurrency_groups' takes numbers of calls from 1 to 4294967295, but 'io' has 0: no call of it would ever run.",
    ),
    ({"concurrency_groups": {"io": -1}}, OverflowError, "takes numbers of calls from 1 to 4294967295, but 'io' has -1"),
    ({"concurrency_groups": {"io": "x"}}, TypeError, "takes a dict of names and numbers of calls, but 'io' has 'x'"),
    ({"concurrency_groups": ["io"]}, TypeError, "takes a dict of names and numbers of calls, not ['io']"),
    ({"memory": float("inf")}, OverflowError, "The quantity of resource memory must be finite, not inf"),
]


@pytest.mark.parametrize(("given", "kind", "text"), WRONG_FOR_ACTORS, ids=lambda value: str(value)[:40])
def test_wrong_actor_options_are_refused_in_rays_words(given: dict[str, Any], kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=re.escape(text)):
        check_actor_options(given)


@pytest.mark.parametrize(
    "given",
    [
        {"num_gpus": 0.5},
        {"num_returns": None},
        {"num_returns": 0},
        {"retry_exceptions": [ValueError]},
        {"resources": {"a": 0.5}},
        {"memory": 1.5},
        {"max_calls": None},
        {"placement_group": "default"},
        {"scheduling_strategy": "SPREAD"},
        {"num_cpus": 0},
    ],
    ids=str,
)
def test_right_task_options_pass(given: dict[str, Any]) -> None:
    check_task_options(given, is_generator=False)


def test_max_calls_stands_in_the_decorator_only() -> None:
    with pytest.raises(ValueError, match=r"Setting 'max_calls' is not supported in '\.options\(\)'\."):
        check_task_options({"max_calls": 1}, is_generator=False, in_options=True)


def test_dynamic_returns_of_a_generator_are_deprecated() -> None:
    with pytest.warns(DeprecationWarning, match="num_returns='dynamic' is deprecated"):
        check_task_options({"num_returns": "dynamic"}, is_generator=True)


def test_numbers_of_return_values() -> None:
    check_method_options({"num_returns": 0})
    check_method_options({"num_returns": "streaming"})
    with pytest.raises(ValueError, match=r"num_returns must be >= 0, but got -2\."):
        check_method_options({"num_returns": -2})


def test_complete_options_have_every_name() -> None:
    assert complete_task_options({}, is_generator=False).keys() == TASK_OPTIONS.keys()
    assert complete_actor_options({}).keys() == ACTOR_OPTIONS.keys()


def test_defaults_of_tasks() -> None:
    complete = complete_task_options({}, is_generator=False)
    assert (complete["num_cpus"], complete["num_gpus"], complete["num_returns"]) == (1, 0, 1)
    assert (complete["max_retries"], complete["max_calls"], complete["retry_exceptions"]) == (3, 0, False)
    assert complete_task_options({"num_returns": None}, is_generator=False)["num_returns"] == 1
    assert complete_task_options({}, is_generator=True)["num_returns"] == "streaming"


def test_a_gpu_task_ends_its_worker_unless_it_says_otherwise() -> None:
    assert complete_task_options({"num_gpus": 0.5}, is_generator=False)["max_calls"] == 1
    assert complete_task_options({"num_gpus": 1, "max_calls": 0}, is_generator=False)["max_calls"] == 0
    assert complete_task_options({"num_gpus": 1, "max_calls": 4}, is_generator=False)["max_calls"] == 4


def test_resources_of_tasks() -> None:
    complete = complete_task_options({"num_gpus": 2, "memory": 100, "resources": {"a": 0.5, "b": 0}}, is_generator=False)
    assert task_resources(complete) == {"CPU": 1.0, "GPU": 2.0, "memory": 100.0, "a": 0.5}
    assert task_resources(complete_task_options({"num_cpus": 0}, is_generator=False)) == {}
    assert task_resources(complete_task_options({"accelerator_type": "V100"}, is_generator=False)) == {
        "CPU": 1.0,
        "accelerator_type:V100": 0.001,
    }


@pytest.mark.parametrize(
    ("given", "to_place", "held"),
    [
        ({}, {"CPU": 1}, {}),
        ({"num_cpus": 0}, {}, {}),
        ({"num_cpus": 2}, {"CPU": 2}, {"CPU": 2}),
        ({"num_gpus": 1}, {"CPU": 1, "GPU": 1}, {"CPU": 1, "GPU": 1}),
        ({"resources": {"a": 1}}, {"CPU": 1, "a": 1}, {"CPU": 1, "a": 1}),
        ({"memory": 10}, {"CPU": 1, "memory": 10}, {"memory": 10}),
        ({"num_gpus": 1, "num_cpus": 0}, {"GPU": 1}, {"GPU": 1}),
        ({"num_gpus": 0}, {"CPU": 1}, {"CPU": 1}),
        ({"num_gpus": 0, "num_cpus": 0}, {}, {}),
        ({"resources": {"a": 0}}, {"CPU": 1}, {"CPU": 1}),
        ({"num_gpus": None, "resources": {}, "memory": 0}, {"CPU": 1}, {}),
        ({"accelerator_type": "A100"}, {"CPU": 1, "accelerator_type:A100": 0.001}, {"CPU": 1, "accelerator_type:A100": 0.001}),
    ],
    ids=str,
)
def test_resources_of_actors(given: dict[str, Any], to_place: dict[str, float], held: dict[str, float]) -> None:
    assert actor_resources(complete_actor_options(given)) == (to_place, held)


@pytest.mark.parametrize(("given", "variable"), [("auto", ""), (["auto"], "json"), (["json"], "auto"), ((), "json,auto")])
def test_auto_is_no_module(monkeypatch: pytest.MonkeyPatch, given: Any, variable: str) -> None:
    monkeypatch.setenv("MRAY_PRELOAD", variable)
    options = session_options(preload=given)
    assert options.foresee
    assert options.preload == (("json",) if "json" in (*given, variable.partition(",")[0]) else ())
    assert settings.preloaded_everywhere() == (("json",) if "json" in variable else ())


@pytest.mark.parametrize(
    ("given", "kind", "text"),
    [
        ({"namespace": 3}, TypeError, "namespace must be None or a string."),
        ({"namespace": ""}, ValueError, '"" is not a valid namespace. Pass None to not specify a namespace.'),
        ({"num_cpus": -1}, ValueError, "Resource quantities must be nonnegative. Violated by resource 'CPU' in"),
        ({"num_cpus": 1.5}, ValueError, "Resource quantities must all be whole numbers. Violated by resource 'CPU' in"),
        ({"resources": {"CPU": 1}}, AssertionError, "`CPU` cannot be a custom resource because it is one of the default resources"),
        ({"temp_dir": "rel"}, ValueError, "temp_dir must be absolute path or None."),
        ({"object_store_memory": 10}, ValueError, "Attempting to cap object store memory usage at 10 bytes, but the minimum allowed is"),
        ({"labels": {"a": 3}}, TypeError, "labels must map text to text"),
        ({"preload": "torch"}, TypeError, "preload must be a list"),
        ({"runtime_env": {"env_vars": {"A": 1}}}, TypeError, "must be of type Dict[str, str]"),
        ({"runtime_env": {"colour": "red"}}, ValueError, "runtime_env has no field 'colour'. Its fields are ['env_vars'"),
        ({"runtime_env": {"env_var": {}}}, ValueError, "runtime_env has no field 'env_var'. Did you mean 'env_vars'? Its fields are ["),
        ({"node_name": 3}, TypeError, "_node_name must be a str, got 3"),
        ({"node_ip_address": 3}, TypeError, "_node_ip_address must be a str, got 3"),
        ({"object_spilling_directory": 3}, TypeError, "object_spilling_directory must be a path, got <class 'int'>"),
        (
            {"system_config": {"object_spilling_config": "{"}},
            ValueError,
            "object_spilling_config is not valid JSON: Expecting property name",
        ),
        (
            {"system_config": {"object_spilling_config": {"type": "filesystem", "params": {}}}},
            ValueError,
            "object_spilling_config names no directory_path: {'type': 'filesystem', 'params': {}}",
        ),
    ],
    ids=str,
)
def test_wrong_sessions_are_refused(given: dict[str, Any], kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=re.escape(text)):
        session_options(**given)


def test_the_environment_overrides_resources_and_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_OVERRIDE_RESOURCES", '{"CPU": 7, "a": 2}')
    monkeypatch.setenv("RAY_OVERRIDE_LABELS", '{"zone": "b"}')
    monkeypatch.setenv("MRAY_PRELOAD", "one")
    options = session_options(num_cpus=1, resources={"a": 1, "c": 1}, labels={"zone": "a", "rack": "1"}, preload=["two", "one"])
    assert (options.num_cpus, options.resources) == (7, {"a": 2, "c": 1})
    assert options.labels == {"zone": "b", "rack": "1"}
    assert options.preload == ("two", "one")
    assert not options.foresee
