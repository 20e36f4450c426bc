"""Exits of a worker that its own code causes, by `exit_actor` or another `SystemExit`, or SIGTERM. All are orderly.

Status 0 of an actor is a final end; any other status is a death, after which restarts and retries apply.
"""

from __future__ import annotations

import sys

from mray._common import messages as m
from mray._common.causes import EXIT_ACTOR


class ExitActor(SystemExit):
    """Raised by `exit_actor`: the actor ends, even if user code catches this."""


class Terminated(SystemExit):
    """Raised at SIGTERM."""

    def __init__(self) -> None:
        super().__init__(1)


#: In Ray's words.
TERMINATED = (m.CAUSE_CRASH, "SystemExit is raised (sys.exit is called). Exit code: 1. The process receives a SIGTERM.")
EXITED = (m.CAUSE_EXIT, EXIT_ACTOR)


def exit_status(error: SystemExit) -> int:
    """The exit status for this exception, of which the system takes the last eight bits."""
    return error.code & 0xFF if isinstance(error.code, int) else 0 if error.code is None else 1


def cause_of(error: SystemExit, name: str) -> tuple[str, str]:
    """(cause kind, text) of the end of an actor in which `name` has raised this."""
    if isinstance(error, ExitActor):
        return EXITED
    if isinstance(error, Terminated):
        return TERMINATED
    return (m.CAUSE_EXIT if error.code == 0 else m.CAUSE_CRASH), f"{name} raised {error!r}."


def flush_output() -> None:
    """Flush stdout and stderr, including incomplete lines: the process may be killed while it is idle."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):  # closed or replaced by the user
        pass
