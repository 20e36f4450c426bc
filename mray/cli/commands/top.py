"""``mray top``: a live view of a session in the terminal, through the package rich.

Rates are differences of two samples. A graph's latency is estimated from its throughput and the executions in flight (Little's law). Its
bottleneck is the method that computed at most of the samples so far.
"""

from __future__ import annotations

import argparse
import os
import select
import signal
import sys
import termios
import tty
import webbrowser
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from mray._common.amounts import readable_bytes
from mray.cli.columns import Column, counted, cut, lines
from mray.cli.live import LivePage
from mray.cli.samples import Sample, is_driver, resources, take
from mray.cli.terminal import DONE, NOT_FOUND, USAGE, add_session, lacks, parser, port, run_command
from mray.util.state.api import look, session_directory
from mray.util.state.common import WorkerState
from mray.util.state.exception import ServerUnavailable

#: columns without a terminal
_WIDTH = 160
#: rows of processes that are shown however many graphs and waits there are
_LEAST_ROWS = 3

#: key -> the column that rows are ordered by, its label, the sort key. Ties are ordered by pid.
ORDERS: dict[str, tuple[str, str, Callable[[_Row], Any]]] = {
    "c": ("CPU%", "cpu", lambda row: -row.cpu),
    "m": ("MEMORY", "mem", lambda row: -(_memory(row.process))),
    "o": ("OBJECTS", "obj", lambda row: -(row.process.object_store_bytes or 0)),
    "r": ("CALLS/S", "calls", lambda row: -row.calls),
    "u": ("QUEUED", "queue", lambda row: -(row.process.num_queued or 0)),
    "n": ("NAME", "name", lambda row: (row.process.name or _what(row.process)).lower()),
    "p": ("PID", "pid", lambda row: row.process.pid),
}
_KEYS_LINE = f"sort: {' '.join(f'{key} {title}' for key, (title, _word, _order) in ORDERS.items())}"
_KEYS_SHORT = " ".join(f"{key}:{word}" for key, (_title, word, _order) in ORDERS.items())

SUMMARY = "watch a session: actors, CPU, memory, calls, graphs, who waits for whom"


class _Row(NamedTuple):
    """Rates are per second since the last sample."""

    process: WorkerState
    cpu: float
    calls: float


@dataclass
class Screen:
    """The choices of the user, and statistics of graphs so far."""

    order: str = "c"
    top: int = 0
    #: rows that were shown, and that existed, when it was last drawn
    shown: int = 1
    total: int = 0
    #: graph -> method -> samples at which it computed; and all samples at which any did
    computing: dict[str, Counter[str]] = field(default_factory=dict)
    looks: Counter[str] = field(default_factory=Counter)

    def take_key(self, key: str) -> bool:
        """Returns whether to quit."""
        if key in ("q", "Q", "\x1b", "\x04", ""):
            return True
        if key in ORDERS:
            self.order, self.top = key, 0
        steps = {"down": 1, "j": 1, "up": -1, "k": -1, "page down": self.shown, " ": self.shown, "page up": -self.shown}
        steps |= {"home": -self.total, "end": self.total}
        self.top = max(0, min(self.top + steps.get(key, 0), self.total - self.shown))
        return False

    def note(self, sample: Sample) -> None:
        for row in sample.graphs:
            if row["computing"]:
                self.looks[row["graph_id"]] += 1
                self.computing.setdefault(row["graph_id"], Counter()).update(set(row["computing"]))

    def bottleneck(self, graph: str) -> str:
        """The method that computed at most samples, and their share; "" if none did."""
        most = self.computing.get(graph, Counter()).most_common(1)
        return f"{most[0][0]} {most[0][1] / self.looks[graph]:.0%}" if most else ""


def main(words: list[str]) -> int:
    epilog = (
        "Needs rich (pip install 'mray[top]') and a terminal; --once prints one view anywhere, and --web needs neither.\n"
        f"Keys: q ends; arrows, page up and page down scroll; {_KEYS_LINE}."
    )
    arguments = parser("top", SUMMARY, epilog)
    arguments.add_argument("--interval", type=float, default=1.0, metavar="SECONDS", help="how often to look (default 1)")
    arguments.add_argument("--once", action="store_true", help="print one view, and end")
    arguments.add_argument("--web", action="store_true", help="serve a page for a browser of this machine, and open it, until interrupted")
    arguments.add_argument("--port", type=port, default=0, help="with --web: the port (default: any that is free)")
    arguments.add_argument(
        "--sort", choices=[*ORDERS], default="c", metavar="KEY", help="the order of processes: a key of those below (default c)"
    )
    add_session(arguments, timeout=2.0)
    return run_command(arguments, words, _top)


def _serve(given: argparse.Namespace) -> int:
    page = LivePage(given.port, session_directory(given.session) if given.session else "")
    print(page.address, flush=True)
    webbrowser.open(page.address)
    try:
        page.thread.join()
    finally:
        page.close()
    return DONE


def _top(given: argparse.Namespace) -> int:
    if given.web:
        return _serve(given)
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
    screen = Screen(given.sort)
    before = take(look(directory, given.timeout))
    screen.note(before)
    _key(given.interval)
    now = take(look(directory, given.timeout))
    screen.note(now)
    if given.once:
        console.print(_text(render(now, before, screen, console.width, None)))
        return DONE

    def drawn() -> Any:
        return _text(render(now, before, screen, console.width, console.height))

    try:
        with _keys(), rich.live.Live(drawn(), console=console, screen=True, auto_refresh=False) as live:
            while True:
                key = _key(given.interval)
                if key is None:
                    before, now = now, take(look(directory, given.timeout))
                    screen.note(now)
                elif screen.take_key(key):
                    break
                live.update(drawn(), refresh=True)
    except ServerUnavailable:
        print(f"mray: the session {os.path.basename(directory)} has ended", file=sys.stderr)
        return NOT_FOUND
    return DONE


@contextmanager
def _keys() -> Iterator[None]:
    """Read keys unbuffered and without echo. Ctrl-C still interrupts, and SIGTERM restores the terminal."""
    before = termios.tcgetattr(sys.stdin)
    terminate = signal.signal(signal.SIGTERM, lambda *_args: sys.exit(143))
    try:
        tty.setcbreak(sys.stdin)
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
        signal.signal(signal.SIGTERM, terminate)


#: keys that send several characters
_NAMED = {
    b"\x1b[A": "up", b"\x1b[B": "down", b"\x1bOA": "up", b"\x1bOB": "down", b"\x1b[5~": "page up", b"\x1b[6~": "page down",
    b"\x1b[H": "home", b"\x1b[F": "end", b"\x1b[1~": "home", b"\x1b[4~": "end",
}  # fmt: skip


def _key(seconds: float) -> str | None:
    watched = [sys.stdin] if sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty() else []
    ready, _writable, _broken = select.select(watched, [], [], seconds)
    if not ready:
        return None
    return named_key(os.read(sys.stdin.fileno(), 16))


def named_key(sent: bytes) -> str:
    """The name or the character of a key; "?" for one without a meaning."""
    if sent[:1] == b"\x1b" and len(sent) > 1:
        return next((name for code, name in _NAMED.items() if sent.startswith(code)), "?")
    return sent[:1].decode("latin-1")


# ------------------------------------------------------------------------------------------------ drawing
def _text(made: Sequence[tuple[str, str]]) -> Any:
    import rich.text  # noqa: PLC0415

    text = rich.text.Text(no_wrap=True)
    for number, (line, style) in enumerate(made):
        text.append("\n" * bool(number))
        text.append(line, style=style)
    return text


def render(now: Sample, before: Sample, screen: Screen, width: int, height: int | None) -> list[tuple[str, str]]:
    """The view as lines with their styles.

    None for `height`: everything. Otherwise at most this many lines: processes scroll, and the last of the others are left out.
    """
    elapsed = max(now.moment - before.moment, 1e-6)
    head = [(cut(line, width), "bold" if not number else "") for number, line in enumerate(headline(now, width))]
    columns, cells = process_table(now, before, elapsed, screen, width)
    below: list[tuple[str, str]] = []
    graphs = list(graph_rows(now, before, elapsed, screen))
    if graphs:
        below += [("", ""), *_styled(lines(GRAPH_COLUMNS, graphs, width))]
    waits = list(wait_lines(now))
    if waits:
        below += [("", ""), ("waits".ljust(width), "reverse"), *((cut(line, width), "") for line in waits)]
    below += [(cut(f"missing: {text}", width), "red") for text in now.view.missing]
    made = _styled(lines(columns, cells, width, gap=2 if width >= _WIDE else 1))
    screen.total = len(cells)
    if height is None:
        screen.shown = len(cells)
        return [*head, *made, *below]
    room = height - len(head) - 2
    screen.shown = max(1, min(len(cells), max(room - len(below), _LEAST_ROWS)))
    screen.top = max(0, min(screen.top, screen.total - screen.shown))
    rows = made[1 + screen.top : 1 + screen.top + screen.shown]
    spare = max(room - len(rows), 0)
    if len(below) > spare:
        below = [*below[: max(spare - 1, 0)], ("… the window has no room for more", "dim")][:spare]
    foot = f"{screen.top + 1}-{screen.top + len(rows)} of {screen.total} by {ORDERS[screen.order][0]}  q:end  {_KEYS_SHORT}"
    return [*head, made[0], *rows, *below, (cut(foot, width), "dim")]


def _styled(made: list[str]) -> list[tuple[str, str]]:
    return [(line, "reverse" if not number else "") for number, line in enumerate(made)]


def headline(now: Sample, width: int = _WIDTH) -> list[str]:
    """The first lines: the session and its resources."""
    node, told = now.node, now.view.node
    used = [
        f"{name} {taken:g}/{amount:g}"
        for name, (taken, amount) in resources(node).items()
        if "memory" not in name and not name.startswith("accelerator_type:")
    ]
    waiting = [f"{len(told['demands'])} wait for resources"] if told["demands"] else []
    store = f"objects {short_bytes(node.object_store_bytes or 0)} of {short_bytes(told['object_store_memory'])}"
    workers = sum(not is_driver(process) for process in now.processes)
    made = [f"{os.path.basename(now.view.directory)}  {drivers(told['jobs'])}"]
    for part in (", ".join(used), counted(workers, "worker"), *waiting, store, f"load {os.getloadavg()[0]:.2f}"):
        if len(made) > 1 and len(made[-1]) + len(part) + 2 <= width:
            made[-1] += f"; {part}"
        else:
            made.append(part)
    for gpu in node.gpus or ():
        memory = f"{readable_bytes(gpu['used_bytes'])} of {readable_bytes(gpu['total_bytes'])}"
        made.append(f"GPU {gpu['index']} {gpu['name']}: {memory}, {gpu['busy']:g} % busy")
    return [*made, ""]


def drivers(jobs: list[dict[str, Any]]) -> str:
    pids = [str(job["pid"]) for job in jobs if not job["end"]]
    return f"driver{'s' * (len(pids) > 1)} {', '.join(pids)}" if pids else "no driver"


def _what(process: WorkerState) -> str:
    """A class with the beginning of the actor's id, unless that has a name, which has a column of its own."""
    said = process.occupant if process.name else process.shown_as
    return said or process.state or process.worker_type.lower()


def _memory(process: WorkerState) -> int:
    """Where the kernel does not tell whose pages are shared, all of them."""
    return (process.rss_bytes if process.pss_bytes is None else process.pss_bytes) or 0


def short_bytes(count: float) -> str:
    """At most five characters: ``66.3M``; units of 1024."""
    for unit in ("B", "K", "M", "G"):
        if count < 999.5 or unit == "G":
            return f"{count:.0f}{unit}" if unit == "B" or count >= 99.95 else f"{count:.1f}{unit}"
        count /= 1024
    raise AssertionError


#: widths that leave room for a column of names and one of running calls
_WIDE = 110


def process_table(now: Sample, before: Sample, elapsed: float, screen: Screen, width: int) -> tuple[list[Column], list[list[str]]]:
    """Columns and a row for each process: the driver first, the others in the user's order."""
    earlier = before.by_process

    def rate(process: WorkerState, column: str) -> float:
        old = earlier.get(process.worker_id)
        return float((process[column] or 0) - ((old[column] or 0) if old is not None else 0)) / elapsed

    rows = [_Row(process, 100 * rate(process, "cpu_seconds"), rate(process, "num_finished")) for process in now.processes]
    order = ORDERS[screen.order][2]
    rows.sort(key=lambda row: (not is_driver(row.process), order(row), row.process.pid))
    is_wide = width >= _WIDE
    has_gpus = bool(now.node.gpus)
    columns = [
        Column("PID", True), Column("STATE"), Column("CPU%", True), Column("MEMORY", True), *([Column("RSS", True)] if is_wide else []),
        Column("OBJECTS", True),
        *([Column("GPU MEM", True)] if has_gpus else []), Column("CALLS/S", True), Column("QUEUED", True),
        *([Column("WHAT", least=12), Column("NAME", least=12)] if is_wide else [Column("NAME", least=1)]),
        *([Column("RUNS", least=12)] if is_wide else []),
    ]  # fmt: skip
    cells = []
    for process, cpu, calls in rows:
        # One column shows its name, or else its running call, which includes its class.
        name, task, what = process.name or "", process.current_task or "", _what(process)
        cells.append(
            [
                str(process.pid), process.state or "driver", f"{cpu:.0f}", short_bytes(_memory(process)),
                *([short_bytes(process.rss_bytes or 0)] if is_wide else []), short_bytes(process.object_store_bytes or 0),
                *([short_bytes(process.gpu_bytes or 0)] if has_gpus else []),
                "" if is_driver(process) else f"{calls:,.0f}", str(process.num_queued or ""),
                *([what, name, task] if is_wide else [name or task or what]),
            ]
        )  # fmt: skip
    return columns, cells


GRAPH_COLUMNS = (
    Column("GRAPH"), Column("STATE"), Column("EXECS/S", True), Column("LATENCY", True), Column("IN FLIGHT", True),
    Column("BOTTLENECK", least=16), Column("ACTORS", least=6),
)  # fmt: skip


def graph_rows(now: Sample, before: Sample, elapsed: float, screen: Screen) -> Iterator[list[str]]:
    earlier = {row["graph_id"]: row for row in before.graphs}
    for row in now.graphs:
        old = earlier.get(row["graph_id"], row)
        rate = (row["finished"] - old["finished"]) / elapsed
        in_flight = (row["in_flight"] + old["in_flight"]) / 2
        # With nothing in flight at both samples the caller is busy elsewhere, and its rate says nothing about the graph's latency.
        latency = f"~{1e6 * in_flight / rate:,.0f} us" if rate and in_flight else ""
        yield [
            row["graph_id"][:8],
            row["state"],
            f"{rate:,.0f}",
            latency,
            f"{row['in_flight']}/{row['max_in_flight']}",
            screen.bottleneck(row["graph_id"]),
            ", ".join(f"{name} x{count}" if count > 1 else name for name, count in Counter(row["actors"].values()).items()),
        ]


def wait_lines(now: Sample) -> Iterator[str]:
    for process in now.processes:
        for text in process.waits_for or ():
            yield f"  {_what(process)} (pid {process.pid}) for {text}"
    for row in now.graphs:
        for text in filter(None, row["waits"].split("; ")):
            yield f"  graph {row['graph_id'][:8]}: {text}"
