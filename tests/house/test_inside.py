"""`mray._inside`, the door of the kernel: every name exists, is documented and used, and has the signature on record.

python -m tests.house.test_inside     write ``inside.txt`` as the names are now
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
from pathlib import Path
from types import FunctionType, ModuleType

import pytest

import mray._inside as inside
from tests.house.rooms import beside_the_kernel
from tests.house.source import ROOT, modules, mray_imports, nodes

RECORD = Path(__file__).with_name("inside.txt")
#: Names behind the door, at most.
MOST = 134
NAMES = [each.name for each in pkgutil.iter_modules(inside.__path__)]
BESIDE = tuple(f"mray/{room}" for room in (*beside_the_kernel(), "libraries.py", "as_ray.py", "_trace"))


def door(name: str) -> ModuleType:
    return importlib.import_module(f"mray._inside.{name}")


def table(module: ModuleType) -> dict[str, str]:
    """The sentence of each name in the table of a module's docstring."""
    rows = (module.__doc__ or "").split("\n====")[1:-1]
    found: dict[str, str] = {}
    for line in "".join(rows).split("\n")[1:]:
        name, _space, text = line.partition(" ")
        if name:
            found[name] = text.strip()
        else:
            found[list(found)[-1]] += " " + text.strip()
    return found


def signature(module: ModuleType, name: str) -> str:
    """Of a name: a function's parameters, a class's constructor or fields, or no more than the name."""
    thing = getattr(module, name)
    found = ""
    if isinstance(thing, FunctionType):
        found = parameters(defined(thing))
    elif isinstance(thing, type):
        found = next(filter(None, (constructor(defined(kind)) for kind in thing.__mro__ if kind.__module__.startswith("mray."))), "")
    return f"{module.__name__.rpartition('.')[2]}.{name}{found}"


def defined(thing: FunctionType | type) -> ast.stmt:
    """The definition of a class or a function at the top of its module."""
    thing = inspect.unwrap(thing)
    file = inspect.getsourcefile(thing) or ""
    tree = modules()[str(Path(file).relative_to(ROOT))]
    (found,) = (each for each in tree.body if getattr(each, "name", "") == thing.__name__)
    return found


def constructor(definition: ast.stmt) -> str:
    """The parameters of a class's constructor or its annotated fields."""
    assert isinstance(definition, ast.ClassDef)
    for each in definition.body:
        if getattr(each, "name", "") == "__init__":
            return parameters(each).removesuffix(" -> None")
    fields = [ast.unparse(each) for each in definition.body if isinstance(each, ast.AnnAssign)]
    return f"({', '.join(fields)})" if fields else ""


def parameters(definition: ast.stmt) -> str:
    assert isinstance(definition, ast.FunctionDef | ast.AsyncFunctionDef)
    result = f" -> {ast.unparse(definition.returns)}" if definition.returns is not None else ""
    return f"({ast.unparse(definition.args)}){result}"


def signatures() -> list[str]:
    return sorted(signature(module, name) for module in map(door, NAMES) for name in module.__all__)


@pytest.mark.parametrize("name", NAMES)
def test_every_name_of_the_door_is_documented_in_its_table(name: str) -> None:
    module = door(name)
    rows = table(module)
    assert sorted(rows) == sorted(module.__all__)
    assert list(rows) == sorted(rows)
    assert not [row for row, text in rows.items() if not text.endswith(".")]


def test_every_module_of_the_door_is_in_its_table() -> None:
    assert sorted(table(inside)) == NAMES


def test_every_name_of_the_door_is_used_beside_the_kernel() -> None:
    used = {each for file, tree in modules().items() if file.startswith(BESIDE) for each in uses(tree)}
    assert not {f"mray._inside.{name}.{each}" for name in NAMES for each in door(name).__all__} - used


def uses(tree: ast.Module) -> set[str]:
    """The names of the door that a module imports, or takes from a module of the door that it has imported."""
    found = {each for each in mray_imports(tree) if each.startswith("mray._inside.")}
    bound = {
        alias.asname or alias.name: f"mray._inside.{alias.name}"
        for node in nodes(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "mray._inside"
        for alias in node.names
    }
    for node in nodes(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in bound:
            found.add(f"{bound[node.value.id]}.{node.attr}")
    return found


def test_the_door_is_narrow() -> None:
    assert sum(len(door(name).__all__) for name in NAMES) <= MOST


def test_every_name_of_the_door_has_the_signature_on_record() -> None:
    assert signatures() == RECORD.read_text().splitlines()


if __name__ == "__main__":
    RECORD.write_text("".join(f"{line}\n" for line in signatures()))
