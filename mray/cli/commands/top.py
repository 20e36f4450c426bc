"""``mray top``: a live view of a session in the terminal, through the package rich.

Each refresh is one look (`mray.cli.samples`); rates are differences of two looks. Nothing is measured in the session for it. A graph's
latency follows from its throughput and the executions that are in flight (Little's law), as far as two looks tell: an estimate.
"""

from __future__ import annotations

import argparse
import os
import select
import signal
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mray.cli.samples import Process, Sample, is_driver, take
from mray.cli.terminal import DONE, NOT_FOUND, USAGE, add_session, guarded, lacks, parser
from mray.util.state.api import look, session_directory
from mray.util.state.common import _bytes
from mray.util.state.exception import ServerUnavailable

#: Columns where there is no terminal to tell.
_WIDTH = 160

SUMMARY = "watch a session: actors, CPU, memory, calls, graphs, who waits for whom"


def main(words: list[str]) -> int:
    arguments = parser("top", SUMMARY, "Needs rich (pip install 'mray[top]') and a terminal; --once prints one view anywhere. q ends it.")
    arguments.add_argument("--interval", type=float, default=1.0, metavar="SECONDS", help="how often to look (default 1)")
    arguments.add_argument("--once", action="store_true", help="print one view, and end")
    add_session(arguments, timeout=2.0)
    given = arguments.parse_args(words)
    return guarded(lambda: _top(given))


def _top(given: argparse.Namespace) -> int:
    try:
        import rich.console  # noqa: PLC0415
        import rich.live  # noqa: PLC0415
    except ImportError:
        return lacks("rich", "top", "mray top")
    if given.interval <= 0:
        raise ValueError("--interval must be more than 0")
    if not given.once and not (sys.stdout.isatty() and sys.stdin.isatty()):
        print("mray: mray top draws in a terminal, and this is none; mray top --once prints one view.", file=sys.stderr)
        return USAGE
    directory = session_directory(given.session)
    console = rich.console.Console(width=None if sys.stdout.isatty() else _WIDTH)
    before = take(look(directory, given.timeout))
    _pause(given.interval)
    now = take(look(directory, given.timeout))
    if given.once:
        console.print(render(now, before))
        return DONE
    try:
        with _keys(), rich.live.Live(render(now, before), console=console, screen=True, auto_refresh=False) as live:
            while not _pause(given.interval):
                before, now = now, take(look(directory, given.timeout))
                live.update(render(now, before), refresh=True)
    except ServerUnavailable:
        print(f"mray: the session {os.path.basename(directory)} has ended", file=sys.stderr)
        return NOT_FOUND
    return DONE


@contextmanager
def _keys() -> Iterator[None]:
    """Keys arrive at once and are not shown. Ctrl-C still interrupts, and ending by SIGTERM gives the terminal back too."""
    before = termios.tcgetattr(sys.stdin)
    terminate = signal.signal(signal.SIGTERM, lambda *_args: sys.exit(143))
    try:
        tty.setcbreak(sys.stdin)
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
        signal.signal(signal.SIGTERM, terminate)


def _pause(seconds: float) -> bool:
    """Wait for the next look; whether the user wants to end."""
    watched = [sys.stdin] if sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty() else []
    ready, _writable, _broken = select.select(watched, [], [], seconds)
    if not ready:
        return False
    key = os.read(sys.stdin.fileno(), 16)
    return key[:1] in (b"q", b"Q", b"\x1b", b"\x04", b"")


# ------------------------------------------------------------------------------------------------ drawing
def render(now: Sample, before: Sample) -> Any:
    """The view: what the session has, its processes, its graphs, and who waits for whom."""
    import rich.console  # noqa: PLC0415
    import rich.table  # noqa: PLC0415
    import rich.text  # noqa: PLC0415

    elapsed = max(now.moment - before.moment, 1e-6)
    parts: list[Any] = [rich.text.Text(line, style="bold" if not index else "") for index, line in enumerate(headline(now))]
    table = rich.table.Table(box=None, pad_edge=False, header_style="reverse")
    for name in ("PID", "WHAT", "NAME", "CPU%", "MEMORY", "OBJECTS", *(["GPU MEM"] if now.gpus else []), "CALLS/S", "QUEUED", "RUNS"):
        table.add_column(name, justify="left" if name in ("WHAT", "NAME", "RUNS") else "right", no_wrap=True)
    for row in process_rows(now, before, elapsed):
        table.add_row(*map(str, row))
    parts.append(table)
    graphs = list(graph_rows(now, before, elapsed))
    if graphs:
        table = rich.table.Table(box=None, pad_edge=False, header_style="reverse")
        for name in ("GRAPH", "ACTORS", "EXECUTIONS/S", "LATENCY", "IN FLIGHT", "STATE"):
            table.add_column(name, justify="right" if name in ("EXECUTIONS/S", "LATENCY", "IN FLIGHT") else "left", no_wrap=True)
        for row in graphs:
            table.add_row(*row)
        parts += [rich.text.Text(""), table]
    waits = list(wait_lines(now))
    if waits:
        parts += [rich.text.Text(""), rich.text.Text("waits", style="reverse"), *(rich.text.Text(line, no_wrap=True) for line in waits)]
    parts += [rich.text.Text(f"missing: {text}", style="red") for text in now.view.missing]
    return rich.console.Group(*parts)


def headline(now: Sample) -> list[str]:
    """The first lines: the session and its resources."""
    node = now.view.node
    total, free = node["resources"], node["available"]
    used = [
        f"{name} {amount - free.get(name, 0.0):g}/{amount:g}"
        for name, amount in total.items()
        if not name.startswith("node:") and "memory" not in name and not name.startswith("accelerator_type:")
    ]
    objects = sum(process.object_bytes for process in now.processes)
    waiting = f", {len(node['demands'])} wait for resources" if node["demands"] else ""
    store = f"objects {_bytes(objects)} of {_bytes(node['object_store_memory'])}"
    workers = sum(not is_driver(process) for process in now.processes)
    lines = [
        f"{os.path.basename(now.view.directory)}  {drivers(node['jobs'])}",
        f"{', '.join(used)}; {store}; {workers} workers{waiting}; load {os.getloadavg()[0]:.2f}",
    ]
    for gpu in now.gpus:
        memory = f"{_bytes(gpu['used_bytes'])} of {_bytes(gpu['total_bytes'])}"
        lines.append(f"GPU {gpu['index']} {gpu['name']}: {memory}, {gpu['busy']:g} % busy")
    return [*lines, ""]


def drivers(jobs: list[dict[str, Any]]) -> str:
    """The owner of the session."""
    pids = [str(job["pid"]) for job in jobs if not job["end"]]
    return f"driver{'s' * (len(pids) > 1)} {', '.join(pids)}" if pids else "no driver"


def process_rows(now: Sample, before: Sample, elapsed: float) -> Iterator[tuple[str, ...]]:
    """One row for each process, the busiest first, the driver on top."""
    earlier = before.by_process

    def rate(process: Process, what: str) -> float:
        old = earlier.get(process.process)
        return float(getattr(process, what) - (getattr(old, what) if old is not None else 0)) / elapsed

    for process in sorted(now.processes, key=lambda p: (not is_driver(p), -rate(p, "cpu_seconds"), p.pid)):
        yield (
            str(process.pid),
            process.occupant,
            process.name,
            f"{100 * rate(process, 'cpu_seconds'):.0f}",
            _bytes(process.rss_bytes),
            _bytes(process.object_bytes),
            *([_bytes(process.gpu_bytes)] if now.gpus else []),
            "" if is_driver(process) else f"{rate(process, 'served'):,.0f}",
            str(process.queued or ""),
            process.task,
        )


def graph_rows(now: Sample, before: Sample, elapsed: float) -> Iterator[tuple[str, ...]]:
    """One row for each compiled graph."""
    earlier = {row["graph_id"]: row for row in before.graphs}
    for row in now.graphs:
        old = earlier.get(row["graph_id"], row)
        rate = (row["finished"] - old["finished"]) / elapsed
        in_flight = (row["in_flight"] + old["in_flight"]) / 2
        # With nothing in flight at both looks, the caller does something else in between: its pace says nothing of the graph's.
        latency = f"~{1e6 * in_flight / rate:,.0f} us" if rate and in_flight else ""
        yield (
            row["graph_id"][:12],
            ", ".join(row["actors"].values()),
            f"{rate:,.0f}",
            latency,
            f"{row['in_flight']}/{row['max_in_flight']}",
            row["state"],
        )


def wait_lines(now: Sample) -> Iterator[str]:
    """The waits between processes, a line for each."""
    for process in now.processes:
        for text in process.waits:
            yield f"  {process.occupant} (pid {process.pid}) for {text}"
    for row in now.graphs:
        for text in filter(None, row["waits"].split("; ")):
            yield f"  graph {row['graph_id'][:12]}: {text}"
