"""The channels and workers that a compiled graph has made, and how it gives them back.

In the process that compiled it. `mray._graph.compiler.allocate` makes them.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any

from mray._channel.select import DEVICE
from mray._common import settings
from mray._graph.ends import Ends, settle_devices
from mray._graph.host import GraphHost, Pending
from mray._graph.messages import LENT, STOP, TRIM
from mray._graph.plan import DRIVER, Plan, Profilers
from mray._ipc.slots import sweep_orphans, unlink_all
from mray._trace.torch_profiler import FOLDER


class Allocation:
    """The channels and workers that a compiled graph has made.

    `actors`: endpoint -> the id of the actor that runs it; `workers`: the handles of workers that were leased for functions.
    """

    def __init__(self, host: GraphHost, plan: Plan, actors: dict[str, str], workers: dict[str, Any]) -> None:
        self.host = host
        self.plan = plan
        self.actors = actors
        self._workers = workers
        self.processes = {DRIVER: host.process, **{endpoint: host.actor_process(actor) for endpoint, actor in actors.items()}}
        self.process_count = len(set(self.processes.values()))
        self.prefix = f"{host.prefix}g{plan.graph_id[:16]}-"
        self.ends = Ends()
        #: By endpoint, the answers of actors that were asked to leave.
        self._left: dict[str, Pending] = {}
        torch = os.path.join(os.getcwd(), FOLDER) if settings.CGRAPH_TORCH_PROFILING.get() else ""
        self.profilers = Profilers(torch, settings.CGRAPH_NVTX_PROFILING.get())

    def stop(self) -> list[Pending]:
        """Ask the actors to leave the graph; does not wait. Dead actors count as having left."""
        for endpoint in self.actors:
            with contextlib.suppress(Exception):
                self._left[endpoint] = self.host.request(self.processes[endpoint], STOP, self.plan.graph_id.encode())
        return list(self._left.values())

    def end_workers(self) -> None:
        """Give the workers of the graph's functions back. Idempotent."""
        # They are actors, and these are their only handles.
        self._workers.clear()

    def release(self, patience: float = 0.0) -> None:
        """Close the own ends and remove every name. Idempotent.

        Where tensors were in memory of devices, waits so many seconds at most until that is given back.
        """
        # POINT graph left
        self.ends.close()
        # POINT graph ends closed
        unlink_all(self.prefix)
        sweep_orphans()
        lending = [channel for channel in self.plan.channels if channel.transport in DEVICE]
        trimmed = {endpoint for channel in lending for endpoint in (channel.writer, *channel.readers)} - {DRIVER}
        trimmed.update(endpoint for endpoint, pending in self._left.items() if _lent(pending))
        # Not before: the last process to close an end frees the memory of the others.
        for endpoint in trimmed:
            with contextlib.suppress(Exception):
                self.host.request(self.processes[endpoint], TRIM, b"")
        if lending:
            settle_devices(patience)


def _lent(pending: Pending) -> bool:
    """Whether an actor has left the graph and keeps values for others that it had passed on to them."""
    try:
        return pending.done() and pending.result() == LENT
    except Exception:  # dead
        return False
