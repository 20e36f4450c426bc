"""The last events of a state machine, told when an event comes that its state does not allow."""

from __future__ import annotations

from collections import deque

#: Events that a story remembers.
MOST_EVENTS = 40


class InvalidTransitionError(RuntimeError):
    """An event that the state of its machine does not allow: a defect of mray. Says which, and what had happened before."""


class Story:
    """The last events of one state machine, the oldest first. Costs little as long as nothing is noted."""

    __slots__ = ("_events", "_of")

    def __init__(self, *of: object) -> None:
        """Of a machine that is called this: words, and ids as they are, which are not formatted before they are told."""
        self._of = of
        self._events: deque[tuple[object, ...]] | None = None

    def note(self, *event: object) -> None:
        """Remember an event: its name and what matters of it, formatted as the name of the machine is."""
        if self._events is None:
            self._events = deque(maxlen=MOST_EVENTS)
        self._events.append(event)

    def __str__(self) -> str:
        return "\n  ".join((f"The last events of {_told(self._of)}:", *map(_told, self._events or ())))

    def invalid(self, event: str, state: object) -> InvalidTransitionError:
        """The error of an event that may not come in this state."""
        return InvalidTransitionError(f"{event} came while {_told(self._of)} was {state}.\n{self}")


def _told(words: tuple[object, ...]) -> str:
    return " ".join(word.hex() if isinstance(word, bytes) else str(word) for word in words)
