"""``mray docs``: the manual as text, through the pager on a terminal, or as a page in a browser."""

from __future__ import annotations

import argparse
import pydoc
import sys
import webbrowser
from pathlib import Path
from typing import Any

from mray._common.cache import cache_folder
from mray.cli import manual, web
from mray.cli.terminal import DONE, NOT_FOUND, lacks, parser, run_command

SUMMARY = "read the manual: its pages, one of them, or all of them in a browser"


def main(words: list[str]) -> int:
    arguments = parser("docs", SUMMARY, "Without PAGE and --web the pages are listed.")
    page: Any = arguments.add_argument("page", nargs="?", metavar="PAGE", help="the page to show")
    page.completer = lambda **_line: [each.name for each in manual.pages()]
    arguments.add_argument("--web", action="store_true", help="open all pages as one, with a search, in a browser (at PAGE, if given)")
    arguments.add_argument("--output", metavar="FILE", help="with --web: write this file, and open nothing")
    return run_command(arguments, words, _docs)


def _docs(given: argparse.Namespace) -> int:
    if given.output and not given.web:
        raise ValueError("--output is for --web")
    page = manual.find(given.page) if given.page else None
    if given.page and page is None:
        meant = manual.nearest(given.page)
        hint = f"; the nearest are {', '.join(meant)}" if meant else "; mray docs lists them"
        print(f"mray: no page {given.page!r} in the manual{hint}", file=sys.stderr)
        return NOT_FOUND
    if given.web:
        return _open(given.output, page)
    if page is not None:
        pydoc.pager(page.text)
    else:
        _list()
    return DONE


def _list() -> None:
    width = max(len(page.name) for page in manual.pages()) + 2
    for page in manual.pages():
        print(f"  {page.name:<{width}}{page.line}")
    print("\nmray docs PAGE shows a page; mray docs --web opens all of them in a browser.")


# --------------------------------------------------------------------------------------------- browser
def _open(output: str | None, page: manual.Page | None) -> int:
    """Open the whole manual as HTML in a browser, or write it to the named file."""
    try:
        html = web.document(manual.pages())
    except ImportError:
        return lacks("markdown-it-py", "docs", "mray docs --web")
    path = Path(output) if output else _kept()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(html, "utf-8")
    if output:
        print(path)
        return DONE
    address = path.as_uri() + (f"#{page.name}" if page is not None else "")
    if not webbrowser.open(address):
        print(f"mray: no browser was found; open {address}", file=sys.stderr)
        return NOT_FOUND
    print(address)
    return DONE


def _kept() -> Path:
    """A file that a browser can read after this process has ended."""
    return Path(cache_folder("manual.html"))
