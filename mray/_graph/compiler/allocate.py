"""Pass: make what the plan says, on all actors at once. The only pass with effects.

    driver                                          each actor
    create the segment, format all rings
    request "allocate" ---------------------------> open the ends, compile the program
    wait for all answers <------------------------- done, or the exception
    unlink the segment's name; open the own ends

A failure anywhere stops what was allocated elsewhere and takes the names away.
"""

from __future__ import annotations

import contextlib
import os
import pickle
from collections.abc import Sequence
from typing import Any

from mray._channel.select import DEVICE
from mray._common import settings
from mray._graph.communicators import Invitation, Membership
from mray._graph.ends import Ends, open_ends, settle_devices
from mray._graph.host import GraphHost, Pending, raise_death
from mray._graph.messages import ALLOCATE, LENT, STOP, TRIM
from mray._graph.plan import DRIVER, Assignment, Plan, Profilers
from mray._ipc.ring import RingWriter
from mray._ipc.segment import Segment
from mray._ipc.slots import sweep_orphans, unlink_all
from mray._trace.torch_profiler import FOLDER


class Allocation:
    """The channels and workers that a compiled graph has made.

    `actors`: endpoint -> the id of the actor that runs it; `workers`: the handles of those that were leased for functions.
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
        """Ask the actors to leave the graph; does not wait, and the dead do not mind."""
        for endpoint in self.actors:
            with contextlib.suppress(Exception):
                self._left[endpoint] = self.host.request(self.processes[endpoint], STOP, self.plan.graph_id.encode())
        return list(self._left.values())

    def end_workers(self) -> None:
        """Give the workers of the graph's functions back. Idempotent."""
        # They are actors that nobody else has a handle of.
        self._workers.clear()

    def release(self, patience: float = 0.0) -> None:
        """Let go of the own ends and of every name. Idempotent.

        Where tensors were in memory of devices, waits so many seconds at most until it is given back.
        """
        # POINT graph left
        self.ends.close()
        # POINT graph ends closed
        unlink_all(self.prefix)
        sweep_orphans()
        lending = [channel for channel in self.plan.channels if channel.transport in DEVICE]
        trimmed = {endpoint for channel in lending for endpoint in (channel.writer, *channel.readers)} - {DRIVER}
        trimmed.update(endpoint for endpoint, pending in self._left.items() if _lent(pending))
        # Not before: the last to close an end lets the others have their memory back.
        for endpoint in trimmed:
            with contextlib.suppress(Exception):
                self.host.request(self.processes[endpoint], TRIM, b"")
        if lending:
            settle_devices(patience)


def _lent(pending: Pending) -> bool:
    """Whether an actor has left the graph and keeps for others what it had passed on to them."""
    try:
        return pending.done() and pending.result() == LENT
    except Exception:  # dead
        return False


def allocate(
    host: GraphHost, plan: Plan, constants: dict[str, tuple[int, bytes]], workers: dict[str, Any], invited: Sequence[Invitation] = ()
) -> Allocation:
    """Make the channels and programs of a plan; leaves nothing behind if it raises.

    `workers`: the handles of its functions' actors; `invited`: its communicators.
    """
    actors = {endpoint: workers[endpoint]._id.hex() if endpoint in workers else endpoint for endpoint in plan.graph.actors}
    made = Allocation(host, plan, actors, workers)
    segment = Segment.create(made.prefix, plan.size, offer=True)
    try:
        for channel in plan.channels:
            RingWriter.format(segment, channel.offset, channel.layout)
        # POINT graph segment formatted
        pendings = []
        for actor in actors:
            assignment = _assignment(made, actor, constants[actor], invited)
            pendings.append(host.request(made.processes[actor], ALLOCATE, pickle.dumps(assignment)))
        # POINT graph parts asked
        host.wait_until(lambda: all(pending.done() for pending in pendings), None)
        for pending in pendings:
            pending.result()
        # POINT graph parts there
        made.ends = open_ends(host, DRIVER, segment, made.prefix, plan.channels, made.processes)
    except BaseException as error:
        made.stop()
        try:
            if isinstance(error, Exception):
                raise_death(host, {actor: made.processes[endpoint] for endpoint, actor in actors.items()}, error)
        finally:
            made.end_workers()
            made.release()
        raise
    finally:
        segment.unlink()
    return made


def _assignment(made: Allocation, actor: str, constants: tuple[int, bytes], invited: Sequence[Invitation]) -> Assignment:
    plan = made.plan
    channels = tuple(channel for channel in plan.channels if actor == channel.writer or actor in channel.readers)
    endpoints = {endpoint for channel in channels for endpoint in (channel.writer, *channel.readers)}
    return Assignment(
        graph_id=plan.graph_id,
        actor=actor,
        owner=made.host.process,
        segment=made.prefix,
        prefix=made.prefix,
        steps=tuple(step for step in plan.graph.steps if step.actor == actor),
        operations=plan.schedule[actor],
        channels=channels,
        processes={endpoint: made.processes[endpoint] for endpoint in endpoints},
        constants=constants,
        memberships=tuple(
            Membership(number, each.form, each.payload, each.ranks[actor]) for number, each in enumerate(invited) if actor in each.ranks
        ),
        ranks={number: each.ranks for number, each in enumerate(invited)},
        process_count=made.process_count,
        overlap=plan.overlap,
        profilers=made.profilers,
    )
