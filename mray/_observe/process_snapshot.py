"""The state of a driver or worker as rows of builtin values, for observers: calls, objects, stacks, and waits of threads.

In every client, in its reading thread, so that a process answers while its main thread computes. No call records anything for it: pending
calls are in the queues anyway, refs are found among the objects that the garbage collector knows, and the objects that a thread waits for
are read from its stack.

    observer ──ASK (number, sections)──▶ client ──TOLD (number, section -> (ok, rows))──▶ observer

Rejected: events of every call to a collector, as Ray does; they cost more than a call does here.
"""

from __future__ import annotations

import gc
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any

from mray._api.object_ref import ObjectRef
from mray._common import measured
from mray._common import messages as m
from mray._common.ids import FIRST, first_number
from mray._common.invocations import short_name
from mray._common.places import frame_of
from mray._common.uncollected import uncollected
from mray._ipc.connection import Connection
from mray._ipc.reactor import Reactor
from mray._objects.store import is_spilled
from mray._runtime.client import failed_calls
from mray._runtime.client.actor_calls import ActorCaller
from mray._runtime.client.calls import Call
from mray._runtime.client.client import Client, own_clients
from mray._runtime.client.reconstruction import calls_under_way
from mray._runtime.processes.object_counts import count_objects

if TYPE_CHECKING:
    from mray._objects.ownership import Entry

#: Rows of a section at most; the rest is counted.
MOST_ROWS = 10_000
#: Objects that the row of a thread's wait names, at most.
MOST_AWAITED = 8

# Where a call is, in Ray's words.
WAITS_FOR_ARGUMENTS = "PENDING_ARGS_AVAIL"
WAITS_FOR_WORKER = "PENDING_NODE_ASSIGNMENT"
SENT = "SUBMITTED_TO_WORKER"


def on_ask(client: Client, connection: Connection, number: int, sections: list[str]) -> None:
    """Answer ASK. Client's lock held."""
    if not connection.role:
        # An observer joins no session, and its end concerns no process.
        connection.role, connection.on_hangup = m.ROLE_OBSERVER, _nothing
    connection.send((m.TOLD, number, answer(client, sections)))


def _nothing(_connection: Connection) -> None:
    pass


def answer(client: Client, sections: list[str]) -> dict[str, tuple[bool, Any]]:
    """Section -> (True, its rows) or (False, why there are none). Client's lock held."""
    told: dict[str, tuple[bool, Any]] = {}
    for section in sections:
        find = client.sections.get(section)
        try:
            if find is not None:
                told[section] = (True, find())
            elif section in _SECTIONS:
                told[section] = (True, _SECTIONS[section](client))
            else:
                told[section] = (True, None)  # a driver runs no tasks, and a process without graphs has none
        except Exception as error:  # one section that fails must not take the others along
            told[section] = (False, f"{type(error).__name__}: {error}")
    return told


def answer_here(process: str, session_dir: str, sections: list[str]) -> dict[str, tuple[bool, Any]] | None:
    """As `answer`, when that process of the session is this one; else None."""
    for client in own_clients():
        if client.process == process and client.session_dir == session_dir:
            with client.lock:
                return answer(client, sections)
    return None


def client_here(session_dir: str) -> Client | None:
    """This process's own client in a session that it has joined and that goes on; else None."""
    for client in own_clients():
        if client.session_dir == session_dir and client.facts and client.fatal is None:
            return client
    return None


def inline_bytes(client: Client) -> int:
    """Bytes of the small values that a process holds itself. Looks at every object of the interpreter."""
    with client.lock:
        return sum(len(entry.payload) for entry in _living(client.entry) if entry.form not in (None, m.SEGMENT, m.TENSORS))


def tasks_made_again(client: Client) -> list[tuple[str, str, dict[str, str]]]:
    """Name, state and labels of each task that runs once more because values of it were lost."""
    with client.lock:
        return [(call.names()[0], _state(call), (call.options or {}).get("labels", {})) for call in calls_under_way(client)]


def _state(call: Call) -> str:
    return WAITS_FOR_ARGUMENTS if call.waiting else SENT if call.lease is not None else WAITS_FOR_WORKER


# ------------------------------------------------------------------------------------------------- calls
def _calls(client: Client) -> dict[str, Any]:
    """Calls that this process has made and that are not answered."""
    rows: list[dict[str, Any]] = []
    seen: set[bytes] = set()
    total = 0

    def add(call: Call, state: str, process: str) -> None:
        nonlocal total
        if call.task_id in seen:
            return
        seen.add(call.task_id)
        total += 1
        if len(rows) < MOST_ROWS:
            rows.append(_call(client, call, state, process))

    for connection in client.peers.values():
        for call in connection.calls.values():
            add(call, SENT, connection.process)
    for call in client.leases.queued():
        add(call, WAITS_FOR_WORKER, "")
    for caller in client.actors.values():
        for call in caller.actor.queue:
            add(call, WAITS_FOR_ARGUMENTS if call.waiting else WAITS_FOR_WORKER, caller.actor.process)
        for call in caller.actor.aside:
            add(call, WAITS_FOR_WORKER, caller.actor.process)
    # A task whose arguments are not there is known to them alone.
    for call in _living(Call):
        if getattr(call, "waiting", 0) > 0 and call.arguments is not None:
            add(call, WAITS_FOR_ARGUMENTS, "")
    return {"total": total, "rows": rows}


def _call(client: Client, call: Call, state: str, process: str) -> dict[str, Any]:
    demand = getattr(call.source, "demand", None) or {}
    name, function = call.names()
    return {
        "task_id": call.task_id,
        "name": name,
        "func_or_class_name": function,
        "parent": call.parent or b"",
        "state": state,
        "creation": call.method == "__init__",
        "process": process,
        "retries_left": call.retries,
        "required_resources": dict(demand.get("resources") or {}),
        "waits_for": [ref.binary() for ref in (call.arguments or ())[:MOST_AWAITED] if ref._entry.form is None],
    }


# ----------------------------------------------------------------------------------------------- objects
def _objects(client: Client) -> dict[str, Any]:
    """One row for each object that this process holds refs of."""
    in_values: set[int] = set()
    in_calls: set[int] = set()
    refs: dict[bytes, list[ObjectRef]] = {}
    entry_class = client.entry
    living = gc.get_objects()
    for thing in living:
        kind = type(thing)
        if kind is ObjectRef:
            # Another thread may be about to make it.
            if type(getattr(thing, "_entry", None)) is entry_class:
                refs.setdefault(thing.binary(), []).append(thing)
        elif kind is entry_class:
            in_values.update(id(ref) for ref in thing.refs or () if type(ref) is ObjectRef)
        elif kind is Call:
            in_calls.update(id(ref) for ref in (*(getattr(thing, "arguments", None) or ()), *_refs_in(getattr(thing, "pins", None))))
    del living
    rows: list[dict[str, Any]] = []
    for object_id, held in refs.items():
        if len(rows) == MOST_ROWS:
            break
        users = {id(ref) for ref in held}
        kind_of = "USED_BY_PENDING_TASK" if users & in_calls else "CAPTURED_IN_OBJECT" if users <= in_values else "LOCAL_REFERENCE"
        rows.append(_object(client, object_id, held[0]._entry, kind_of))
    handles = client.borrowing.held_actors()
    rows += [_handle(client, actor_id) for actor_id in handles[: MOST_ROWS - len(rows)]]
    return {"total": len(refs) + len(handles), "rows": rows}


def _handle(client: Client, actor_id: bytes) -> dict[str, Any]:
    """An actor handle as the row of an object, the one that the constructor's call would have returned."""
    object_id = b"\xff" * 8 + actor_id + FIRST
    return {
        "object_id": object_id,
        "object_size": -1,
        "storage": "",
        "pending": False,
        "failed": False,
        "reference_type": "ACTOR_HANDLE",
        "owner": client.process,
        "task_name": "",
    }


def _refs_in(pins: Any) -> list[Any]:
    return [pin for pin in pins if type(pin) is ObjectRef] if isinstance(pins, list) else []


def _object(client: Client, object_id: bytes, entry: Entry, kind: str) -> dict[str, Any]:
    form, payload = entry.form, entry.payload
    size, where = -1, ""
    if form == m.SEGMENT:
        size, where = abs(payload[1]), "disk" if is_spilled(payload) else "shared memory"
    elif form == m.TENSORS:
        where = "with its maker"
    elif form is not None:
        size, where = len(payload), "inline"
    if kind == "LOCAL_REFERENCE" and entry.mapping is not None and entry.mapping() is not None:
        kind = "PINNED_IN_MEMORY"
    task: Call | None = entry.task
    return {
        "object_id": object_id,
        "object_size": size,
        "storage": where,
        "pending": form is None,
        "failed": form == m.FAILED,
        "reference_type": kind,
        "owner": entry.owner or client.process,
        "task_name": task.name or str(task.method if isinstance(task.method, str) else task.method[2]) if task is not None else "",
    }


def _living(kind: type[Any]) -> Iterator[Any]:
    """Every object of a class. (Objects that were alive when a program called `gc.freeze` are not found.)"""
    return (thing for thing in gc.get_objects() if type(thing) is kind)


# ------------------------------------------------------------------------------------ stacks and waiting
def _stacks(_client: Client) -> list[tuple[str, str]]:
    """(name, stack) of every Python thread, innermost frame last; of the one that answers, the stack that it reads messages from."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    stacks = []
    with uncollected:
        for ident, innermost in sys._current_frames().items():
            frame = innermost
            if ident == threading.get_ident():  # as it was when it called the handler of ASK
                frame = frame_of(Reactor.run_once.__code__, innermost) or innermost
            stacks.append((names.get(ident, str(ident)), "".join(traceback.format_stack(frame))))
    stacks.sort(key=lambda stack: stack[0] != "MainThread")
    return stacks


def _waits(client: Client) -> list[dict[str, Any]]:
    """For each thread of this process that waits for objects: the calls or processes that they come from."""
    codes = client.objects.waiting_codes()
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    found = []
    with uncollected:
        for ident, innermost in sys._current_frames().items():
            frame: FrameType | None = innermost
            while frame is not None:
                if frame.f_code in codes and frame.f_locals.get("self") is client.objects:
                    if entries := tuple(frame.f_locals.get("entries") or ()):
                        pending = [entry for entry in entries if entry.form is None]
                        on = [_source_of(entry) for entry in pending[:MOST_AWAITED]]
                        found.append({"thread": names.get(ident, ""), "count": len(pending), "on": on})
                    break
                frame = frame.f_back
    return found


def _source_of(entry: Entry) -> dict[str, Any]:
    """The call or the process that the value of an entry comes from."""
    call: Call | None = entry.task
    if call is None:
        return {"task": "", "actor_id": b"", "process": entry.owner or "", "object_id": entry.object_id}
    source = call.source
    if isinstance(source, ActorCaller):
        return {
            "task": f"{short_name(source.class_name)}.{call.method}",
            "actor_id": source.actor_id,
            "process": source.actor.process,
            "object_id": b"",
        }
    process = call.lease.process if call.lease is not None else ""
    return {"task": call.name, "actor_id": b"", "process": process, "object_id": b""}


_SECTIONS: dict[str, Callable[[Client], Any]] = {
    "calls": _calls,
    "object counts": lambda _client: count_objects(),
    "failed": lambda _client: failed_calls.rows(),
    "ids": lambda _client: first_number(),
    "metrics": lambda _client: measured.rows(),
    "objects": _objects,
    "stacks": _stacks,
    "waits": _waits,
}
