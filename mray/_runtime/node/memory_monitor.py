"""The memory monitor: kills the right worker before the kernel kills the wrong one.

On the node's one thread, by a timer. `mray._decide.scheduler.memory_victims` chooses the workers to kill; their callers get
`OutOfMemoryError`, and the monitor checks again when they have exited.

    timer --> used > threshold? --> pooled segments? --> TRIM_NOW
                                     none, or asked --> choose --> MemoryRanLow --> scheduler --> SIGKILL, causes
                                                       none --> a warning that names the largest other process

The pause between two checks follows from the distance to the limit, since memory cannot fill up faster than the cores can touch it, and
halves the remaining time where memory is seen to fill up faster.

Where the end of all workers would not suffice, no worker is killed, and the drivers are notified once of the holder. A worker's bytes
are first overestimated, with all pages that it shares with the process that it was forked from, and measured exactly only where the
estimate would suffice, since the kernel takes long to count.

Rejected: the kernel's pressure stall information as the trigger: without swap there are no stalls until the very end, and many
containers lack it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mray._common.clock import monotonic
from mray._decide.scheduler import events
from mray._decide.scheduler.memory_victims import Suspect, choose, suspects
from mray._decide.scheduler.scheduler import Scheduler
from mray._ipc.process import IDLE_TITLE, shown_title
from mray._ipc.reactor import Reactor
from mray._ipc.table import POOLED, usable_cores
from mray._runtime.node.members import Members
from mray._runtime.node.memory_usage import (
    ProcessMemory,
    Usage,
    alone,
    command_of,
    is_in,
    largest,
    largest_other,
    objects_of,
    processes,
    read_usage,
)

#: Bytes that a core can fill in a second, at most.
_BYTES_PER_CORE = 4 << 30
#: The longest pause while there is room, as a multiple of the usual one.
_SLOWEST = 16
#: Seconds: the shortest pause while memory fills up, and the longest while it is too full.
_SHORTEST = 0.01
_URGENCY = 0.05
#: Share of the memory to be free below the threshold once workers have been killed.
_MARGIN = 0.01
_GIB = 1 << 30


class MemoryMonitor:
    """Checks the machine's memory, and kills workers when it is too full."""

    def __init__(
        self,
        options: dict[str, Any],
        place: str,
        prefix: str,
        reactor: Reactor,
        scheduler: Scheduler,
        members: Members,
        *,
        check: Callable[[], None],
        trim: Callable[[], None],
        tell: Callable[[str], None],
        apply: Callable[[events.Event], None],
    ) -> None:
        """`options` are those of `mray._common.memory_options.monitor_options`, with ``groups``; `place` names the machine, and `prefix`
        begins the names of the session's memory.

        `check` validates the words that members write; `trim` asks all members to free pooled memory, `tell` shows a text to all
        drivers, and `apply` passes an event to the scheduler and carries out its instructions.
        """
        self._place = place
        self._prefix = prefix
        self._reactor = reactor
        self._scheduler = scheduler
        self._members = members
        self._check = check
        self._trim = trim
        self._tell = tell
        self._apply = apply
        self._threshold: float = options["threshold"]
        self._period: float = options["refresh_ms"] / 1000
        self._meminfo: str = options["meminfo"]
        self._groups = options["groups"]
        #: Workers whose end was ordered, and that had not exited at the last check.
        self._ending: set[str] = set()
        self._asked_to_trim = False
        #: Other processes that were reported to hold the memory (0 for an invisible one); whether any was since memory became too full.
        self._named: set[int] = set()
        self._has_named = False
        #: Bytes in use at the last check, and its time.
        self._before = (0, 0.0)

    def start(self) -> None:
        if self._period > 0:
            self._reactor.call_later(self._period, self._look)

    def _look(self) -> None:
        self._check()
        try:
            usage = read_usage(self._meminfo, self._groups)
        except (OSError, ValueError):
            usage = Usage(0, 1)  # the kernel gives no figures at this moment
        limit = int(usage.total * self._threshold)
        if usage.used > limit:
            can_help = self._free_memory(usage, limit)
            pause = min(self._period, _URGENCY) if can_help else self._period
        else:
            self._asked_to_trim = self._has_named = False
            pause = self._pause(usage.used, limit - usage.used)
        self._reactor.call_later(pause, self._look)

    def _pause(self, used: int, room: int) -> float:
        period, now = self._period, monotonic()
        (used_before, then), self._before = self._before, (used, now)
        pause = min(max(period, room / (_BYTES_PER_CORE * usable_cores())), period * _SLOWEST)
        growth = used - used_before
        if then and growth > 0:
            pause = min(pause, max(_SHORTEST, room / growth * (now - then) / 2))
        return pause

    def _free_memory(self, usage: Usage, limit: int) -> bool:
        """Kill workers, or free pooled memory first. Returns whether either can help."""
        self._ending &= self._scheduler.workers.workers.keys()
        if self._ending:
            return True
        if not self._asked_to_trim and self._members.total(POOLED):
            self._asked_to_trim = True
            self._trim()
            return True
        self._asked_to_trim = False
        there = processes()
        needed = usage.used - limit + int(usage.total * _MARGIN)
        victims = choose(self._suspects(there, lambda process: process.held), needed)
        if victims:
            victims = choose(self._suspects(there, alone), needed)
        if not victims:
            self._name_other(usage, there)
            return False
        self._ending.update(victim.process for victim in victims)
        said = self._in_words(victims, usage, limit)
        text = f"{said}\nTop 10 memory users: {largest(there)}\n{_ADVICE}"
        self._tell(said + "\n")
        self._apply(events.MemoryRanLow([victim.process for victim in victims], text))
        return True

    def _suspects(self, there: list[ProcessMemory], bytes_of: Callable[[ProcessMemory], int]) -> list[Suspect]:
        """The workers that may be killed, with what they, their children and their objects hold."""
        workers = self._scheduler.workers.workers
        pids = {worker.pid for worker in workers.values()}
        objects = objects_of(self._prefix)
        held = {worker.pid: objects.get(worker.process, 0) for worker in workers.values()}
        for process in there:
            if process.session in pids:
                held[process.session] += bytes_of(process)
        return suspects(workers.values(), self._scheduler.members, lambda pid: held.get(pid, 0), self._members.is_lending)

    def _name_other(self, usage: Usage, there: list[ProcessMemory]) -> None:
        """Notify the drivers once that the memory is not the workers', and of its largest visible holder."""
        if self._has_named:
            return
        self._has_named = True
        workers = self._suspects(there, lambda process: process.held)
        ours = {worker.pid for worker in self._scheduler.workers.workers.values()}
        other = largest_other(there, ours, lambda pid: is_in(usage.group, pid))
        if (other.pid if other else 0) in self._named:
            return
        self._named.add(other.pid if other else 0)
        members = self._scheduler.members
        if other is None:
            found = "No other process can be seen that holds any"
        else:
            program = command_of(other.pid) or "a program"
            found = f"The largest of all other processes is {program}, pid={other.pid}, with {_gib(other.held)}"
            if any(member.pid == other.pid for member in members.values()):
                found += ", which is no worker but a driver of this session"
        held = _gib(sum(worker.held for worker in workers))
        bytes_of_objects = sum(objects_of(self._prefix).values())
        objects = f" Objects of this session take {_gib(bytes_of_objects)}." if bytes_of_objects > usage.total * _MARGIN else ""
        self._tell(
            f"{self._amounts(usage)}, which is above the threshold of {self._threshold:.1%}. No worker was ended, since that would not "
            f"help: the {len(workers)} workers of this session hold {held} together. {found}.{objects} {_ADVICE_ON_OTHERS}\n"
        )

    def _amounts(self, usage: Usage) -> str:
        whose = f", control group {usage.group[1]}" if usage.group else ""
        return f"Memory on the node ({self._place}{whose}) was {_gib(usage.used)} used / {_gib(usage.total)} limit ({usage.share:f})"

    def _in_words(self, victims: list[Suspect], usage: Usage, limit: int) -> str:
        lines = [
            f"{len(victims)} worker(s) were killed due to the node running low on memory. {self._amounts(usage)}",
            f"OOM kill reason: Memory usage {usage.used}B exceeded threshold of {limit}B ({self._threshold:.1%} of {usage.total}B limit)",
        ]
        for victim in victims:
            again = "it may be retried" if victim.retriable else "it may not be retried"
            running = shown_title(victim.pid) if victim.runs_task else ""
            what = f"task {running}" if running and running != IDLE_TITLE else victim.label
            lines.append(f"Killed: {what}, pid={victim.pid}, actual memory used={_gib(victim.held)}, {again}")
        return "\n".join(lines)


def _gib(amount: int) -> str:
    return f"{amount / _GIB:.2f}GB"


_ADVICE = (
    "Run fewer concurrently (a larger num_cpus, or memory=BYTES for each task or actor), or give the machine more memory. max_retries, "
    "max_restarts and max_task_retries make mray retry ended tasks and calls. RAY_memory_usage_threshold sets the threshold; "
    "RAY_memory_monitor_refresh_ms=0 switches the monitor off."
)
_ADVICE_ON_OTHERS = (
    "End it, or give the machine more memory; until then the kernel may end any process. RAY_memory_usage_threshold sets the threshold; "
    "RAY_memory_monitor_refresh_ms=0 switches the monitor and this warning off."
)
