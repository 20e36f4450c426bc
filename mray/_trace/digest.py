"""Statistics of spans: percentiles for each step and edge of a graph, and the bottleneck. Pure.

wait(n) of a step: from the start of waiting for its inputs until the last one arrived
transfer(n) of an edge: from the publication of message n until the reader took it
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mray._trace.kinds import COMPUTE, DESERIALIZE, READ_WAIT, RECEIVE, SERIALIZE, TRANSFER, WRITE_WAIT
from mray._trace.span import Span

#: A less busy process is no bottleneck.
LEAST_BUSY = 0.05
#: The work of a communicator, as the kind that it counts as.
_SAME = {RECEIVE: DESERIALIZE, TRANSFER: SERIALIZE}


def distribution(what: str, nanoseconds: Sequence[int]) -> dict[str, float]:
    """``what_p50``, ``what_p99`` and ``what_total`` in seconds; empty without measurements."""
    if not nanoseconds:
        return {}
    ordered = sorted(nanoseconds)
    last = len(ordered) - 1
    return {
        f"{what}_p50": ordered[round(last * 0.5)] * 1e-9,
        f"{what}_p99": ordered[round(last * 0.99)] * 1e-9,
        f"{what}_total": sum(ordered) * 1e-9,
    }


def spans_of(sheet: Mapping[str, Any]) -> list[Span]:
    """The spans of a sheet."""
    return [Span(*fields) for fields in sheet["spans"]]


def _durations(spans: Iterable[Span]) -> list[int]:
    return [span.end - span.begin for span in spans]


class Digest:
    """The digest of one profile of a graph. Endpoints are ids of actors; ``""`` is the process that compiled the graph."""

    def __init__(self, sheets: Mapping[str, Sequence[Span]], seconds: float) -> None:
        self.seconds = seconds
        self._spans: dict[tuple[str, int, str], list[Span]] = {}
        self.busy: dict[str, int] = {}
        for endpoint, spans in sheets.items():
            for span in spans:
                kind = _SAME.get(span.kind, span.kind)
                reader = endpoint if kind in (READ_WAIT, DESERIALIZE) else ""
                self._spans.setdefault((kind, int(span.place), reader), []).append(span)
                if kind in (COMPUTE, DESERIALIZE, SERIALIZE):
                    self.busy[endpoint] = self.busy.get(endpoint, 0) + span.end - span.begin

    def _of(self, kind: str, place: int, readers: Sequence[str] = ("",)) -> list[Span]:
        return [span for reader in readers for span in self._spans.get((kind, place, reader), ())]

    def step(self, index: int, inlets: Iterable[tuple[int, str]]) -> dict[str, float]:
        """``count`` of a step, its ``compute_...``, and its ``wait_...`` for `inlets`, each (channel, endpoint). See `distribution`."""
        computes = self._of(COMPUTE, index)
        waits = [span for channel, endpoint in inlets for span in self._of(READ_WAIT, channel, [endpoint])]
        return {"count": len(computes), **distribution("compute", _durations(computes)), **distribution("wait", _durations(waits))}

    def edge(self, channel: int, readers: Sequence[str]) -> dict[str, float]:
        """``count`` of a channel's messages and their total ``bytes``, each counted once; and the distributions of ``wait`` of its readers,
        ``room`` (its writer waits for them), ``serialize``, ``transfer`` and ``deserialize``.
        """
        writes, reads = self._of(SERIALIZE, channel), self._of(DESERIALIZE, channel, readers)
        sent = {span.number: span.end for span in writes}
        return {
            "count": len(writes),
            "bytes": sum(span.size for span in writes),
            **distribution("wait", _durations(self._of(READ_WAIT, channel, readers))),
            **distribution("room", _durations(self._of(WRITE_WAIT, channel))),
            **distribution("serialize", _durations(writes)),
            **distribution("transfer", [max(span.begin - sent[span.number], 0) for span in reads if span.number in sent]),
            **distribution("deserialize", _durations(reads)),
        }

    def total_compute(self, index: int) -> int:
        return sum(_durations(self._of(COMPUTE, index)))

    def utilization(self, endpoint: str) -> float:
        """The share of the profile's time in which an endpoint computed, serialized or deserialized."""
        return self.busy.get(endpoint, 0) * 1e-9 / self.seconds if self.seconds > 0 else 0.0

    def busiest(self, endpoints: Iterable[str]) -> str | None:
        """The endpoint with the highest utilization, which limits the others; None if it is below `LEAST_BUSY`."""
        best = max(endpoints, key=self.utilization, default=None)
        return best if best is not None and self.utilization(best) >= LEAST_BUSY else None
