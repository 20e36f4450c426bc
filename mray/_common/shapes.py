"""What the fields of each message must be: who reads what another process has written looks here before it believes it.

The node looks at every message before it acts on it, since what it believed once stays in its tables. Drivers and workers look when a
message has failed: that tells a peer that talks nonsense, whose conversation ends, from a mistake of ours, which must lose nothing that
stands behind it (see `mray._ipc.connection`).

A shape is a type; `ANY`; several shapes, of which one must fit (a tuple); a list of things of one shape (a list with it); a dict with keys
and values of such shapes (a dict with one entry); what `row` or `facts` has made.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable
from types import NoneType
from typing import Any, NamedTuple

from mray._common import messages as m

Check = Callable[[Any], bool]

ANY: Any = object


def _check_of(shape: Any) -> Check:
    if shape is ANY:
        return lambda _value: True
    if shape is float:
        return lambda value: value.__class__ is float or value.__class__ is int
    if isinstance(shape, type):
        return lambda value: value.__class__ is shape
    if isinstance(shape, tuple):
        several = [_check_of(each) for each in shape]
        return lambda value: any(check(value) for check in several)
    if isinstance(shape, list):
        inner = _check_of(shape[0])
        return lambda value: value.__class__ in (list, tuple) and all(map(inner, value))
    if isinstance(shape, dict):
        ((first, second),) = shape.items()
        of_key, of_value = _check_of(first), _check_of(second)
        return lambda value: value.__class__ is dict and all(of_key(key) and of_value(each) for key, each in value.items())
    check: Check = shape
    return check


def row(*shapes: Any) -> Check:
    """A tuple, or a list, of so many items."""
    checks = [_check_of(shape) for shape in shapes]

    def check(value: Any) -> bool:
        if value.__class__ not in (tuple, list) or len(value) != len(checks):
            return False
        return all(fits(each) for fits, each in zip(checks, value, strict=True))

    return check


def facts(needed: dict[str, Any], others: dict[str, Any]) -> Check:
    """A dict that has some keys, and may have others; of keys that are not named it may have any."""
    checks = {name: _check_of(shape) for name, shape in {**needed, **others}.items()}
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
_WISHES = facts(
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


class _Maybe(NamedTuple):
    """A field at the end that may be left out."""

    shape: Any


#: By code: the shapes of the fields behind it.
FIELDS: dict[int, tuple[Any, ...]] = {
    m.HELLO: (str, str, int, _Maybe((NoneType, _WISHES))),
    m.DESCRIPTOR: (str,),
    m.REFUSED: (int, str),
    m.NONSENSE: (str,),
    m.PASS_ON: (str,),
    m.PASSED: (),
    m.FAULT: (str,),
    m.FUNCTION: (bytes, bytes),
    m.CALL: (bytes, str, int, int, ANY, _REFS, _ARGUMENTS, _OPTIONS),
    m.TASK: (bytes, bytes, int, int, ANY, _REFS, _ARGUMENTS, _OPTIONS, str),
    m.REPLY: (bytes, int, ANY, _REFS),
    m.REPLIES: (bytes, _VALUES),
    m.LEASED: (int, _RESOURCES, list, _OPTIONS),
    m.RECLAIM: (int,),
    m.GIVEN_BACK: ([bytes],),
    m.CANCEL: (bytes, bool, bool),
    m.ATTEMPT: (bytes,),
    m.CANCEL_OBJECT: (bytes, bool, bool),
    m.STREAM_ITEMS: (bytes, int, _VALUES),
    m.STREAM_TAKEN: (bytes, int),
    m.STREAM_STOP: (bytes,),
    m.TENSORS_FETCH: (int, bytes, bool),
    m.TENSORS_BROUGHT: (int, int, ANY, (bytes, list)),
    m.TENSORS_FREE: ([bytes],),
    m.TENSORS_DONE: (int, int, bytes),
    m.BORROW: (int, [bytes]),
    m.BORROWED: (int,),
    m.RELEASE: ([bytes],),
    m.FETCH: (bytes, _Maybe(bool)),
    m.ABSENT: (bytes,),
    m.OBJECT: (bytes, int, ANY, _REFS),
    m.FREE_SEGMENT: ([str],),
    m.UNPIN: (bytes,),
    m.GRAPH: (int, str, bytes),
    m.GRAPHED: (int, bool, (bytes, NoneType)),
    m.ASK: (int, [str]),
    m.TOLD: (int, {str: row(bool, ANY)}),
    m.LEASE_REQUEST: (int, _DEMAND),
    m.LEASE_CANCEL: (int,),
    m.LEASE_RETURN: (int,),
    m.LEASE_BREAK: (int, str),
    m.BLOCKED: (),
    m.UNBLOCKED: (),
    m.ACTOR_CREATE: (int, bytes, _ACTOR),
    m.ACTOR_SUBSCRIBE: (bytes,),
    m.ACTOR_HOLD: (int, [bytes]),
    m.ACTOR_DROP: ([bytes],),
    m.ACTOR_KILL: (int, bytes, bool),
    m.NAME_LOOKUP: (int, str, str),
    m.QUERY: (int, str, list),
    m.SHUTDOWN: (),
    m.RENEW: (),
    m.GROUP_CREATE: (int, bytes, _PLACEMENT),
    m.GROUP_AWAIT: (int, bytes),
    m.GROUP_REMOVE: (int, bytes),
    m.SPILLED: (),
    m.ACTOR_READY: (bytes,),
    m.ACTOR_FAILED: (bytes, bytes),
    m.EXITING: (str, str, _Maybe(str), _Maybe([(list, tuple)])),
    m.SETTING_UP: (str,),
    m.WELCOME: (dict,),
    m.LEASE_GRANT: (int, int, str, _RESOURCES, list, _Maybe([int]), _Maybe({str: [int]})),
    m.LEASE_REFUSED: (int, str),
    m.LEASE_LOST: (int, _CAUSE),
    m.LEASE_RECALL: (int,),
    m.ACTOR_STATE: (bytes, str, str, int, _CAUSE),
    m.HELD: (int,),
    m.ANSWER: (int, bool, ANY),
    m.OUTPUT: (int, int, str, str),
    m.TRIM_NOW: (),
    m.ACTOR_START: (bytes, dict, int),
    m.EXIT: (str, str),
    m.WORKER_GONE: (str, str, int, (int, NoneType)),
    m.SAVE: (),
    m.LEFT: (),
    m.ENDING: (str,),
    m.SPAWN: (str, {str: str}),
    m.SPAWNED: (str, int),
    m.REAPED: (int, int),
    m.NOT_SPAWNED: (str, str),
    m.INTRODUCE: (int, str, bool),
    m.INTRODUCED: (int, int),
    m.NOT_INTRODUCED: (int, int, str),
}

#: Where among the fields the form of a value stands.
_FORM_AT = {m.CALL: 3, m.TASK: 3, m.REPLY: 1, m.OBJECT: 1}


def _prepared(fields: tuple[Any, ...]) -> tuple[int, list[Check]]:
    """How many must be there, and the checks of all."""
    least = sum(not isinstance(field, _Maybe) for field in fields)
    return least, [_check_of(field.shape if isinstance(field, _Maybe) else field) for field in fields]


_CHECKS = {code: _prepared(fields) for code, fields in FIELDS.items()}


def misfit(message: Any) -> str:
    """What is wrong with a message, in words; empty if nothing is."""
    if message.__class__ is not tuple or not message:
        return "a message is a tuple"
    code = message[0]
    known = _CHECKS.get(code) if code.__class__ is int else None
    if known is None:
        return f"{_short(code)} is no word"
    least, checks = known
    fields = message[1:]
    if not least <= len(fields) <= len(checks):
        return f"word {code} came with {len(fields)} fields instead of {len(checks)}"
    for number, (check, field) in enumerate(zip(checks, fields, strict=False), 1):
        if not check(field):
            return f"word {code}: its field {number} cannot be {_short(field)}"
    at = _FORM_AT.get(code)
    if at is not None and not _fits_form(fields[at], fields[at + 1]):
        return f"word {code}: no value has form {fields[at]} and payload {_short(fields[at + 1])}"
    return ""


def _short(value: Any) -> str:
    text = reprlib.repr(value)  # in a time that does not depend on what it is
    return text if len(text) <= 80 else f"{text[:77]}..."
