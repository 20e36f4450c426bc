"""The memory monitor: ends the right worker before the kernel ends the wrong one.

In the node, on its one thread, by a timer. Above the threshold it first asks all processes to give back segments that they only keep for
reuse; if that does not help, it ends the workers that `mray._scheduler.memory` chooses, so that waiting callers get `OutOfMemoryError`,
and looks again when the workers are gone.

    timer --> used > threshold? --> pooled segments? --> TRIM_NOW
                                     none, or asked --> choose --> MemoryRanLow --> scheduler --> SIGKILL, causes

The pause between two looks follows from how far the limit is: memory cannot fill up faster than the cores can touch it. So a machine with
memory to spare is looked at every few seconds, and one that is near its limit every 250 ms; where memory is seen to fill up faster, in
half the time that is left.

Where the end of all workers together would not suffice, other programs have the memory. The monitor still ends one worker after the other,
as Ray does, but more slowly the more were ended in vain: an actor that may be restarted without end would be ended and started again
without a pause.

Rejected: the kernel's pressure stall information as the trigger. It measures stalls, and without swap there are none until the very end;
and it is missing in many containers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mray._common.clock import monotonic
from mray._ipc.process import IDLE_TITLE, shown_title
from mray._ipc.reactor import Reactor
from mray._ipc.table import POOLED, usable_cores
from mray._runtime.node.members import Members
from mray._runtime.node.memory_usage import Usage, largest, processes, read_usage
from mray._scheduler import events
from mray._scheduler.memory import Suspect, choose, suspects
from mray._scheduler.scheduler import Scheduler

#: Bytes that a core can fill in a second, at most.
_BYTES_PER_CORE = 4 << 30
#: The longest time between two looks, as a multiple of the usual one.
_SLOWEST = 16
#: The shortest pause while memory fills up, and the longest while it is too full, in seconds.
_SHORTEST = 0.01
_URGENCY = 0.05
#: Share of the memory that shall be free below the threshold once workers have been ended.
_MARGIN = 0.01
_GIB = 1 << 30


class MemoryMonitor:
    """Looks at the memory of the machine from time to time, and ends workers when it is too full."""

    def __init__(
        self,
        options: dict[str, Any],
        place: str,
        reactor: Reactor,
        scheduler: Scheduler,
        members: Members,
        *,
        trim: Callable[[], None],
        tell: Callable[[str], None],
        apply: Callable[[events.Event], None],
    ) -> None:
        """`options` are those of `mray._common.memory_options.monitor_options`, with ``groups``; `place` names the machine.

        `trim` asks all members to give back the memory that they keep for reuse, `tell` shows a text to all drivers, and `apply` has the
        scheduler's answer to an event carried out.
        """
        self._place = place
        self._reactor = reactor
        self._scheduler = scheduler
        self._members = members
        self._trim = trim
        self._tell = tell
        self._apply = apply
        self._threshold: float = options["threshold"]
        self._period: float = options["refresh_ms"] / 1000
        self._meminfo: str = options["meminfo"]
        self._groups = options["groups"]
        #: Workers that have been asked to be ended and whose end has not been seen.
        self._ending: set[str] = set()
        self._asked_to_trim = False
        #: How often workers were ended in vain since memory became too full, and when the next may be ended.
        self._in_vain = 0
        self._patient_until = 0.0
        #: Bytes in use when it looked last, and when that was.
        self._before = (0, 0.0)

    def start(self) -> None:
        """Begin to look, unless the monitor is switched off."""
        if self._period > 0:
            self._reactor.call_later(self._period, self._look)

    def gone(self, process: str) -> None:
        """Take note of the end of a worker."""
        self._ending.discard(process)

    def _look(self) -> None:
        try:
            usage = read_usage(self._meminfo, self._groups)
        except (OSError, ValueError):
            usage = Usage(0, 1)  # the kernel gives no figures at this moment
        limit = int(usage.total * self._threshold)
        if usage.used > limit:
            self._free_memory(usage, limit)
            pause = min(self._period, _URGENCY)
        else:
            self._asked_to_trim = False
            self._in_vain = 0
            pause = self._pause(usage.used, limit - usage.used)
        self._reactor.call_later(pause, self._look)

    def _pause(self, used: int, room: int) -> float:
        """Seconds until the next look, with so much room left."""
        period, now = self._period, monotonic()
        (used_before, then), self._before = self._before, (used, now)
        pause = min(max(period, room / (_BYTES_PER_CORE * usable_cores())), period * _SLOWEST)
        growth = used - used_before
        if then and growth > 0:
            pause = min(pause, max(_SHORTEST, room / growth * (now - then) / 2))
        return pause

    def _free_memory(self, usage: Usage, limit: int) -> None:
        if self._ending:
            return
        if not self._asked_to_trim and self._members.total(POOLED):
            self._asked_to_trim = True
            self._trim()
            return
        self._asked_to_trim = False
        there = processes()
        held: dict[int, int] = {}
        for process in there:
            held[process.session] = held.get(process.session, 0) + process.held
        needed = usage.used - limit + int(usage.total * _MARGIN)
        scheduler = self._scheduler
        there_are = suspects(scheduler.workers.workers.values(), scheduler.members, lambda pid: held.get(pid, 0), self._members.is_lending)
        victims = choose(there_are, needed)
        if not victims:
            return
        if sum(victim.held for victim in victims) < needed:
            now = monotonic()
            if self._in_vain and now < self._patient_until:
                return
            self._patient_until = now + self._period * min(2**self._in_vain, _SLOWEST)
            self._in_vain += 1
        self._ending.update(victim.process for victim in victims)
        said = self._in_words(victims, usage, limit)
        text = f"{said}\nTop 10 memory users: {largest(there)}\n{_ADVICE}"
        self._tell(said + "\n")
        self._apply(events.MemoryRanLow([victim.process for victim in victims], text))

    def _in_words(self, victims: list[Suspect], usage: Usage, limit: int) -> str:
        where = f"Memory on the node ({self._place})"
        amounts = f"{usage.used / _GIB:.2f}GB used / {usage.total / _GIB:.2f}GB limit ({usage.share:f})"
        lines = [
            f"{len(victims)} worker(s) were killed due to the node running low on memory. {where} was {amounts}",
            f"OOM kill reason: Memory usage {usage.used}B exceeded threshold of {limit}B ({self._threshold:.1%} of {usage.total}B limit)",
        ]
        for victim in victims:
            again = "it may be tried again" if victim.retriable else "it may not be tried again"
            running = shown_title(victim.pid) if victim.runs_task else ""
            what = f"task {running}" if running and running != IDLE_TITLE else victim.label
            lines.append(f"Killed: {what}, pid={victim.pid}, actual memory used={victim.held / _GIB:.2f}GB, {again}")
        return "\n".join(lines)


_ADVICE = (
    "Run fewer at once (a larger num_cpus, or memory=BYTES for each task or actor), or give the machine more memory. max_retries, "
    "max_restarts and max_task_retries have them tried again. RAY_memory_usage_threshold sets the threshold; "
    "RAY_memory_monitor_refresh_ms=0 switches the monitor off."
)
