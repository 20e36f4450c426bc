"""The user's communicators in an actor that takes part in a graph.

Made in the actor when the graph is allocated, before its first execution, by every member at the same time (libraries meet when they
are initialized), and destroyed when the actor leaves the graph.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import NamedTuple

from mray._api.communicator import Communicator
from mray._channel.collective_ops import Collective
from mray._objects.serializer import deserialize, serialize


class Membership(NamedTuple):
    """What an actor needs to become a member: the communicator as a serialized value, and its rank there."""

    number: int
    form: int
    payload: bytes
    rank: int


class Invitation(NamedTuple):
    """One communicator of a graph, as the process that compiles it knows it."""

    form: int
    payload: bytes
    #: actor id -> rank.
    ranks: dict[str, int]


def invitations(communicators: Sequence[Communicator]) -> list[Invitation]:
    """The communicators of a graph, by number. In the process that compiles."""
    found = []
    for communicator in communicators:
        serialized = serialize(communicator)
        ranks = {handle._id.hex(): communicator.get_rank(handle) for handle in communicator.get_actor_handles()}
        found.append(Invitation(serialized.form, serialized.to_bytes(), ranks))
    return found


class CommunicatorCall(NamedTuple):
    """The constant of a step that is a collective through the graph's communicator `number`."""

    number: int
    collective: Collective


def join(memberships: Sequence[Membership]) -> dict[int, Communicator]:
    """Become a member of each; blocks until the others do. Leaves those it has joined if one fails."""
    joined: dict[int, Communicator] = {}
    try:
        for membership in memberships:
            communicator = deserialize(membership.form, membership.payload)
            communicator.initialize(membership.rank)
            joined[membership.number] = communicator
    except BaseException:
        leave(joined)
        raise
    return joined


def leave(joined: dict[int, Communicator]) -> None:
    """Destroy this process's part of each. Idempotent."""
    for communicator in joined.values():
        with contextlib.suppress(Exception):  # it is broken already
            communicator.destroy()
    joined.clear()
