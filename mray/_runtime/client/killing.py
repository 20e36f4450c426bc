"""`kill_actors`: the end of actors, ordered before all later calls of this process.

Calls and graph executions go directly to an actor, but the order to kill it goes to the node; so the killing process waits until the
node has sent SIGKILL, after which the actor executes no later call of this process, nor of any process that learns of the kill.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mray._common import messages as m

if TYPE_CHECKING:
    from mray._runtime.client.client import Client


def kill_actors(client: Client, actor_ids: Sequence[bytes], no_restart: bool) -> None:
    """Return when the signals are sent, or immediately if the node is lost, with which all actors end.

    A finalizer may call this. It does not wait in a thread that must read the answer itself.
    """
    with client.lock:
        if client.fatal is not None:
            return
        answers = [client.requests.send(client.node, m.ACTOR_KILL, actor_id, no_restart) for actor_id in actor_ids]
    if not client.reactor.is_amidst():
        for answer in answers:
            client.reactor.wait(answer)
