"""DOT text, and pictures rendered from it by Graphviz's program ``dot``."""

from __future__ import annotations

import re
import subprocess

#: Identifiers of DOT without quotes: https://graphviz.org/doc/info/lang.html
_PLAIN = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*|-?(\.[0-9]+|[0-9]+(\.[0-9]*)?)")
_KEYWORDS = {"node", "edge", "graph", "digraph", "subgraph", "strict"}
#: ``png``, or with the renderer ``png:cairo:gd``.
_FORMAT = re.compile(r"[a-z][a-z0-9_.-]*(:[a-z0-9_]+)*")


def quote(text: str) -> str:
    if _PLAIN.fullmatch(text) and text.lower() not in _KEYWORDS:
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def attributes(**given: str) -> str:
    return f" [{' '.join(f'{name}={quote(value)}' for name, value in given.items())}]" if given else ""


def picture(text: str, picture_format: str) -> bytes:
    """Render DOT text.

    Raises ImportError when ``dot`` is not installed, ValueError for a format that it does not know, RuntimeError when it fails.
    """
    if not _FORMAT.fullmatch(picture_format) or picture_format == "html":  # only timelines have an HTML page
        raise ValueError(_unknown(picture_format))
    try:
        done = subprocess.run(["dot", f"-T{picture_format}"], input=text.encode(), capture_output=True, check=False)
    except OSError:
        raise ImportError(
            f"Please install graphviz to draw graphs as {picture_format}; it has the program `dot`: `apt install graphviz`, "
            "`conda install graphviz`, or see https://graphviz.org/download/. The formats 'svg', 'mermaid', 'dot' and 'ascii' need "
            'nothing, for example `visualize(format="svg")`.'
        ) from None
    if done.returncode or not done.stdout:
        said = done.stderr.decode(errors="replace").strip()
        if "not recognized" in said:
            raise ValueError(f"{_unknown(picture_format)} dot: {said}")
        raise RuntimeError(f"`dot -T{picture_format}` failed with exit status {done.returncode}: {said}")
    return done.stdout


def _unknown(picture_format: str) -> str:
    return f"unknown format: {picture_format!r}. There are 'png', 'pdf', 'svg', 'mermaid', 'dot', 'ascii', and all others that dot makes."
