"""The manual in the package: Markdown files of ``mray/_manual``, in the order of ``index.md``.

Read as package data, which works in a wheel and in a zip file too. Imports only the standard library.
"""

from __future__ import annotations

import difflib
import re
from functools import cache
from importlib import resources
from typing import NamedTuple

from mray.cli import reference

_LISTED = re.compile(r"^\* \[([\w-]+)\]\([\w-]+\.md\): (.+)$", re.MULTILINE)
#: marks of generated parts
_COMMENT = re.compile(r"^<!--.*?-->\n+", re.MULTILINE | re.DOTALL)
_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
#: most names that are suggested for an unknown one
_NEAREST = 4


class Page(NamedTuple):
    """One page."""

    name: str
    line: str

    @property
    def text(self) -> str:
        return _text(self.name)

    @property
    def title(self) -> str:
        return self.text.partition("\n")[0].removeprefix("# ")


@cache
def pages() -> tuple[Page, ...]:
    """All pages, in the order of the index."""
    return tuple(Page(name, line) for name, line in _LISTED.findall(read("index.md")))


@cache
def _text(name: str) -> str:
    written = _COMMENT.sub("", read(f"{name}.md"))
    return f"{written}{reference.text()}" if name == "reference" else written


def read(file: str) -> str:
    """A file of the manual."""
    return resources.files("mray").joinpath("_manual", file).read_text("utf-8")


def find(name: str) -> Page | None:
    """The page of this name; None if there is none."""
    return next((page for page in pages() if page.name == name), None)


@cache
def meanings() -> dict[str, tuple[str, ...]]:
    """Words that people look for, with words of the manual that mean the same, from ``search.txt``."""
    found: dict[str, tuple[str, ...]] = {}
    for line in read("search.txt").splitlines()[1:]:
        words, _colon, same = line.partition(": ")
        found.update(dict.fromkeys(words.split(), tuple(same.split(", "))))
    return found


def nearest(word: str) -> list[str]:
    """Names of pages that `word` may mean: similar names, or pages with it, or with words that mean the same, in their headings or text."""
    word = word.lower()
    names = [page.name for page in pages()]
    like = [name for name in names if name.startswith(word[:4])] + difflib.get_close_matches(word, names, _NEAREST, 0.6)
    words = (word, *meanings().get(word, ()))
    headed = [page.name for page in pages() if any(each in " ".join(headings(page.text)).lower() for each in words)]
    counts = {page.name: sum(page.text.lower().count(each) for each in words) for page in pages()}
    said = [name for name in sorted(names, key=lambda name: -counts[name]) if counts[name]]
    return list(dict.fromkeys([*like, *headed, *said]))[:_NEAREST]


def headings(text: str) -> list[str]:
    """The titles of a page and its sections."""
    return re.findall(r"^#+ (.+)$", _FENCED.sub("", text), re.MULTILINE)


def slug(heading: str) -> str:
    """The anchor of a heading, as Markdown hosts generate it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
