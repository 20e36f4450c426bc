"""``mray docs``: the manual in the terminal, or as a page of a browser.

On a terminal a page is rendered by rich, where rich is installed, and goes through the pager; a pipe gets its Markdown as it is.
"""

from __future__ import annotations

import argparse
import os
import pydoc
import sys
import webbrowser
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from mray._runtime.environment.packages import cache_folder
from mray.cli import manual, web
from mray.cli.terminal import DONE, NOT_FOUND, lacks, parser, run_command

SUMMARY = "read the manual: its pages, one of them, or all of them in a browser"

#: Columns of prose, however wide the terminal is.
_WIDEST = 110
#: Rows of longer cells, which mostly take several lines, are set apart.
_SHORT_CELL = 60
#: Options of the pager ``less``, unless the user has chosen some: colours; end at once if all fits on the screen; leave it there.
_LESS = "FRX"


def main(words: list[str]) -> int:
    """The command."""
    arguments = parser("docs", SUMMARY, "Without PAGE and --web the pages are listed.")
    arguments.add_argument("page", nargs="?", metavar="PAGE", help="the page to show")
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
        _show(page.text)
    else:
        _list()
    return DONE


def _list() -> None:
    width = max(len(page.name) for page in manual.pages()) + 2
    for page in manual.pages():
        print(f"  {page.name:<{width}}{page.line}")
    print("\nmray docs PAGE shows a page; mray docs --web opens all of them in a browser.")


def _show(text: str) -> None:
    """Print a page, in the way of the place that it goes to."""
    if not sys.stdout.isatty():
        print(text, end="")
        return
    os.environ.setdefault("LESS", _LESS)  # for the pager, which this process starts
    pydoc.pager(rendered(text))


def rendered(text: str) -> str:
    """A page for a terminal: by rich, with its colours; the text itself where there is no rich."""
    try:
        import rich.console  # noqa: PLC0415
        import rich.markdown  # noqa: PLC0415
    except ImportError:
        return text

    class Table(rich.markdown.TableElement):  # type: ignore[misc]
        """As rich's, but words that are too long for their column are folded, and not cut."""

        def __rich_console__(self, console: Any, options: Any) -> Iterator[Any]:
            for table in super().__rich_console__(console, options):
                for column in table.columns:
                    column.overflow = "fold"
                table.show_lines = any(len(str(cell)) > _SHORT_CELL for column in table.columns for cell in column.cells)
                yield table

    class Markdown(rich.markdown.Markdown):  # type: ignore[misc]
        elements: ClassVar = {**rich.markdown.Markdown.elements, "table_open": Table}

    console = rich.console.Console(force_terminal=True)
    console.width = min(console.width, _WIDEST)
    with console.capture() as capture:
        console.print(Markdown(text, hyperlinks=False))
    return str(capture.get())


# --------------------------------------------------------------------------------------------- browser
def _open(output: str | None, page: manual.Page | None) -> int:
    """Write the whole manual as HTML, and open it in a browser unless a file was named."""
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
    """The file that a browser reads after this process has ended: beside what is kept between sessions."""
    return Path(cache_folder("manual.html"))
