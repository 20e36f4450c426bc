"""Checks messages of other processes against the table in `mray._common.messages`.

The node checks every message first, since it stores what it accepts. Drivers and workers check a message after its handler has failed:
that distinguishes a protocol error of the peer from a bug of this process (see `mray._ipc.connection`).
"""

from __future__ import annotations

import reprlib
from typing import Any

from mray._common.messages import MESSAGES, VALUE, fits_form
from mray._common.schema import Check, Maybe, check_of

#: Index of `form` in messages with a value.
_FORM_AT = {code: [*declared.fields].index("form") for code, declared in MESSAGES.items() if declared.fields.keys() >= VALUE.keys()}


def _prepared(fields: tuple[Any, ...]) -> tuple[int, list[Check]]:
    least = sum(not isinstance(field, Maybe) for field in fields)
    return least, [check_of(field.schema if isinstance(field, Maybe) else field) for field in fields]


_CHECKS = {code: _prepared(tuple(declared.fields.values())) for code, declared in MESSAGES.items()}


def misfit(message: Any) -> str:
    """The fault in a message; "" if it is valid."""
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
    if at is not None and not fits_form(fields[at], fields[at + 1]):
        return f"message {code}: no value has form {fields[at]} and payload {_short(fields[at + 1])}"
    return ""


def _short(value: Any) -> str:
    text = reprlib.repr(value)  # in bounded time
    return text if len(text) <= 80 else f"{text[:77]}..."
