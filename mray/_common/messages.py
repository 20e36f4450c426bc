"""The table of messages between processes of a session: senders, receivers and fields.

A message is a flat tuple of builtin values: its code and its fields. It crosses a connection as ``marshal``, which runs no user code:
the thread that wants a user's value unpickles it from ``bytes``.

`mray._common.protocol` checks messages against this table. Handlers: `mray._runtime.connections.dispatch` (drivers and workers),
`mray._runtime.node.node`, `mray._runtime.processes.supervisor` (messages of the zygote), `mray._runtime.processes.zygote`,
`mray._observe.observer`, `mray._runtime.node.introducer` and `mray._runtime.processes.template`.

``process`` is a process id of mray (16 hex digits), ``pid`` the kernel's. ``number`` and ``request`` identify a request to its sender
and are repeated in the answer; 0 asks for no answer.
"""

from __future__ import annotations

import math
from types import NoneType
from typing import Any

from mray._common.record import Record
from mray._common.schema import ANY, Maybe, check_of, keyed, row

# ------------------------------------------------------------------------------------- value forms
PICKLED = 0
#: A pickle with its out-of-band buffers behind it.
PACKED = 1
#: The payload is ``(segment name, length, producer process)``; the value lies in shared memory, PACKED (or PICKLED: length is negative).
#: A fourth item is the id of the object that holds the segment, for a large argument that belongs to its call alone.
SEGMENT = 2
#: The pickled exception that `get` raises.
FAILED = 3
#: The tensors have stayed in the process that created them (`mray._gpu.tensor_transport`).
TENSORS = 4

# ------------------------------------------------------------------------------------------ schemas
_OPTIONAL_TEXT = (str, NoneType)
_OPTIONAL_DICT = (NoneType, dict)
#: The refs inside a pickle, with their owners; an actor handle is ``(actor id, "")``.
_REFS = (NoneType, [row(bytes, str)])
VALUE: dict[str, Any] = {"form": int, "payload": ANY, "refs": _REFS}

_is_refs = check_of(_REFS)
_is_place = row(str, int, str)
_is_own_place = row(str, int, str, bytes)


def fits_form(form: Any, payload: Any) -> bool:
    if form in (PICKLED, PACKED, FAILED):
        return payload.__class__ is bytes
    if form == SEGMENT:
        return _is_place(payload) or _is_own_place(payload)
    return bool(form == TENSORS) and payload.__class__ in (tuple, list)


def _is_value(value: Any) -> bool:
    return value.__class__ in (tuple, list) and len(value) == 3 and fits_form(value[0], value[1]) and _is_refs(value[2])


def _is_quantity(value: Any) -> bool:
    return value.__class__ in (int, float) and math.isfinite(value)


def _is_index(value: Any) -> bool:
    return value.__class__ is int and value >= -1


_VALUES = [_is_value]
#: `mray._common.invocations.ArgumentValue`.
_ARGUMENTS = (NoneType, [(row((int, str), int, ANY), row((int, str), int, ANY, bytes, str))])
_RESOURCES: Any = {str: _is_quantity}
_ENV = ({str: str}, NoneType)
#: The id of a placement group, and a bundle's index.
_GROUP = (NoneType, row(bytes, _is_index))
_AFFINITY = (NoneType, str, [int])
#: `mray._common.causes.Cause`.
_CAUSE = row(str, str, int, (int, NoneType), (bytes, NoneType))
#: Needs of a lease or an actor.
_NEEDS: dict[str, Any] = {
    "env": _ENV,  # variables that the worker must be started with; None: the session's own
    "label": str,  # purpose ("task f", "actor A"), for texts
    "group": _GROUP,
    "affinity": _AFFINITY,  # None, "auto", or a list of CPUs
    "fail_fast": bool,  # refused when its resources are not free
}
_DEMAND = keyed(
    {"resources": _RESOURCES},  # held while the lease lives
    {
        **_NEEDS,
        "retriable": bool,  # its tasks are retried when their worker is killed
        "options": dict,  # for LEASED: the runtime environment, and the placement group of what its tasks create
    },
)
_ACTOR = keyed(
    {},
    {
        # The scheduler's.
        **_NEEDS,
        "resources": (NoneType, _RESOURCES),  # held while the actor lives
        "placement": (NoneType, _RESOURCES),  # what the machine or bundle must have, free or not; absent: `resources`
        "name": _OPTIONAL_TEXT,  # None: anonymous
        "namespace": _OPTIONAL_TEXT,
        "get_if_exists": bool,  # answer with the actor of that name
        "detached": bool,  # lives until the session ends or it is killed
        "max_restarts": (int, NoneType),  # -1: unlimited
        "announced": bool,  # its arguments have not arrived; a second request with the whole spec follows
        "public": bytes,  # NAME_LOOKUP's sender creates a handle from it
        "refusal": _OPTIONAL_TEXT,  # why this machine can never have it
        "class_name": _OPTIONAL_TEXT,
        "parent": bytes,  # the creating task, for listings
        # The worker's (ACTOR_START).
        "code": bytes,
        "owner": str,
        "runtime_env": dict,
        "current_group": ANY,  # the placement group of what it creates
        "concurrency": ANY,  # `mray._common.concurrency.Concurrency`
        "max_task_retries": (int, NoneType),
        "arguments": row(int, ANY),  # form, payload
        "values": _ARGUMENTS,
    },
)
_PLACEMENT = keyed(
    {"bundles": [_RESOURCES], "strategy": str},
    {"name": _OPTIONAL_TEXT, "namespace": _OPTIONAL_TEXT, "detached": bool, "job": _OPTIONAL_TEXT, "impossible": _OPTIONAL_TEXT},
)
#: See `mray._runtime.node.jobs`.
_JOB_SPEC = keyed(
    {"namespace": str, "runtime_env": dict, "log_to_driver": ANY, "terminal": ANY, "logging_config": ANY, "place": (NoneType, dict)},
    {"env": _ENV, "eager_install": ANY, "entrypoint": _OPTIONAL_TEXT},
)

#: A call and the process that made it.
_TARGET = row(bytes, str)
#: `mray._common.long_waits`.
_WAIT = row(int, bytes, str, row(str, int, str, str), [_TARGET], int)
_WAITED = row(bytes, str, str, bytes, [_TARGET], [int], int)
_LINK = row(str, int, str, str, str, str, int, str, int, str, str)

# ---------------------------------------------------------------------------- senders and receivers
ROLE_DRIVER = "driver"
ROLE_WORKER = "worker"
ROLE_NODE = "node"
ROLE_ZYGOTE = "zygote"
ROLE_TEMPLATE = "template"
#: Reads the state of a session without being part of it.
ROLE_OBSERVER = "observer"
_D, _W, _N, _Z, _T, _O = ROLE_DRIVER, ROLE_WORKER, ROLE_NODE, ROLE_ZYGOTE, ROLE_TEMPLATE, ROLE_OBSERVER

#: Roles of the sender and the receiver.
Way = tuple[str, str]
Ways = frozenset[Way]
CALLING: Ways = frozenset({(_D, _W), (_W, _W)})
ANSWERING: Ways = frozenset({(_W, _D), (_W, _W)})
#: Drivers and workers own objects and borrow each other's; a persistent session has several drivers.
PEERS: Ways = CALLING | ANSWERING | {(_D, _D)}
TO_NODE: Ways = frozenset({(_D, _N), (_W, _N)})
DRIVER_TO_NODE: Ways = frozenset({(_D, _N)})
WORKER_TO_NODE: Ways = frozenset({(_W, _N)})
FROM_NODE: Ways = frozenset({(_N, _D), (_N, _W)})
NODE_TO_DRIVER: Ways = frozenset({(_N, _D)})
NODE_TO_WORKER: Ways = frozenset({(_N, _W)})
NODE_TO_ZYGOTE: Ways = frozenset({(_N, _Z)})
ZYGOTE_TO_NODE: Ways = frozenset({(_Z, _N)})
DRIVER_TO_TEMPLATE: Ways = frozenset({(_D, _T)})
TEMPLATE_TO_DRIVER: Ways = frozenset({(_T, _D)})
#: An observer queries the node, or through it a driver or a worker.
OBSERVER_TO_NODE: Ways = frozenset({(_O, _N)})
NODE_TO_OBSERVER: Ways = frozenset({(_N, _O)})
OBSERVING: Ways = frozenset({(_O, _D), (_O, _W)})
OBSERVED: Ways = frozenset({(_D, _O), (_W, _O)})
EVERYBODY: Ways = PEERS | TO_NODE | FROM_NODE | OBSERVER_TO_NODE | NODE_TO_OBSERVER | OBSERVING | OBSERVED


class Declared(Record):
    """The roles that may exchange the message, and the names and schemas of its fields."""

    ways: Ways
    fields: dict[str, Any]


MESSAGES: dict[int, Declared] = {}


def _message(code: int, ways: Ways, /, **fields: Any) -> int:
    assert code not in MESSAGES, f"code {code} already has a message"
    MESSAGES[code] = Declared(ways, fields)
    return code


# ------------------------------------------------------------------------------- on any connection
#: Both ends send it first; a driver that joins a session which it did not start adds its job.
HELLO = _message(1, PEERS | TO_NODE | OBSERVER_TO_NODE, role=str, process=str, pid=int, job_spec=Maybe((NoneType, _JOB_SPEC)))
#: Instead of HELLO: send this descriptor (`mray._runtime.client.descriptors`), then hang up.
DESCRIPTOR = _message(2, PEERS, key=str)
#: The receiver has just connected and is refused; the hang-up follows.
REFUSED = _message(3, EVERYBODY, errno=int, text=str)
#: Last: why a message of the receiver was invalid.
PROTOCOL_ERROR = _message(4, EVERYBODY, text=str)
#: Instead of HELLO: pass this connection on; answered by PASSED or REFUSED.
PASS_ON = _message(5, OBSERVER_TO_NODE, process=str)
#: The process of PASS_ON reads what follows.
PASSED = _message(6, NODE_TO_OBSERVER)
#: Last: the handler of a valid message of the receiver has failed with this exception.
FAULT = _message(7, EVERYBODY, text=str)
#: A segment with a ring pair for this connection; the sender has that row of the session's table (`mray._ipc.ring_pair`).
OFFER_RING = _message(8, PEERS, name=str, row=int)
#: Whether the sender has mapped the offered ring pair.
TAKE_RING = _message(9, PEERS, taken=bool, row=int)
#: The sender no longer writes into the ring pair; the receiver must stop, too.
RETIRE_RING = _message(39, PEERS)
#: Read the ring.
NUDGE = _message(38, PEERS)

# ------------------------------------------------------------------------------------------- calls
#: The code of a function, ahead of the first call on a connection.
FUNCTION = _message(10, CALLING, function_id=bytes, pickled=bytes)
#: No call on this connection uses the function until FUNCTION comes again.
FUNCTION_OVER = _message(29, CALLING, function_id=bytes)
_CALLED: dict[str, Any] = {"num_returns": int, **VALUE, "arguments": _ARGUMENTS, "options": _OPTIONAL_DICT}
#: Call a method of the receiver's actor (`mray._common.invocations`).
CALL = _message(11, CALLING, task_id=bytes, method=str, **_CALLED)
#: Call a function (`mray._common.invocations`).
TASK = _message(12, CALLING, task_id=bytes, function_id=bytes, **_CALLED, name=str)
#: The value of a call with one return value.
REPLY = _message(13, ANSWERING, task_id=bytes, **VALUE)
#: The values of a call with several return values, or with none.
REPLIES = _message(14, ANSWERING, task_id=bytes, values=_VALUES)
#: The tasks that follow run under this lease.
LEASED = _message(15, CALLING, lease_id=int, resources=_RESOURCES, gpus=list, options=_OPTIONAL_DICT)
#: Return at most this number of tasks that have not started; answered by GIVEN_BACK.
RECLAIM = _message(16, CALLING, most=int)
#: These tasks do not run here.
GIVEN_BACK = _message(17, ANSWERING, task_ids=[bytes])
#: Cancel a call (with `recursive` its children too); `force` kills a worker that runs it.
CANCEL = _message(18, CALLING, task_id=bytes, force=bool, recursive=bool)
#: A call that the caller wants retried has raised.
ATTEMPT = _message(19, ANSWERING, task_id=bytes)
#: The worker exits after its current task: the caller keeps the lease and sends no more tasks.
LEAVING = _message(24, ANSWERING)
#: A borrower asks the owner of an object to cancel the call that returns it.
CANCEL_OBJECT = _message(23, PEERS, object_id=bytes, force=bool, recursive=bool)

# -------------------------------------------------------------------------- streams of a generator
#: Yielded items, from number `first` on; without items, the producer waits until some are taken. REPLY ends the stream.
STREAM_ITEMS = _message(20, ANSWERING, task_id=bytes, first=int, values=_VALUES)
#: The reader has taken `count` items; sent where the producer waits for that.
STREAM_TAKEN = _message(21, CALLING, task_id=bytes, count=int)
#: The stream has no reader any more.
STREAM_STOP = _message(22, CALLING, task_id=bytes)

# -------------------------------------------------------------- tensors that stay with their maker
#: Send the tensors of an object; answered by TENSORS_BROUGHT.
TENSORS_FETCH = _message(25, PEERS, number=int, object_id=bytes, through_host=bool)
#: The tensors, PICKLED, PACKED or in a SEGMENT, or why not (FAILED). `lease`: the id of a lent object, b"", or the numbers of lent device
#: memory, which the payload describes tensor by tensor (`mray._device.exports`).
TENSORS_BROUGHT = _message(26, PEERS, number=int, form=int, payload=ANY, lease=(bytes, list))
#: The tensors of these objects are no longer needed.
TENSORS_FREE = _message(27, PEERS, object_ids=[bytes])
#: Lent device memory may be reused after that point of the event in `note`; without one, now.
TENSORS_DONE = _message(28, PEERS, number=int, note=bytes, point=int)

# --------------------------------------------------------------------------------------- ownership
#: The sender holds these refs.
BORROW = _message(30, PEERS, number=int, object_ids=[bytes])
#: The owner has counted a BORROW.
BORROWED = _message(31, PEERS, number=int)
#: The sender no longer holds these refs.
RELEASE = _message(32, PEERS, object_ids=[bytes])
#: Send OBJECT once the object is ready; with `asks`, send ABSENT if it is not ready yet.
FETCH = _message(33, PEERS, object_id=bytes, asks=Maybe(bool))
#: The value of an object.
OBJECT = _message(34, PEERS, object_id=bytes, **VALUE)
#: These segments of the receiver are no longer needed; `reuse` False: they must not be reused.
FREE_SEGMENT = _message(35, PEERS, names=[str], reuse=Maybe(bool))
#: The object of a FETCH is not ready.
ABSENT = _message(37, PEERS, object_id=bytes)
#: The caller has borrowed the refs inside a reply: the worker may drop its pins.
UNPIN = _message(36, PEERS, task_id=bytes)

# ------------------------------------------------------------------------------------------ graphs
#: A verb of `mray._graph.graph_messages`.
GRAPH = _message(40, PEERS, number=int, verb=str, payload=bytes)
#: The answer, or the pickled exception when not `ok`.
GRAPHED = _message(41, PEERS, number=int, ok=bool, payload=(bytes, NoneType))

# ---------------------------------------------------------------------------------------- observers
#: Send these sections of the process's state; also first on a connection, instead of HELLO.
ASK = _message(45, OBSERVING | PEERS, number=int, sections={str: {str: ANY}})
#: Section -> whether it could be read, and its rows or an error text (`mray._observe.process_snapshot`).
TOLD = _message(46, OBSERVED | PEERS, number=int, answer={str: row(bool, ANY)})

# ------------------------------------------------------------------------------------- to the node
#: Grant a lease; answered by LEASE_GRANT or LEASE_REFUSED.
LEASE_REQUEST = _message(50, TO_NODE, request=int, demand=_DEMAND)
#: The lease is no longer needed; the sender returns a grant that crosses this.
LEASE_CANCEL = _message(51, TO_NODE, request=int)
#: The lease is free again.
LEASE_RETURN = _message(52, TO_NODE, lease_id=int)
#: The lease is free again, and its worker must be ended since the conversation with it failed.
LEASE_BREAK = _message(63, TO_NODE, lease_id=int, text=str)
#: The worker's task waits, or the worker waits before it exits: its CPUs are free.
BLOCKED = _message(53, TO_NODE)
#: The worker's task continues.
UNBLOCKED = _message(54, TO_NODE)
#: Create an actor; answered by ANSWER.
ACTOR_CREATE = _message(55, TO_NODE, request=int, actor_id=bytes, spec=_ACTOR)
#: Answered by ACTOR_STATE now and at each change.
ACTOR_SUBSCRIBE = _message(56, TO_NODE, actor_id=bytes)
#: The sender holds handles of these actors; answered by HELD.
ACTOR_HOLD = _message(57, TO_NODE, number=int, actor_ids=[bytes])
#: The sender no longer holds a handle of these actors.
ACTOR_DROP = _message(58, TO_NODE, actor_ids=[bytes])
#: Kill an actor; answered by ANSWER once the signal is sent.
ACTOR_KILL = _message(59, TO_NODE, request=int, actor_id=bytes, no_restart=bool)
#: Answered by ANSWER with the public spec of the named actor.
NAME_LOOKUP = _message(60, TO_NODE, request=int, name=str, namespace=str)
#: A listing, such as ``cluster_resources`` (of an observer: `mray._runtime.node.snapshot.QUERIES`); answered by ANSWER.
QUERY = _message(61, TO_NODE | OBSERVER_TO_NODE, request=int, what=str, arguments=list)
#: Answered by ANSWER, after everything that the node has sent before.
FENCE = _message(68, TO_NODE, request=int)
#: Ask all other processes to free memory retained for reuse; answered by ANSWER once they have, or after a time limit.
MAKE_ROOM = _message(49, TO_NODE, request=int)
#: End all work of this driver, and its session if that is private.
SHUTDOWN = _message(62, DRIVER_TO_NODE)
#: End all work of this driver in its private session, hang up, and wait for its next HELLO.
RESET = _message(64, DRIVER_TO_NODE)
#: The sender has written an object to disk; the session's table has the totals.
SPILLED = _message(69, TO_NODE)
#: Create a placement group; answered by ANSWER immediately.
GROUP_CREATE = _message(65, TO_NODE, request=int, group_id=bytes, spec=_PLACEMENT)
#: Answered by ANSWER once the group is created, is removed, or can never be created.
GROUP_AWAIT = _message(66, TO_NODE, request=int, group_id=bytes)
#: Remove a placement group; answered by ANSWER.
GROUP_REMOVE = _message(67, TO_NODE, request=int, group_id=bytes)

#: A thread of the sender has waited for long; the node looks whether its wait can end.
LONG_WAIT = _message(76, TO_NODE)
#: The sender's long waits, and calls (`mray._common.long_waits`); `main`: the wait that holds all of its calls, 0: none.
WAITS_TOLD = _message(77, TO_NODE, number=int, waits=[_WAIT], calls=[_WAITED], main=int)

# ------------------------------------------------------------------------------ workers to the node
#: The actor's constructor has returned.
ACTOR_READY = _message(70, WORKER_TO_NODE, actor_id=bytes)
#: The actor's constructor has raised this exception.
ACTOR_FAILED = _message(71, WORKER_TO_NODE, actor_id=bytes, pickled=bytes)
#: The worker exits on purpose, for one of the CAUSE_ kinds; `name` and last `calls` are for the timeline.
EXITING = _message(72, WORKER_TO_NODE, cause=str, text=str, name=Maybe(str), calls=Maybe([(list, tuple)]))
#: End the work of this worker on its GPUs, then kill it.
KILL_ME = _message(74, WORKER_TO_NODE)
#: A user's hook runs before the worker serves; "" when it has returned.
SETTING_UP = _message(73, WORKER_TO_NODE, what=str)

# ----------------------------------------------------------------------------------- from the node
#: The answer to HELLO: session info, with descriptors of the session's table and of the channels for introductions.
WELCOME = _message(80, FROM_NODE, info=dict)
#: A lease, with the CPUs that the worker is pinned to and its other accelerators.
LEASE_GRANT = _message(
    81,
    FROM_NODE,
    request=int,
    lease_id=int,
    process=str,
    resources=_RESOURCES,
    gpus=list,
    cpus=Maybe([int]),
    accelerators=Maybe({str: [int]}),
)
#: This machine can never grant the lease.
LEASE_REFUSED = _message(82, FROM_NODE, request=int, text=str)
#: Other demands wait: return the lease as soon as it is idle.
LEASE_RECALL = _message(84, FROM_NODE, lease_id=int)
#: The payload of the cause is the pickled exception of the constructor (CAUSE_INIT), or the last lines of a worker that crashed.
ACTOR_STATE = _message(85, FROM_NODE, actor_id=bytes, state=str, process=str, incarnation=int, cause=(NoneType, _CAUSE))
ACTOR_STATES = PENDING, ALIVE, RESTARTING, DEAD = "pending", "alive", "restarting", "dead"
#: The node has counted an ACTOR_HOLD.
HELD = _message(86, FROM_NODE, number=int)
#: The value, or an error text when not `ok`.
ANSWER = _message(87, FROM_NODE | NODE_TO_OBSERVER, request=int, ok=bool, value=ANY)
#: Text that a worker has printed to a stream: 1, 2 or NOTE_STREAM.
OUTPUT = _message(88, NODE_TO_DRIVER, pid=int, stream=int, name=str, text=str)
#: The text of OUTPUT is a JSON object about a progress bar or a breakpoint (`mray._ipc.output`).
NOTE_STREAM = 3
#: Free memory retained for reuse.
TRIM_NOW = _message(89, FROM_NODE)
#: Become this actor: the spec of ACTOR_CREATE, with ``gpu_ids`` (list), ``accelerators`` (kind to indices), ``restarted`` (bool).
ACTOR_START = _message(90, NODE_TO_WORKER, actor_id=bytes, spec=dict, incarnation=int)
#: Finish what is queued and exit.
EXIT = _message(91, NODE_TO_WORKER, cause=str, text=str)
#: A process of the session has died; `role` names it unless it was a worker, `made` lists its segments that belong to the receiver.
WORKER_GONE = _message(92, FROM_NODE, process=str, role=str, cause=_CAUSE, made=Maybe([str]))
#: List the long waits of the receiver, and what holds these calls; answered by WAITS_TOLD.
WAITS_ASKED = _message(94, FROM_NODE, number=int, task_ids=[bytes])
#: Waits for these calls cannot end, as the chain shows; this one of the receiver (0: none) is among them, and raises DeadlockError or not.
STUCK = _message(95, FROM_NODE, number=int, raises=bool, task_ids=[bytes], chain=[_LINK])
#: Write the counts of coverage, and at most this many bytes about the last calls (`mray._ipc.kept_sessions`), and exit immediately.
SAVE = _message(93, NODE_TO_WORKER, most=int)
#: To one of several drivers, after its SHUTDOWN: all of its work has ended.
LEFT = _message(98, NODE_TO_DRIVER)
#: The session ends, for this reason.
ENDING = _message(99, NODE_TO_DRIVER, text=str)

# --------------------------------------------------------------------------------- node and zygote
#: Fork a worker; its streams and its connection to the node come as descriptors.
SPAWN = _message(100, NODE_TO_ZYGOTE, process=str, environment={str: str})
#: The worker runs.
SPAWNED = _message(101, ZYGOTE_TO_NODE, process=str, pid=int)
#: A child has died with this wait status.
REAPED = _message(102, ZYGOTE_TO_NODE, pid=int, status=int)
#: The zygote could not fork the worker, for now.
NOT_SPAWNED = _message(103, ZYGOTE_TO_NODE, process=str, text=str)
#: Workers start without this preloaded module.
PRELOAD_FAILED = _message(104, ZYGOTE_TO_NODE, module=str, text=str)

# ------------------------------------------------------------------------------ driver and template
#: Import a module.
LOAD = _message(110, DRIVER_TO_TEMPLATE, module=str)
#: Fork a node for a session; its descriptors come along. Answered by DONE.
FORK = _message(111, DRIVER_TO_TEMPLATE, directory=str, environment={str: str}, folder=str)
#: Reap a dead node; answered by DONE.
REAP = _message(112, DRIVER_TO_TEMPLATE, pid=int)
#: The node's pid or exit status, or an errno when not `ok`.
DONE = _message(113, TEMPLATE_TO_DRIVER, ok=bool, number=int)

# --------------------------- introductions, on a channel of their own (`mray._ipc.introductions`)
#: Ask whether a process ("": the node) exists, and with `connect` for a connection to it.
INTRODUCE = _message(105, TO_NODE, number=int, process=str, connect=bool)
#: It exists; the connection comes as a descriptor.
INTRODUCED = _message(106, FROM_NODE, number=int, pid=int)
#: The process does not exist, or cannot be connected to.
NOT_INTRODUCED = _message(107, FROM_NODE, number=int, errno=int, text=str)

# ------------------------------------------------------------------------------- causes of a death
#: An unexpected signal or exit status.
CAUSE_CRASH = "crash"
CAUSE_KILL = "kill"
#: `exit_actor`, or max_calls reached.
CAUSE_EXIT = "exit"
#: The last handle was dropped, or ``__ray_terminate__`` was called.
CAUSE_SCOPE = "scope"
#: The creating process died.
CAUSE_OWNER = "owner"
#: The constructor raised.
CAUSE_INIT = "init"
#: Memory ran low; the text says how low.
CAUSE_MEMORY = "memory"
CAUSE_NODE = "node"
CAUSE_GROUP = "group"
#: It could never be placed on this machine, or given a process.
CAUSE_REFUSED = "refused"

#: Part of the text of a refusal when the processes of an environment die at the start.
NO_PROCESS = "no worker process could be started"
#: Begins the text of a refusal when the placement group no longer exists.
GROUP_REMOVED = "placement group was removed"
