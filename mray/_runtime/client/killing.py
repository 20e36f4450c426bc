"""`kill_actors`: the end of actors, ordered before whatever follows it.

In every client. Calls and executions of graphs go straight to an actor, and the order to kill it goes to the node: so the node answers
behind the signal, and who kills waits for that. A process that SIGKILL was sent to runs no more of its own code: nothing that this process
does next is seen there, nor anything that others do who hear of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mray._common import messages as m

if TYPE_CHECKING:
    from mray._runtime.client.client import Client


def kill_actors(client: Client, actor_ids: Sequence[bytes], no_restart: bool) -> None:
    """Return once the signals are sent; at once when the node is lost, with which they all are.

    A finalizer may call this in the middle of anything. It does not wait where nothing would be read meanwhile.
    """
    with client.lock:
        if client.fatal is not None:
            return
        answers = [client.requests.send(client.node, m.ACTOR_KILL, actor_id, no_restart) for actor_id in actor_ids]
    if not client.reactor.is_amidst():
        client.reactor.wait_until(lambda: all(answer.ready for answer in answers))
