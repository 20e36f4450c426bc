"""The measures of a graph, as far as pictures show them. Pure.

Made from the result of `CompiledGraph.statistics`: under ``"steps"`` by the step's number in pictures, and under ``"edges"`` by channel
index, mappings (or records) of the numbers below, any of which may be missing. Times are seconds, sizes bytes.

    steps   count  compute_p50  compute_p99  wait_p50  wait_p99
    edges   count  bytes (of all messages)  and p50 and p99 of: transfer  wait (of readers)  room (the writer waits)  serialize  deserialize
    endpoints    by endpoint: busy, a share of the time
    bottleneck   a step as ``[number] method``; "the caller"; None: no step is; missing: not known
    why          the bottleneck is that step
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class StepMeasure:
    """The measures of one step: its runs, its times of computing, its waits for arguments."""

    count: int | None = None
    compute_p50: float | None = None
    compute_p99: float | None = None
    wait_p50: float | None = None
    wait_p99: float | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """The texts for its box."""
        return tuple(
            line for line in (_times("compute", self.compute_p50, self.compute_p99), _times("wait", self.wait_p50, self.wait_p99)) if line
        )


@dataclass(frozen=True)
class EdgeMeasure:
    """The measures of one channel: its messages, their bytes, and their times."""

    count: int | None = None
    bytes: float | None = None
    transfer_p50: float | None = None
    transfer_p99: float | None = None
    wait_p50: float | None = None
    wait_p99: float | None = None
    room_p50: float | None = None
    room_p99: float | None = None
    serialize_p50: float | None = None
    serialize_p99: float | None = None
    deserialize_p50: float | None = None
    deserialize_p99: float | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """The texts beside its edge."""
        size = ""
        if self.bytes is not None and self.count != 0:
            size = f"{in_bytes(self.bytes / self.count)} each" if self.count else in_bytes(self.bytes)
        times = "" if self.count is None else f"{self.count}×"
        first = " ".join(part for part in (times, size) if part)
        return tuple(line for line in (first, self._line("transfer"), self._line("wait")) if line)

    @property
    def all_notes(self) -> tuple[str, ...]:
        """As `notes`, with the texts that there is no room for."""
        return (*self.notes, *(line for line in map(self._line, ("room", "serialize", "deserialize")) if line))

    def _line(self, what: str) -> str:
        return _times(what, getattr(self, f"{what}_p50"), getattr(self, f"{what}_p99"))


@dataclass(frozen=True)
class Measures:
    """The measures, by step index, by channel index and by endpoint; `bottleneck` is a step index."""

    steps: Mapping[int, StepMeasure] = field(default_factory=dict)
    edges: Mapping[int, EdgeMeasure] = field(default_factory=dict)
    #: endpoint -> the share of the time in which it was busy.
    busy: Mapping[str, float] = field(default_factory=dict)
    bottleneck: int | None = None
    #: The reason for that bottleneck, or for none.
    why: str = ""

    def bottleneck_among(self, actors: Mapping[int, str]) -> int | None:
        """The step that bounds the graph's throughput, None if unknown; `actors`: step index -> the actor that runs it.

        An actor runs its steps one after the other, so the busiest actor is the bound, and its longest step the one to improve.
        """
        if self.bottleneck is not None or self.why:
            return self.bottleneck
        times = {step: measure.compute_p50 for step, measure in self.steps.items() if measure.compute_p50 is not None and step in actors}
        if not times:
            return None
        busy: dict[str, float] = {}
        for step, seconds in times.items():
            busy[actors[step]] = busy.get(actors[step], 0.0) + seconds
        busiest = max(busy, key=lambda actor: busy[actor])
        return max((step for step in times if actors[step] == busiest), key=lambda step: times[step])


NOTHING_MEASURED = Measures()


def measures_of(statistics: Mapping[str, Any], numbers: Mapping[int, int]) -> Measures:
    """The measures in a graph's statistics, which may lack any of them; `numbers`: step index -> number."""
    said = {int(number): each for number, each in dict(statistics.get("steps") or {}).items()}
    steps = {step: StepMeasure(**_known(said[number], StepMeasure)) for step, number in numbers.items() if number in said}
    edges = {int(channel): EdgeMeasure(**_known(each, EdgeMeasure)) for channel, each in dict(statistics.get("edges") or {}).items()}
    endpoints = dict(statistics.get("endpoints") or {})
    busy = {endpoint: float(each["busy"]) for endpoint, each in endpoints.items() if "busy" in each}
    slowest = str(statistics.get("bottleneck"))
    bottleneck = next((step for step, number in numbers.items() if slowest.startswith(f"[{number}] ")), None)
    return Measures(steps, edges, busy, bottleneck, str(statistics.get("why") or ""))


def _known(numbers: Any, record: type[Any]) -> dict[str, Any]:
    names = record.__dataclass_fields__
    if isinstance(numbers, Mapping):
        return {name: numbers[name] for name in names if name in numbers}
    return {name: getattr(numbers, name) for name in names if hasattr(numbers, name)}


def _times(what: str, half: float | None, most: float | None) -> str:
    if half is None:
        return ""
    return f"{what} {in_seconds(half)}" + (f" (p99 {in_seconds(most)})" if most is not None else "")


def in_seconds(seconds: float) -> str:
    """A duration in three digits: ``12.3 µs``."""
    for unit, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= unit:
            return f"{seconds / unit:.3g} {name}" if seconds / unit < 999.5 else f"{seconds / unit:.0f} {name}"
    return f"{seconds * 1e9:.0f} ns"


def in_bytes(size: float) -> str:
    """A size in three digits: ``1.21 MB``, of 1000 kB."""
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size >= unit:
            return f"{size / unit:.3g} {name}" if size / unit < 999.5 else f"{size / unit:.0f} {name}"
    return f"{size:.0f} B"
