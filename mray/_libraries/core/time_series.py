"""Step functions of time, for Ray Serve's autoscaler.

A series is a list of points with `timestamp` and `value`, ordered by time; a value holds until the next point.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol


class TimedValue(Protocol):
    """A value from a moment on."""

    timestamp: float
    value: float


def time_weighted_average(series: Sequence[TimedValue], window_start: float, window_end: float, last_window_s: float = 1.0) -> float | None:
    """The mean over a window; None without a point or a length.

    Minus infinity as a start is the first point, and as an end `last_window_s` seconds after the last one. Before the first point the
    value is 0.
    """
    if not series:
        return None
    start = series[0].timestamp if window_start == -math.inf else window_start
    end = series[-1].timestamp + last_window_s if window_end == -math.inf else window_end
    if end <= start:
        return None
    total, at, value = 0.0, start, 0.0
    for point in series:
        if point.timestamp <= start:
            value = point.value
        elif point.timestamp >= end:
            break
        else:
            total += value * (point.timestamp - at)
            at, value = point.timestamp, point.value
    return (total + value * (end - at)) / (end - start)


def merge_instantaneous_total(series: Sequence[Sequence[TimedValue]]) -> Sequence[Any]:
    """The sum of several series: (time rounded to 10 ms, total) for each moment at which a value changes.

    A single series is returned as it is.
    """
    series = [each for each in series if each]
    if len(series) < 2:
        return [(point.timestamp, point.value) for each in series for point in each]
    changes: dict[float, float] = {}
    for each in series:
        before = 0.0
        for point in each:
            if point.value != before:
                moment = math.floor(point.timestamp * 100.0 + 0.5) / 100.0
                changes[moment] = changes.get(moment, 0.0) + point.value - before
                before = point.value
    total = 0.0
    merged = []
    for moment in sorted(changes):
        total += changes[moment]
        merged.append((moment, total))
    return merged
