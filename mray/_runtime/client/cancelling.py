"""Cancelling: from `mray.cancel` in one process to the interrupt in another, and down to calls that the cancelled task has made.

::

    cancel(ref) in a borrower ──CANCEL_OBJECT──▶ owner ── still queued: fails here
                                                   └──CANCEL──▶ worker ── in its inbox: answered from there
                                                                  ├─ it runs: SIGINT to the main thread, children cancelled likewise
                                                                  └─ force: the process exits, or sends KILL_ME to the node

Note [task of an interrupt]
---------------------------
The reading thread sends an interrupt, which lands in the main thread some byte codes later, when another task may be running.
So each interrupt is sent for a named task: the names are written before the signal is sent, and the handler, in the main thread,
acts only if the running task is named. Names are dropped after another task has begun and ended, when the signal must have arrived, but
not while a handler waits for mray's code to return (`mray._ipc.interrupts`).
A SIGINT that was not sent for a task comes from the user and interrupts the running one.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from mray._common import messages as m
from mray._common import settings
from mray._common.ids import NO_ACTOR, PUT
from mray._decide.caller.call_records import CANCELLED
from mray._ipc.connection import Connection
from mray._ipc.interrupts import AGAIN_SECONDS
from mray._objects.ownership import Entry
from mray._runtime.client.calls import Call

if TYPE_CHECKING:
    from mray._api.object_ref import ObjectRef
    from mray._runtime.client.actor_calls import ActorCallers
    from mray._runtime.client.arguments import Arguments
    from mray._runtime.client.call_context import CallContext
    from mray._runtime.client.leases import LeasePools
    from mray._runtime.connections.endpoint import Endpoint
    from mray._runtime.objects.owner import Owner
    from mray._runtime.processes.process import Process

#: The actor, without its job, in an object id.
_ACTOR = slice(8, 20)
_INDEX = slice(24, 28)


class Cancelling:
    """Methods need the client's lock unless they take it themselves."""

    def __init__(self, owner: Owner, arguments: Arguments, leases: LeasePools, actors: ActorCallers) -> None:
        client = self._client = owner.client
        self._owner = owner
        self._arguments = arguments
        self._leases = leases
        self._actors = actors
        client.from_peers.on({m.CANCEL_OBJECT: self._on_cancel_object})

    def cancel(self, ref: ObjectRef, force: bool, recursive: bool) -> None:
        """Cancel the call behind a ref, wherever it is. Takes the lock; does not wait for the end of the task.

        Raises ValueError for `force` with a call of an actor.
        """
        with self._client.lock:
            self._cancel_object(ref._entry, ref.binary(), force, recursive)
        self._client.reactor.wake()  # another thread may wait for it

    def _cancel_object(self, entry: Entry, object_id: bytes, force: bool, recursive: bool) -> None:
        if entry.form is not None:
            return
        if entry.owner is None:
            if entry.task is not None:
                self.cancel_call(entry.task, force, recursive)
            return
        if object_id[_INDEX] == PUT:
            return
        if force and object_id[_ACTOR] != NO_ACTOR:
            raise ValueError("force=True is not supported for actor tasks.")
        owner = self._client.try_peer(entry.owner)
        if owner is not None:  # else the owner's death will fail the waiters
            owner.send((m.CANCEL_OBJECT, object_id, force, recursive))

    def _on_cancel_object(self, _peer: Connection, object_id: bytes, force: bool, recursive: bool) -> None:
        entry = self._owner.exported.get(object_id)
        if entry is not None:
            self._cancel_object(entry, object_id, force, recursive)
            self._client.reactor.wake()

    def cancel_call(self, call: Call, force: bool, recursive: bool) -> None:
        if force and call.handle is not None:
            raise ValueError("force=True is not supported for actor tasks.")
        call.retries = CANCELLED
        if call.source.cancel(call) or call in self._arguments.waiting:
            self._arguments.waiting.discard(call)
            call.cancel()
        else:
            connection = call.source.connection_of(call)
            if connection is not None and call.task_id in connection.calls:
                connection.send((m.CANCEL, call.task_id, force, recursive))

    def cancel_children(self, task_id: bytes, again: bool = True) -> None:
        """Cancel every unanswered call of this task; cancelled ones only if `again`."""
        for call in [call for call in self._outstanding() if call.parent == task_id]:
            if again or call.retries != CANCELLED:
                self.cancel_call(call, False, True)

    def _outstanding(self) -> Iterator[Call]:
        yield from self._arguments.waiting
        yield from self._leases.queued()
        for caller in self._actors.values():
            yield from caller.actor.queue
            yield from caller.actor.aside
        for connection in self._client.peers.values():
            yield from connection.calls.values()

    def interrupted(self, entries: Iterable[Entry]) -> None:
        """Cancel the tasks that a driver waited for when Ctrl-C arrived. Takes the lock.

        Calls of actors go on: an interrupted method would leave the actor half-changed for its next caller.
        """
        client = self._client
        if client.role != m.ROLE_DRIVER or not settings.CANCEL_ON_INTERRUPT.get():
            return
        with client.lock:
            for entry in entries:
                object_id = entry.task.task_id + b"\0\0\0\0" if entry.task is not None else entry.object_id
                if object_id is not None and object_id[_ACTOR] == NO_ACTOR:
                    self._cancel_object(entry, object_id, False, True)


class Interrupts:
    """Cancels tasks that run in this worker. See Note [task of an interrupt]."""

    def __init__(self, client: Endpoint, cancelling: Cancelling, context: CallContext, process: Process) -> None:
        self._client = client
        self._cancelling = cancelling
        self._context = context
        self._process = process
        #: Held while a signal is sent, and while names are dropped.
        self._lock = threading.Lock()
        #: Tasks cancelled since the running one began, and before that; whether with their children.
        self._named: dict[bytes, bool] = {}
        self._before: dict[bytes, bool] = {}
        self.active = False
        #: The handler has run for the last signal that was sent.
        self._landed = True
        client.reactor.guard.is_wanted = self._is_wanted
        client.reactor.guard.landed = self._note_delivery

    def cancel(self, task_id: bytes, force: bool, recursive: bool, why: str = "its task was cancelled with force=True") -> None:
        """The task runs, is about to, or has ended. With `force` the process ends, because of `why`. Reading thread, client's lock held."""
        with self._lock:
            self.active = True
            self._named[task_id] = recursive
            runs = self._context.task_id == task_id
            if runs and force:
                self._client.node.send((m.EXITING, m.CAUSE_CRASH, why))
                if not self._context.gpu_ids:
                    self._process.exit(1)
                    return
                self._client.node.send((m.KILL_ME,))
                return
            if runs:
                self._send()
        if runs and recursive:
            self._cancelling.cancel_children(task_id)

    def _send(self) -> None:
        # A signal does not end a sleep that the main thread begins just after its check for signals. So it is sent again until the handler
        # has run.
        self._landed = False
        self._process.interrupt()
        self._client.reactor.call_later(AGAIN_SECONDS, self._look_again)

    def _look_again(self) -> None:
        with self._lock:
            if not self._landed and self._context.task_id in self._named:
                self._send()

    def _note_delivery(self) -> None:
        self._landed = True

    def forget(self, task_id: bytes) -> None:
        """The task was interrupted and has ended, and may run again here. Its last signal may still be on its way."""
        with self._lock:
            self._named.pop(task_id, None)
            self._before.pop(task_id, None)
            self._named[b""] = False

    def is_cancelled(self, task_id: bytes | None) -> bool:
        """Whether this task was cancelled while, or shortly before, it ran. Any thread."""
        return task_id in self._named or task_id in self._before

    def begin(self, task_id: bytes) -> None:
        """Drop old names. Raises KeyboardInterrupt if the starting task is among the new ones. Main thread."""
        with self._lock:
            cancelled = task_id in self._named
            kept = self._before if self._client.reactor.guard.is_due(signal.SIGINT) else {}
            self._before, self._named = {**kept, **self._named}, {}
            self.active = bool(self._before)
        if cancelled:
            raise KeyboardInterrupt

    def ended(self, task_id: bytes) -> None:
        """Cancel calls that an interrupted task has made after its children were cancelled. Main thread."""
        if self._named.get(task_id):
            with self._client.lock:
                self._cancelling.cancel_children(task_id, again=False)

    def _is_wanted(self) -> bool:
        """Whether the SIGINT that has arrived is for the running task. Main thread, in the handler."""
        return not self.active or self.is_cancelled(self._context.task_id)
