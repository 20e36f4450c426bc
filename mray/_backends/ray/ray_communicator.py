"""A user's communicator as Ray's graphs expect it, with Ray's handles of actors.

In the compiling process, and pickled in every actor that takes part.
"""

from __future__ import annotations

from typing import Any

from ray.experimental.channel.communicator import Communicator as RaysCommunicator
from ray.experimental.channel.cpu_communicator import CPUCommunicator

from mray._api.communicator import Communicator, ReduceOp


class CarriedCommunicator(RaysCommunicator):  # type: ignore[misc]
    def __init__(self, carried: Communicator, actors: list[Any]) -> None:
        """`actors`: Ray's handles of the communicator's actors, in its order."""
        self._carried = carried
        self._actors = actors

    def initialize(self, rank: int) -> None:
        self._carried.initialize(rank)

    def get_actor_handles(self) -> list[Any]:
        return self._actors

    def get_rank(self, actor: Any) -> int:
        """ValueError for an actor that does not take part."""
        wanted = _id_of(actor)
        place = next((place for place, each in enumerate(self._actors) if _id_of(each) == wanted), None)
        if place is None:
            raise ValueError("Actor is not in the group.")
        return self._carried.get_rank(self._carried.get_actor_handles()[place])

    def get_self_rank(self) -> int | None:
        return self._carried.get_self_rank()

    def get_world_size(self) -> int:
        return self._carried.get_world_size()

    def send(self, value: Any, peer_rank: int) -> None:
        self._carried.send(value, peer_rank)

    def recv(self, shape: Any, dtype: Any, peer_rank: int, allocator: Any = None) -> Any:
        return self._carried.recv(shape, dtype, peer_rank, allocator)

    @property
    def recv_stream(self) -> Any:
        return self._carried.recv_stream

    @property
    def send_stream(self) -> Any:
        return self._carried.send_stream

    def allgather(self, send_buf: Any, recv_buf: Any) -> None:
        self._carried.allgather(send_buf, recv_buf)

    def allreduce(self, send_buf: Any, recv_buf: Any, op: Any = None) -> None:
        self._carried.allreduce(send_buf, recv_buf, _reduction(op))

    def reducescatter(self, send_buf: Any, recv_buf: Any, op: Any = None) -> None:
        self._carried.reducescatter(send_buf, recv_buf, _reduction(op))

    def destroy(self) -> None:
        self._carried.destroy()

    def get_transport_name(self) -> str:
        return self._carried.get_transport_name()

    @classmethod
    def generate_communicator_id(cls) -> str:
        return str(Communicator.generate_communicator_id())


def carried_by_ray(carried: Communicator, actors: list[Any]) -> Any:
    """Ray's communicator for a user's; for mray's own, Ray's of the same kind."""
    if type(carried).__name__ == "CPUCommunicator" and type(carried).__module__.startswith("mray."):
        return CPUCommunicator(len(actors), actors)
    return CarriedCommunicator(carried, actors)


def _reduction(op: Any) -> ReduceOp:
    return ReduceOp.SUM if op is None else ReduceOp[op.name]


def _id_of(actor: Any) -> Any:
    return actor._ray_actor_id  # noqa: SLF001
