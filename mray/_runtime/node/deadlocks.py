"""Looks for waits that cannot end, when a process reports one that has lasted for long: the I/O around
`mray._decide.scheduler.wait_graph`.

::

    LONG_WAIT ──▶ look: WAITS_ASKED to all processes with long waits, then to those that run what they wait for, and so on
                  ◀── WAITS_TOLD ...
                  nothing stuck: over.  Else a second look a moment later: a wait that is stuck in both was so in between
                  ──▶ a warning for the driver, STUCK to the waiting processes

All reports that arrive during a look share the next one, and looks are limited to a small part of the node's time, so that a thousand
waiting tasks cost as little as one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

from mray._common import messages as m
from mray._common import settings
from mray._common.clock import monotonic
from mray._common.long_waits import CallRow, WaitRow, describe_chain
from mray._decide.scheduler.records import Claimant
from mray._decide.scheduler.scheduler import Scheduler
from mray._decide.scheduler.wait_graph import WaitGraph, WaitKey
from mray._decide.scheduler.waits import lacking
from mray._ipc.connection import Connection
from mray._ipc.reactor import Reactor

#: Seconds after which a look goes without further answers.
_DEADLINE = 2.0
#: The share of the patience between two looks, and the most seconds; and how much longer than a look the pause after it is.
_SHARE, _MOST_PAUSE, _REST = 0.1, 1.0, 20.0
#: Cycles that are remembered as reported.
_MOST_TOLD = 1000
_REMEDY = (
    "A method that runs alone in its actor must not wait for a call that needs the same actor. Let the driver wait instead and pass the "
    "ref on, use an `async` method that awaits, or set `max_concurrency`."
)
_REMEDY_OF_RESOURCES = "An actor keeps its resources while it waits: give it fewer (by default it holds none), or the session more."


class _Places:
    """Where actors are, and who holds resources, at the time of one look."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def of_actor(self, actor_id: bytes) -> tuple[str, bool]:
        actor = self._scheduler.actors.records.get(actor_id)
        if actor is None or actor.worker is None:
            return "", False
        return actor.worker.process, actor.state in (m.PENDING, m.RESTARTING)

    def lacking(self, owner: str, request: int, actor_id: bytes) -> tuple[str, list[str]]:
        member = self._scheduler.members.get(owner)
        claimant: Claimant | None = self._scheduler.actors.records.get(actor_id)
        if not actor_id and member is not None:
            claimant = member.requests.get(request)
        return ("", []) if claimant is None else self._lacking.get(claimant, ("", []))

    @cached_property
    def _lacking(self) -> dict[Claimant, tuple[str, list[str]]]:
        return lacking(self._scheduler)


class _Look:
    def __init__(self, number: int, graph: WaitGraph, first: set[WaitKey] | None) -> None:
        self.number = number
        self.graph = graph
        #: The stuck waits of the first look, if this is the second.
        self.first = first
        self.began = monotonic()
        #: Questions without an answer.
        self.open = 0


class Deadlocks:
    """The looks of one node."""

    def __init__(
        self,
        reactor: Reactor,
        scheduler: Scheduler,
        connections: Mapping[str, Connection],
        tell: Callable[[str, str], None],
        log: Callable[[str, str], None],
    ) -> None:
        """`tell` shows a text to the driver of a process's job, `log` writes it into the process's log."""
        self._raises = settings.RAISE_DEADLOCKS.get()
        self._reactor = reactor
        self._scheduler = scheduler
        self._connections = connections
        self._tell = tell
        self._log = log
        self._pause = min(_MOST_PAUSE, settings.WARN_WAITING.get() * _SHARE)
        #: Processes with long waits.
        self._waiting: dict[str, None] = {}
        self._look: _Look | None = None
        self._looks = 0
        #: A look is due, or goes on; whether another one is to follow; and not before this time.
        self._attended = False
        self._wanted = False
        self._not_before = 0.0
        #: Waits whose processes know that they are stuck; and reported cycles, by their calls, which may wait again.
        self._informed: set[WaitKey] = set()
        self._told: dict[frozenset[tuple[str, bytes]], None] = {}

    # ------------------------------------------------------------------------------------ messages
    def on_message(self, process: str, code: int, *fields: Any) -> None:
        """LONG_WAIT or WAITS_TOLD."""
        if code == m.WAITS_TOLD:
            self._on_told(process, *fields)
        else:
            self._waiting[process] = None
            self._wanted = True
            self._look_soon()

    def _on_told(self, process: str, number: int, waits: Sequence[Any], calls: Sequence[Any], main: int) -> None:
        look = self._look
        if look is None or look.number != number:
            return  # it came too late
        if waits:
            self._waiting[process] = None
        else:
            self._waiting.pop(process, None)
        look.graph.learn(process, map(WaitRow._make, waits), map(CallRow._make, calls), main)
        look.open -= 1
        self._ask(look, look.graph.questions())

    # ------------------------------------------------------------------------------------ looking
    def _look_soon(self) -> None:
        if self._wanted and not self._attended:
            self._attended = True
            self._reactor.call_later(max(0.0, self._not_before - monotonic()), self._begin)

    def _begin(self, first: set[WaitKey] | None = None) -> None:
        if first is None:
            self._wanted = False
        self._looks += 1
        look = self._look = _Look(self._looks, WaitGraph(_Places(self._scheduler)), first)
        self._reactor.call_later(_DEADLINE, partial(self._too_late, look))
        self._ask(look, {process: [] for process in self._waiting})

    def _ask(self, look: _Look, questions: Mapping[str, list[bytes]]) -> None:
        for process, task_ids in questions.items():
            connection = self._connections.get(process)
            if connection is None or connection.closed:
                self._waiting.pop(process, None)
                continue
            look.open += 1
            connection.send((m.WAITS_ASKED, look.number, task_ids))
        if not look.open:
            self._end(look)

    def _too_late(self, look: _Look) -> None:
        if self._look is look:
            self._end(look)

    def _end(self, look: _Look) -> None:
        self._look = None
        now = monotonic()
        self._not_before = now + max(self._pause, _REST * (now - look.began))
        stuck = look.graph.stuck(look.first)
        if stuck and look.first is None and not stuck <= self._informed:
            self._reactor.call_later(self._pause, partial(self._begin, stuck))
            return
        self._attended = False
        self._informed &= look.graph.waits.keys()
        if look.first is not None and stuck:
            self._report(look.graph, stuck)
        self._look_soon()

    # ------------------------------------------------------------------------------------ reporting
    def _report(self, graph: WaitGraph, stuck: set[WaitKey]) -> None:
        pids = {process: self._connections[process].pid for process, _number in stuck if process in self._connections}
        for key in sorted(stuck - self._informed):
            before, cycle = graph.chain(key, stuck)
            chain = [tuple(link) for link in graph.links([*before[1:], *cycle], pids)]  # a wait that leads into a cycle knows itself
            members = frozenset((step.wait[0], graph.waits[step.wait].task_id) for step in cycle)
            self._send(key[0], (m.STUCK, key[1], self._raises and not before, graph.tasks([key], stuck), chain))
            if members in self._told:
                continue
            self._told[members] = None
            if len(self._told) > _MOST_TOLD:
                del self._told[next(iter(self._told))]
            links = graph.links(cycle, pids)
            self._inform_drivers(graph.tasks([step.wait for step in cycle], stuck), [tuple(link) for link in links])
            text = f"These calls wait for each other, and none of them can end:\n{describe_chain(links)}\n"
            for process in dict.fromkeys(step.wait[0] for step in cycle):
                self._log(process, text)
            if not self._raises or all(number < 0 for _process, number in (step.wait for step in cycle)):  # nothing raises in a coroutine
                off = f"{settings.RAISE_DEADLOCKS.name}=1 raises an error instead; {settings.WARN_WAITING.name}=0 disables this message."
                remedy = _REMEDY_OF_RESOURCES if any(link.lacks for link in links) else _REMEDY
                self._tell(f"{text}{remedy} {off}\n", cycle[0].wait[0])
        self._informed |= stuck

    def _inform_drivers(self, task_ids: list[bytes], chain: Sequence[tuple[Any, ...]]) -> None:
        """Drivers whose waits are short name the cycle in their errors, too."""
        for process, connection in self._connections.items():
            if connection.role == m.ROLE_DRIVER:
                self._send(process, (m.STUCK, 0, False, task_ids, chain))

    def _send(self, process: str, message: tuple[Any, ...]) -> None:
        connection = self._connections.get(process)
        if connection is not None and not connection.closed:
            connection.send(message)
