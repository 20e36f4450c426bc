"""Groups of actors, created by another process: `create_collective_group` and its counterparts.

    this process                                             every actor, on its main thread
    create: call __ray_call__ of all actors concurrently --> mray.util.collective.init_collective_group(world size, rank, ...)
    store the handle once all have answered         <---     in the group
    destroy                                         --->     mray.util.collective.destroy_collective_group(name)

The stored groups belong to this process, for one session.
"""

from __future__ import annotations

import contextlib
import uuid
import weakref
from collections.abc import Sequence
from typing import Any

from mray._api.backend import Backend
from mray._api.current import current_backend
from mray._api.verbs import get
from mray.exceptions import RayActorError
from mray.experimental.collective.communicator import CommunicatorHandle
from mray.util import collective
from mray.util.collective.types import Backend as BackendName

__all__ = ["create_collective_group", "destroy_all_collective_groups", "destroy_collective_group", "get_collective_groups"]

#: Groups that this process has created, by name, for each session.
_groups: weakref.WeakKeyDictionary[Backend, dict[str, CommunicatorHandle]] = weakref.WeakKeyDictionary()


def _own_groups() -> dict[str, CommunicatorHandle]:
    return _groups.setdefault(current_backend(), {})


def get_collective_groups(actors: Sequence[Any] | None = None, backend: str | None = None) -> list[CommunicatorHandle]:
    """The groups created by this process that contain all these actors, of one backend or of any."""
    wanted = None if backend is None else BackendName(backend)
    members = set(actors or ())
    return [group for group in _own_groups().values() if members.issubset(group.actors) and (wanted is None or group.backend == wanted)]


def create_collective_group(actors: Sequence[Any], backend: str, name: str | None = None) -> CommunicatorHandle:
    """Make these actors a group, with ranks in the order given; returns once all of them have joined.

    They then call `mray.util.collective.allreduce` and the like with ``group_name=name`` (by default a new name). An actor is in one
    group of each backend at a time, else RuntimeError. ValueError when an actor or the name appears twice, and for an unknown backend.
    """
    backend = BackendName(backend)
    name = str(uuid.uuid4()) if name is None else name
    actors = list(actors)
    if not actors:
        raise ValueError("A group has at least one actor.")
    for actor in actors:
        if get_collective_groups([actor], backend):
            raise RuntimeError(
                f"Actor {actor} already in group for backend {backend}. Actors can currently only participate in at most one group per "
                "backend."
            )
    if len(set(actors)) != len(actors):
        raise ValueError(f"All actors must be unique, got: {actors}")
    groups = _own_groups()
    if name in groups:
        raise ValueError(f"There is a group with name {name} already.")
    joined = [actor.__ray_call__.remote(_join, actors, rank, backend, name) for rank, actor in enumerate(actors)]
    try:
        get(joined)
    except BaseException:
        # Actors that have joined, or will, leave again; this process does not wait for that.
        for actor in actors:
            with contextlib.suppress(RayActorError):
                actor.__ray_call__.remote(_leave, name)
        raise
    group = groups[name] = CommunicatorHandle(actors, name, backend)
    return group


def destroy_collective_group(group_or_name: CommunicatorHandle | str) -> None:
    """Undo `create_collective_group`. Dead members do not matter.

    Raises ValueError when this process has created no such group.
    """
    if isinstance(group_or_name, CommunicatorHandle):
        name = group_or_name.name
    elif isinstance(group_or_name, str):
        name = group_or_name
    else:
        raise ValueError("Expected CommunicatorHandle or str (group name).")
    group = _own_groups().pop(name, None)
    if group is None:
        raise ValueError(f"No group with name {name} found.")
    for left in [actor.__ray_call__.remote(_leave, name) for actor in group.actors]:
        with contextlib.suppress(RayActorError):
            get(left)


def destroy_all_collective_groups() -> None:
    """Destroy every group that this process has created."""
    for group in list(_own_groups().values()):
        destroy_collective_group(group)


def _join(_actor: Any, actors: Sequence[Any], rank: int, backend: str, name: str) -> None:
    """Join, in the actor; fails when another member dies before it has joined."""
    collective.init_collective_group(len(actors), rank, backend, group_name=name, actors=actors)


def _leave(_actor: Any, name: str) -> None:
    collective.destroy_collective_group(name)
