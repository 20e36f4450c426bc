"""The communicators of a graph's actors, created by all members at the same time (libraries synchronize when they are initialized)."""

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
    number: int
    form: int
    payload: bytes
    rank: int


class AcceleratorGroup:
    """Stands, in the compiling process, for the communicator that the user registered for an accelerator."""

    def __init__(self, accelerator: Accelerator, actors: Sequence[Any]) -> None:
        self._make = accelerator.communicator_cls
        self._id = accelerator.communicator_cls.generate_communicator_id()
        self._torch_module_name = accelerator.torch_module_name
        self._actors = list(actors)
        #: Whether transfers run on their own streams.
        self.overlap = False

    def get_actor_handles(self) -> list[Any]:
        return self._actors

    def get_rank(self, actor: Any) -> int:
        return self._actors.index(actor)

    def make(self, _host: GraphHost, rank: int) -> Communicator:
        module = importlib.import_module(f"torch.{self._torch_module_name}") if self._torch_module_name != "cpu" else None
        make: Any = self._make
        made: Communicator = make(len(self._actors), self._id, rank, self._actors, module and module.current_stream(), self.overlap)
        return made


class NcclGroup:
    """As `AcceleratorGroup`, for NCCL and one graph, because the calls of two graphs have no order. `overlap`: transfers run on their own
    streams.
    """

    def __init__(self, endpoints: Sequence[str], actors: Sequence[Any], *, overlap: bool = False) -> None:
        self.endpoints = list(endpoints)
        self.overlap = overlap
        self._actors = list(actors)
        self._id = uuid.uuid4().hex

    def get_actor_handles(self) -> list[Any]:
        return self._actors

    def get_rank(self, actor: Any) -> int:
        return self._actors.index(actor)

    def make(self, host: GraphHost, _rank: int) -> Communicator:
        return host.gpus().communicator(self._actors, self.overlap, self._id)


def no_gpu_for_collective(members: Sequence[Any]) -> str:
    return (
        f"The collective of {members} asks for transport='nccl', but none of these actors has a GPU. Leave the transport out: "
        "tensors on the CPU are reduced in shared memory."
    )


#: Carries tensors; in the compiling process.
Carrier = Communicator | AcceleratorGroup | NcclGroup


def with_streams(communicators: Sequence[Carrier], overlap: bool) -> list[Carrier]:
    for communicator in communicators:
        if not isinstance(communicator, Communicator):
            communicator.overlap = overlap
    return list(communicators)


def nccl_groups(communicators: Sequence[Carrier], sites: Mapping[str, Site]) -> dict[frozenset[str], int]:
    """Endpoints -> communicator number. ValueError when they cannot be ranks of one communicator."""
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
    form: int
    payload: bytes
    #: actor id -> rank.
    ranks: dict[str, int]


def invitations(communicators: Sequence[Carrier]) -> list[Invitation]:
    """The graph's communicators by number, in the compiling process."""
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
    """The constant of a collective step."""

    number: int
    collective: Collective


def join(host: GraphHost, memberships: Sequence[Membership]) -> dict[int, Communicator]:
    """Blocks until the other members join; if one fails, leaves the joined ones."""
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
    """Idempotent."""
    for communicator in joined.values():
        with contextlib.suppress(Exception):
            communicator.destroy()
    joined.clear()
