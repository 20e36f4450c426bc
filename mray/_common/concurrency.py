"""How many calls of an actor run concurrently, and where; its creator derives it from the options.

An actor that runs one call after the other on its main thread has no `Concurrency`, so that nothing on the path of its calls checks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

#: Concurrent calls of an async actor by default.
MOST_COROUTINES = 1000
#: The group for internal calls, which every actor with groups has; Ray has a second.
SYSTEM_GROUP = "_ray_system"
_SYSTEM_GROUPS = (SYSTEM_GROUP, "_ray_system_error")
#: Attribute of plain methods of mray's own async actors that neither wait nor need a task to run in: they get none.
AT_ONCE = "__mray_at_once__"

#: (calls run in event loops, concurrent calls of the default group, group -> its concurrent calls)
Concurrency = tuple[bool, int, dict[str, int]]


def concurrency_of(is_async: bool, options: Mapping[str, Any], groups_of_methods: Iterable[str]) -> Concurrency | None:
    """The concurrency of an actor with these complete options; None: one call after the other.

    Raises ValueError when calls shall run both in order and concurrently, AssertionError for a method in an undeclared group.
    """
    most = options["max_concurrency"] or (MOST_COROUTINES if is_async else 1)
    groups = dict(options["concurrency_groups"] or {})
    for group in groups_of_methods:
        if group not in groups and group not in _SYSTEM_GROUPS:
            raise AssertionError(f"A method is in the concurrency group {group!r}, which is not declared: the class has {sorted(groups)}.")
    in_order = options["allow_out_of_order_execution"] is False
    if is_async and in_order:
        raise ValueError(
            "If you're using async actors, Ray can't execute actor tasks in order. "
            "Set `allow_out_of_order_execution=True` to allow out-of-order execution."
        )
    if most > 1 and in_order:
        raise ValueError(
            "If you're using multi-threaded actors, Ray can't execute actor tasks in order. "
            "Set `allow_out_of_order_execution=True` to allow out-of-order execution."
        )
    if not (is_async or most > 1 or groups):
        return None
    return is_async, most, {**groups, **dict.fromkeys(_SYSTEM_GROUPS, 1)}


def runs_out_of_order(is_async: bool, options: Mapping[str, Any]) -> bool:
    """Whether a call may overtake one that waits for its arguments."""
    wanted = options.get("allow_out_of_order_execution")
    return bool(is_async or (options.get("max_concurrency") or 1) > 1) if wanted is None else bool(wanted)


def no_group(group: str, declared: Iterable[str]) -> ValueError:
    """The error of a call to an undeclared group."""
    names = sorted(name for name in declared if name and name not in _SYSTEM_GROUPS)
    return ValueError(f"The actor has no concurrency group {group!r}; its class declares {names}.")


def is_system_group(group: str) -> bool:
    return group in _SYSTEM_GROUPS
