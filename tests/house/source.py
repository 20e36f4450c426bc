"""The source of the package, parsed once, for the rules of this folder."""

from __future__ import annotations

import ast
import gc
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@cache
def modules() -> dict[str, ast.Module]:
    """The syntax tree of every file of the package, by its path as written in the rules (``mray/_ipc/ring.py``)."""
    return parsed(sorted((ROOT / "mray").rglob("*.py")))


def parsed(paths: Iterable[Path]) -> dict[str, ast.Module]:
    """The syntax trees of these files, by their paths. Nobody looks for garbage among them, which would take longer than parsing."""
    collects = gc.isenabled()
    gc.disable()
    try:
        return {str(path.relative_to(ROOT)): ast.parse(path.read_text(), str(path)) for path in paths}
    finally:
        gc.freeze()
        if collects:
            gc.enable()


@cache
def nodes(tree: ast.AST) -> tuple[ast.AST, ...]:
    """Every node of `tree`, walked through once."""
    return tuple(ast.walk(tree))


def imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, module) of every import statement in `tree`."""
    for statement in nodes(tree):
        if isinstance(statement, ast.Import):
            yield from ((statement.lineno, alias.name) for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom):
            yield statement.lineno, statement.module or ""


def mray_imports(tree: ast.AST) -> Iterator[str]:
    """Every name below mray that `tree` imports, module or part of one: for annotations, in functions and by a string as well."""
    for node in nodes(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if top_package(alias.name) == "mray")
        elif isinstance(node, ast.ImportFrom) and top_package(node.module or "") == "mray":
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            yield from (each.value for each in node.args if isinstance(each, ast.Constant) and str(each.value).startswith("mray."))


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda]:
    """Every function in `tree`, nested ones too."""
    for found in nodes(tree):
        if isinstance(found, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            yield found


def places(sought: Callable[[ast.AST], bool]) -> Iterator[str]:
    """``_ipc.ring:Ring.read`` for every node of the package that is `sought`: module below mray, and function."""
    for name, tree in modules().items():
        module = name.removeprefix("mray/").removesuffix(".py").replace("/", ".")
        yield from (f"{module}:{where}" for where in places_in(tree, sought))


def places_in(node: ast.AST, sought: Callable[[ast.AST], bool], path: tuple[str, ...] = ()) -> Iterator[str]:
    """As `places`, of one tree, which lies at `path`."""
    for child in ast.iter_child_nodes(node):
        if sought(child):
            yield ".".join(path)
        inner = (*path, child.name) if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) else path
        yield from places_in(child, sought, inner)


def top_package(module: str) -> str:
    """``torch`` of ``torch.cuda.nccl``."""
    return module.partition(".")[0]


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """(line, text) of every docstring in `tree`."""
    for node in nodes(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            text = ast.get_docstring(node)
            if text is not None:
                yield node.body[0].lineno, text


def strings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """(line, text) of every string in `tree`, and of every literal part of a formatted one; docstrings included."""
    return ((node.lineno, node.value) for node in nodes(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str))


def comments(tree: ast.Module, source: str) -> Iterator[tuple[int, str]]:
    """(line, text without its sign) of every comment in `tree`, whose text is `source`."""
    spans = [node for node in nodes(tree) if isinstance(node, (ast.Constant, ast.JoinedStr)) and _is_text(node)]
    within: dict[int, list[tuple[int, int]]] = {}
    for span in spans:
        last = span.end_lineno or span.lineno
        for line in range(span.lineno, last + 1):
            begin = span.col_offset if line == span.lineno else 0
            within.setdefault(line, []).append((begin, (span.end_col_offset or 0) if line == last else 1 << 30))
    for number, line in enumerate(source.split("\n"), 1):
        raw = line.encode()  # columns of a syntax tree are those of bytes
        at = raw.find(b"#")
        while at >= 0 and any(begin <= at < end for begin, end in within.get(number, ())):
            at = raw.find(b"#", at + 1)
        if at >= 0:
            yield number, raw[at:].decode().lstrip("#:").strip()


def _is_text(node: ast.Constant | ast.JoinedStr) -> bool:
    return isinstance(node, ast.JoinedStr) or isinstance(node.value, (str, bytes))
