"""``mray timeline``: what ran when in a session, as a file for https://ui.perfetto.dev, or as a page.

The last calls of each worker, and the profiles of compiled graphs.
"""

from __future__ import annotations

import argparse
import sys
from datetime import datetime
from pathlib import Path

from mray._backends.session_trace import ended_timeline, timeline
from mray._inside.sessions import EndedSession
from mray._picture.timeline_page import left_out, timeline_page
from mray.cli.columns import counted
from mray.cli.terminal import DONE, NOT_FOUND, add_last, add_session, chosen_session, parser, run_command

SUMMARY = "write what ran when, for Perfetto or as a page"


def main(words: list[str]) -> int:
    arguments = parser("timeline", SUMMARY, "Compiled graphs are in it for the time in which they were profiled (CompiledGraph.profile).")
    arguments.add_argument("--output", "-o", metavar="FILE", help="the trace's file (default: mray-timeline-TIME.json, unless --html)")
    arguments.add_argument("--html", metavar="FILE", help="write a page that any browser shows, too")
    arguments.add_argument("--begin", type=float, default=0.0, metavar="SECONDS", help="where the page begins, after the first span")
    arguments.add_argument("--seconds", type=float, metavar="SECONDS", help="how much the page shows (default: everything)")
    add_session(arguments, timeout=10.0)
    add_last(arguments)
    return run_command(arguments, words, _timeline)


def _timeline(given: argparse.Namespace) -> int:
    directory = chosen_session(given)
    session = EndedSession.at(directory)
    trace = timeline(directory, given.timeout, with_running=True) if session is None else ended_timeline(session)
    for sentence in left_out(trace.info["lost"]):
        print(f"mray: {sentence}", file=sys.stderr)
    slices = sum(len(each.spans) for each in trace.recordings)
    if not slices:
        print("mray: nothing has run in this session yet", file=sys.stderr)
        return NOT_FOUND
    output = given.output
    if output is None and given.html is None:
        output = f"mray-timeline-{datetime.now():%Y-%m-%d_%H-%M-%S}.json"
    if output is not None:
        trace.save(output)
        whole = f"{counted(slices, 'slice')} of {counted(len({each.pid for each in trace.recordings}), 'process', 'processes')}"
        print(f"{output}: {whole}; open it in https://ui.perfetto.dev")
    if given.html is not None:
        text, count = timeline_page(trace.recordings, begin=given.begin, seconds=given.seconds, lost=trace.info["lost"])
        Path(given.html).write_text(text)
        print(f"{given.html}: {counted(count, 'slice')}; open it in a browser")
    return DONE
