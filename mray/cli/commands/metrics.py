"""``mray metrics``: the numbers of a session as Prometheus's text, through the package prometheus-client."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from typing import Any

from mray.cli.samples import Distribution, metrics, take
from mray.cli.terminal import DONE, add_session, guarded, lacks, parser
from mray.util.state.api import look

SUMMARY = "print the numbers of a session for Prometheus"


def main(words: list[str]) -> int:
    arguments = parser(
        "metrics",
        SUMMARY,
        "Needs prometheus-client (pip install 'mray[metrics]'). With --file the text replaces a file at once, as node_exporter's textfile\n"
        "collector wants it (its name should end in .prom).",
    )
    arguments.add_argument("--file", metavar="PATH", help="write there instead of to the terminal")
    add_session(arguments)
    given = arguments.parse_args(words)
    return guarded(lambda: _metrics(given))


def _metrics(given: argparse.Namespace) -> int:
    try:
        from prometheus_client import CollectorRegistry, generate_latest  # noqa: PLC0415
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily  # noqa: PLC0415
        from prometheus_client.registry import Collector  # noqa: PLC0415
    except ImportError:
        return lacks("prometheus-client", "metrics", "mray metrics")
    families = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily, "histogram": HistogramMetricFamily}
    found = metrics(take(look(given.session, given.timeout)))

    class Session(Collector):  # type: ignore[misc, unused-ignore]
        def collect(self) -> Iterator[Any]:
            for metric in found:
                each = families[metric.kind](metric.name, metric.doc, labels=metric.labels)
                for values, number in metric.samples:
                    if isinstance(number, Distribution):
                        each.add_metric(values, number.buckets, number.sum)
                    else:
                        each.add_metric(values, number)
                yield each

    registry = CollectorRegistry()
    registry.register(Session())
    text: str = generate_latest(registry).decode()
    if given.file is None:
        print(text, end="")
        return DONE
    # A reader of the file sees the old numbers or the new ones, and never half of them.
    beside = f"{given.file}.{os.getpid()}.new"
    with open(beside, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(beside, given.file)
    return DONE
