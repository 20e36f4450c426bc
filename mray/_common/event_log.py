"""The last events of a state machine, printed when an event arrives that its state does not allow."""

from __future__ import annotations

from collections import deque

MOST_EVENTS = 40


class InvalidTransitionError(RuntimeError):
    """An event that the state does not allow: a defect of mray. The text lists the previous events."""


class EventLog:
    """The last events of one state machine, the oldest first. Allocates nothing before the first."""

    __slots__ = ("_events", "_of")

    def __init__(self, *of: object) -> None:
        """`of` names the machine: words, and ids, which are formatted when printed."""
        self._of = of
        self._events: deque[tuple[object, ...]] | None = None

    def note(self, *event: object) -> None:
        """Record an event: its name and values, formatted when printed."""
        if self._events is None:
            self._events = deque(maxlen=MOST_EVENTS)
        self._events.append(event)

    def __str__(self) -> str:
        return "\n  ".join((f"The last events of {_told(self._of)}:", *map(_told, self._events or ())))

    def invalid(self, event: str, state: object) -> InvalidTransitionError:
        return InvalidTransitionError(f"{event} came while {_told(self._of)} was {state}.\n{self}")


def _told(words: tuple[object, ...]) -> str:
    return " ".join(word.hex() if isinstance(word, bytes) else str(word) for word in words)
