"""The texts of the package's errors that no test expects: raise statements of which no three words in a row stand in any test."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tests.house.source import ROOT, nodes

#: Letters of a text, and of the words that are sought, below which they say too little to be found by.
LEAST_TEXT = 12
LEAST_WORDS = 10
#: Signs that may stand around words.
_SIGNS = "([{}]),.:;"
_QUOTE = re.compile(r"[\"'`]")
#: Two literals in a row are one text, and a sign that is escaped in a pattern is meant.
_BETWEEN_LITERALS = re.compile(r"[\"']\s*\n\s*[rf]*[\"']")
_ESCAPED = re.compile(r"\\(.)")


class Raise(NamedTuple):
    """A raise statement with a text."""

    line: int
    #: The literal parts of the text.
    parts: tuple[str, ...]


def raises(tree: ast.AST) -> Iterator[Raise]:
    """The raise statements of a module whose error has a text."""
    for node in nodes(tree):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            literals = (each.value for each in ast.walk(node.exc) if isinstance(each, ast.Constant) and isinstance(each.value, str))
            parts = tuple(each for each in literals if len(each) >= LEAST_TEXT)
            if parts:
                yield Raise(node.lineno, parts)


def threes(text: str) -> Iterator[tuple[str, ...]]:
    """Each three words in a row of a text, or all of them if they are fewer."""
    words = _QUOTE.sub(" ", text).split()
    for first in range(max(1, len(words) - 2)):
        found = words[first : first + 3]
        if len(found) > 1 and len(" ".join(found)) >= LEAST_WORDS:
            yield _bare(found)


def _bare(words: list[str]) -> tuple[str, ...]:
    """Without the signs around the words."""
    bare = [words[0].lstrip(_SIGNS), *words[1:]]
    return (*bare[:-1], bare[-1].rstrip(_SIGNS))


def untested(trees: dict[str, ast.Module], tests: Iterable[str]) -> Iterator[tuple[str, Raise]]:
    """(path, statement) of each raise of whose text nothing stands in the texts `tests`."""
    found = [(path, each) for path, tree in trees.items() for each in raises(tree)]
    sought = {three for _path, each in found for part in each.parts for three in threes(part)}
    lengths: dict[str, set[int]] = {}
    for three in sought:
        lengths.setdefault(three[0].rstrip(_SIGNS), set()).add(len(three))
    said: set[tuple[str, ...]] = set()
    for test in tests:
        words = _QUOTE.sub(" ", _ESCAPED.sub(r"\1", _BETWEEN_LITERALS.sub("", test))).split()
        for first, word in enumerate(words):
            for length in lengths.get(word.strip(_SIGNS), ()):
                said.add(_bare(words[first : first + length]))
    return ((path, each) for path, each in found if not any(three in said for part in each.parts for three in threes(part)))


def texts_of_tests() -> Iterator[str]:
    """The tests, with the programs and records beside them."""
    for path in sorted((ROOT / "tests").rglob("*")):
        if path.suffix in (".py", ".txt", ".json"):
            yield path.read_text(errors="replace")
