"""Numbers out of spans: percentiles for each step and edge of a graph, and who holds the others up. Pure.

wait(n) of a step: since it began to wait for what it needs, until the last of it was there
transfer(n) of an edge: since the writer had published message n, until the reader took it
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mray._trace.span import COMPUTE, DESERIALIZE, READ_WAIT, RECEIVE, SERIALIZE, TRANSFER, WRITE_WAIT, Span

#: A process that computes or moves values for less than this share of the time is no bottleneck.
LEAST_BUSY = 0.05


def distribution(what: str, nanoseconds: Sequence[int]) -> dict[str, float]:
    """``what_p50``, ``what_p99`` and ``what_total`` in seconds; nothing when nothing was measured."""
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


class Digest:
    """The digest of one profile of a graph. Endpoints are ids of actors; ``""`` is the process that compiled the graph."""

    def __init__(self, sheets: Mapping[str, Sequence[Span]], seconds: float) -> None:
        self.seconds = seconds
        #: step -> durations in nanoseconds.
        self._computes: dict[int, list[int]] = {}
        #: (channel, endpoint) -> durations.
        self._waits: dict[tuple[int, str], list[int]] = {}
        self._rooms: dict[int, list[int]] = {}
        self._writes: dict[int, list[int]] = {}
        self._reads: dict[tuple[int, str], list[int]] = {}
        self._bytes: dict[int, int] = {}
        self._sent: dict[tuple[int, int], int] = {}
        self._taken: dict[tuple[int, str], list[tuple[int, int]]] = {}
        #: endpoint -> nanoseconds in which it did something.
        self.busy: dict[str, int] = {}
        for endpoint, spans in sheets.items():
            for span in spans:
                self._add(endpoint, span)

    def _add(self, endpoint: str, span: Span) -> None:
        duration = span.end - span.begin
        kind, place = span.kind, int(span.place)
        if kind == COMPUTE:
            self._computes.setdefault(place, []).append(duration)
        elif kind == READ_WAIT:
            self._waits.setdefault((place, endpoint), []).append(duration)
        elif kind == WRITE_WAIT:
            self._rooms.setdefault(place, []).append(duration)
        elif kind in (DESERIALIZE, RECEIVE):
            self._reads.setdefault((place, endpoint), []).append(duration)
            self._taken.setdefault((place, endpoint), []).append((span.number, span.begin))
        elif kind in (SERIALIZE, TRANSFER):
            self._writes.setdefault(place, []).append(duration)
            self._bytes[place] = self._bytes.get(place, 0) + span.size
            self._sent[place, span.number] = span.end
        if kind in (COMPUTE, DESERIALIZE, RECEIVE, SERIALIZE, TRANSFER):
            self.busy[endpoint] = self.busy.get(endpoint, 0) + duration

    def step(self, index: int, inlets: Iterable[tuple[int, str]]) -> dict[str, float]:
        """``count`` of a step, its ``compute_...``, and its ``wait_...`` for what comes by `inlets`: (channel, endpoint) each.

        See `distribution`.
        """
        computes = self._computes.get(index, ())
        waits = [duration for inlet in inlets for duration in self._waits.get(inlet, ())]
        return {"count": len(computes), **distribution("compute", computes), **distribution("wait", waits)}

    def edge(self, channel: int, readers: Sequence[str]) -> dict[str, float]:
        """``count`` of a channel's messages and the ``bytes`` of all of them together, each counted once; and the distributions of

        ``wait`` of its readers, ``room`` (its writer waits for them), ``serialize``, ``transfer`` and ``deserialize``.
        """
        transfers = []
        for reader in readers:
            for number, taken in self._taken.get((channel, reader), ()):
                sent = self._sent.get((channel, number))
                if sent is not None:
                    transfers.append(max(taken - sent, 0))
        writes = self._writes.get(channel, ())
        return {
            "count": len(writes),
            "bytes": self._bytes.get(channel, 0),
            **distribution("wait", [each for reader in readers for each in self._waits.get((channel, reader), ())]),
            **distribution("room", self._rooms.get(channel, ())),
            **distribution("serialize", writes),
            **distribution("transfer", transfers),
            **distribution("deserialize", [each for reader in readers for each in self._reads.get((channel, reader), ())]),
        }

    def total_compute(self, index: int) -> int:
        """Nanoseconds that a step has computed."""
        return sum(self._computes.get(index, ()))

    def utilization(self, endpoint: str) -> float:
        """Share of the profile's time in which an endpoint computed, serialized or deserialized."""
        return self.busy.get(endpoint, 0) * 1e-9 / self.seconds if self.seconds > 0 else 0.0

    def busiest(self, endpoints: Iterable[str]) -> str | None:
        """The endpoint that is busy for the largest share of the time: the others cannot be faster than it. None: nobody is busy."""
        best = max(endpoints, key=self.utilization, default=None)
        return best if best is not None and self.utilization(best) >= LEAST_BUSY else None
