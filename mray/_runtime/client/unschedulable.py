"""Warnings about tasks and actors that can never be scheduled, each once, on stderr, for programs that never read the error of their
refs.
"""

from __future__ import annotations

from mray._common import messages as m
from mray._common.log import logger
from mray._runtime.client.announcements import Announcements

MOST = 1000


class Unschedulable:
    """Logs each text once. Any thread."""

    def __init__(self, announcements: Announcements) -> None:
        self._announcements = announcements
        self._told: dict[str, None] = {}

    def report(self, text: str) -> None:
        """Log why a task or actor can never be scheduled. The client's lock must not be held: a logger may run user code."""
        if text in self._told:
            return
        self._told[text] = None
        if len(self._told) > MOST:
            self._told.pop(next(iter(self._told)), None)
        logger.warning("%s Waiting for it raises this error.", text if text.endswith(".") else f"{text}.")

    def warn(self, text: str) -> None:
        """Log a refusal of the node, which begins with a label, unlike this process's own, logged before."""
        if text.startswith(("task ", "actor ")) and m.GROUP_REMOVED not in text and m.NO_PROCESS not in text:
            self._announcements.say(lambda: self.report(f"The {text}"))
