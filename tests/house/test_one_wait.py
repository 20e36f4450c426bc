"""Everything that can be waited for has one interface: `then`, which returns what takes the callback back (`mray._common.bridge`)."""

from __future__ import annotations

import ast

from tests.house.source import modules, nodes

#: Names for the same thing, which are not to come back.
RETIRED = {
    "add_poller",
    "add_waiter",
    "on_death",
    "on_ready",
    "remove_poller",
    "remove_waiter",
    "watch_actor",
    "watch_process",
    "when_dead",
    "when_finished",
    "when_room",
}


def test_no_function_waits_by_another_name() -> None:
    found = {
        (path, node.name)
        for path, tree in modules().items()
        for node in nodes(tree)
        if isinstance(node, ast.FunctionDef) and node.name in RETIRED
    }
    assert found == set()


def test_each_then_returns_what_takes_the_callback_back() -> None:
    returned = {
        (path, "" if node.returns is None else ast.unparse(node.returns))
        for path, tree in modules().items()
        for node in nodes(tree)
        if isinstance(node, ast.FunctionDef) and node.name == "then"
    }
    assert len(returned) > 10
    assert {each for each in returned if each[1] != "Cancel"} == set()
