"""`Process`: the process that a worker is, where the worker changes, interrupts or ends it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol


class ProcessEnded(BaseException):
    """Raised in a thread of a simulated process that has ended."""


class Process(Protocol):
    """A worker's process. Methods are for its main thread unless they say otherwise."""

    def set_title(self, text: str) -> None:
        """Set the title that `ps` shows."""

    # ------------------------------------------------------------------------------------ threads
    def start_thread(self, target: Callable[[], None], name: str) -> None:
        """Start a thread for calls of an actor. Any thread."""

    def interrupt(self) -> None:
        """Raise KeyboardInterrupt in the main thread, unless the guard of its reactor drops it. Any thread."""

    # ------------------------------------------------------------------------------------ its resources
    def set_variable(self, name: str, value: str | None) -> None:
        """Set an environment variable; None removes it."""

    def confine(self, cpus: Collection[int] | None) -> None:
        """Run on these CPUs only; None: on all that the process had."""

    def set_native_threads(self, count: int) -> None:
        """Set the number of threads of native libraries."""

    def mark_output(self, name: str) -> None:
        """Attribute output that follows to this task or actor."""

    # ------------------------------------------------------------------------------------ its end
    def is_forked(self) -> bool:
        """Whether the caller is in a child that user code has forked."""

    def set_alarm(self, seconds: float) -> None:
        """End the process after these seconds unless the alarm is set again; 0: never."""

    def finalize(self, *, kills_children: bool) -> None:
        """Run exit handlers and release what user code has left. `kills_children`: do not wait for child processes."""

    def exit(self, status: int) -> None:
        """End the process immediately. Any thread."""
