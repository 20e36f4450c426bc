"""``mray metrics``: the numbers of a session in Prometheus's text format, printed or written to a file.

With ``init(_metrics_export_port=...)`` a driver serves them until its session ends, at any path, as Ray does; for
``mray start --metrics-export-port`` a background process does. Each request queries the session.
"""

from __future__ import annotations

import argparse
import os
import select
from collections.abc import Iterable, Iterator

from mray.cli.loopback import LOOPBACK, LoopbackRequest, LoopbackServer
from mray.cli.samples import Distribution, MetricFamily, metrics, take
from mray.cli.terminal import DONE, add_session, parser, run_command
from mray.util.state.api import look
from mray.util.state.exception import RayStateApiException

SUMMARY = "print the numbers of a session for Prometheus"
#: seconds for the answers of the session's processes
_PATIENCE = 10.0


def main(words: list[str]) -> int:
    arguments = parser(
        "metrics",
        SUMMARY,
        "With --file the text replaces a file atomically, as node_exporter's textfile collector wants it (its name should end in .prom).\n"
        "init(_metrics_export_port=PORT) and mray start --metrics-export-port PORT serve it while the session lasts.",
    )
    arguments.add_argument("--file", metavar="PATH", help="write there instead of to the terminal")
    add_session(arguments)
    return run_command(arguments, words, _metrics)


def _metrics(given: argparse.Namespace) -> int:
    text = exposition(metrics(take(look(given.session, given.timeout))))
    if given.file is None:
        print(text, end="")
        return DONE
    # Readers see either the old numbers or the new ones.
    beside = f"{given.file}.{os.getpid()}.new"
    with open(beside, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(beside, given.file)
    return DONE


# ------------------------------------------------------------------------------------------------- text
def exposition(found: Iterable[MetricFamily]) -> str:
    """Prometheus's text format, version 0.0.4."""
    return "".join(f"{line}\n" for metric in found for line in _lines(metric))


def _lines(metric: MetricFamily) -> Iterator[str]:
    name = f"{metric.name.removesuffix('_total')}_total" if metric.kind == "counter" else metric.name
    yield f"# HELP {name} {_escaped(metric.doc)}"
    yield f"# TYPE {name} {metric.kind}"
    for values, number in metric.samples:
        labels = tuple(zip(metric.labels, values, strict=True))
        if isinstance(number, Distribution):
            for bound, count in number.buckets:
                yield _sample(f"{name}_bucket", (*labels, ("le", bound)), count)
            yield _sample(f"{name}_count", labels, number.buckets[-1][1])
            yield _sample(f"{name}_sum", labels, number.sum)
        else:
            yield _sample(name, labels, number)


def _sample(name: str, labels: Iterable[tuple[str, str]], number: float) -> str:
    inside = ",".join(f'{label}="{_escaped(value, quoted=True)}"' for label, value in sorted(labels))
    return f"{name}{{{inside}}} {_written(number)}" if inside else f"{name} {_written(number)}"


def _written(number: float) -> str:
    text = repr(float(number))
    return {"inf": "+Inf", "-inf": "-Inf", "nan": "NaN"}.get(text, text)


def _escaped(text: str, quoted: bool = False) -> str:
    text = text.replace("\\", r"\\").replace("\n", r"\n")
    return text.replace('"', r"\"") if quoted else text


# ------------------------------------------------------------------------------------------------- port
class Exporter(LoopbackServer):
    """Serves the numbers of a session, or of this process's, on `server_port` until it is closed. OSError if the port is taken."""

    def __init__(self, port: int, session: str | None = None) -> None:
        self.session = session
        super().__init__(port, _Request, "mray's metrics")


def serve_apart(port: int, session: str, node_pid: int) -> str:
    """Serve the numbers of a session in a process of its own, which ends with the node. Returns the address, or why it failed."""
    read_end, write_end = os.pipe2(os.O_CLOEXEC)
    if os.fork():
        os.close(write_end)
        with os.fdopen(read_end) as said:
            return said.read()
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):  # readers of the command's output see its end
            os.dup2(null, fd)
        node = os.pidfd_open(node_pid)
        os.write(write_end, f"http://{LOOPBACK}:{Exporter(port, session).server_port}".encode())
        os.close(write_end)
        select.select([node], [], [])
    except Exception as error:  # reported by the command
        os.write(write_end, f"not served: {error}".encode())
    finally:
        os._exit(0)


class _Request(LoopbackRequest):
    """One request at a time, so that frequent requests delay the session's work by at most one."""

    server: Exporter  # type: ignore[assignment]

    def answer(self) -> None:
        try:
            status, text = 200, exposition(metrics(take(look(self.server.session, _PATIENCE))))
        except RayStateApiException as error:
            status, text = 503, f"{error}\n"
        self.send(status, "text/plain; version=0.0.4", text)
