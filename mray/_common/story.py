"""The last events of a state machine, told when an event comes that its state does not allow."""

from __future__ import annotations

from collections import deque

#: Events that a story remembers.
MOST_EVENTS = 40


class InvalidTransitionError(RuntimeError):
    """An event that the state of its machine does not allow: a defect of mray. Says which, and what had happened before."""


class Story:
    """The last events of one state machine, the oldest first."""

    __slots__ = ("_events", "_of")

    def __init__(self, of: str) -> None:
        self._of = of
        self._events: deque[tuple[object, ...]] = deque(maxlen=MOST_EVENTS)

    def note(self, *event: object) -> None:
        """Remember an event: its name and what matters of it, which are not formatted before they are told."""
        self._events.append(event)

    def __str__(self) -> str:
        lines = (" ".join(map(str, event)) for event in self._events)
        return "\n  ".join((f"The last events of {self._of}:", *lines))

    def invalid(self, event: str, state: object) -> InvalidTransitionError:
        """The error of an event that may not come in this state."""
        return InvalidTransitionError(f"{event} came while {self._of} was {state}.\n{self}")
