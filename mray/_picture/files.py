"""Writing pictures to files: the formats and their programs. Runs ``dot``, and ``xdg-open`` to show a file."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from mray._picture.characters import ascii
from mray._picture.dot_form import dot
from mray._picture.figure import Figure
from mray._picture.graphviz import picture
from mray._picture.mermaid import mermaid
from mray._picture.svg import svg

_SUFFIXES = {"mermaid": "mmd"}


def draw(figure: Figure, filename: str, picture_format: str, view: bool) -> str:
    """Write `filename` (DOT text) and ``filename.<format>``; ``"ascii"`` writes nothing. `view` shows the picture, or prints the text.

    Returns DOT text, or for ``"ascii"`` and ``"mermaid"`` that text; Mermaid writes no DOT file. Raises ImportError when the program for
    a format is not installed, ValueError for an unknown format, OSError for a file that cannot be written.
    """
    if picture_format == "ascii":
        text = ascii(figure, terminal_width())
        if view:
            print(text)  # noqa: T201
        return text
    text = mermaid(figure) if picture_format == "mermaid" else dot(figure)
    if picture_format in ("mermaid", "dot"):
        content = text.encode()
    elif picture_format == "svg":
        content = graph_svg(figure).encode()
    else:
        content = picture(text, picture_format)
    path = Path(f"{filename}.{_SUFFIXES.get(picture_format, picture_format)}")
    path.parent.mkdir(parents=True, exist_ok=True)
    if picture_format != "mermaid":
        Path(filename).write_text(text)
    path.write_bytes(content)
    if view:
        _show(path)
    return text


def graph_svg(figure: Figure) -> str:
    if shutil.which("dot") is None:
        return svg(figure)
    return picture(dot(figure), "svg").decode()


def terminal_width() -> int | None:
    return shutil.get_terminal_size().columns if sys.stdout is not None and sys.stdout.isatty() else None


def _show(path: Path) -> None:
    try:
        subprocess.Popen(
            ["xdg-open", str(path)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        raise RuntimeError(f"{path} is written, but there is no program xdg-open to show it: {error}") from error
