"""Joining a group as the process that calls: an actor, a task or a driver of this session."""

from __future__ import annotations

from collections.abc import Sequence

from mray._api.current import current_backend
from mray._channel.shared_memory_group import GroupKind, join_group
from mray._common.kept import os


def join(
    name: str, world_size: int, rank: int, *, timeout: float | None = None, actors: Sequence[bytes] = (), kind: type[GroupKind]
) -> GroupKind:
    """Become a rank of the group of that name in this session; waits until all are there, `timeout` seconds at most.

    `actors`: the ids of all members, by rank, where they are known. Errors as `mray._channel.shared_memory_group.join_group`.
    """
    backend = current_backend()
    here = backend.context()
    actor = here["actor_id"]
    return join_group(
        backend.host(),
        os.path.join(backend.facts()["session_dir"], "groups"),
        name,
        world_size,
        rank,
        actor=actor.hex() if actor else "",
        label=f"actor {here['class_name']}" if actor else f"task {here['task_name']}" if here["task_id"] else "driver",
        timeout=timeout,
        expected={number: actor_id.hex() for number, actor_id in enumerate(actors)},
        kind=kind,
    )
