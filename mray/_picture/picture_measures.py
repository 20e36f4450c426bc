"""The measures of a graph, as far as pictures show them. Pure.

From `CompiledGraph.statistics`, any part of which may be missing. Times are seconds, sizes bytes.

    steps   by number in pictures: count, and p50 and p99 of: compute  wait
    edges   by channel index: count  bytes (of all messages)  and p50 and p99 of: transfer  wait (of readers)  room (the writer waits)
            serialize  deserialize
    endpoints    by endpoint: busy, a share of the time
    bottleneck   a step as ``[number] method``; "the caller"; None: no step is
    why          the reason
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

Measure = Mapping[str, Any]


@dataclass(frozen=True)
class Measures:
    """The measures by step index, by channel index and by endpoint; `bottleneck` is a step index."""

    steps: Mapping[int, Measure] = field(default_factory=dict)
    edges: Mapping[int, Measure] = field(default_factory=dict)
    busy: Mapping[str, float] = field(default_factory=dict)
    bottleneck: int | None = None
    why: str = ""


NOTHING_MEASURED = Measures()


def measures_of(statistics: Mapping[str, Any], numbers: Mapping[int, int]) -> Measures:
    """Extract the measures from a graph's statistics; `numbers`: step index -> number."""
    said = statistics.get("steps") or {}
    steps = {step: said[number] for step, number in numbers.items() if number in said}
    busy = {endpoint: each["busy"] for endpoint, each in (statistics.get("endpoints") or {}).items()}
    slowest = str(statistics.get("bottleneck"))
    bottleneck = next((step for step, number in numbers.items() if slowest.startswith(f"[{number}] ")), None)
    return Measures(steps, statistics.get("edges") or {}, busy, bottleneck, statistics.get("why") or "")


def step_notes(measure: Measure) -> tuple[str, ...]:
    return _times(measure, ("compute", "wait"))


def edge_notes(measure: Measure) -> tuple[str, ...]:
    count, size = measure.get("count"), measure.get("bytes")
    of_each = "" if not size or not count else f"{in_bytes(size / count)} each"
    first = " ".join(part for part in ("" if count is None else f"{count}×", of_each) if part)
    return (*((first,) if first else ()), *_times(measure, ("transfer", "wait")))


def further_notes(measure: Measure) -> tuple[str, ...]:
    """The texts for which there is no room beside the edge."""
    return _times(measure, ("room", "serialize", "deserialize"))


def _times(measure: Measure, names: Iterable[str]) -> tuple[str, ...]:
    lines = []
    for name in names:
        half, most = measure.get(f"{name}_p50"), measure.get(f"{name}_p99")
        if half is not None:
            lines.append(f"{name} {in_seconds(half)}" + (f" (p99 {in_seconds(most)})" if most is not None else ""))
    return tuple(lines)


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
