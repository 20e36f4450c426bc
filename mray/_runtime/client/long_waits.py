"""Waits of this process that have lasted for long, and whether they can end.

    waiting thread ──LONG_WAIT──▶ node ──WAITS_ASKED──▶ this process, and those that run what it waits for
                                  node ◀──WAITS_TOLD── reading threads
    waiting thread ◀─(the chain)─ STUCK: `mray._decide.scheduler.wait_graph` has found a cycle, twice

A wait costs nothing more until it has lasted for the session's patience.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import count, islice
from types import FrameType
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from mray._common import messages as m
from mray._common.ids import TASK_SIZE, return_id
from mray._common.long_waits import CallRow, Place, Target, WaitLink, WaitRow, describe_chain
from mray._common.places import users_frame
from mray._ipc.limits import above_limit
from mray._objects.ownership import Entry
from mray._runtime.connections.part import Part
from mray.exceptions import DeadlockError

if TYPE_CHECKING:
    from mray._runtime.client.calls import Call
    from mray._runtime.connections.endpoint import Endpoint

#: Seconds after which a wait is reported again, at most; doubled each time from the patience on.
_MOST_PAUSE = 300.0
#: Calls that the row of a wait lists: one that waits for more can be told to be stuck only if that many of them are not needed.
_MOST_TARGETS = 256
#: Return values of a call that are looked up when another process waits for one.
_MOST_RETURNED = 8
#: Calls that a chain was received for.
_MOST_TOLD = 1000


class LongWait:
    """A thread's wait."""

    def __init__(self, number: int, entries: Iterable[Entry], spare: int | None, task_id: bytes, name: str, place: Place) -> None:
        self.number = number
        self.thread = threading.get_ident()
        self.task_id = task_id
        self.name = name
        self._entries = entries
        #: None: all or a failed one.
        self._spare = spare
        self.place = place
        #: The end of the wait, instead of a value.
        self.error: DeadlockError | None = None
        #: It is known to be stuck.
        self.told = False

    def pending(self) -> list[Entry]:
        return [entry for entry in self._entries if entry.form is None]

    def spare(self, pending: int) -> int:
        """How many of this number of pending calls may go on while the wait ends."""
        return pending - 1 if self._spare is None else self._spare


class LongWaits(Part):
    def __init__(self, client: Endpoint, exported: Mapping[bytes, Entry]) -> None:
        """`exported` has the own objects that other processes know, by id."""
        self._client = client
        self._exported = exported
        #: Seconds; None: no wait is reported.
        self.patience: float | None = None
        self._numbers = count(1)
        self._current: dict[int, LongWait] = {}
        #: Numbers of futures that coroutines await.
        self._awaits: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        #: Calls that cannot end, by id.
        self._stuck: dict[bytes, tuple[WaitLink, ...]] = {}
        client.from_node.on({m.WAITS_ASKED: self._on_asked, m.STUCK: self._on_stuck})

    def joined(self, info: dict[str, Any]) -> None:
        self.patience = info.get("patience") or None

    # ------------------------------------------------------------------------------------ waiting threads
    def wait(self, predicate: Callable[[], bool], timeout: float | None, entries: Collection[Entry], spare: int | None) -> bool:
        """Continue a wait that has lasted for the patience; `timeout` is what is left. Raises DeadlockError if it is to."""
        client, pause, left = self._client, self.patience, timeout
        if pause is None or not entries:
            return client.reactor.wait_until(predicate, timeout)
        place = _place_of_user()
        in_no_call = "The driver" if client.role == m.ROLE_DRIVER else f"{place[2]}()"  # a step of a graph, or a thread of its own
        task_id, name = client.process_host.running_here() or (b"", in_no_call)
        wait = LongWait(next(self._numbers), entries, spare, task_id, name, place)
        with client.lock:
            self._current[wait.number] = wait
        try:
            while True:
                if not wait.told and not client.node.closed:
                    client.node.send((m.LONG_WAIT,))
                is_last = left is not None and left <= pause
                if client.reactor.wait_until(lambda: wait.error is not None or predicate(), left if is_last else pause):
                    if not predicate() and wait.error is not None:
                        raise wait.error
                    return True
                if is_last:
                    return False
                left = None if left is None else left - pause
                pause = min(2 * pause, _MOST_PAUSE)
        finally:
            with client.lock:
                del self._current[wait.number]

    def why_stuck(self, entries: Iterable[Entry]) -> str:
        """A sentence with the chain of a call that cannot end, if one of these pending objects is known to wait for one; else ""."""
        for entry in entries if self._stuck else ():
            if entry.form is None and (target := _target(entry, "")) is not None and (chain := self._stuck.get(target[0])) is not None:
                return f" It cannot end, because calls wait for each other:\n{describe_chain(chain)}"
        return ""

    # ------------------------------------------------------------------------------------ reading thread, client's lock held
    def _on_asked(self, node: Any, number: int, task_ids: Sequence[bytes]) -> None:
        host = self._client.process_host
        waits = list(self._current.values())
        told: dict[bytes, CallRow] = {}
        rows = []
        for wait in waits:
            pending = wait.pending()
            rows.append(self._row(wait.number, wait.task_id, wait.name, wait.place, pending, wait.spare(len(pending)), told))
        by_task = {wait.task_id: wait.number for wait in waits if wait.task_id}
        by_thread = {wait.thread: wait.number for wait in waits}
        calls = []
        for task_id in task_ids:
            if (call := self._own_call(task_id)) is not None:
                self._describe(call, told)
            held_by = host.held_by(task_id, by_task, by_thread)
            if not held_by and (awaited := host.awaited_by(task_id)) is not None:
                name, future, entry, frame = awaited
                held_by = [self._awaits.setdefault(future, -next(self._numbers))]
                rows.append(self._row(held_by[0], task_id, name, _place_of(frame), [entry], 0, told))
            if held_by:
                calls.append(CallRow(task_id, "", "", b"", [], held_by))
        everything = [tuple(row) for row in [*told.values(), *calls]]
        node.send((m.WAITS_TOLD, number, [tuple(row) for row in rows], everything, host.holds_everything(by_thread)))

    def _row(
        self, number: int, task_id: bytes, name: str, place: Place, pending: Sequence[Entry], spare: int, told: dict[bytes, CallRow]
    ) -> WaitRow:
        """The row of a wait; adds those of the own calls that it waits for."""
        targets = []
        for entry in islice(pending, _MOST_TARGETS):
            if (target := _target(entry, self._client.process)) is not None:
                targets.append(target)
                if entry.owner is None:
                    self._describe(entry.task, told)
        return WaitRow(number, task_id, name, place, targets, spare)

    def _own_call(self, task_id: bytes) -> Call | None:
        """An own call for whose values other processes may ask."""
        returned = (self._exported.get(return_id(task_id, index + 1)) for index in range(_MOST_RETURNED))
        return next((entry.task for entry in returned if entry is not None and entry.task is not None), None)

    def _describe(self, call: Call, told: dict[bytes, CallRow]) -> None:
        """The row of an own call, and of own calls that return its arguments."""
        pending = [call]
        while pending:
            call = pending.pop()
            if call.task_id in told or call.source is None:
                continue
            origin = call.source.origin(call)
            needs: list[Target] = []
            for each in (call, *call.source.ahead(call)):
                for ref in each.arguments or () if each.waiting else ():
                    entry = ref._entry
                    if entry.form is None and (target := _target(entry, self._client.process)) is not None:
                        needs.append(target)
                        if entry.owner is None:
                            pending.append(entry.task)
            told[call.task_id] = CallRow(
                call.task_id, origin["task"], origin["process"], origin["actor_id"], needs, [], call.source.request_for(call)
            )

    def _on_stuck(self, _node: Any, number: int, raises: bool, task_ids: Sequence[bytes], chain: Sequence[Any]) -> None:
        links = tuple(WaitLink(*link) for link in chain)
        for task_id in task_ids:
            self._stuck[task_id] = links
            if len(self._stuck) > _MOST_TOLD:
                del self._stuck[next(iter(self._stuck))]
        wait = self._current.get(number)
        if wait is not None:
            wait.told = True
            if raises:
                wait.error = DeadlockError(links)


def _target(entry: Entry, process: str) -> Target | None:
    """The call that returns a pending object, and its owner; None if no call does."""
    if entry.owner is not None:
        return entry.object_id[:TASK_SIZE], entry.owner
    return None if entry.task is None else (entry.task.task_id, process)


def _place_of_user() -> Place:
    """The line of user code that the calling thread runs."""
    return _place_of(users_frame(sys._getframe(1)))


@above_limit()  # reading a line of source opens a file
def _place_of(frame: FrameType | None) -> Place:
    if frame is None:
        return "", 0, "", ""
    code = frame.f_code
    import linecache  # noqa: PLC0415  (most processes have no long wait)

    source = ""
    with contextlib.suppress(Exception):  # guards of tests let no file be opened
        source = linecache.getline(code.co_filename, frame.f_lineno, frame.f_globals).strip()
    return code.co_filename, frame.f_lineno, code.co_name, source
