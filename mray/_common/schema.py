"""Schemas of message fields.

A schema is a type; `ANY`; a tuple of schemas of which one must fit; a list with the schema of its items; a dict with one entry, the
schemas of its keys and values; or a check.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mray._common.record import Record

Check = Callable[[Any], bool]

ANY: Any = object


class Maybe(Record):
    """A last field that the sender may omit."""

    schema: Any


def check_of(schema: Any) -> Check:
    if schema is ANY:
        return lambda _value: True
    if schema is float:
        return lambda value: value.__class__ is float or value.__class__ is int
    if isinstance(schema, type):
        return lambda value: value.__class__ is schema
    if isinstance(schema, tuple):
        several = [check_of(each) for each in schema]
        return lambda value: any(check(value) for check in several)
    if isinstance(schema, list):
        inner = check_of(schema[0])
        return lambda value: value.__class__ in (list, tuple) and all(map(inner, value))
    if isinstance(schema, dict):
        ((first, second),) = schema.items()
        of_key, of_value = check_of(first), check_of(second)
        return lambda value: value.__class__ is dict and all(of_key(key) and of_value(each) for key, each in value.items())
    check: Check = schema
    return check


def row(*schemas: Any) -> Check:
    """A tuple or list with one item per schema."""
    checks = [check_of(schema) for schema in schemas]

    def check(value: Any) -> bool:
        if value.__class__ not in (tuple, list) or len(value) != len(checks):
            return False
        return all(fits(each) for fits, each in zip(checks, value, strict=True))

    return check


def keyed(needed: dict[str, Any], others: dict[str, Any]) -> Check:
    """A dict with all `needed` keys, and no key that neither argument names."""
    checks = {name: check_of(schema) for name, schema in {**needed, **others}.items()}
    return lambda value: (
        value.__class__ is dict
        and value.keys() >= needed.keys()
        and value.keys() <= checks.keys()
        and all(checks[name](each) for name, each in value.items())
    )
