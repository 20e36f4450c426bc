"""How the process of an actor ends whose code wants it to: `exit_actor`, and `SystemExit` of any other origin.

In a worker. 0 is meant, and final; anything else is a death like others, after which restarts and retries apply. Both end in order: what
runs comes to its end, then the hooks of the user.
"""

from __future__ import annotations

from mray._common import messages as m


class ExitActor(SystemExit):
    """Raised by `exit_actor`: the actor ends. A user's ``except SystemExit`` does not stop it."""


#: How an actor ends that calls `exit_actor`, or whose ``__ray_terminate__`` is called.
EXITED = (m.CAUSE_EXIT, "exit_actor() was called.")


def exit_status(error: SystemExit) -> int:
    """The status of a process that ends with this; of larger numbers the system takes the last eight bits."""
    return error.code & 0xFF if isinstance(error.code, int) else 0 if error.code is None else 1


def cause_of(error: SystemExit, name: str) -> tuple[str, str]:
    """(cause kind, text) of the end of an actor in which `name` has raised this."""
    if isinstance(error, ExitActor):
        return EXITED
    return (m.CAUSE_EXIT if error.code == 0 else m.CAUSE_CRASH), f"{name} raised {error!r}."
