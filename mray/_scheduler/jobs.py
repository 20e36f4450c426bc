"""Whose work a process does, and which of it is still wanted.

A *work* is what takes others with it when it ends: the job of a driver (``"01000000"``), or a detached actor of one, which outlives it
(``"01000000/<actor id>"``). Every member of the session belongs to one work for life: a driver to its job, a worker to the work that it
was started for. What a member asks for belongs to the member's work, except that a detached actor begins its own. So nothing of one
driver ever runs in a process that has run code of another, and the end of a work is the end of all its processes.

The work of a worker stands among its variables, which are the key of the pool it belongs to.
"""

from __future__ import annotations

from mray._scheduler.policy import PRIVATE_VARIABLES

#: Variables in the order of their names.
Environment = tuple[tuple[str, str], ...]

#: Names the work of a worker among its variables.
WORK_VARIABLE = PRIVATE_VARIABLES + "WORK"


def stamped(environment: Environment, work: str) -> Environment:
    """The variables of workers that do this work."""
    if not work:
        return environment
    return tuple(sorted([*(pair for pair in environment if pair[0] != WORK_VARIABLE), (WORK_VARIABLE, work)]))


def work_of(environment: Environment) -> str:
    """The work that a worker with these variables was started for."""
    for name, value in environment:
        if name == WORK_VARIABLE:
            return value
    return ""


def job_of(work: str) -> str:
    """The job that a work belongs to."""
    return work.partition("/")[0]


def detached_work(work: str, actor: bytes) -> str:
    """The work of a detached actor that somebody of `work` creates."""
    return f"{job_of(work)}/{actor.hex()}" if work else ""
