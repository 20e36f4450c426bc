"""Lifetime roots: the driver or detached actor that a process works for, and with which it ends.

A *root* is the job of a driver (``"01000000"``), or a detached actor of one, which outlives it (``"01000000/<actor id>"``). Every member
of the session belongs to one root for life: a driver to its job, a worker to the root that it was started for. A member's requests
belong to its root, except that a detached actor begins its own. So no code of one driver runs in a process that has run code of another.

The root of a worker is one of its variables, which are the key of its pool.
"""

from __future__ import annotations

from mray._decide.scheduler.policy import PRIVATE_VARIABLES

#: Variables, sorted by name.
Environment = tuple[tuple[str, str], ...]

ROOT_VARIABLE = PRIVATE_VARIABLES + "ROOT"


def stamped(environment: Environment, root: str) -> Environment:
    if not root:
        return environment
    return tuple(sorted([*(pair for pair in environment if pair[0] != ROOT_VARIABLE), (ROOT_VARIABLE, root)]))


def root_of(environment: Environment) -> str:
    for name, value in environment:
        if name == ROOT_VARIABLE:
            return value
    return ""


def job_of(root: str) -> str:
    return root.partition("/")[0]


def detached_root(root: str, actor: bytes) -> str:
    return f"{job_of(root)}/{actor.hex()}" if root else ""
