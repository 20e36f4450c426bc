"""Pass: prove that no execution can hang, or show the cycle. Pure.

Within one execution an operation waits for the previous one in its actor's program, and a READ for the WRITE of its channel; a WRITE
whose channel blocks waits for its readers' READs, and steps that synchronize wait for each other likewise. If these edges have no
cycle, no execution hangs: every other wait (for room in a ring, the actor's previous execution) is for an earlier execution, and the
driver reads every output.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mray._channel.select import BLOCKING
from mray._graph.plan import COMPUTE, DRIVER, READ, WRITE, Operation, Route, Step

#: Actor, index in its program.
Place = tuple[str, int]


def edges(schedule: Mapping[str, Sequence[Operation]], channels: Sequence[Route], steps: Sequence[Step] = ()) -> dict[Place, list[Place]]:
    """operation -> those that it waits for within one execution."""
    groups = {step.index: step.group for step in steps if step.group >= 0}
    written: dict[int, Place] = {}
    read: dict[int, list[Place]] = {}
    meeting: dict[int, list[Place]] = {}
    for actor, operations in schedule.items():
        for place, operation in enumerate(operations):
            if operation.kind == WRITE:
                written[operation.channel] = (actor, place)
            elif operation.kind == READ:
                read.setdefault(operation.channel, []).append((actor, place))
            elif operation.step in groups:
                meeting.setdefault(groups[operation.step], []).append((actor, place))
    waits: dict[Place, list[Place]] = {}
    for actor, operations in schedule.items():
        for place, operation in enumerate(operations):
            before = [(actor, place - 1)] if place else []
            met: list[Place] = []
            if operation.kind == READ and channels[operation.channel].writer != DRIVER:
                before.append(written[operation.channel])
            elif operation.kind == WRITE and channels[operation.channel].transport in BLOCKING:
                met = read.get(operation.channel, [])
            elif operation.kind == COMPUTE and operation.step in groups:
                met = meeting[groups[operation.step]]
            # Until the others have come to this point, not past it.
            before.extend((other, there - 1) for other, there in met if there and other != actor)
            waits[actor, place] = before
    return waits


def find_circle(schedule: Mapping[str, Sequence[Operation]], channels: Sequence[Route], steps: Sequence[Step] = ()) -> list[Place] | None:
    """A cycle of waiting operations, or None."""
    waits = edges(schedule, channels, steps)
    #: 1 while on the current path, 2 when proved to end.
    state: dict[Place, int] = {}
    for start in waits:
        if start in state:
            continue
        path: list[tuple[Place, int]] = [(start, 0)]
        state[start] = 1
        while path:
            place, turn = path.pop()
            if turn == len(waits[place]):
                state[place] = 2
                continue
            path.append((place, turn + 1))
            following = waits[place][turn]
            if state.get(following) == 1:
                on_path = [each for each, _turn in path]
                return on_path[on_path.index(following) :]
            if following not in state:
                state[following] = 1
                path.append((following, 0))
    return None


def check_deadlock(schedule: Mapping[str, Sequence[Operation]], channels: Sequence[Route], steps: Sequence[Step] = ()) -> None:
    """ValueError, with the cycle, if the graph would hang. `steps` are needed where some synchronize."""
    circle = find_circle(schedule, channels, steps)
    if circle is not None:
        told = " waits for ".join(
            f"{schedule[actor][place].kind} of step {schedule[actor][place].step} on actor {actor[:8]}" for actor, place in circle
        )
        raise ValueError(f"This graph cannot be compiled because it would deadlock: {told}, which waits for the first.")
