"""The pickler of functions: cloudpickle, with more."""

from __future__ import annotations

import pickle
from types import CodeType, FunctionType

from mray._common.reducers import cloud_dumps


def made_in(filename: str) -> FunctionType:
    """A function of the program's main module, with another one inside."""
    names: dict[str, object] = {"__name__": "__main__"}
    exec(compile("def outer():\n    def inner():\n        return 1 / 0\n    return inner\n", filename, "exec"), names)
    outer = names["outer"]
    assert isinstance(outer, FunctionType)
    return outer


def codes(code: CodeType) -> list[CodeType]:
    return [code, *(each for const in code.co_consts if isinstance(const, CodeType) for each in codes(const))]


def test_functions_that_travel_keep_the_names_of_their_files() -> None:
    travelled = pickle.loads(cloud_dumps(made_in("/somewhere/program.py")))
    assert [code.co_filename for code in codes(travelled.__code__)] == ["/somewhere/program.py"] * 2
    assert [code.co_firstlineno for code in codes(travelled.__code__)] == [1, 2]


def test_a_constant_like_the_placeholder_stays_what_it_is() -> None:
    names: dict[str, object] = {"__name__": "__main__"}
    exec(compile("def f():\n    return '<dynamic-code>'\n", "/somewhere/program.py", "exec"), names)
    travelled = pickle.loads(cloud_dumps(names["f"]))
    assert travelled() == "<dynamic-code>"
