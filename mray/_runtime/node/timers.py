"""The instructions of the scheduler to report an event later."""

from __future__ import annotations

from mray._decide.scheduler import events
from mray._decide.scheduler.instructions import AwaitCreation, AwaitPlace, AwaitRest, Instruction

#: Seconds that the creation of an actor may still be in another socket when a process asks for the actor.
_CREATION_GRACE = 1.0
#: Seconds that idle leases may take to come back.
_PLACE_GRACE = 0.2


def timer_of(instruction: Instruction, retry_delay: float) -> tuple[float, events.Event] | None:
    """The seconds and the event of such an instruction; None for any other."""
    if isinstance(instruction, AwaitCreation):
        return _CREATION_GRACE, events.WatchExpired(instruction.actor)
    if isinstance(instruction, AwaitRest):
        return retry_delay, events.ActorRested(*instruction)
    if isinstance(instruction, AwaitPlace):
        return _PLACE_GRACE, events.PlaceExpired(instruction.claimant)
    return None
