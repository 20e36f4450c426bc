"""A warning about a tree of tasks that only starts deeper ones, once: the count around `mray._decide.scheduler.task_trees`."""

from __future__ import annotations

from collections.abc import Callable

from mray._common import settings
from mray._decide.scheduler.scheduler import Scheduler

#: The chain is examined at this number of workers, and at each doubling; and its depth from which on it is reported.
WORKERS, DEPTH = 64, 16
_REMEDY = "If the recursion is meant, limit its depth: below some size, compute in the task itself."


class TaskTrees:
    def __init__(self, scheduler: Scheduler, tell: Callable[[str, str], None]) -> None:
        self._scheduler = scheduler
        self._tell = tell
        #: The number of workers from which on there is something to examine.
        self.due: float = WORKERS if settings.WARN_WAITING.get() > 0 else float("inf")

    def examine(self, workers: int) -> None:
        from mray._decide.scheduler.task_trees import deepest_chain, sentence  # noqa: PLC0415  (not on the way to the first answer of a session)

        self.due = 2 * workers
        chain = deepest_chain(self._scheduler)
        if len(chain) >= DEPTH:
            self.due = float("inf")
            off = f"{settings.WARN_WAITING.name}=0 disables this message."
            self._tell(f"{sentence(chain, workers)} {_REMEDY} {off}\n", chain[0].client.root)
