"""The table of messages: each with the roles that may exchange it, and the names and schemas of its fields.

A reader of another process's message looks here before it believes it. The handlers of messages are elsewhere:
`mray._runtime.connections.dispatch` (drivers and workers), `mray._runtime.node.node`, `mray._runtime.processes.supervisor` (messages of the
zygote), `mray._runtime.processes.zygote`, `mray._observe.observer`, `mray._runtime.node.introducer`.

The node checks every message before it acts on it, since its tables keep whatever it has believed once. Drivers and workers check a message
that has failed: that tells a protocol error of the peer, which ends the conversation, from a mistake of ours, which must not lose the
messages behind it (see `mray._ipc.connection`).

A schema is a type; `ANY`; several schemas, of which one must fit (a tuple); a list of things of one schema (a list with it); a dict with
keys and values of such schemas (a dict with one entry); a function of `row` or `facts`.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable
from types import NoneType
from typing import Any

from mray._common import messages as m
from mray._common.record import Record

Check = Callable[[Any], bool]

ANY: Any = object


def _check_of(schema: Any) -> Check:
    if schema is ANY:
        return lambda _value: True
    if schema is float:
        return lambda value: value.__class__ is float or value.__class__ is int
    if isinstance(schema, type):
        return lambda value: value.__class__ is schema
    if isinstance(schema, tuple):
        several = [_check_of(each) for each in schema]
        return lambda value: any(check(value) for check in several)
    if isinstance(schema, list):
        inner = _check_of(schema[0])
        return lambda value: value.__class__ in (list, tuple) and all(map(inner, value))
    if isinstance(schema, dict):
        ((first, second),) = schema.items()
        of_key, of_value = _check_of(first), _check_of(second)
        return lambda value: value.__class__ is dict and all(of_key(key) and of_value(each) for key, each in value.items())
    check: Check = schema
    return check


def row(*schemas: Any) -> Check:
    """A tuple, or a list, of so many items."""
    checks = [_check_of(schema) for schema in schemas]

    def check(value: Any) -> bool:
        if value.__class__ not in (tuple, list) or len(value) != len(checks):
            return False
        return all(fits(each) for fits, each in zip(checks, value, strict=True))

    return check


def facts(needed: dict[str, Any], others: dict[str, Any]) -> Check:
    """A dict that has some keys, and may have others; of keys that are not named it may have any."""
    checks = {name: _check_of(schema) for name, schema in {**needed, **others}.items()}
    return lambda value: (
        value.__class__ is dict
        and all(name in value for name in needed)
        and all(check(value[name]) for name, check in checks.items() if name in value)
    )


def _is_quantity(value: Any) -> bool:
    return value.__class__ in (int, float) and math.isfinite(value)


def _is_index(value: Any) -> bool:
    return value.__class__ is int and value >= -1


_MAYBE_TEXT = (str, NoneType)
_RESOURCES: Any = {str: _is_quantity}
_ENV = ({str: str}, NoneType)
_GROUP = (NoneType, row(bytes, _is_index))
_AFFINITY = (NoneType, str, [int])
#: Ids with the processes that own them.
_REFS = (NoneType, [row(bytes, str)])
_CAUSE = (NoneType, row(str, str, int, (int, NoneType), (bytes, NoneType)))
_DEMAND = facts({"resources": _RESOURCES}, {"env": _ENV, "label": str, "group": _GROUP, "affinity": _AFFINITY, "hasty": bool})
_ACTOR = facts(
    {},
    {
        "resources": (NoneType, _RESOURCES),
        "placement": (NoneType, _RESOURCES),
        "env": _ENV,
        "label": str,
        "group": _GROUP,
        "affinity": _AFFINITY,
        "hasty": bool,
        "name": _MAYBE_TEXT,
        "namespace": _MAYBE_TEXT,
        "max_restarts": (int, NoneType),
        "class_name": _MAYBE_TEXT,
        "refusal": _MAYBE_TEXT,
    },
)
_PLACEMENT = facts(
    {"bundles": [_RESOURCES], "strategy": str},
    {"name": _MAYBE_TEXT, "namespace": _MAYBE_TEXT, "job": _MAYBE_TEXT, "impossible": _MAYBE_TEXT},
)
_JOB_SPEC = facts(
    {"namespace": str, "runtime_env": dict, "log_to_driver": ANY, "terminal": ANY, "logging_config": ANY, "place": (NoneType, dict)},
    {"env": _ENV, "eager_install": ANY, "entrypoint": _MAYBE_TEXT},
)


def _is_value(value: Any) -> bool:
    """Form, payload and refs."""
    return value.__class__ in (tuple, list) and len(value) == 3 and _fits_form(value[0], value[1]) and _is_refs(value[2])


_is_refs = _check_of(_REFS)
_is_place = row(str, int, str)
#: A large argument that belongs to nobody but its call: the object that holds it, too.
_is_own_place = row(str, int, str, bytes)


def _fits_form(form: Any, payload: Any) -> bool:
    if form in (m.PICKLED, m.PACKED, m.FAILED):
        return payload.__class__ is bytes
    if form == m.SEGMENT:
        return _is_place(payload) or _is_own_place(payload)
    return bool(form == m.TENSORS) and payload.__class__ in (tuple, list)


_VALUES = [_is_value]
_ARGUMENTS = (NoneType, [(list, tuple)])
_OPTIONS = (NoneType, dict)


class _Maybe(Record):
    """A field at the end that may be left out."""

    schema: Any


# ------------------------------------------------------------------------------------------------- senders and receivers
_D, _W, _N, _Z, _O = m.ROLE_DRIVER, m.ROLE_WORKER, m.ROLE_NODE, m.ROLE_ZYGOTE, m.ROLE_OBSERVER

#: The role of the sender, and that of the receiver.
Way = tuple[str, str]
Ways = frozenset[Way]
#: A driver or a worker calls what lives in a worker, and is answered.
CALLING: Ways = frozenset({(_D, _W), (_W, _W)})
ANSWERING: Ways = frozenset({(_W, _D), (_W, _W)})
#: Drivers and workers own objects and borrow each other's. (Several drivers have a persistent session.)
PEERS: Ways = CALLING | ANSWERING | {(_D, _D)}
TO_NODE: Ways = frozenset({(_D, _N), (_W, _N)})
DRIVER_TO_NODE: Ways = frozenset({(_D, _N)})
WORKER_TO_NODE: Ways = frozenset({(_W, _N)})
FROM_NODE: Ways = frozenset({(_N, _D), (_N, _W)})
NODE_TO_DRIVER: Ways = frozenset({(_N, _D)})
NODE_TO_WORKER: Ways = frozenset({(_N, _W)})
NODE_TO_ZYGOTE: Ways = frozenset({(_N, _Z)})
ZYGOTE_TO_NODE: Ways = frozenset({(_Z, _N)})
#: An observer asks the node, or through it a driver or a worker, and is answered.
OBSERVER_TO_NODE: Ways = frozenset({(_O, _N)})
NODE_TO_OBSERVER: Ways = frozenset({(_N, _O)})
OBSERVING: Ways = frozenset({(_O, _D), (_O, _W)})
OBSERVED: Ways = frozenset({(_D, _O), (_W, _O)})
#: Messages that end a conversation, of any role.
EVERYBODY: Ways = PEERS | TO_NODE | FROM_NODE | OBSERVER_TO_NODE | NODE_TO_OBSERVER | OBSERVING | OBSERVED


class Declared(Record):
    """One message: the roles that may exchange it, and the names and schemas of the fields behind its code."""

    code: int
    ways: Ways
    fields: dict[str, Any]


#: Every message, by its code; `mray._common.messages` says what each is for.
MESSAGES: dict[int, Declared] = {}


def _message(code: int, ways: Ways, **fields: Any) -> None:
    MESSAGES[code] = Declared(code, ways, fields)


# ------------------------------------------------------------------------------- on any connection
_message(m.HELLO, PEERS | TO_NODE | OBSERVER_TO_NODE, role=str, process=str, pid=int, job_spec=_Maybe((NoneType, _JOB_SPEC)))
_message(m.DESCRIPTOR, PEERS, key=str)
_message(m.REFUSED, EVERYBODY, errno=int, text=str)
_message(m.PROTOCOL_ERROR, EVERYBODY, text=str)
_message(m.PASS_ON, OBSERVER_TO_NODE, process=str)
_message(m.PASSED, NODE_TO_OBSERVER)
_message(m.FAULT, EVERYBODY, text=str)
_message(m.OFFER_RING, PEERS, name=str, row=int)
_message(m.TAKE_RING, PEERS, taken=bool, row=int)
_message(m.RETIRE_RING, PEERS)
_message(m.NUDGE, PEERS)

# ------------------------------------------------------------------------------------------- calls
_message(m.FUNCTION, CALLING, function=bytes, pickled=bytes)
_message(m.FUNCTION_OVER, CALLING, function=bytes)
_GIVEN = {"num_returns": int, "form": int, "payload": ANY, "refs": _REFS, "arguments": _ARGUMENTS, "options": _OPTIONS}
# Read as records: `mray._common.invocations`.
_message(m.CALL, CALLING, task_id=bytes, method=str, **_GIVEN)
_message(m.TASK, CALLING, task_id=bytes, function_id=bytes, **_GIVEN, name=str)
_message(m.REPLY, ANSWERING, task=bytes, form=int, payload=ANY, refs=_REFS)
_message(m.REPLIES, ANSWERING, task=bytes, values=_VALUES)
_message(m.LEASED, CALLING, lease=int, resources=_RESOURCES, gpus=list, options=_OPTIONS)
_message(m.RECLAIM, CALLING, most=int)
_message(m.GIVEN_BACK, ANSWERING, tasks=[bytes])
_message(m.CANCEL, CALLING, task=bytes, force=bool, recursive=bool)
_message(m.ATTEMPT, ANSWERING, task=bytes)
_message(m.LEAVING, ANSWERING)
_message(m.CANCEL_OBJECT, PEERS, object=bytes, force=bool, recursive=bool)

# -------------------------------------------------------------------------- streams of a generator
_message(m.STREAM_ITEMS, ANSWERING, task=bytes, first=int, values=_VALUES)
_message(m.STREAM_TAKEN, CALLING, task=bytes, count=int)
_message(m.STREAM_STOP, CALLING, task=bytes)

# -------------------------------------------------------------- tensors that stay with their maker
_message(m.TENSORS_FETCH, PEERS, number=int, object=bytes, through_host=bool)
_message(m.TENSORS_BROUGHT, PEERS, number=int, form=int, payload=ANY, lease=(bytes, list))
_message(m.TENSORS_FREE, PEERS, objects=[bytes])
_message(m.TENSORS_DONE, PEERS, number=int, note=bytes, point=int)

# --------------------------------------------------------------------------------------- ownership
_message(m.BORROW, PEERS, number=int, objects=[bytes])
_message(m.BORROWED, PEERS, number=int)
_message(m.RELEASE, PEERS, objects=[bytes])
_message(m.FETCH, PEERS, object=bytes, asks=_Maybe(bool))
_message(m.ABSENT, PEERS, object=bytes)
_message(m.OBJECT, PEERS, object=bytes, form=int, payload=ANY, refs=_REFS)
_message(m.FREE_SEGMENT, PEERS, names=[str], reuse=_Maybe(bool))
_message(m.UNPIN, PEERS, task=bytes)

# ------------------------------------------------------------------------------------------ graphs
_message(m.GRAPH, PEERS, number=int, verb=str, payload=bytes)
_message(m.GRAPHED, PEERS, number=int, ok=bool, payload=(bytes, NoneType))

# ------------------------------------------------------------------------------------ of observers
_message(m.ASK, OBSERVING | PEERS, number=int, sections=[str])
_message(m.TOLD, OBSERVED | PEERS, number=int, answer={str: row(bool, ANY)})

# ------------------------------------------------------------------------------------- to the node
_message(m.LEASE_REQUEST, TO_NODE, request=int, demand=_DEMAND)
_message(m.LEASE_CANCEL, TO_NODE, request=int)
_message(m.LEASE_RETURN, TO_NODE, lease=int)
_message(m.LEASE_BREAK, TO_NODE, lease=int, text=str)
_message(m.BLOCKED, TO_NODE)
_message(m.UNBLOCKED, TO_NODE)
_message(m.ACTOR_CREATE, TO_NODE, request=int, actor=bytes, spec=_ACTOR)
_message(m.ACTOR_SUBSCRIBE, TO_NODE, actor=bytes)
_message(m.ACTOR_HOLD, TO_NODE, number=int, actors=[bytes])
_message(m.ACTOR_DROP, TO_NODE, actors=[bytes])
_message(m.ACTOR_KILL, TO_NODE, request=int, actor=bytes, no_restart=bool)
_message(m.NAME_LOOKUP, TO_NODE, request=int, name=str, namespace=str)
_message(m.QUERY, TO_NODE | OBSERVER_TO_NODE, request=int, what=str, arguments=list)
_message(m.FENCE, TO_NODE, request=int)
_message(m.MAKE_ROOM, TO_NODE, request=int)
_message(m.SHUTDOWN, DRIVER_TO_NODE)
_message(m.RESET, DRIVER_TO_NODE)
_message(m.GROUP_CREATE, TO_NODE, request=int, group=bytes, spec=_PLACEMENT)
_message(m.GROUP_AWAIT, TO_NODE, request=int, group=bytes)
_message(m.GROUP_REMOVE, TO_NODE, request=int, group=bytes)
_message(m.SPILLED, TO_NODE)

# ----------------------------------------------------------------------------- workers to the node
_message(m.ACTOR_READY, WORKER_TO_NODE, actor=bytes)
_message(m.ACTOR_FAILED, WORKER_TO_NODE, actor=bytes, error=bytes)
_message(m.EXITING, WORKER_TO_NODE, cause=str, text=str, name=_Maybe(str), calls=_Maybe([(list, tuple)]))
_message(m.KILL_ME, WORKER_TO_NODE)
_message(m.SETTING_UP, WORKER_TO_NODE, what=str)

# ----------------------------------------------------------------------------------- from the node
_message(m.WELCOME, FROM_NODE, facts=dict)
_PINNED = {"cpus": _Maybe([int]), "accelerators": _Maybe({str: [int]})}
_message(m.LEASE_GRANT, FROM_NODE, request=int, lease=int, process=str, resources=_RESOURCES, gpus=list, **_PINNED)
_message(m.LEASE_REFUSED, FROM_NODE, request=int, text=str)
_message(m.LEASE_RECALL, FROM_NODE, lease=int)
_message(m.ACTOR_STATE, FROM_NODE, actor=bytes, state=str, process=str, incarnation=int, cause=_CAUSE)
_message(m.HELD, FROM_NODE, number=int)
_message(m.ANSWER, FROM_NODE | NODE_TO_OBSERVER, request=int, ok=bool, value=ANY)
_message(m.OUTPUT, NODE_TO_DRIVER, pid=int, stream=int, name=str, text=str)
_message(m.TRIM_NOW, FROM_NODE)
_message(m.ACTOR_START, NODE_TO_WORKER, actor=bytes, spec=dict, incarnation=int)
_message(m.EXIT, NODE_TO_WORKER, cause=str, text=str)
_message(m.WORKER_GONE, FROM_NODE, process=str, role=str, cause=_CAUSE[1], made=_Maybe([str]))
_message(m.SAVE, NODE_TO_WORKER)
_message(m.LEFT, NODE_TO_DRIVER)
_message(m.ENDING, NODE_TO_DRIVER, text=str)

# --------------------------------------------------------------------------------- node and zygote
_message(m.SPAWN, NODE_TO_ZYGOTE, process=str, environment={str: str})
_message(m.SPAWNED, ZYGOTE_TO_NODE, process=str, pid=int)
_message(m.REAPED, ZYGOTE_TO_NODE, pid=int, status=int)
_message(m.NOT_SPAWNED, ZYGOTE_TO_NODE, process=str, text=str)
_message(m.PRELOAD_FAILED, ZYGOTE_TO_NODE, module=str, text=str)

# -------------------------------------------------------- introductions, on a channel of their own
_message(m.INTRODUCE, TO_NODE, number=int, process=str, connect=bool)
_message(m.INTRODUCED, FROM_NODE, number=int, pid=int)
_message(m.NOT_INTRODUCED, FROM_NODE, number=int, errno=int, text=str)

#: Where among the fields the form of a value stands.
_FORM_AT = {m.CALL: 3, m.TASK: 3, m.REPLY: 1, m.OBJECT: 1}


def _prepared(fields: tuple[Any, ...]) -> tuple[int, list[Check]]:
    """How many must be there, and the checks of all."""
    least = sum(not isinstance(field, _Maybe) for field in fields)
    return least, [_check_of(field.schema if isinstance(field, _Maybe) else field) for field in fields]


_CHECKS = {code: _prepared(tuple(declared.fields.values())) for code, declared in MESSAGES.items()}


def misfit(message: Any) -> str:
    """The fault in a message, as a text; empty if nothing is."""
    if message.__class__ is not tuple or not message:
        return "a message is a tuple"
    code = message[0]
    known = _CHECKS.get(code) if code.__class__ is int else None
    if known is None:
        return f"{_short(code)} is no message"
    least, checks = known
    fields = message[1:]
    if not least <= len(fields) <= len(checks):
        return f"message {code} came with {len(fields)} fields instead of {len(checks)}"
    for name, check, field in zip(MESSAGES[code].fields, checks, fields, strict=False):
        if not check(field):
            return f"message {code}: its field {name!r} cannot be {_short(field)}"
    at = _FORM_AT.get(code)
    if at is not None and not _fits_form(fields[at], fields[at + 1]):
        return f"message {code}: no value has form {fields[at]} and payload {_short(fields[at + 1])}"
    return ""


def _short(value: Any) -> str:
    text = reprlib.repr(value)  # in a time that does not depend on what it is
    return text if len(text) <= 80 else f"{text[:77]}..."
