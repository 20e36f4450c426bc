"""Labels of the node, and label selectors: syntax and matching, with Ray's texts.

A *selector* maps keys to ``value``, ``!value``, ``in(a,b)`` or ``!in(a,b)``. A selector that the one node of a session does not satisfy
is never satisfied.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_NAME = r"[a-zA-Z0-9](?:[a-zA-Z0-9_.-]{0,61}[a-zA-Z0-9])?"
_PREFIX = re.compile(rf"(?:{_NAME})?(?:\.(?:{_NAME})?)*")
_VALUE = re.compile(_NAME)
_SELECTOR = re.compile(rf"!?(?:in)?\({_NAME}(?:, ?{_NAME})*\)|!?{_NAME}")

_RULE = (
    "must be 63 chars or less beginning and ending with an alphanumeric character ([a-z0-9A-Z]) with dashes (-), underscores (_),dots (.), "
    "and alphanumerics between."
)


def wrong_with_selector(selector: Any) -> str | None:
    """The error in the form of a selector, or None. Raises TypeError when a key or value is no text."""
    for key, value in (selector or {}).items():
        if not isinstance(key, str) or not (value is None or isinstance(value, str)):
            raise TypeError(f"a label selector maps text to text, not {key!r} to {value!r}")
        if wrong := _wrong_with_key(key):
            return wrong
        if value and not _SELECTOR.fullmatch(value):
            return (
                f"Invalid label selector value `{value}`. The label selector value should contain optional operators and a label value. "
                f"Supported operators are: ! and {{'in'}}. Value {_RULE}"
            )
    return None


def _wrong_with_key(key: str) -> str | None:
    prefix, slash, name = key.rpartition("/")
    if slash and (len(prefix) > 253 or not _PREFIX.fullmatch(prefix)):
        return (
            f"Invalid label key prefix `{prefix}`. Prefix must be a series of DNS labels separated by dots (.), not longer than 253 "
            "characters in total."
        )
    if not _VALUE.fullmatch(name):
        return f"Invalid label key name `{name}`. Name {_RULE}"
    return None


def wrong_with_fallbacks(fallbacks: Any) -> str | None:
    """The error in a list of fallbacks, or None."""
    for fallback in fallbacks or ():
        if not isinstance(fallback, Mapping):
            return "Each element in fallback_strategy must be a dictionary."
        if not fallback:
            return "Empty dictionary found in `fallback_strategy`."
        for option in fallback:
            if option != "label_selector":
                return f"Unsupported option found: '{option}'. Only ['label_selector'] is currently supported."
        selector = fallback["label_selector"]
        if selector and not isinstance(selector, Mapping):
            return 'The value of "label_selector" must be a dictionary.'
        if wrong := wrong_with_selector(selector):
            return wrong
    return None


def selects(selector: Mapping[str, str] | None, labels: Mapping[str, str]) -> bool:
    return all(_meets(value or "", labels.get(key)) for key, value in (selector or {}).items())


def _meets(wanted: str, value: str | None) -> bool:
    negated = wanted.startswith("!")
    wanted = wanted.removeprefix("!")
    inside = wanted.removeprefix("in")
    values = [each.strip() for each in inside[1:-1].split(",")] if inside.startswith("(") else [wanted]
    return (value in values) != negated


def meets_expressions(expressions: Any, labels: Mapping[str, str]) -> bool:
    """Whether labels satisfy the expressions of a NodeLabelSchedulingStrategy (``key`` and ``operator``)."""
    for expression in expressions:
        value, operator = labels.get(expression.key), expression.operator
        kind = type(operator).__name__
        if kind in ("In", "NotIn"):
            met = (value in operator.values) == (kind == "In")
        else:
            met = (value is not None) == (kind == "Exists")
        if not met:
            return False
    return True
