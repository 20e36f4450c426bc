"""Names are the field's words, and sentences have a named thing as their subject."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.house import ideas
from tests.house.source import ROOT, modules, nodes, parsed

#: Retired words as parts of a name, and the term that replaces each.
REPLACED = ideas.retired_words(ideas.TERMS.read_text())

_COMMENT = re.compile(r"(?:.*\S  |\s*)#:? (.*)$")
_LIKELY = re.compile(r"(?:Who|What)|of\s+before")
_WHO = re.compile(r"(?:^|(?<=[.!] ))(?:Who|Whoever|Whom|Whose|What|Whatever)\b[^?]*$|\bof before\b")


def names(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Names that a module defines and uses, with their lines."""
    for node in nodes(tree):
        if isinstance(node, ast.Name):
            yield node.id, node.lineno
        elif isinstance(node, ast.Attribute):
            yield node.attr, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name, node.lineno


def words(name: str) -> set[str]:
    """The words of an identifier, in the singular."""
    parts = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)
    return {part.lower() for part in parts} | {part.lower().removesuffix("s") for part in parts}


@cache
def replaced(name: str) -> frozenset[str]:
    """The words of an identifier that are not to be used."""
    return frozenset(words(name) & REPLACED.keys())


def texts(tree: ast.AST, source: str) -> Iterator[tuple[int, str]]:
    """(line, text) of each comment, docstring and other text."""
    for node in nodes(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value
    comment: list[str] = []
    for number, line in enumerate(source.split("\n"), 1):
        begins = _COMMENT.match(line) if "#" in line else None
        if comment and (begins is None or line[: begins.start(1)].rstrip("#: ")):
            yield number - len(comment), " ".join(comment)
            comment = []
        if begins is not None:
            comment.append(begins[1])


def clauses(text: str) -> list[str]:
    """Sentences of a text that begin with a who/what clause, or in which "of" stands before "before"."""
    if _LIKELY.search(text) is None:
        return []
    paragraphs = (" ".join(paragraph.split()) for paragraph in re.split(r"\n\s*\n", text))
    return [sentence for paragraph in paragraphs for sentence in re.split(r"(?<=[.!?]) ", paragraph) if _WHO.search(sentence)]


def programs() -> Iterator[tuple[str, ast.Module]]:
    """(path, syntax tree) of every file of the package, the tests, the tools and the measurements."""
    yield from modules().items()
    for folder in ("tests", "tools", "bench"):
        paths = sorted((ROOT / folder).rglob("*"))
        yield from parsed(
            path for path in paths if path.suffix == ".py" or (path.parent == ROOT / "tools" and path.is_file() and not path.suffix)
        ).items()


def test_names_are_words_of_the_field_and_sentences_have_a_subject() -> None:
    found = []
    for path, tree in programs():
        spoken = [*names(tree), *((part, 0) for part in Path(path).with_suffix("").parts)]
        found += [f"{path}:{line}: {name}: say {REPLACED[word]!r}" for name, line in spoken for word in replaced(name)]
        for line, text in texts(tree, (ROOT / path).read_text()):
            found += [f"{path}:{line}: {sentence}" for sentence in clauses(text)]
    assert not found


def test_sentences_of_the_manual_have_a_subject() -> None:
    for path in (ROOT / "README.md", *(ROOT / "mray" / "_manual").glob("*.md")):
        prose = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
        parts = re.split(r"^(?:[-*#>]+|\d+\.) |\|", prose, flags=re.MULTILINE)
        assert not [sentence for part in parts for sentence in clauses(part)], path


def test_replaced_words_are_found_as_parts_of_names() -> None:
    assert "bell" in words("_own_bells") and "strand" in words("SimulatedStrand") and "crew" in words("the_crew")
    assert not words("Doorbell") & set(REPLACED)


def test_comments_and_texts_are_found() -> None:
    source = 'x = 1  # One.\n# Two\n# goes on.\ny = "Three."\n'
    assert [text for _line, text in texts(ast.parse(source), source)] == ["Three.", "One. Two goes on."]


def test_clauses_are_found_and_questions_are_not() -> None:
    late, old = "who comes late waits.".capitalize(), " before ".join(("Refs of", "the reset raise."))
    assert clauses(f"Read it. {late}") == [late]
    assert clauses(old) == [old]
    assert not clauses("Who is late? The reader waits for whoever writes.")
