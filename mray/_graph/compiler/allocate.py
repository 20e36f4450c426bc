"""Pass: make the plan's channels and programs, on all actors at once. The only pass with effects.

`mray._graph.caller.allocation` has the steps; this pass waits between them. A failure in one process frees all that was allocated in the
others and removes the names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mray._graph.caller.allocation import Allocation
from mray._graph.communicators import Invitation
from mray._graph.host import GraphHost, raise_death
from mray._graph.plan import Plan


def allocate(
    host: GraphHost, plan: Plan, constants: dict[str, tuple[int, bytes]], workers: dict[str, Any], invited: Sequence[Invitation] = ()
) -> Allocation:
    """Make the channels and programs of a plan; leaves nothing behind if it raises.

    `workers`: the handles of its functions' actors; `invited`: its communicators.
    """
    actors = {endpoint: workers[endpoint].__actor_outline__().key if endpoint in workers else endpoint for endpoint in plan.graph.actors}
    processes = {endpoint: host.actor_process(actor) for endpoint, actor in actors.items()}
    made = Allocation(host, plan, actors, processes, workers)
    try:
        pendings = made.ask(constants, invited)
        host.wait_until(lambda: all(pending.done() for pending in pendings), None)
        made.open(pendings)
    except BaseException as error:
        made.stop()
        try:
            if isinstance(error, Exception):
                raise_death(host, {actor: made.processes[endpoint] for endpoint, actor in actors.items()}, error)
        finally:
            made.end_workers()
            made.release()
        raise
    return made
