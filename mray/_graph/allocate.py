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
import pickle

from mray._graph.ends import Ends, open_ends
from mray._graph.host import GraphHost, Pending
from mray._graph.loop import ALLOCATE, STOP
from mray._graph.plan import DRIVER, Assignment, Plan
from mray._ipc.ring import RingWriter
from mray._ipc.segment import Segment
from mray._ipc.slots import unlink_all


class Allocation:
    """What a compiled graph has made."""

    def __init__(self, host: GraphHost, plan: Plan, processes: dict[str, str]) -> None:
        self.host = host
        self.plan = plan
        self.processes = processes
        self.crowd = len(set(processes.values()))
        self.prefix = f"{host.prefix}g{plan.graph_id[:16]}-"
        self.ends = Ends()

    def stop(self, actors: tuple[str, ...]) -> list[Pending]:
        """Ask these actors to leave the graph; does not wait, and the dead do not mind."""
        asked = []
        for actor in actors:
            with contextlib.suppress(Exception):
                asked.append(self.host.request(self.processes[actor], STOP, self.plan.graph_id.encode()))
        return asked

    def release(self) -> None:
        """Let go of the own ends and of every name. Idempotent."""
        self.ends.close()
        unlink_all(self.prefix)


def allocate(host: GraphHost, plan: Plan, constants: dict[str, tuple[int, bytes]]) -> Allocation:
    """Make the channels and programs of a plan; leaves nothing behind if it raises."""
    actors = plan.graph.actors
    processes = {DRIVER: host.process, **{actor: host.actor_process(actor) for actor in actors}}
    made = Allocation(host, plan, processes)
    segment = Segment.create(made.prefix, plan.size)
    try:
        for channel in plan.channels:
            RingWriter.format(segment, channel.offset, channel.layout)
        pendings = []
        for actor in actors:
            assignment = _assignment(made, actor, constants[actor])
            pendings.append(host.request(processes[actor], ALLOCATE, pickle.dumps(assignment)))
        host.wait_until(lambda: all(pending.done() for pending in pendings), None)
        for pending in pendings:
            pending.result()
        made.ends = open_ends(host, DRIVER, segment, made.prefix, plan.channels, processes)
    except BaseException:
        made.stop(actors)
        made.release()
        raise
    finally:
        segment.unlink()
    return made


def _assignment(made: Allocation, actor: str, constants: tuple[int, bytes]) -> Assignment:
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
        crowd=made.crowd,
    )
