"""Warnings about tasks and actors that can never be scheduled, each once, as one line on stderr.

In every client. Their refs have the error for every reader; a program that never reads them goes on, and its user needs to know as well.
"""

from __future__ import annotations

from mray._common import messages as m
from mray._common.log import logger
from mray._runtime.client.announcements import Announcements

#: Different texts that are remembered.
MOST = 1000


class Unschedulable:
    """Logs each text once. Any thread."""

    def __init__(self, announcements: Announcements) -> None:
        self._announcements = announcements
        self._told: dict[str, None] = {}

    def report(self, text: str) -> None:
        """Log why a task or actor can never be scheduled. Not with the client's lock: a logger may run code of the user's."""
        if text in self._told:
            return
        self._told[text] = None
        if len(self._told) > MOST:
            self._told.pop(next(iter(self._told)), None)
        logger.warning("%s Waiting for it raises this error.", text if text.endswith(".") else f"{text}.")

    def warn(self, text: str) -> None:
        """Log a refusal of the node, which begins with a label; a refusal by this process itself was logged already."""
        if text.startswith(("task ", "actor ")) and m.GROUP_REMOVED not in text and m.NO_PROCESS not in text:
            self._announcements.say(lambda: self.report(f"The {text}"))
