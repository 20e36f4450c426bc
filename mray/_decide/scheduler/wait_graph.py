"""Calls that wait for each other, so that none of their waits can end. Pure.

::

    a wait ends   when few enough of its calls are unanswered (or, of a `get`, when one raises)
    a call ends   when its arguments are there, and one of the waits that hold its threads, or its resources, ends

A call that computes, a process that does not answer and a coroutine may always end, so only waits remain that depend on each other alone:
the greatest set of waits of which none can end before another one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from mray._common.long_waits import CallRow, Target, WaitLink, WaitRow
from mray._common.record import Record

#: The process of a wait, and its number there.
WaitKey = tuple[str, int]


class Step(Record):
    """A wait that cannot end, one of its calls, and the wait that this call needs."""

    wait: WaitKey
    target: bytes
    #: The call that the next wait holds: the target, or one that returns its arguments.
    held: bytes
    next: WaitKey


class Places(Protocol):
    """The node's knowledge of actors and resources."""

    def of_actor(self, actor_id: bytes) -> tuple[str, bool]:
        """An actor's process, "" for none, and whether its constructor runs there."""

    def lacking(self, owner: str, request: int, actor_id: bytes) -> tuple[str, list[str]]:
        """The resource that an actor without a process, or a caller's request for a worker, waits for, "" for none; and the processes of
        its holders.
        """


class _Call:
    """One call, as its caller and the process that runs it describe it."""

    __slots__ = ("actor_id", "held_by", "name", "needs", "owner", "process", "request")

    def __init__(self) -> None:
        self.name = ""
        self.process = ""
        self.actor_id = b""
        self.needs: tuple[Target, ...] = ()
        self.owner = ""
        self.request = 0
        self.held_by: tuple[WaitKey, ...] = ()


class WaitGraph:
    def __init__(self, places: Places) -> None:
        self._places = places
        self.waits: dict[WaitKey, WaitRow] = {}
        self._calls: dict[bytes, _Call] = {}
        #: The waits of main threads that serve all calls of their process.
        self._mains: dict[str, WaitKey] = {}
        self._asked: set[tuple[str, bytes]] = set()

    # ------------------------------------------------------------------------------------ what there is
    def learn(self, process: str, waits: Iterable[WaitRow], calls: Iterable[CallRow], main: int) -> None:
        """Add an answer. `main` is the wait of the thread that alone serves the calls of this process; 0: none."""
        for wait in waits:
            self.waits[process, wait.number] = wait
        if main:
            self._mains[process] = process, main
        for row in calls:
            call = self._calls.setdefault(row.task_id, _Call())
            if row.name:
                call.name, call.process, call.actor_id, call.needs = row.name, row.process, row.actor_id, tuple(row.needs)
                call.owner, call.request = process, row.request
            if row.held_by:
                call.held_by = tuple((process, number) for number in row.held_by)

    def questions(self) -> dict[str, list[bytes]]:
        """The processes to ask next, and the calls to ask them about: each is asked once about a call."""
        found: dict[str, list[bytes]] = {}
        targets = [target for wait in self.waits.values() for target in wait.targets]
        for call in self._calls.values():
            targets += call.needs
        for task_id, owner in targets:
            known = self._calls.get(task_id)
            for process in (owner,) if known is None or not known.name else self._processes_of(known):
                if process and (process, task_id) not in self._asked:
                    self._asked.add((process, task_id))
                    found.setdefault(process, []).append(task_id)
        return found

    def _processes_of(self, call: _Call) -> Sequence[str]:
        """The process of a call, or those that hold the resources for one."""
        process = self._places.of_actor(call.actor_id)[0] if call.actor_id else call.process
        return (process,) if process else self._lacking(call)[1]

    def _lacking(self, call: _Call) -> tuple[str, list[str]]:
        return self._places.lacking(call.owner, call.request, call.actor_id) if call.actor_id or call.request else ("", [])

    def _held_by(self, call: _Call) -> Sequence[WaitKey]:
        if call.held_by:
            return call.held_by
        process, constructs = self._places.of_actor(call.actor_id) if call.actor_id else (call.process, False)
        if process and not constructs:
            return ()
        # Its caller has not sent it yet.
        holders = [process] if process else self._lacking(call)[1]
        return [self._mains[each] for each in holders] if all(each in self._mains for each in holders) else ()

    # ------------------------------------------------------------------------------------ what cannot end
    def stuck(self, among: Collection[WaitKey] | None = None) -> set[WaitKey]:
        """The waits, of all or of some, that cannot end."""
        left = set(self.waits) if among is None else self.waits.keys() & among
        dependents: dict[WaitKey, set[WaitKey]] = {}
        for key in left:
            for holder in self._holders(self.waits[key].targets):
                dependents.setdefault(holder, set()).add(key)
        pending = sorted(left)
        while pending:
            key = pending.pop()
            if key in left and not self._is_stuck(key, left):
                left.discard(key)
                pending += dependents.get(key, ())
        return left

    def _holders(self, targets: Iterable[Target]) -> Iterator[WaitKey]:
        seen: set[bytes] = set()
        pending = [task_id for task_id, _owner in targets]
        while pending:
            task_id = pending.pop()
            call = self._calls.get(task_id)
            if call is not None and task_id not in seen:
                seen.add(task_id)
                yield from self._held_by(call)
                pending += [need for need, _owner in call.needs]

    def _is_stuck(self, key: WaitKey, left: Collection[WaitKey]) -> bool:
        wait = self.waits[key]
        return sum(self._holder(task_id, left) is not None for task_id, _owner in wait.targets) > max(wait.spare, 0)

    def _holder(self, task_id: bytes, left: Collection[WaitKey], seen: tuple[bytes, ...] = ()) -> tuple[bytes, WaitKey] | None:
        """The call, this one or one that it needs, that waits of `left` hold, and the first of these; None: it may end."""
        call = self._calls.get(task_id)
        if call is None or task_id in seen:
            return None
        held_by = self._held_by(call)
        if held_by and all(key in left for key in held_by):
            return task_id, held_by[0]
        for need, _owner in call.needs:
            found = self._holder(need, left, (*seen, task_id))
            if found is not None:
                return found
        return None

    def chain(self, start: WaitKey, stuck: Collection[WaitKey]) -> tuple[list[Step], list[Step]]:
        """From a wait that cannot end: the waits that lead to a cycle, and the cycle."""
        steps: list[Step] = []
        places: dict[WaitKey, int] = {}
        key = start
        while key not in places:
            places[key] = len(steps)
            target, (held, following) = next(
                (task_id, holder) for task_id, _owner in self.waits[key].targets if (holder := self._holder(task_id, stuck)) is not None
            )
            steps.append(Step(key, target, held, following))
            key = following
        return steps[: places[key]], steps[places[key] :]

    def tasks(self, keys: Iterable[WaitKey], stuck: Collection[WaitKey]) -> list[bytes]:
        """The calls that cannot end and wait in these waits, or that these wait for."""
        rows = [self.waits[key] for key in keys]
        found = dict.fromkeys(task_id for row in rows for task_id in (row.task_id, *(target for target, _owner in row.targets)))
        return [task_id for task_id in found if self._holder(task_id, stuck) is not None]

    def links(self, steps: Iterable[Step], pids: Mapping[str, int]) -> list[WaitLink]:
        """The steps in words."""
        return [self._link(step, pids) for step in steps]

    def _lacking_text(self, call: _Call) -> str:
        process = self._places.of_actor(call.actor_id)[0] if call.actor_id else call.process
        return "" if process or call.held_by else self._lacking(call)[0]

    def _link(self, step: Step, pids: Mapping[str, int]) -> WaitLink:
        wait, following = self.waits[step.wait], self.waits[step.next]
        return WaitLink(
            wait.name,
            pids.get(step.wait[0], 0),
            self._calls[step.target].name,
            self._calls[step.held].name if step.held != step.target else "",
            following.name if following.task_id != step.held else "",
            self._lacking_text(self._calls[step.held]),
            pids.get(step.next[0], 0),
            *wait.place,
        )
