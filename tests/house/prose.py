"""Names in docstrings and comments that exist nowhere: in backticks, in CamelCase, joined by underscores, and paths of files.

A dotted name that begins with mray, one of its modules or one of its classes is resolved whole, and so is one that begins with a module of
Python's library; others are sought among all names of the package, of Ray, of the library's modules that the package imports.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import keyword
import re
import sys
import textwrap
import types
from collections.abc import Iterable, Iterator
from functools import cache

import numpy

from tests.house.ray_names import RAY
from tests.house.source import ROOT, comments, docstrings, imports, nodes, top_package

#: Names of products and standards, which look like classes.
PRODUCTS = frozenset(
    ["GitHub", "MessagePack", "NVLink", "NVSwitch", "NeMo", "NumPy", "OpenBLAS", "OpenMP", "OpenSSL", "OpenTelemetry", "PyTorch", "SciPy"]
)
#: Names of others that nothing here imports, by their owner.
FOREIGN = {
    "Linux": "MREMAP_DONTUNMAP PR_SET_PDEATHSIG",
    "Python in C": "PyThreadState_SetAsyncExc",
    "logind": "RemoveIPC",
    "programs": "ps",
    "Ray": "object_store torch_gloo",
    "types without a name in their module": "_thread.lock",
    "pytest": "PYTEST_DONT_REWRITE",
}
#: Modules whose names are not looked up where they are not installed.
OTHERS = frozenset(
    [
        "cupy",
        "dask",
        "func_timeout",
        "graphviz",
        "joblib",
        "markdown_it",
        "nvtx",
        "pandas",
        "pyarrow",
        "pygments",
        "pytest",
        "ray",
        "rich",
        "scipy",
        "torch",
        "tqdm",
        "vllm",
    ]
)

_FILE = r"\.(?:py|pyi|js|css|html|md|cfg|toml|txt)"
_QUOTED = re.compile(r"(?<!`)`([A-Za-z_][\w.]*)(?:\(\))?`(?!`)")
_CAMEL = re.compile(r"(?<![\w./`-])_?(?:[A-Z][a-z]+[A-Z]\w*(?:\.\w+)*|[A-Z]\w*[a-z]\w*(?:\.[a-z_]\w+)+(?!/))")
_JOINED = re.compile(r"(?<![\w./`*%$<{-])_?[A-Za-z]+_\w+(?![\w/*>}=`-]|\(\d\))")
_PATH = re.compile(rf"(?<![\w/.~<>{{}}-])((?:[\w.-]+/)+[\w.-]+{_FILE})\b|`([\w-]+{_FILE})`")
#: A text that is a name, dotted or with a sign before it, or several in a row.
_NAME = re.compile(r"[A-Za-z_]\w*")
_NAMES = re.compile(r"-*[A-Za-z_][\w.:=-]*")
#: How a name that is put together begins: with a capital, or with two words.
_PREFIX = re.compile(r"^(?:[A-Z]\w*|[a-z]+_\w+)_$")
_FENCED = re.compile(r"^```.*?^```|^( *)(?=>>> ).*?(?=\n\s*\n|\Z)", re.DOTALL | re.MULTILINE)


class Names:
    """All names that the package defines and uses."""

    def __init__(self, trees: dict[str, ast.Module], further: Iterable[str] = ()) -> None:
        #: Of each module, by its dotted name.
        self.of_modules: dict[str, set[str]] = {}
        #: Of each class, by its plain name: its members and its bases.
        self.members: dict[str, set[str]] = {}
        self.bases: dict[str, set[str]] = {}
        self.all: set[str] = {*further}
        self.libraries: set[str] = set()
        #: Arguments and what is assigned to.
        self.variables: set[str] = set()
        #: With which names begin that are made with numbers and the like.
        self.prefixes: set[str] = set()
        for path, tree in trees.items():
            module = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
            found = set(_names(tree))
            self.of_modules[module] = found
            self.all |= found | set(module.split("."))
            self.libraries.update(name for _line, name in imports(tree) if top_package(name) in sys.stdlib_module_names)
            for node in nodes(tree):
                if isinstance(node, ast.arg):
                    self.variables.add(node.arg)
                elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                    self.variables.add(node.id)
                elif isinstance(node, ast.JoinedStr) and node.values and isinstance(node.values[0], ast.Constant):
                    self.prefixes.update(_PREFIX.findall(str(node.values[0].value)))
                elif isinstance(node, ast.ClassDef):
                    self.members.setdefault(node.name, set()).update(_members(node))
                    self.bases.setdefault(node.name, set()).update(ast.unparse(base).partition("[")[0] for base in node.bases)
        self._known = self.all | _known_elsewhere() | {name for module in self.libraries for name in dir(_module(module))}

    def exists(self, name: str) -> bool:
        """Whether something has this name, plain or dotted."""
        first, *rest = name.split(".")
        if first == "mray":
            return self._in_package(name) or _in_library(name)
        if first in OTHERS or name in _known_elsewhere():
            return True
        if rest and first in self.members:
            return self._in_class(first, rest)
        if rest and first in sys.stdlib_module_names and first not in self.all - sys.stdlib_module_names:
            return _in_library(name)
        modules = [module for module in self.of_modules if module.rpartition(".")[2] == first]
        if rest and modules and first not in self.variables:
            return any(self._in_module(module, rest) for module in modules)
        return all(self._is_known(part) for part in (first, *rest))

    def _is_known(self, name: str) -> bool:
        return name in self._known or name.startswith(tuple(self.prefixes))

    def _in_package(self, name: str) -> bool:
        module, rest = name, []
        while module not in self.of_modules:
            if (ROOT / module.replace(".", "/")).is_dir():
                return not rest
            module, _dot, last = module.rpartition(".")
            rest.insert(0, last)
        return self._in_module(module, rest)

    def _in_module(self, module: str, rest: list[str]) -> bool:
        if not rest or f"{module}.{rest[0]}" in self.of_modules:
            return not rest or self._in_module(f"{module}.{rest[0]}", rest[1:])
        if rest[0] not in self.of_modules[module]:
            return False
        return self._in_class(rest[0], rest[1:]) if rest[0] in self.members else all(self._is_known(part) for part in rest[1:])

    def _in_class(self, name: str, rest: list[str]) -> bool:
        if not rest:
            return True
        classes, seen = [name], set()
        while classes:
            each = classes.pop()
            if each in seen:
                continue
            seen.add(each)
            last = each.rpartition(".")[2]
            if rest[0] in self.members.get(last, ()):
                return all(self._is_known(part) for part in rest[1:])
            if last not in self.members and rest[0] in _foreign_members(self, each):
                return True
            classes += self.bases.get(last, ())
        return rest[0] in ("remote", "options", *dir(type))


def _names(tree: ast.AST) -> Iterator[str]:
    """The names that a module defines and uses, and texts that are names: keys, options, attributes that are set by name."""
    for node in nodes(tree):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name
        elif isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, (ast.arg, ast.keyword)) and node.arg:
            yield node.arg
        elif isinstance(node, ast.alias):
            yield from (node.asname or node.name).split(".")
        elif isinstance(node, (ast.MatchAs, ast.MatchStar)) and node.name:
            yield node.name
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _NAMES.fullmatch(node.value.strip()):
            yield from _NAME.findall(node.value)


def _members(of_class: ast.ClassDef) -> Iterator[str]:
    """The attributes that a class has by its own statements."""
    for node in of_class.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                yield from (each.id for each in ast.walk(target) if isinstance(each, ast.Name))
                yield from _texts(node.value)
    for inner in ast.walk(of_class):
        if (
            isinstance(inner, ast.Attribute)
            and isinstance(inner.ctx, ast.Store)
            and ast.unparse(inner.value) in ("self", "cls", of_class.name)
        ):
            yield inner.attr


def _texts(value: ast.expr | None) -> Iterator[str]:
    """The names in ``__slots__`` and the like."""
    if isinstance(value, (ast.Tuple, ast.List)):
        yield from (each.value for each in value.elts if isinstance(each, ast.Constant) and isinstance(each.value, str))


def _foreign_members(names: Names, base: str) -> set[str]:
    """The attributes of a class of the library, by the name that a statement gives its subclass as base."""
    last = base.rpartition(".")[2]
    found = [getattr(_module(module), last, None) for module in ("builtins", *names.libraries)]
    return {name for each in found if isinstance(each, type) for name in dir(each)}


@cache
def _module(name: str) -> types.ModuleType | None:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def _in_library(name: str) -> bool:
    """Whether a dotted name is of Python's library."""
    module, rest = name, []
    while (found := _module(module)) is None:
        module, _dot, last = module.rpartition(".")
        if not module:
            return False
        rest.insert(0, last)
    value: object = found
    for part in rest:
        value = getattr(value, part, None)
    return value is not None


@cache
def _known_elsewhere() -> frozenset[str]:
    """Plain names of Python, of Ray, of numpy, and of others."""
    python = {*dir(builtins), *keyword.kwlist, *keyword.softkwlist, *sys.stdlib_module_names}
    of_types = {name for each in vars(builtins).values() if isinstance(each, type) for name in dir(each)}
    rays = {name for names in RAY.values() for name in names.split()} | {part for module in RAY for part in module.split(".")}
    numpys = {*dir(numpy), *dir(numpy.ndarray)}
    return frozenset(python | of_types | rays | numpys | OTHERS | PRODUCTS | {name for each in FOREIGN.values() for name in each.split()})


def words(tree: ast.Module, source: str) -> int:
    """How many words the docstrings and comments of a module have."""
    return sum(len(text.split()) for _line, text in (*docstrings(tree), *comments(tree, source)))


def named(text: str) -> Iterator[str]:
    """The names of programs that a docstring or a comment says, without those in examples."""
    text = "\n\n".join(paragraph for paragraph in _FENCED.sub("", text).split("\n\n") if not _is_program(paragraph))
    yield from _QUOTED.findall(text)
    yield from (found.rstrip(".") for found in _CAMEL.findall(text))
    yield from _JOINED.findall(text)


def _is_program(paragraph: str) -> bool:
    """Whether a paragraph is an example: indented lines of Python."""
    lines = paragraph.strip("\n").split("\n")
    if not all(line.startswith("    ") for line in lines):
        return False
    try:
        ast.parse(textwrap.dedent(paragraph))
    except SyntaxError:
        return False
    return True


def stale(trees: dict[str, ast.Module], sources: dict[str, str], names: Names) -> Iterator[str]:
    """A line for each name, and each path, that a text says and that does not exist."""
    for path, tree in trees.items():
        for line, text in (*docstrings(tree), *comments(tree, sources[path])):
            paths = {found for pair in _PATH.findall(text) for found in pair if found}
            missing = {name for name in named(text) if name not in paths and not names.exists(name)}
            yield from (f"{path}:{line}: {name}" for name in sorted(missing | {each for each in paths if not _is_file(each)}))


@cache
def _is_file(path: str) -> bool:
    """Whether a path is that of a file of the checkout, or the end of one below mray."""
    return (ROOT / path).exists() or any(ROOT.joinpath("mray").rglob(path))
