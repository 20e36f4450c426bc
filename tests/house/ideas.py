"""One word per idea: ideas with several names (``ideas.txt``), and retired words and phrases (the manual's ``terms.md``)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from tests.house.source import ROOT, comments, nodes, strings

IDEAS = Path(__file__).with_name("ideas.txt")
TERMS = ROOT / "mray" / "_manual" / "terms.md"


def ideas() -> Iterator[tuple[str, str]]:
    """(idea, pattern) of each line of ``ideas.txt``."""
    for line in IDEAS.read_text().splitlines():
        if line and not line.startswith("#"):
            idea, _bar, pattern = line.partition(" | ")
            yield idea.strip(), pattern.strip()


def retired_words(terms: str) -> dict[str, str]:
    """The retired words of the terms' first table, and of the sentence below it, with what is said instead."""
    words, _heading, _phrases = terms.partition("## Phrases")
    found = {}
    for row in table(words):
        for word in row[-1].split(","):
            found[word.strip()] = row[0]
    found.update(re.findall(r"`(\w+)` \(([^)]+)\)", words.partition("Also retired")[2]))
    return {word: term for word, term in found.items() if word}


def retired_phrases(terms: str) -> dict[str, str]:
    """The retired phrases of the terms' second table, with what is said instead."""
    _words, _heading, phrases = terms.partition("## Phrases")
    return {phrase.strip(): row[1] for row in table(phrases) for phrase in row[0].split(",")}


def table(page: str) -> Iterator[list[str]]:
    """The fields of each row of the first table of a page."""
    rows = [line.strip().strip("|").split("|") for line in page.splitlines() if line.startswith("|")]
    return ([field.strip() for field in row] for row in rows[2:])


def definitions(tree: ast.AST, within: str = "") -> Iterator[str]:
    """``Class.name`` of each class and function of a module."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield within + node.name
            yield from definitions(node, f"{within}{node.name}.")
        elif isinstance(node, ast.stmt):
            yield from definitions(node, within)


def double(trees: dict[str, ast.Module], patterns: Iterable[tuple[str, str]]) -> list[str]:
    """A line for each name, or owner, that an idea has besides its first."""
    defined = []
    for path, tree in trees.items():
        module = path.removeprefix("mray/").removesuffix(".py").replace("/", ".")
        defined += [f"{module}:{name}" for name in definitions(tree)]
    lines = []
    for idea, pattern in patterns:
        several = sorted({match[1] for name in defined if (match := re.search(pattern, name))})
        lines += [f"{idea}: {name} beside {several[0]}" for name in several[1:]]
    return lines


def retired(trees: dict[str, ast.Module], words: Mapping[str, str]) -> list[str]:
    """A line for each definition whose name has a retired word."""
    return [
        f"{path}:{line}: {name}: say {words[part]!r}"
        for path, tree in trees.items()
        for name, line in _defined(tree)
        for part in sorted(parts(name) & words.keys())
    ]


def pages() -> dict[str, str]:
    """README and the texts of the manual by their paths, but the terms, which quote the retired phrases."""
    paths = [ROOT / "README.md", *sorted(filter(Path.is_file, TERMS.parent.iterdir()))]
    return {str(path.relative_to(ROOT)): path.read_text() for path in paths if path != TERMS}


def phrases(trees: dict[str, ast.Module], sources: Mapping[str, str], texts: Mapping[str, str], sought: Mapping[str, str]) -> list[str]:
    """A line for each retired phrase in a comment or a string of the sources (docstrings, errors, log lines, help), or in the texts."""
    pattern = _any_of(sought)
    found = [
        f"{path}:{line}: {phrase}: write {sought[phrase.lower()]!r}"
        for path, tree in trees.items()
        for line, text in (*strings(tree), *comments(tree, sources[path]))
        for phrase in pattern.findall(" ".join(text.split()))
    ]
    for path, text in texts.items():
        for match in pattern.finditer(text):
            phrase = " ".join(match[0].split())
            found.append(f"{path}:{text.count(chr(10), 0, match.start()) + 1}: {phrase}: write {sought[phrase.lower()]!r}")
    return found


def _any_of(sought: Iterable[str]) -> re.Pattern[str]:
    """A pattern of the phrases, whose words may be on several lines."""
    alternatives = sorted((r"\s+".join(map(re.escape, phrase.split())) for phrase in sought), key=len, reverse=True)
    return re.compile(rf"\b(?:{'|'.join(alternatives)})\b" if alternatives else r"(?!)", re.IGNORECASE)


def parts(name: str) -> set[str]:
    """The words of an identifier, and it whole."""
    return {name, *(part.lower() for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name))}


def _defined(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """(name, line) of each definition in a module: classes, functions, arguments, variables and attributes."""
    for node in nodes(tree):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr, node.lineno
