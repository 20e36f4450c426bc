"""Nobody but the clock asks `time`: tests of users replace its functions, wherever a module has imported them."""

from __future__ import annotations

import ast

from tests.house.source import modules, nodes

#: The clocks that such tools replace.
CLOCKS = {"monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "time", "time_ns", "sleep"}
THE_CLOCK = "mray/_common/clock.py"


def _asks(tree: ast.AST) -> bool:
    for node in nodes(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "time" and CLOCKS & {alias.name for alias in node.names}:
            return True
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "time" and node.attr in CLOCKS:
            return True
    return False


def test_the_clock_alone_asks_the_module_of_the_time() -> None:
    assert [name for name, tree in modules().items() if _asks(tree) and not name.startswith("mray/examples/")] == []
    assert THE_CLOCK in modules()


def test_such_a_module_is_seen() -> None:
    assert _asks(ast.parse("from time import monotonic, sleep"))
    assert _asks(ast.parse("import time\n\n\ndef f():\n    return time.perf_counter()"))
    assert not _asks(ast.parse("import time\nfrom time import CLOCK_BOOTTIME\n\ntime.strftime('')"))
