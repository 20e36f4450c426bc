"""Pictures into files: the formats, the program that makes each, and the files written. Runs ``dot``, and ``xdg-open`` to show a file."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from mray._picture.graphviz import picture

#: Formats that need no other program, and the suffixes of their files; "" for none. All others are ``dot``'s, by its names for them.
OWN = {"ascii": "", "svg": ".svg", "html": ".html", "mermaid": ".mmd", "dot": ".dot"}
#: Formats whose own text `draw` returns; for all others it returns DOT text.
_TEXTS = ("ascii", "mermaid")
#: Formats that are written without DOT text beside them: Ray does not have them.
_ALONE = ("html", "mermaid")


@dataclass(frozen=True)
class Forms:
    """DOT text, and for every other format of `OWN` a function that makes its text."""

    dot: Callable[[], str]
    own: Mapping[str, Callable[[], str]]


def draw(forms: Forms, filename: str, picture_format: str, view: bool) -> str:
    """Write `filename` (DOT text) and ``filename.<format>``; ``"ascii"`` writes nothing. `view` shows the picture, or prints the text.

    Returns DOT text; the text itself of ``"ascii"`` and ``"mermaid"``. Raises ImportError when the program for a format is not
    installed, ValueError for an unknown format, OSError for a file that cannot be written.
    """
    if picture_format == "ascii":
        text = forms.own["ascii"]()
        if view:
            print(text)  # noqa: T201
        return text
    made = forms.dot()
    path = Path(f"{filename}{OWN.get(picture_format, f'.{picture_format}')}")
    text = made if picture_format not in _TEXTS else forms.own[picture_format]()
    if picture_format in forms.own:
        content = forms.own[picture_format]().encode()
    else:
        content = made.encode() if picture_format == "dot" else picture(made, picture_format)
    path.parent.mkdir(parents=True, exist_ok=True)
    if picture_format not in _ALONE:
        Path(filename).write_text(made)
    path.write_bytes(content)
    if view:
        _show(path)
    return text


def terminal_width() -> int | None:
    """The characters of a line of the terminal; None where the output is no terminal."""
    return shutil.get_terminal_size().columns if sys.stdout is not None and sys.stdout.isatty() else None


def _show(path: Path) -> None:
    """Have the desktop open a file."""
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
