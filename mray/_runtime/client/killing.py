"""`kill_actors`: the end of actors, ordered before all later calls of this process.

In every client. Calls and executions of graphs go straight to an actor, and the order to kill it goes to the node: so the node answers
after the signal, and the killing process waits for the answer. A process that got SIGKILL runs no more of its own code: it sees no later
call of this process, nor of any process that learns of the kill.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mray._common import messages as m

if TYPE_CHECKING:
    from mray._runtime.client.client import Client


def kill_actors(client: Client, actor_ids: Sequence[bytes], no_restart: bool) -> None:
    """Kill actors, and return once the signals are sent; at once when the node is lost, with which all actors end.

    A finalizer may call this at any point. It does not wait in a thread that has to read the answer itself.
    """
    with client.lock:
        if client.fatal is not None:
            return
        answers = [client.requests.send(client.node, m.ACTOR_KILL, actor_id, no_restart) for actor_id in actor_ids]
    if not client.reactor.is_amidst():
        for answer in answers:
            client.reactor.wait(answer)
