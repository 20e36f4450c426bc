"""`Part`: a part of a process that follows the course of the session.

A process calls its parts in the order of one tuple (`Endpoint.parts`), and in the reverse order when everything fails or ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

#: About one call, object or wait: builtin values.
Row = dict[str, Any]
#: An unanswered call, its state, and the process that it was sent to or will be sent to, if known.
Unanswered = tuple[Any, str, str]
#: The most rows of a section that an observer gets; the rest is counted.
MOST_ROWS = 10_000


class Part:
    """A part of a process. The client's lock is held, except for `joined`."""

    def joined(self, info: dict[str, Any]) -> None:
        """The node has admitted this process to the session that `info` describes."""

    def segments_orphaned(self, segments: Sequence[str]) -> None:
        """Take over segments that an exited process has created for this one."""

    def all_lost(self, error: BaseException) -> None:
        """Fail all waiters: no more messages will arrive."""

    def calls(self) -> Iterable[Unanswered]:
        """The unanswered calls of this part, for observers, lazily."""
        return ()

    def count_calls(self) -> int:
        """How many `calls` has."""
        return 0

    def close(self) -> None:
        """Leave the session while connections are open. Called for parts created on demand only."""

    def left(self) -> None:
        """Release the session's resources: this process has closed all its connections but the node's."""
