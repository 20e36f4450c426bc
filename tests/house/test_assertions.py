"""A test shows what it asserts."""

from __future__ import annotations

import ast
from functools import cache

from tests.house.source import ROOT, nodes, parsed

#: Calls that fail where something is not so.
PYTEST = {"raises", "warns", "deprecated_call", "fail"}
#: The first word of the name of a helper that asserts.
ASSERTING = {"assert", "check", "expect"}
#: Helpers of another name.
HELPERS = {
    "eventually": "fails where its condition does not come about",
    "wait_until": "fails where its condition does not come about",
    "until": "fails where its condition does not come about",
    "explore": "checks the outcome of each order of steps",
}
#: Tests without an assertion.
EXCEPTIONS = {
    "tests/unit/test_scheduler.py:test_invariants_hold_in_a_storm": "the stage validates the scheduler after each event",
}


def _name(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _asserts(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        name = _name(node.func)
        return name in PYTEST or name in HELPERS or name.lstrip("_").partition("_")[0] in ASSERTING or name == "AssertionError"
    return isinstance(node, ast.Assert)


def _silent(tree: ast.AST) -> list[str]:
    """The tests in `tree` that assert nothing."""
    tests = (node for node in nodes(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith("test_"))
    return [test.name for test in tests if not any(map(_asserts, ast.walk(test)))]


@cache
def _files() -> dict[str, ast.Module]:
    return parsed(sorted((ROOT / "tests").rglob("test_*.py")))


def test_each_test_has_a_visible_assertion() -> None:
    silent = {f"{path}:{name}" for path, tree in _files().items() for name in _silent(tree)}
    assert silent == EXCEPTIONS.keys()


def test_a_test_without_an_assertion_is_found() -> None:
    silent = "def test_a():\n    run()\n\n\nclass TestB:\n    async def test_b(self):\n        self.wait()\n"
    asserting = "def test_c():\n    check_it()\n\n\ndef test_d(eventually):\n    eventually(done)\n\n\ndef test_e():\n    assert True\n"
    assert _silent(ast.parse(silent)) == ["test_a", "test_b"]
    assert _silent(ast.parse(asserting)) == []
