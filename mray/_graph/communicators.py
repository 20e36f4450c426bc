"""The user's communicators in an actor that takes part in a graph.

Created in the actor when the graph is allocated, by every member at the same time (libraries synchronize when they are initialized), and
destroyed when the actor leaves the graph.
"""

from __future__ import annotations

import contextlib
import importlib
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from mray._api.accelerator_transport import Accelerator
from mray._api.communicator import Communicator
from mray._channel.collective_ops import Collective
from mray._channel.select import why_no_nccl
from mray._channel.site import Site
from mray._graph.host import GraphHost
from mray._objects.serializer import deserialize, serialize


class Membership(NamedTuple):
    """An actor's membership in a communicator: the communicator as a serialized value, and the actor's rank there."""

    number: int
    form: int
    payload: bytes
    rank: int


class AcceleratorGroup:
    """Actors that exchange tensors through the communicator that the user registered for their accelerator.

    In the compiling process it stands for the communicator; each actor creates its own, as `Accelerator` says.
    """

    def __init__(self, accelerator: Accelerator, actors: Sequence[Any]) -> None:
        self._make = accelerator.communicator_cls
        self._id = accelerator.communicator_cls.generate_communicator_id()
        self._torch_module_name = accelerator.torch_module_name
        self._actors = list(actors)
        #: Whether transfers run on streams of their own, concurrently with computing.
        self.overlap = False

    def get_actor_handles(self) -> list[Any]:
        """The members, by rank."""
        return self._actors

    def get_rank(self, actor: Any) -> int:
        """The rank of a member."""
        return self._actors.index(actor)

    def make(self, _host: GraphHost, rank: int) -> Communicator:
        """Create the communicator of this rank, in its actor."""
        module = importlib.import_module(f"torch.{self._torch_module_name}") if self._torch_module_name != "cpu" else None
        make: Any = self._make
        made: Communicator = make(len(self._actors), self._id, rank, self._actors, module and module.current_stream(), self.overlap)
        return made


class NcclGroup:
    """Actors that exchange tensors through NCCL; as `AcceleratorGroup`. For one graph, because the calls of two graphs have no order.

    `endpoints` are their names in the graph. `overlap`: transfers run on streams of their own, concurrently with computing.
    """

    def __init__(self, endpoints: Sequence[str], actors: Sequence[Any], *, overlap: bool = False) -> None:
        self.endpoints = list(endpoints)
        self.overlap = overlap
        self._actors = list(actors)
        self._id = uuid.uuid4().hex

    def get_actor_handles(self) -> list[Any]:
        """The members, by rank."""
        return self._actors

    def get_rank(self, actor: Any) -> int:
        """The rank of a member."""
        return self._actors.index(actor)

    def make(self, host: GraphHost, _rank: int) -> Communicator:
        """Create the communicator of any of the actors, in that actor."""
        return host.gpus().communicator(self._actors, self.overlap, self._id)


def no_gpu_for_collective(members: Sequence[Any]) -> str:
    """Why a collective cannot go through NCCL."""
    return (
        f"The collective of {members} asks for transport='nccl', but none of these actors has a GPU. Leave the transport out: "
        "tensors on the CPU are reduced in shared memory."
    )


#: Carries tensors; in the compiling process.
Carrier = Communicator | AcceleratorGroup | NcclGroup


def with_streams(communicators: Sequence[Carrier], overlap: bool) -> list[Carrier]:
    """Make the communicators that members create use streams of their own, or not."""
    for communicator in communicators:
        if not isinstance(communicator, Communicator):
            communicator.overlap = overlap
    return list(communicators)


def nccl_groups(communicators: Sequence[Carrier], sites: Mapping[str, Site]) -> dict[frozenset[str], int]:
    """The endpoints of each NCCL communicator -> its number. Raises ValueError when some of them cannot be ranks of one."""
    found = {}
    for number, each in enumerate(communicators):
        if isinstance(each, NcclGroup):
            members = [sites.get(endpoint, Site()) for endpoint in each.endpoints]
            if not any(site.gpus for site in members):
                raise ValueError(no_gpu_for_collective(each.get_actor_handles()))
            why = why_no_nccl(members)
            if why is not None:
                raise ValueError(
                    f"The collective of {' and '.join(site.name for site in members)} cannot have transport='nccl': {why}. Leave the "
                    "transport out: each member then reduces what it gets along the edges, by CUDA IPC where it can."
                )
            found[frozenset(each.endpoints)] = number
    return found


class Invitation(NamedTuple):
    """One communicator of a graph in the compiling process."""

    form: int
    payload: bytes
    #: actor id -> rank.
    ranks: dict[str, int]


def invitations(communicators: Sequence[Carrier]) -> list[Invitation]:
    """The communicators of a graph, by number. In the compiling process."""
    found = []
    for communicator in communicators:
        serialized = serialize(communicator)
        if isinstance(communicator, NcclGroup):
            ranks = {endpoint: rank for rank, endpoint in enumerate(communicator.endpoints)}
        else:
            ranks = {handle.__actor_outline__().key: communicator.get_rank(handle) for handle in communicator.get_actor_handles()}
        found.append(Invitation(serialized.form, serialized.to_bytes(), ranks))
    return found


class CommunicatorCall(NamedTuple):
    """The constant of a step that is a collective through the graph's communicator `number`."""

    number: int
    collective: Collective


def join(host: GraphHost, memberships: Sequence[Membership]) -> dict[int, Communicator]:
    """Become a member of each; blocks until the others do. If one fails, leaves those that it has joined."""
    joined: dict[int, Communicator] = {}
    try:
        for membership in memberships:
            communicator = deserialize(membership.form, membership.payload)
            if isinstance(communicator, (AcceleratorGroup, NcclGroup)):
                communicator = communicator.make(host, membership.rank)
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
