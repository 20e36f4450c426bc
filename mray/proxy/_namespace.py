"""The named instances of an interpreter, which are also the globals of the cells that it runs.

``env["model"]`` is what a cell calls ``model``, and a function that a cell defines is ``env["function"]``.
"""

from __future__ import annotations

import ast
import itertools
import linecache
from typing import Any

_cells = itertools.count(1)


class Namespace:
    """Any thread; each operation is one of a dict's."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {"__name__": "__interpreter__", "__builtins__": __builtins__}
        self._hidden = frozenset(self._values)

    def names(self) -> list[str]:
        return [name for name in list(self._values) if name not in self._hidden]

    def get(self, name: str) -> Any:
        """Raises KeyError."""
        if name in self._hidden:
            raise KeyError(name)
        return self._values[name]

    def put(self, name: Any, value: Any) -> Any:
        if not isinstance(name, str) or name in self._hidden:
            raise TypeError(f"the name of an instance is a string other than {sorted(self._hidden)}, not {name!r}")
        self._values[name] = value
        return value

    def delete(self, name: str) -> None:
        self.get(name)
        del self._values[name]

    def execute(self, source: str) -> Any:
        """Returns the value of the last line if that is an expression, else None."""
        file = f"<remote cell {next(_cells)}>"
        # Tracebacks look the lines up here.
        linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
        tree = ast.parse(source, file)
        last = tree.body[-1] if tree.body else None
        if not isinstance(last, ast.Expr):
            exec(compile(tree, file, "exec"), self._values)
            return None
        del tree.body[-1]
        exec(compile(tree, file, "exec"), self._values)
        return eval(compile(ast.Expression(last.value), file, "eval"), self._values)
