"""What an actor's death looks like to who makes a graph with it.

In the process that compiles. A death meets it as whatever was just being done: a socket that is not there, a request without an answer, or
what another actor says that met one of these. Its user is to be told who died, and how.
"""

from __future__ import annotations

from collections.abc import Mapping

from mray._graph.host import GraphHost


def raise_death(host: GraphHost, processes: Mapping[str, str], error: Exception) -> None:
    """Raise why one of these actors is dead, if one is: then `error` is what the others, or this process, have met of it.

    `processes`: by the actor's id.
    """
    for actor, process in processes.items():
        death = host.death_of(actor, process)
        if death is not None:
            raise death from error
