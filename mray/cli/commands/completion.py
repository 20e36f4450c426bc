"""``mray completion``: the code by which a shell completes the words of ``mray``."""

from __future__ import annotations

import argparse

from mray.cli.completion import PACKAGE, shell_code
from mray.cli.terminal import DONE, lacks, parser, run_command

SUMMARY = "print the code that makes a shell complete mray's words"

SHELLS = ("bash", "zsh", "fish", "tcsh", "powershell")


def main(words: list[str]) -> int:
    arguments = parser("completion", SUMMARY, 'For bash and zsh: eval "$(mray completion bash)", in ~/.bashrc or ~/.zshrc.')
    arguments.add_argument("shell", choices=SHELLS, help="the shell")
    return run_command(arguments, words, _completion)


def _completion(given: argparse.Namespace) -> int:
    try:
        print(shell_code(given.shell))
    except ImportError:
        return lacks(PACKAGE, "completion", "mray completion")
    return DONE
