"""``mray list``: the records of one kind."""

from __future__ import annotations

import argparse
import sys
import textwrap

from mray.cli.terminal import DONE, add_format, add_last, add_session, chosen_session, parser, run_command, show
from mray.util.state.api import counted_records
from mray.util.state.common import DEFAULT_LIMIT, RAY_MAX_LIMIT_FROM_API_SERVER, RECORDS, StateSchema, TaskState

SUMMARY = "list actors, tasks, objects, workers, graphs and more"


def main(words: list[str]) -> int:
    arguments = parser("list", SUMMARY)
    kinds = arguments.add_subparsers(dest="kind", metavar="KIND", required=True, help="mray list KIND --help tells its columns")
    for kind, record in RECORDS.items():
        doc = (record.__doc__ or "").strip()
        each = kinds.add_parser(
            kind,
            help=doc,
            description=doc,
            epilog=columns_help(record),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            aliases=[kind.replace("-", "_")] if "-" in kind else [],
        )
        each.set_defaults(record=record, last=False)
        add_session(each)
        if record is TaskState:
            add_last(each)
        add_format(each)
        repeated = "only rows with this value, or COLUMN!=VALUE; may be repeated"
        each.add_argument("--filter", action="append", default=[], metavar="COLUMN=VALUE", help=repeated)
        most = f"rows at most (default {DEFAULT_LIMIT} in a table, {RAY_MAX_LIMIT_FROM_API_SERVER:,} as JSON or YAML)"
        each.add_argument("--limit", type=int, help=most)
        each.add_argument("--detail", action="store_true", help="all columns")
        each.add_argument("--allow-missing", action="store_true", help="a process that does not answer is a warning, not an error")
    return run_command(arguments, words, _list)


def columns_help(record: type[StateSchema]) -> str:
    """Columns that need --detail are marked."""
    lines = ["columns (* only with --detail; those in [] cannot be filtered by):"]
    for field in record.fields():
        name = field.name if field.metadata["filterable"] else f"[{field.name}]"
        head = f"  {name}{'*' if field.metadata['detail'] else ''}"
        lines += textwrap.wrap(field.metadata["doc"], 100, initial_indent=f"{head:<28}", subsequent_indent=" " * 28)
    return "\n".join(lines)


def _list(given: argparse.Namespace) -> int:
    record: type[StateSchema] = given.record
    filters = [split_filter(text) for text in given.filter]
    limit = given.limit
    if limit is None:  # a program that reads rows gets all of them
        limit = DEFAULT_LIMIT if given.format == "table" else RAY_MAX_LIMIT_FROM_API_SERVER
    session = chosen_session(given) if given.last else given.session
    rows, total = counted_records(record, session, filters, limit, given.timeout, given.detail, not given.allow_missing)
    columns = record.table_columns(given.detail) if given.format == "table" else record.list_columns(given.detail)
    plain = [{name: row[name] for name in columns} for row in rows]
    if given.format == "table":
        plain = [record.humanify(row) for row in plain]
    show(plain, given.format, record.KEY)
    if total > len(rows):
        sys.stdout.flush()
        print(f"mray: {len(rows):,} of {total:,} {record.WORDS[1]}; --limit for more", file=sys.stderr)
    return DONE


def split_filter(text: str) -> tuple[str, str, str]:
    """Parse ``state!=DEAD``; ValueError for other forms."""
    column, equals, value = text.partition("=")
    if not equals or not column.strip("! "):
        raise ValueError(f"--filter {text}: expected COLUMN=VALUE or COLUMN!=VALUE")
    if column.endswith("!"):
        return column[:-1].strip(), "!=", value.strip()
    return column.strip(), "=", value.strip()
