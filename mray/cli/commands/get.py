"""``mray get``: one record with all details, by its id or the beginning of it."""

from __future__ import annotations

import argparse
import sys

from mray.cli.columns import CUT, is_meant
from mray.cli.terminal import DONE, NOT_FOUND, add_format, add_session, parser, run_command, show
from mray.util.state.api import look
from mray.util.state.common import RECORDS, StateSchema

SUMMARY = "show one actor, task, object, worker, graph, ... in full"


def main(words: list[str]) -> int:
    kinds = {record.WORDS[0]: record for record in RECORDS.values()}
    arguments = parser("get", SUMMARY, "An actor is also found by its name, a worker by its pid.")
    arguments.add_argument("kind", choices=sorted(kinds), metavar="KIND", help=", ".join(sorted(kinds)))
    arguments.add_argument("id", metavar="ID", help="its id, or the beginning of it when only one begins so")
    add_session(arguments)
    add_format(arguments)
    return run_command(arguments, words, lambda given: _get(given, kinds[given.kind]))


def _get(given: argparse.Namespace, record: type[StateSchema]) -> int:
    view = look(given.session, given.timeout)
    rows = list(view.records(record))
    wanted = given.id.lower().rstrip(CUT)
    found = [row for row in rows if str(row[record.KEY]) == wanted]
    found = found or [row for row in rows if any(is_meant(given.id, str(row.get(name) or "")) for name in ("name", "pid"))]
    found = found or [row for row in rows if str(row[record.KEY]).startswith(wanted)]
    # An object has a row for each process that holds it.
    if len({row[record.KEY] for row in found}) != 1:
        ids = ", ".join(sorted({str(row[record.KEY]) for row in found}))
        print(f"mray: {f'several {record.WORDS[1]} are meant: {ids}' if ids else f'no {record.WORDS[0]} {given.id!r}'}", file=sys.stderr)
        for text in view.missing:
            print(f"mray: warning: {text}", file=sys.stderr)
        return NOT_FOUND
    whole = [each.asdict() for each in found]
    if given.format == "table":
        for row in whole:
            shown = record.humanify(row)
            width = max(map(len, shown)) + 2
            print("\n".join(f"{name:<{width}}{'' if value is None else value}" for name, value in shown.items()))
    else:
        show(whole if len(whole) > 1 else whole[0], given.format)
    return DONE
