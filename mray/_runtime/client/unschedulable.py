"""What can never be scheduled is told once, as one line on stderr.

In every client. Its error waits in its refs for whoever asks; a program that never asks goes on, and its user is to know all the same.
"""

from __future__ import annotations

from mray._common import messages as m
from mray._common.log import logger
from mray._runtime.client.announcements import Announcements

#: Different texts that are remembered.
MOST = 1000


class Unschedulable:
    """Tells each text once. Any thread."""

    def __init__(self, announcements: Announcements) -> None:
        self._announcements = announcements
        self._told: dict[str, None] = {}

    def tell(self, text: str) -> None:
        """Say why something can never be scheduled. Not with the client's lock: a logger may run code of the user's."""
        if text in self._told:
            return
        self._told[text] = None
        if len(self._told) > MOST:
            self._told.pop(next(iter(self._told)), None)
        logger.warning("%s Whoever waits for it is told so.", text if text.endswith(".") else f"{text}.")

    def hear(self, text: str) -> None:
        """The node has refused a task or an actor of this process; its texts begin with a label. What this process has refused is told."""
        if text.startswith(("task ", "actor ")) and m.GROUP_REMOVED not in text and m.NO_PROCESS not in text:
            self._announcements.say(lambda: self.tell(f"The {text}"))
