"""Pass: make the plan's channels and programs, on all actors at once. The only pass with effects.

    driver                                          each actor
    create the segment, format all rings
    request "allocate" ---------------------------> open the ends, compile the program
    wait for all answers <------------------------- done, or the exception
    unlink the segment's name; open the own ends

A failure in one process frees all that was allocated in the others and removes the names.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

from mray._graph.caller.allocation import Allocation
from mray._graph.communicators import Invitation, Membership
from mray._graph.ends import open_ends
from mray._graph.host import GraphHost, raise_death
from mray._graph.messages import ALLOCATE
from mray._graph.plan import DRIVER, Assignment, Plan
from mray._ipc.ring import RingWriter
from mray._ipc.segment import Segment


def allocate(
    host: GraphHost, plan: Plan, constants: dict[str, tuple[int, bytes]], workers: dict[str, Any], invited: Sequence[Invitation] = ()
) -> Allocation:
    """Make the channels and programs of a plan; leaves nothing behind if it raises.

    `workers`: the handles of its functions' actors; `invited`: its communicators.
    """
    actors = {endpoint: workers[endpoint].__actor_outline__().key if endpoint in workers else endpoint for endpoint in plan.graph.actors}
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
