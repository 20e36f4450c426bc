"""The memory monitor: ends the right worker before the kernel ends the wrong one.

In the node, on its one thread, by a timer. Above the threshold it first has everybody give back what is only kept for reuse; if that
does not help, it ends whom `mray._scheduler.memory` chooses, tells those who waited (`OutOfMemoryError`), and looks again when the dead
are gone.

    timer --> used > threshold? --> pooled segments? --> TRIM_NOW
                                     none, or asked --> choose --> MemoryRanLow --> scheduler --> SIGKILL, causes

How soon it looks again follows from how far the limit is: memory cannot fill up faster than the cores can touch it. So a machine with
memory to spare is asked every few seconds, and one that is near its limit every 250 ms; where memory is seen to fill up so fast that the
limit would come sooner, half-way there.

Where the end of all workers together would not do, somebody else has the memory. It still ends one after the other, as Ray does, but the
slower the more were ended in vain: an actor that may be restarted without end would be ended and started again without a pause.

Rejected: the kernel's pressure stall information as the trigger. It tells of stalls, and without swap there are none until the very end;
and it is missing in many containers.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Any

from mray._ipc.process import IDLE_TITLE, shown_title
from mray._ipc.table import LENT, POOLED, ROW_WORDS, usable_cores
from mray._runtime.memory_usage import Usage, largest, processes, read_usage
from mray._scheduler import events
from mray._scheduler.memory import Suspect, choose, suspects

if TYPE_CHECKING:
    from mray._runtime.node import Node

#: Bytes that a core can fill in a second, at most.
_BYTES_PER_CORE = 4 << 30
#: The longest time between two looks, as a multiple of the usual one.
_SLOWEST = 16
#: The shortest while memory fills up, and the longest while it is too full, in seconds.
_HASTE = 0.01
_URGENCY = 0.05
#: Share of the memory that is to be free below the threshold when somebody has been ended.
_MARGIN = 0.01
_GIB = 1 << 30


class MemoryMonitor:
    """Looks at the memory of the machine from time to time."""

    def __init__(self, node: Node, options: dict[str, Any]) -> None:
        """`options` are those of `mray._common.memory_options.monitor_options`, with ``groups``."""
        self._node = node
        self._threshold: float = options["threshold"]
        self._period: float = options["refresh_ms"] / 1000
        self._meminfo: str = options["meminfo"]
        self._groups = options["groups"]
        #: Workers whose end has been ordered and not been seen.
        self._ending: set[str] = set()
        self._asked_to_trim = False
        #: How many were ended since memory was too full although all together could not have sufficed, and when the next may be.
        self._in_vain = 0
        self._patient_until = 0.0
        #: Bytes in use when it looked last, and when that was.
        self._before = (0, 0.0)

    def start(self) -> None:
        """Begin to look, if it is wanted."""
        if self._period > 0:
            self._node.reactor.call_later(self._period, self._look)

    def gone(self, process: str) -> None:
        """A worker is dead."""
        self._ending.discard(process)

    def _look(self) -> None:
        try:
            usage = read_usage(self._meminfo, self._groups)
        except (OSError, ValueError):
            usage = Usage(0, 1)  # nothing to go by, at this moment
        limit = int(usage.total * self._threshold)
        if usage.used > limit:
            self._relieve(usage, limit)
            pause = min(self._period, _URGENCY)
        else:
            self._asked_to_trim = False
            self._in_vain = 0
            pause = self._pause(usage.used, limit - usage.used)
        self._node.reactor.call_later(pause, self._look)

    def _pause(self, used: int, room: int) -> float:
        """Seconds until the next look, with so much room left."""
        period, now = self._period, monotonic()
        (used_before, then), self._before = self._before, (used, now)
        pause = min(max(period, room / (_BYTES_PER_CORE * usable_cores())), period * _SLOWEST)
        growth = used - used_before
        if then and growth > 0:
            pause = min(pause, max(_HASTE, room / growth * (now - then) / 2))
        return pause

    def _relieve(self, usage: Usage, limit: int) -> None:
        node = self._node
        if self._ending:
            return
        if not self._asked_to_trim and node._table.total(POOLED, node._rows):
            self._asked_to_trim = True
            node._ask_to_trim("")
            return
        self._asked_to_trim = False
        there = processes()
        held: dict[int, int] = {}
        for process in there:
            held[process.session] = held.get(process.session, 0) + process.held
        needed = usage.used - limit + int(usage.total * _MARGIN)
        scheduler = node._scheduler
        there_are = suspects(scheduler.workers.workers.values(), scheduler.members, lambda pid: held.get(pid, 0), self._is_lending)
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
        node._printed("", 0, 2, "mray", said + "\n")
        node._apply(events.MemoryRanLow([victim.process for victim in victims], text))

    def _is_lending(self, process: str) -> bool:
        return bool(self._node._table.words[self._node._row_of[process] * ROW_WORDS + LENT])

    def _in_words(self, victims: list[Suspect], usage: Usage, limit: int) -> str:
        facts = self._node._facts
        where = f"Memory on the node (IP: {facts['node_ip_address']}, ID: {facts['node_id']})"
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
