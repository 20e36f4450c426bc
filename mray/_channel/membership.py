"""Joining a group as the calling process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from mray._api.current import current_backend
from mray._channel.rendezvous import GroupMember, new_nonce
from mray._channel.shared_memory_group import MemberOfGroup
from mray._common.kept import os
from mray._ipc import segment

GroupKind = TypeVar("GroupKind", bound=MemberOfGroup)


def join(
    name: str, world_size: int, rank: int, *, timeout: float | None = None, actors: Sequence[bytes] = (), kind: type[GroupKind]
) -> GroupKind:
    """Become a rank of a group of this session; waits until all ranks have joined, `timeout` seconds at most.

    None waits without limit, with occasional warnings that name the missing. `actors`: the ids of all members, by rank, where known.
    Raises TimeoutError, and RayChannelError when a member dies meanwhile.
    """
    backend = current_backend()
    host, here = backend.host(), backend.context()
    actor = here["actor_id"].hex() if here["actor_id"] else ""
    label = f"actor {here['class_name']}" if actor else f"task {here['task_name']}" if here["task_id"] else "driver"
    board = f"{host.prefix}group{segment.new_nonce():x}"
    group = kind(host, name, GroupMember(rank, world_size, new_nonce(), host.process, os.getpid(), actor, label, board))
    directory = os.path.join(backend.info()["session_dir"], "groups")
    group.join(directory, timeout, {number: actor_id.hex() for number, actor_id in enumerate(actors)})
    return group
