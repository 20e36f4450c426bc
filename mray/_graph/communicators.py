"""The user's communicators in an actor that takes part in a graph.

Made in the actor when the graph is allocated, before its first execution, by every member at the same time (libraries meet when they
are initialized), and destroyed when the actor leaves the graph.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Sequence
from typing import Any, NamedTuple

from mray._api.accelerators import Accelerator
from mray._api.communicator import Communicator
from mray._channel.collective_ops import Collective
from mray._objects.serializer import deserialize, serialize


class Membership(NamedTuple):
    """What an actor needs to become a member: the communicator as a serialized value, and its rank there."""

    number: int
    form: int
    payload: bytes
    rank: int


class AcceleratorGroup:
    """Actors that exchange tensors through the communicator that the user registered for their accelerator.

    In the process that compiles it stands for the communicator; each actor makes its own, as `Accelerator` says.
    """

    def __init__(self, accelerator: Accelerator, actors: Sequence[Any]) -> None:
        self._make = accelerator.communicator_cls
        self._id = accelerator.communicator_cls.generate_communicator_id()
        self._torch_module_name = accelerator.torch_module_name
        self._actors = list(actors)

    def get_actor_handles(self) -> list[Any]:
        """The members, by rank."""
        return self._actors

    def get_rank(self, actor: Any) -> int:
        """The rank of a member."""
        return self._actors.index(actor)

    def make(self, rank: int) -> Communicator:
        """In the actor of this rank: its communicator."""
        module = importlib.import_module(f"torch.{self._torch_module_name}") if self._torch_module_name != "cpu" else None
        make: Any = self._make
        made: Communicator = make(len(self._actors), self._id, rank, self._actors, module and module.current_stream(), False)
        return made


class Invitation(NamedTuple):
    """One communicator of a graph, as the process that compiles it knows it."""

    form: int
    payload: bytes
    #: actor id -> rank.
    ranks: dict[str, int]


def invitations(communicators: Sequence[Communicator | AcceleratorGroup]) -> list[Invitation]:
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
            if isinstance(communicator, AcceleratorGroup):
                communicator = communicator.make(membership.rank)
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
