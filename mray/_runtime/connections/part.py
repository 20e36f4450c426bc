"""`Part`: a part of a process, as far as the course of its session concerns it.

A process has its parts in one tuple (`Endpoint.parts`), and calls each of them in that order; when everything fails or ends, in the reverse
order. The ends of single processes and connections have followers of their own (`Ends.followers`, `Endpoint.hangup_followers`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

#: A row about one call, object or wait: builtin values.
Row = dict[str, Any]
#: Rows of a section at most; the rest is counted.
MOST_ROWS = 10_000


def cut(count: int, rows: Iterator[Row]) -> dict[str, Any]:
    """A section that may be long: the number of its rows, and the first of them."""
    return {"total": count, "rows": list(islice(rows, MOST_ROWS))}


class Part:
    """A part of a process. The client's lock is held, but for `joined`."""

    def joined(self, facts: dict[str, Any]) -> None:
        """The node has admitted this process to the session of these facts."""

    def bequeathed(self, segments: Sequence[str]) -> None:
        """Take note of segments that a process which has ended had made for this one."""

    def all_lost(self, error: BaseException) -> None:
        """Fail all waiters: no message will come any more."""

    def calls(self) -> Iterable[tuple[bytes, Callable[[], Row]]]:
        """The unanswered calls of this part, for observers: the id of each, and a function that returns its row."""
        return ()

    def close(self) -> None:
        """This process leaves the session; its connections are there still. Only parts that were made late are told."""

    def left(self) -> None:
        """Let go of the session's resources: this process has closed all its connections but the node's."""
