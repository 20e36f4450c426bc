"""``mray doctor``: check that this machine is fit for mray, and find left-overs."""

from __future__ import annotations

import argparse
import dataclasses

from mray._common.finding import BAD, OK, WARNING
from mray.cli.checks import clean, examine
from mray.cli.terminal import DONE, NOT_FOUND, add_format, parser, run_command, show

SUMMARY = "check this machine: shared memory, limits, GPUs, packages, left-overs"

_SIGNS = {OK: "  ok   ", WARNING: "  WARN ", BAD: "  BAD  "}


def main(words: list[str]) -> int:
    arguments = parser("doctor", SUMMARY, "Exit status 1 when something is bad or a warning.")
    left = "remove the processes, memory and directories of this user's dead sessions, and the logs and records that ended ones have left"
    arguments.add_argument("--fix", "--clean", dest="fix", action="store_true", help=left)
    add_format(arguments)
    return run_command(arguments, words, _doctor)


def _doctor(given: argparse.Namespace) -> int:
    removed = clean() if given.fix else []
    findings = examine()
    if given.format == "table":
        for text in removed:
            print(f"removed {text}")
        width = max(len(finding.subject) for finding in findings)
        for finding in findings:
            advice = f"  ->  {finding.advice}" if finding.advice and finding.verdict != OK else ""
            print(f"{_SIGNS.get(finding.verdict, '  -    ')}{finding.subject:<{width}}  {finding.text}{advice}")
    else:
        show([dataclasses.asdict(finding) for finding in findings], given.format)
    return NOT_FOUND if any(finding.verdict in (WARNING, BAD) for finding in findings) else DONE
