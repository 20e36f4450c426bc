"""The words that a shell offers for a line that begins with ``mray``, by argcomplete.

The shell runs the command with argcomplete's variables, of which the first names the word that counts as the program. The parser of the
command that the line names is complete when the command parses: there `completed` prints the words and ends the process.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

_VARIABLE = "_ARGCOMPLETE"
PACKAGE = "argcomplete"


def is_asked() -> bool:
    """Whether a shell asks for completions."""
    return _VARIABLE in os.environ


def command_of(names: Sequence[str]) -> str | None:
    """The command that the line names; None while it is being typed. From here on it counts as the program."""
    words = _words()
    if len(words) < 2 or words[1] not in names:
        return None
    os.environ[_VARIABLE] = str(int(os.environ[_VARIABLE]) + 1)
    return words[1]


def _words() -> list[str]:
    """The line's words from the program on, without the one at the cursor."""
    line, point = os.environ["COMP_LINE"], int(os.environ["COMP_POINT"])
    words: list[str] = importlib.import_module(f"{PACKAGE}.lexers").split_line(line, point)[3]
    return words[int(os.environ[_VARIABLE]) - 1 :]


def completed(arguments: argparse.ArgumentParser) -> NoReturn:
    """Print the words for the line, and end the process."""
    importlib.import_module(PACKAGE).autocomplete(arguments, always_complete_options="long")
    sys.exit(1)


def shell_code(shell: str) -> str:
    """The code that a shell evaluates. Raises ImportError without argcomplete."""
    code: str = importlib.import_module(PACKAGE).shellcode(["mray"], shell=shell)
    return code
