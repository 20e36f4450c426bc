"""``ray.util.timer``, deprecated by Ray."""

from __future__ import annotations

from collections import deque
from types import TracebackType

from mray._common.clock import monotonic


class _Timer:
    """Measures its block: one thread, one block at a time. Means are over the last `window_size` durations and counts."""

    def __init__(self, window_size: int = 10) -> None:
        self._durations: deque[float] = deque(maxlen=window_size)
        self._units: deque[float] = deque(maxlen=window_size)
        self._begun: float | None = None
        self._total_time = 0.0
        self.count = 0

    def __enter__(self) -> None:
        assert self._begun is None, "concurrent updates not supported"
        self._begun = monotonic()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        assert self._begun is not None
        self.push(monotonic() - self._begun)
        self._begun = None

    def push(self, time_delta: float) -> None:
        """Add a duration in seconds, measured elsewhere."""
        self._durations.append(time_delta)
        self._total_time += time_delta
        self.count += 1

    def push_units_processed(self, n: float) -> None:
        self._units.append(n)

    def has_units_processed(self) -> bool:
        return bool(self._units)

    @property
    def mean(self) -> float:
        """Seconds of a block."""
        return sum(self._durations) / len(self._durations) if self._durations else 0.0

    @property
    def mean_units_processed(self) -> float:
        """Units of a block."""
        return sum(self._units) / len(self._units) if self._units else 0.0

    @property
    def mean_throughput(self) -> float:
        """Units per second."""
        total = sum(self._durations)
        return sum(self._units) / total if total else 0.0
