"""Messages of processes to the node, as events: the first half of every conversation with the scheduler."""

from __future__ import annotations

from collections.abc import Callable

from mray._common import messages as m
from mray._decide.scheduler import events

#: By the code of the message: the event, from the process that sends it and the fields behind the code.
EVENT_OF: dict[int, Callable[..., events.Event]] = {
    m.LEASE_REQUEST: lambda p, request, demand: events.LeaseRequested(p, request, demand),
    m.LEASE_CANCEL: lambda p, request: events.LeaseCancelled(p, request),
    m.LEASE_RETURN: lambda p, lease: events.LeaseReturned(p, lease),
    m.LEASE_BREAK: lambda p, lease, text: events.LeaseBroken(p, lease, text),
    m.BLOCKED: lambda p: events.TaskBlocked(p),
    m.UNBLOCKED: lambda p: events.TaskUnblocked(p),
    m.ACTOR_CREATE: lambda p, request, actor, spec: events.ActorRequested(p, request, actor, spec),
    m.ACTOR_SUBSCRIBE: lambda p, actor: events.ActorWatched(p, actor),
    m.ACTOR_HOLD: lambda p, number, actors: events.HandlesHeld(p, number, actors),
    m.ACTOR_DROP: lambda p, actors: events.HandlesDropped(p, actors),
    m.ACTOR_KILL: lambda p, request, actor, no_restart: events.ActorKilled(actor, no_restart, p, request),
    m.ACTOR_READY: lambda p, actor: events.ActorConstructed(p, actor),
    m.ACTOR_FAILED: lambda p, actor, error: events.ActorFailed(p, actor, error),
    m.GROUP_CREATE: lambda p, request, group, spec: events.GroupRequested(p, request, group, spec),
    m.GROUP_AWAIT: lambda p, request, group: events.GroupAwaited(p, request, group),
    m.GROUP_REMOVE: lambda p, request, group: events.GroupDismissed(p, request, group),
    m.NAME_LOOKUP: lambda p, request, name, namespace: events.NameLookedUp(p, request, name, namespace),
}
