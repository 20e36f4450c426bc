"""The verbs of every engine have the signatures of the contract."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from mray._api.backend import Backend
from mray._backends.local.local_backend import LocalBackend
from mray._backends.native import NativeBackend
from mray._common import messages as m
from mray._graph.caller.compiled import CompiledGraph
from mray._graph.caller.copies import GraphCopy
from mray._runtime.client.client import Client

VERBS = [name for name, verb in inspect.getmembers(Backend, inspect.isfunction) if not name.startswith("_")]
#: Ray need not be installed for its engine's source to be read.
RAY = Path(inspect.getfile(NativeBackend)).parent / "ray"
RAYS = {"ray_backend.py": "RayBackend", "placement_groups.py": "PlacementGroupCalls", "ray_waiting.py": "WaitCalls"}

Function = ast.FunctionDef | ast.AsyncFunctionDef
Shape = list[tuple[str, Any, Any]]


def shape(verb: Callable[..., Any]) -> Shape:
    """The names, kinds and defaults of a verb's parameters, without `self`."""
    parameters = inspect.signature(verb).parameters.values()
    return [(each.name, each.kind, each.default) for each in parameters if each.name != "self"]


CONTRACT = {name: shape(getattr(Backend, name)) for name in VERBS}


#: Methods of compiled graphs for users.
GRAPH = ("execute", "execute_async", "stream", "teardown", "get_id", "report", "statistics", "visualize", "visualize_schedule")
GRAPHS = {name: shape(getattr(CompiledGraph, name)) for name in GRAPH}


def functions_of_ray(classes: Mapping[str, str] = RAYS) -> Iterator[Function]:
    for file, name in classes.items():
        for node in ast.parse((RAY / file).read_text()).body:
            if isinstance(node, ast.ClassDef) and node.name == name:
                yield from (each for each in node.body if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef)))


def stripped(function: Function) -> Callable[..., Any]:
    """A function with the same parameters that does nothing."""
    for each in ast.walk(function.args):
        if isinstance(each, ast.arg):
            each.annotation = None
    function.body, function.decorator_list, function.returns = [ast.Pass()], [], None
    scope: dict[str, Any] = {}
    exec(ast.unparse(function), {}, scope)
    made: Callable[..., Any] = scope[function.name]
    return made


@pytest.fixture(scope="module")
def native() -> Iterator[NativeBackend]:
    """The engine of a process that is in no session."""
    client = Client("", "8c62cb31", m.ROLE_DRIVER)
    client.info["session"] = "x"
    yield NativeBackend(client, None)
    client.reactor.close()


def test_the_contract_has_verbs() -> None:
    assert {"get", "put", "submit_task", "host"} <= CONTRACT.keys()


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_of_the_native_engine_has_the_signature_of_the_contract(native: NativeBackend, verb: str) -> None:
    assert shape(getattr(native, verb)) == CONTRACT[verb]


def test_verbs_of_parts_are_looked_up_once(native: NativeBackend) -> None:
    of_parts = [name for name, verb in vars(NativeBackend).items() if isinstance(verb, cached_property)]
    assert {"get", "put", "wait"} <= set(of_parts)
    for name in of_parts:
        assert getattr(native, name) is getattr(native, name)
        assert getattr(native, name).__self__ is not native


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_of_the_engine_in_one_process_has_the_signature_of_the_contract(verb: str) -> None:
    found = inspect.getattr_static(LocalBackend, verb)
    if inspect.isfunction(found):  # else that of the native engine answers
        assert shape(found) == CONTRACT[verb]
        assert not getattr(found, "__isabstractmethod__", False)


def test_verbs_of_rays_engine_have_the_signatures_of_the_contract() -> None:
    found = {function.name: shape(stripped(function)) for function in functions_of_ray() if function.name in CONTRACT}
    assert found == {name: CONTRACT[name] for name in found}
    assert {name for name in VERBS if getattr(getattr(Backend, name), "__isabstractmethod__", False)} <= found.keys()


@pytest.mark.parametrize("method", GRAPH)
def test_a_graph_that_another_process_calls_has_the_signatures_of_a_graph(method: str) -> None:
    found = vars(GraphCopy).get(method)
    if found is not None:  # else the copy answers
        assert shape(found) == GRAPHS[method]


def test_a_graph_on_ray_has_the_signatures_of_a_graph() -> None:
    found = {each.name: shape(stripped(each)) for each in functions_of_ray({"ray_compiled.py": "RayGraph"}) if each.name in GRAPH}
    assert found == GRAPHS
