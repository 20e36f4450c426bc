"""``mray stop``: end the session that ``mray start`` has started, with all its processes."""

from __future__ import annotations

import sys

from mray._common import settings
from mray._inside.sessions import parents_elsewhere
from mray._joining.address import running, running_in
from mray._joining.persistent import STOP_SECONDS, OutOfSightError, stop_persistent
from mray.cli.terminal import DONE, NOT_FOUND, parse, parser

SUMMARY = "end the session that mray start has started"


def main(words: list[str], none_found: str = "mray stop: no session of `mray start` is running.") -> int:
    arguments = parser("stop", SUMMARY, "Connected drivers are notified. A second call finds nothing to end, which is fine.")
    arguments.add_argument("--temp-dir", metavar="DIR", help="as mray start was given it")
    arguments.add_argument("--all", action="store_true", help="also those that were given another --temp-dir")
    arguments.add_argument("--force", "-f", action="store_true", help="SIGKILL immediately")
    arguments.add_argument(
        "--grace-period",
        "-g",
        type=float,
        default=STOP_SECONDS,
        metavar="SECONDS",
        help=f"how long the node may take before it is killed (default {STOP_SECONDS:g})",
    )
    given = parse(arguments, words)
    found = running(given.temp_dir or settings.TMPDIR.get())
    sessions = [] if found is None else [found]
    if given.all:
        sessions += [each for each in map(running_in, parents_elsewhere()) if each is not None and each not in sessions]
    if not sessions:
        print(none_found, file=sys.stderr)
    outcome = DONE
    for each in sessions:
        try:
            in_order = stop_persistent(each, given.grace_period, force=given.force)
        except OutOfSightError as error:
            print(f"mray stop: {error}.", file=sys.stderr)
            outcome = NOT_FOUND
        else:
            print(f"Stopped the session in {each.session_dir}" + ("." if in_order else "; its node had to be killed."))
    return outcome
