"""DOT text, and pictures made of it.

The text needs nothing. Pictures are made by the optional package ``graphviz``, which runs the program ``dot``.
"""

from __future__ import annotations

import re
from typing import Any

#: What DOT takes without quotes: https://graphviz.org/doc/info/lang.html
_PLAIN = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*|-?(\.[0-9]+|[0-9]+(\.[0-9]*)?)")
_KEYWORDS = {"node", "edge", "graph", "digraph", "subgraph", "strict"}


def quote(text: str) -> str:
    """A text as an identifier of DOT: characters stand for themselves, a line break is one."""
    if _PLAIN.fullmatch(text) and text.lower() not in _KEYWORDS:
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def attributes(**given: str) -> str:
    """The attributes of a node or edge, with a space before them; empty when none is given."""
    return f" [{' '.join(f'{name}={quote(value)}' for name, value in given.items())}]" if given else ""


def write_picture(text: str, filename: str, picture_format: str, view: bool = False) -> None:
    """Write DOT text to `filename` and its picture to ``filename.<format>``, and open the picture if asked to.

    Raises ImportError when what makes pictures is not installed, ValueError for a format that it does not know.
    """
    graphviz = _graphviz()
    try:
        graphviz.Source(text).render(filename, format=picture_format, view=view)
    except graphviz.ExecutableNotFound as error:
        raise _no_program() from error


def picture(text: str, picture_format: str) -> bytes:
    """The picture of DOT text. Raises as `write_picture` does."""
    graphviz = _graphviz()
    try:
        made: bytes = graphviz.pipe("dot", picture_format, text.encode())
    except graphviz.ExecutableNotFound as error:
        raise _no_program() from error
    return made


def _graphviz() -> Any:
    try:
        import graphviz  # noqa: PLC0415
    except ImportError:
        raise ImportError(
            "Please install graphviz to draw graphs: the Python package by running `pip install graphviz`, and the program `dot`, which "
            'distributions of Linux have in a package of that name. A compiled graph needs neither for `visualize(format="ascii")`.'
        ) from None
    return graphviz


def _no_program() -> ImportError:
    return ImportError(
        "Please install the program `dot` to draw graphs: `apt install graphviz`, or see https://graphviz.org/download/. The Python "
        "package graphviz is there, but it runs that program."
    )
