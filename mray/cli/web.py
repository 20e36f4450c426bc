"""The manual as one page for a browser: `document`.

Self-contained: the page includes its styles and script (``page.css`` and ``page.js``, beside the manual) and fetches nothing. Markdown
is rendered by markdown-it-py; pygments highlights code where it is installed. A section of a page has the address ``#PAGE--SECTION``,
and ``?q=words`` searches for the words, or for what they mean (``search.txt``). Without its script the page has no search, and on a narrow
screen the contents stand above the text.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Sequence
from typing import Any

from mray._common.version import __version__
from mray.cli.manual import Page, headings, meanings, read, slug


def document(pages: Sequence[Page]) -> str:
    """All pages as HTML. ImportError without markdown-it-py."""
    from markdown_it import MarkdownIt  # noqa: PLC0415

    markdown = MarkdownIt("commonmark", {"highlight": _coloured}).enable("table")
    # Wide tables scroll by themselves.
    markdown.add_render_rule("table_open", lambda *_args: '<div class="table"><table>\n')
    markdown.add_render_rule("table_close", lambda *_args: "</table></div>\n")
    articles = "\n".join(_article(markdown, page) for page in pages)
    contents = "\n".join(_entry(page) for page in pages)
    parts = {"style": read("page.css"), "script": read("page.js"), "contents": contents, "articles": articles, "version": __version__}
    parts["meanings"] = json.dumps(meanings())
    return re.sub(r"<!--(\w+)-->", lambda place: parts[place[1]], read("page.html"))


def _article(markdown: Any, page: Page) -> str:
    """A page, with anchors for headings and links to other pages of the document."""
    tokens = markdown.parse(page.text)
    for index, token in enumerate(tokens):
        if token.type == "heading_open":
            token.attrSet("id", address(page.name, "" if token.tag == "h1" else tokens[index + 1].content))
        for child in token.children or ():
            target = child.attrGet("href") if child.type == "link_open" else None
            if target and ":" not in target:
                file, _hash, anchor = target.partition("#")
                name = file.removesuffix(".md") or page.name
                child.attrSet("href", f"#{name}--{anchor}" if anchor else f"#{name}")
    return f"<article>\n{markdown.renderer.render(tokens, markdown.options, {})}</article>"


def address(page: str, section: str = "") -> str:
    """The address of a page, or of a section, within the document."""
    return f"{page}--{slug(section)}" if section else page


def _entry(page: Page) -> str:
    _title, *sections = headings(page.text)
    links = "".join(f'<li><a href="#{address(page.name, each)}">{html.escape(each.replace("`", ""))}</a></li>' for each in sections)
    return f'<li><a href="#{page.name}">{html.escape(page.title)}</a><ul>{links}</ul></li>'


def _coloured(code: str, language: str, _marks: str) -> str:
    """Code with the classes of pygments; empty without pygments or for an unknown language."""
    try:
        from pygments import highlight  # noqa: PLC0415
        from pygments.formatters import HtmlFormatter  # noqa: PLC0415
        from pygments.lexers import get_lexer_by_name  # noqa: PLC0415
    except ImportError:
        return ""
    if language not in ("python", "sh"):
        return ""
    return f"<pre><code>{highlight(code, get_lexer_by_name(language), HtmlFormatter(nowrap=True))}</code></pre>\n"
