"""The tables of what pages present, against the programs: every page has one, and it uses every name and option of its page."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

FILES = sorted(Path(__file__).parent.glob("test_pages_of_*.py"))


def table_of(tree: ast.Module) -> dict[str, str]:
    (value,) = [node.value for node in tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "PAGES"]
    return ast.literal_eval(value)


def program_of(page: str) -> str:
    return "test_page_" + page.replace("/", "_").replace("-", "_").lower()


def names_in(node: ast.AST) -> set[str]:
    """Every name that is written in it, its docstrings and comments apart; what its short strings are, and their parts."""
    found = set()
    for part in ast.walk(node):
        if isinstance(part, ast.Name):
            found.add(part.id)
        elif isinstance(part, ast.Attribute):
            found.add(part.attr)
        elif isinstance(part, (ast.keyword, ast.arg)):
            found.add(part.arg or "")
        elif isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(part.name)
        elif isinstance(part, ast.alias):
            found.update(part.name.split("."))
        elif isinstance(part, ast.Constant) and isinstance(part.value, str) and " " not in part.value:
            found.update(part.value.split("."))
    return found


def used_by(tree: ast.Module, function: ast.FunctionDef) -> set[str]:
    """The names that a program uses: in its function, and in the programs of the module, in capitals, that the function runs."""
    found = names_in(function)
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and ast.unparse(node.targets[0]) in found:
            found |= names_in(ast.parse(node.value.value))
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_each_page_has_a_program_that_uses_what_it_presents(path):
    tree = ast.parse(path.read_text())
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_page_")}
    pages = table_of(tree)
    assert {program_of(page) for page in pages} <= set(functions)
    # A page may have several programs; all of them begin with its name.
    assert [name for name in functions if not any(name.startswith(program_of(page)) for page in pages)] == []
    unused = {page: set(names.split()) - used_by(tree, functions[program_of(page)]) for page, names in pages.items()}
    assert {page: names for page, names in unused.items() if names} == {}


def test_no_page_is_in_two_tables():
    pages = [page for path in FILES for page in table_of(ast.parse(path.read_text()))]
    assert len(pages) == len(set(pages))
