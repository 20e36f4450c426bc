"""What workers print, on the driver's own streams.

In the driver, in whatever thread reads. Each line gets the name and pid of who printed it, on the stream it was printed to. Equal lines
of several workers (numbers apart) are printed once; how often they were repeated follows a few seconds later, or when the session ends.
"""

from __future__ import annotations

import re
import sys
from time import monotonic
from typing import Any, TextIO

from mray._common import settings

#: Seconds for which equal lines of other workers are counted instead of printed.
_WINDOW = 5.0

_NUMBERS = re.compile(r"0x[0-9a-fA-F]+|\d+")
_HINT = (
    " (Ray deduplicates logs by default. Set RAY_DEDUP_LOGS=0 to disable log deduplication, or see "
    "https://docs.ray.io/en/master/ray-observability/user-guides/configure-logging.html#log-deduplication for more options.)"
)


class _Repeated:
    """A line that has been printed once."""

    __slots__ = ("count", "last", "pids", "since", "stream")

    def __init__(self, pid: int, stream: int, since: float) -> None:
        self.pids = {pid}
        self.count = 0
        self.last = ""
        self.stream = stream
        self.since = since


class OutputPrinter:
    """Prints lines of workers."""

    def __init__(self) -> None:
        # Off a terminal nobody is overwhelmed, and a log that lacks lines misleads.
        terminal = sys.stdout is not None and sys.stdout.isatty()
        self._deduplicate = settings.DEDUP_LOGS.get() and (terminal or settings.DEDUP_LOGS.is_set())
        self._seen: dict[str, _Repeated] = {}
        self._hinted = False

    def on_output(self, _node: Any, pid: int, stream: int, name: str, text: str) -> None:
        """OUTPUT: whole lines of one worker."""
        for line in text.splitlines():
            self._line(pid, stream, f"({name} pid={pid}) {line}" if name else f"(pid={pid}) {line}", line)

    def _line(self, pid: int, stream: int, shown: str, line: str) -> None:
        now = monotonic()
        self._expire(now)
        if not self._deduplicate or not line.strip():
            self._print(stream, shown)
            return
        key = _NUMBERS.sub("#", line)
        seen = self._seen.get(key)
        if seen is None:
            self._seen[key] = _Repeated(pid, stream, now)
            self._print(stream, shown)
        elif seen.pids == {pid}:
            self._print(stream, shown)  # one process that repeats itself is not a crowd
        else:
            seen.pids.add(pid)
            seen.count += 1
            seen.last = shown

    def _expire(self, now: float) -> None:
        for key in [key for key, seen in self._seen.items() if now - seen.since > _WINDOW]:
            self._report(self._seen.pop(key))

    def _report(self, seen: _Repeated) -> None:
        if seen.count == 1:
            self._print(seen.stream, seen.last)
        elif seen.count:
            hint = "" if self._hinted else _HINT
            self._hinted = True
            self._print(seen.stream, f"{seen.last} [repeated {seen.count}x across cluster]{hint}")

    def flush(self) -> None:
        """Say what has been counted and not yet told."""
        for seen in self._seen.values():
            self._report(seen)
        self._seen.clear()

    @staticmethod
    def _print(stream: int, shown: str) -> None:
        target: TextIO | None = sys.stdout if stream == 1 else sys.stderr
        if target is not None:
            try:
                # One write: the user's own threads print too, and would come in between a line and its end.
                target.write(shown + "\n")
                target.flush()
            except (OSError, ValueError):
                pass  # the driver has closed its stream
