"""How much code a file has: lines that are neither blank, nor a comment, nor in a docstring; and statements (`ast.stmt`) of Python."""

from __future__ import annotations

import ast
import re
from typing import NamedTuple

from tests.house.source import nodes

#: Kinds of files that have code, by their suffix.
SUFFIXES = (".py", ".pyi", ".js", ".css", ".html")
_COMMENTS = {
    ".js": re.compile(r"/\*.*?\*/|^\s*//.*?$", re.DOTALL | re.MULTILINE),
    ".css": re.compile(r"/\*.*?\*/", re.DOTALL),
    ".html": re.compile(r"<!--.*?-->", re.DOTALL),
}


class Size(NamedTuple):
    """Of a file, or several."""

    lines: int = 0
    statements: int = 0


def size(tree: ast.Module, source: str) -> Size:
    """Of one file of Python."""
    silent: set[int] = set()
    statements = 0
    for node in nodes(tree):
        statements += isinstance(node, ast.stmt)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and ast.get_docstring(node) is not None:
            text = node.body[0]
            silent.update(range(text.lineno, (text.end_lineno or text.lineno) + 1))
    spoken = enumerate(source.split("\n"), 1)
    return Size(sum(1 for number, line in spoken if number not in silent and line.strip() and line.lstrip()[0] != "#"), statements)


def size_of_page(source: str, suffix: str) -> Size:
    """Of a part of a web page."""
    return Size(sum(1 for line in _COMMENTS[suffix].sub("", source).split("\n") if line.strip()))
