"""Lifetime roots: the driver or detached actor that a process works for, and with which it ends.

A *root* is the job of a driver (``"01000000"``), or a detached actor of one, which outlives it (``"01000000/<actor id>"``). Every member of
the session belongs to one root for life: a driver to its job, a worker to the root that it was started for. Requests of a member belong to
the member's root, except that a detached actor begins its own. So nothing of one driver ever runs in a process that has run code of
another, and the end of a root is the end of all its processes.

The root of a worker stands among its variables, which are the key of the pool it belongs to.
"""

from __future__ import annotations

from mray._decide.scheduler.policy import PRIVATE_VARIABLES

#: Variables in the order of their names.
Environment = tuple[tuple[str, str], ...]

#: Names the root of a worker among its variables.
ROOT_VARIABLE = PRIVATE_VARIABLES + "ROOT"


def stamped(environment: Environment, root: str) -> Environment:
    """The variables of workers with this root."""
    if not root:
        return environment
    return tuple(sorted([*(pair for pair in environment if pair[0] != ROOT_VARIABLE), (ROOT_VARIABLE, root)]))


def root_of(environment: Environment) -> str:
    """The root that a worker with these variables was started for."""
    for name, value in environment:
        if name == ROOT_VARIABLE:
            return value
    return ""


def job_of(root: str) -> str:
    """The job that a root belongs to."""
    return root.partition("/")[0]


def detached_root(root: str, actor: bytes) -> str:
    """The root of a detached actor that a member of `root` creates."""
    return f"{job_of(root)}/{actor.hex()}" if root else ""
