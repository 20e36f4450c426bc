"""Messages to the node, as events for the scheduler."""

from __future__ import annotations

from collections.abc import Callable

from mray._common import messages as m
from mray._decide.scheduler import events

#: Message code -> the event, from the sending process and the message's fields.
EVENT_OF: dict[int, Callable[..., events.Event]] = {
    m.LEASE_REQUEST: events.LeaseRequested,
    m.LEASE_CANCEL: events.LeaseCancelled,
    m.LEASE_RETURN: events.LeaseReturned,
    m.LEASE_BREAK: events.LeaseBroken,
    m.BLOCKED: events.TaskBlocked,
    m.UNBLOCKED: events.TaskUnblocked,
    m.ACTOR_CREATE: events.ActorRequested,
    m.ACTOR_SUBSCRIBE: events.ActorWatched,
    m.ACTOR_HOLD: events.HandlesHeld,
    m.ACTOR_DROP: events.HandlesDropped,
    m.ACTOR_KILL: lambda p, request, actor, no_restart: events.ActorKilled(actor, no_restart, p, request),
    m.ACTOR_READY: events.ActorConstructed,
    m.ACTOR_FAILED: events.ActorFailed,
    m.GROUP_CREATE: events.GroupRequested,
    m.GROUP_AWAIT: events.GroupAwaited,
    m.GROUP_REMOVE: events.GroupDismissed,
    m.NAME_LOOKUP: events.NameLookedUp,
}
