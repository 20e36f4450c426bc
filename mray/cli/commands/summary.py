"""``mray summary``: the number of actors, tasks or objects in each state."""

from __future__ import annotations

import argparse
from typing import Any

from mray.cli.terminal import DONE, add_format, add_session, parser, run_command, show
from mray.util.state.api import SUMMARIES

SUMMARY = "count actors by class, tasks by name, or objects"


def main(words: list[str]) -> int:
    arguments = parser("summary", SUMMARY)
    arguments.add_argument("kind", choices=sorted(SUMMARIES), metavar="KIND", help=", ".join(sorted(SUMMARIES)))
    arguments.add_argument("--allow-missing", action="store_true", help="a process that does not answer is a warning, not an error")
    add_session(arguments)
    add_format(arguments)
    return run_command(arguments, words, _summarize)


def _summarize(given: argparse.Namespace) -> int:
    summary = SUMMARIES[given.kind](given.session, given.timeout, not given.allow_missing)["cluster"]
    if given.format != "table":
        show(summary, given.format)
        return DONE
    groups: dict[str, dict[str, Any]] = summary.pop("summary")
    print(", ".join(f"{name}: {value:g}" for name, value in summary.items() if name.startswith("total_")))
    show([{name: value for name, value in group.items() if name != "total_num_nodes"} for group in groups.values()], "table")
    return DONE
