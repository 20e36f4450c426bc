"""The names of Ray that a file of Python asks for, by its syntax tree: nothing is run.

For `tools/libraries` and `tools/names`, in a Python that has the package ray; only its files are looked at here.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import cache
from importlib.machinery import PathFinder
from pathlib import Path
from typing import NamedTuple

#: Modules without a file of Python.
COMPILED = {"ray._raylet"}

_spec = PathFinder.find_spec("ray", [path for path in sys.path if path])
if _spec is None or _spec.origin is None:
    sys.exit("This Python has no package ray: pip install -e '.[test-ray]'")
#: The folder of the package.
FOLDER = Path(_spec.origin).parent


class Need(NamedTuple):
    """A name of a module that a file asks for; a module without a name is asked for as a whole."""

    module: str
    name: str
    #: Whether nothing works without: it is asked for when the file is imported.
    at_import: bool
    place: str


class Reader(ast.NodeVisitor):
    """Finds what a file asks of the modules of Ray."""

    def __init__(self, module: str, path: Path) -> None:
        self.needs: list[Need] = []
        self._package = module if path.name == "__init__.py" else module.rpartition(".")[0]
        self._path = path
        #: Names of the file that are modules of Ray.
        self._modules: dict[str, str] = {}
        self._later = 0

    def _need(self, module: str, name: str, line: int) -> None:
        self.needs.append(Need(module, name, not self._later, f"{self._path}:{line}"))

    def _visit_later(self, node: ast.AST) -> None:
        self._later += 1
        self.generic_visit(node)
        self._later -= 1

    visit_Lambda = visit_Try = _visit_later  # noqa: N815  (names of ast's)

    def _visit_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        # Annotations are not evaluated where the file says so, and nobody reads them here.
        for each in (*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults)):
            self.visit(each)
        self._later += 1
        for statement in node.body:
            self.visit(statement)
        self._later -= 1

    visit_FunctionDef = visit_AsyncFunctionDef = _visit_function  # noqa: N815

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_If(self, node: ast.If) -> None:
        if "TYPE_CHECKING" in ast.dump(node.test):
            for statement in node.orelse:
                self.visit(statement)
        else:
            self._visit_later(node)

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            if alias.name.split(".")[0] == "ray":
                self._modules[alias.asname or "ray"] = alias.name if alias.asname else "ray"
                self._need(alias.name, "", node.lineno)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        base = node.module or ""
        if node.level:
            parents = self._package.split(".")
            base = ".".join(filter(None, (*parents[: len(parents) - node.level + 1], base)))
        if base.split(".")[0] != "ray":
            return
        for alias in node.names:
            if is_module(f"{base}.{alias.name}"):
                self._modules[alias.asname or alias.name] = f"{base}.{alias.name}"
            self._need(base, alias.name, node.lineno)

    def _wanted(self, names: list[str]) -> str:
        """The part of a chain of attributes that is asked of a module; the last one is the module's."""
        return names[-1] if names else ""

    def visit_Attribute(self, node: ast.Attribute) -> None:
        names, at = [node.attr], node.value
        while isinstance(at, ast.Attribute):
            names.append(at.attr)
            at = at.value
        if isinstance(at, ast.Name) and at.id in self._modules:
            module = self._modules[at.id]
            while names and is_module(f"{module}.{names[-1]}"):
                module += f".{names.pop()}"
            self._need(module, self._wanted(names), node.lineno)
        else:
            self.generic_visit(node)


@cache
def file_of(module: str) -> Path | None:
    """The file of a module of the installed Ray; None if it has none that is Python."""
    place = FOLDER.joinpath(*module.split(".")[1:])
    candidates = (place / "__init__.py", place.with_suffix(".py"))
    return next((path for path in candidates if path.is_file()), None)


def is_module(name: str) -> bool:
    """Whether the installed Ray has a module. Some statements name what it has no more, or only in its repository."""
    return file_of(name) is not None or name in COMPILED


def modules_below(root: str) -> Iterator[str]:
    """A module of the installed Ray, and all modules below it."""
    path = file_of(root)
    for each in sorted(path.parent.rglob("*.py")) if path is not None and path.name == "__init__.py" else filter(None, [path]):
        words = each.relative_to(FOLDER).with_suffix("").parts
        yield ".".join(("ray", *(words[:-1] if words[-1] == "__init__" else words)))
    if root in COMPILED:
        yield root
