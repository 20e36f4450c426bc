"""Warnings about requests that wait in vain for resources, one for each kind: the clock around `mray._decide.scheduler.waits`.

It checks periodically from when a request waits until all waiting requests were reported. A request that is at the head of its class in
two checks is reported unless one with the same label and amounts was before.
"""

from __future__ import annotations

from collections.abc import Callable

from mray._common import settings
from mray._decide.scheduler.records import Claimant
from mray._decide.scheduler.scheduler import Scheduler
from mray._ipc.limits import above_limit
from mray._ipc.reactor import Reactor

#: The last reported requests that are remembered.
_MOST_TOLD = 1000


class UnmetWaits:
    """The checks of one node."""

    def __init__(self, reactor: Reactor, scheduler: Scheduler, tell: Callable[[str, str], None]) -> None:
        self._reactor = reactor
        self._scheduler = scheduler
        self._tell = tell
        self._seconds = settings.WARN_WAITING.get()
        #: Whether nothing is to be done when a request begins to wait: warnings are off, or a check is due.
        self.attended = self._seconds <= 0
        #: Heads of their classes at the last check.
        self._seen: list[Claimant] = []
        #: Label and amounts of reported requests.
        self._told: dict[tuple[object, ...], None] = {}

    def begin(self) -> None:
        self.attended = True
        self._look()

    @above_limit()  # an import at the first check opens a file
    def _look(self) -> None:
        from mray._decide.scheduler.waits import root_of_waiting, sentence, waits  # noqa: PLC0415  (not on the way to the first answer of a session)

        scheduler = self._scheduler
        before = {id(claimant) for claimant in self._seen}
        self._seen = []
        for wait in waits(scheduler):
            claimant = wait.claimants[0]
            like = (claimant.label, tuple(sorted(claimant.needs_free.items())))
            if like in self._told:
                continue
            if id(claimant) not in before:
                self._seen.append(claimant)
                continue
            self._told[like] = None
            if len(self._told) > _MOST_TOLD:
                del self._told[next(iter(self._told))]
            off = f"End what is not needed, ask for less, or start with more. {settings.WARN_WAITING.name}=0 disables this message."
            self._tell(f"{sentence(scheduler, wait)} {off}\n", root_of_waiting(claimant))
        if scheduler.queue.lacked():
            self._reactor.call_later(self._seconds, self._look)
        else:
            self.attended = False
