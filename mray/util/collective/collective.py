"""Collectives between actors and tasks: what ``ray.util.collective`` has.

Every member of a group calls the same collectives in the same order.

    init_collective_group(world_size, rank, "gloo", "workers")     in every member: waits until all have joined
    allreduce(tensor, "workers")                                   in every member: blocks, works in place
    destroy_collective_group("workers")                            in every member

Or the driver declares a group (`create_collective_group`), and its actors join at their first collective.

An array that came as an argument or from `get` may be used: it gets the result, and the object stays unchanged for every other
reader. ValueError ("copy it first") if this process (in a session in one process: another actor, too) holds the same object a second
time, and for an array that is read-only for another reason or came through a graph. A small array (up to about 100 KiB) is also
refused while it might be read again: in a constructor that got it as an argument, or in another thread or task than the one that runs
the call it came with.

A call that waits for others fails with RayChannelError when one of them dies, destroys the group, or is refused the matching call (a
wrong shape, a read-only array) and does not repeat it within two seconds. Only joining has a time limit. A collective that others had
entered is then the last one of its group.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from typing import Any

from mray._api.actor_handle import ActorHandle, ids_of
from mray._api.counterpart import asked_of_ray, counterpart_of
from mray._api.current import backend_if_started
from mray._api.decorator import remote
from mray._api.verbs import get, get_actor, kill
from mray._common.log import logger
from mray._common.process_local import ProcessLocal
from mray._device.platform import platform
from mray._inside.transports import library_of
from mray.util.collective import types
from mray.util.collective.backend_registry import (
    backend_class,
    check_backend,
    is_registered,
    register_collective_backend,
    why_unavailable,
)
from mray.util.collective.collective_group._shared_memory import SharedMemoryGroup
from mray.util.collective.collective_group.base_collective_group import BaseGroup
from mray.util.collective.collective_group.nccl_collective_group import NCCLGroup

__all__ = [
    "allgather",
    "allgather_multigpu",
    "allreduce",
    "allreduce_multigpu",
    "barrier",
    "broadcast",
    "broadcast_multigpu",
    "create_collective_group",
    "destroy_collective_group",
    "get_collective_group_size",
    "get_group_handle",
    "get_rank",
    "gloo_available",
    "init_collective_group",
    "is_backend_available",
    "is_group_initialized",
    "nccl_available",
    "recv",
    "recv_multigpu",
    "reduce",
    "reduce_multigpu",
    "reducescatter",
    "reducescatter_multigpu",
    "register_collective_backend",
    "send",
    "send_multigpu",
]

#: Milliseconds, as in torch.distributed.
JOIN_TIMEOUT = 30 * 60 * 1000

#: This process's groups, by name; None while joining.
_own_groups: ProcessLocal[dict[str, BaseGroup | None]] = ProcessLocal(dict)
_lock = threading.Lock()


#: On Ray, its own groups do the work.
_asked_of_ray = asked_of_ray("util.collective")


# ---------------------------------------------------------------------------------------------- backends
@_asked_of_ray
def is_backend_available(backend: str) -> bool:
    """Whether a backend has that name and can be used here."""
    return check_backend(backend)


@_asked_of_ray
def nccl_available() -> bool:
    """Whether NCCL can be used."""
    return check_backend("NCCL")


@_asked_of_ray
def gloo_available() -> bool:
    """Whether collectives on the CPU can be used."""
    return check_backend("GLOO")


# ------------------------------------------------------------------------------------------------ groups
def _own_group(group_name: str) -> BaseGroup | None:
    with _lock:
        return _own_groups.get().get(group_name)


@_asked_of_ray
def is_group_initialized(group_name: str) -> bool:
    """Whether this process is in a group of that name."""
    return _own_group(group_name) is not None


def init_collective_group(
    world_size: int,
    rank: int,
    backend: str = types.Backend.NCCL,
    group_name: str = "default",
    gloo_timeout: int | None = None,
    *,
    actors: Sequence[ActorHandle] = (),
) -> None:
    """Join a group as `rank` of `world_size`, in an actor or a task; waits until all ranks have joined.

    `backend` is ``"nccl"`` (tensors on GPUs), ``"gloo"`` (also ``"torch_gloo"``), or a registered name. `gloo_timeout`: milliseconds
    to wait for the others, by default half an hour; TimeoutError names the missing ranks. `actors`: all members' handles by rank;
    with them, joining also fails when a member dies. RuntimeError outside of actors and tasks, and when the process is already in a
    group of that name.
    """
    counterpart = counterpart_of("util.collective")
    if counterpart is not None:
        limit = {} if gloo_timeout is None else {"gloo_timeout": gloo_timeout}
        counterpart.init_collective_group(world_size, rank, backend, group_name, **limit)
        return
    _check_inside_actor()
    if not group_name:
        raise ValueError(f"group_name '{group_name}' needs to be a string.")
    assert world_size > 0, "the world size must be positive"
    assert 0 <= rank < world_size, f"the rank must be from 0 to {world_size - 1}"
    _join(world_size, rank, backend, group_name, gloo_timeout, ids_of(actors))


def _join(world_size: int, rank: int, backend: str, group_name: str, timeout: float | None, actors: Sequence[bytes]) -> BaseGroup:
    kind = backend_class(backend)
    with _lock:
        if group_name in _own_groups.get():
            raise RuntimeError("Trying to initialize a group a second time.")
        _own_groups.get()[group_name] = None
    try:
        if issubclass(kind, SharedMemoryGroup | NCCLGroup):
            group: BaseGroup = kind(world_size, rank, group_name, JOIN_TIMEOUT if timeout is None else timeout, actors)
        else:
            group = kind(world_size, rank, group_name)
    except BaseException:
        with _lock:
            del _own_groups.get()[group_name]
        raise
    with _lock:
        _own_groups.get()[group_name] = group
    return group


class _Declared:
    def __init__(self, *info: Any) -> None:
        self._info = info

    def info(self) -> tuple[Any, ...]:
        """Ids of the actors by rank, world size, backend, joining timeout. No handles: a declaration keeps no actor alive."""
        return self._info


def _declared_name(group_name: str) -> str:
    return "info_" + group_name


@_asked_of_ray
def create_collective_group(
    actors: Sequence[ActorHandle],
    world_size: int,
    ranks: Sequence[int],
    backend: str = types.Backend.NCCL,
    group_name: str = "default",
    gloo_timeout: int | None = None,
) -> None:
    """Declare a group, with `ranks` in the order of `actors`; they join at their first collective. For the driver.

    RuntimeError when the ranks do not fit, or when a group of that name is already declared.
    """
    try:
        get_actor(_declared_name(group_name))
    except ValueError:
        pass
    else:
        raise RuntimeError("Trying to initialize a group twice.")
    if len(ranks) != len(actors):
        raise RuntimeError(f"Each actor should correspond to one rank. Got '{len(ranks)}' ranks but '{len(actors)}' actors")
    if set(ranks) != set(range(len(ranks))):
        raise RuntimeError(f"Ranks must be a permutation from 0 to '{len(ranks)}'. Got '{''.join(map(str, ranks))}'.")
    if world_size <= 0:
        raise RuntimeError(f"World size must be greater than zero. Got '{world_size}'.")
    if len(ranks) > world_size:
        raise RuntimeError("Ranks cannot be greater than world_size.")
    if not is_registered(backend):
        types.Backend(backend)  # raises for an unknown name
        raise RuntimeError(f"Backend {backend.upper()} is not registered.")
    if not check_backend(backend):
        raise RuntimeError(f"Backend {backend.upper()} is registered but not available. {why_unavailable(backend)}")
    by_rank = ids_of(actor for _rank, actor in sorted(zip(ranks, actors, strict=True), key=lambda pair: pair[0]))
    options: dict[str, Any] = {"name": _declared_name(group_name), "lifetime": "detached", "num_cpus": 0}
    declared: Any = remote(_Declared).options(**options).remote(by_rank, world_size, backend, gloo_timeout)
    get(declared.info.remote())


@_asked_of_ray
def destroy_collective_group(group_name: str = "default") -> None:
    """Leave a group; members that wait for this one get RayChannelError. The name is free again.

    Only warns when this process is in no such group. RuntimeError outside of actors and tasks.
    """
    _check_inside_actor()
    with _lock:
        group = _own_groups.get().get(group_name)
        if group is None:
            logger.warning("The group '%s' does not exist.", group_name)
            return
        del _own_groups.get()[group_name]
    group.destroy_group()
    try:
        kill(get_actor(_declared_name(group_name)))
    except ValueError:
        pass  # not declared, or another member was faster


@_asked_of_ray
def get_rank(group_name: str = "default") -> int:
    """This process's rank; -1 when it is in no such group."""
    _check_inside_actor()
    group = _own_group(group_name)
    return -1 if group is None else group.rank


@_asked_of_ray
def get_collective_group_size(group_name: str = "default") -> int:
    """The number of members; -1 when this process is in no such group."""
    _check_inside_actor()
    group = _own_group(group_name)
    return -1 if group is None else group.world_size


@_asked_of_ray
def get_group_handle(group_name: str = "default") -> BaseGroup:
    """This process's membership of a group; an actor of a declared group joins first. RuntimeError otherwise."""
    group = _own_group(group_name)
    if group is not None:
        return group
    here = _check_inside_actor()
    try:
        declared = get_actor(_declared_name(group_name))
    except ValueError:
        raise RuntimeError(f"The collective group '{group_name}' is not initialized in the process.") from None
    actors, world_size, backend, timeout = get(declared.info.remote())
    if here["actor_id"] not in actors:
        raise RuntimeError(f"The collective group '{group_name}' is not initialized in the process, and this is none of its actors.")
    return _join(world_size, actors.index(here["actor_id"]), backend, group_name, timeout, actors)


# ------------------------------------------------------------------------------------------- collectives
@_asked_of_ray
def allreduce(tensor: Any, group_name: str = "default", op: types.ReduceOp = types.ReduceOp.SUM) -> None:
    """Reduce the members' tensors, in place, in every member. The results are bitwise equal."""
    group = get_group_handle(group_name)
    with group.refusing():
        _check_tensor(tensor)
    group.allreduce([tensor], types.AllReduceOptions(op))


@_asked_of_ray
def barrier(group_name: str = "default") -> None:
    """Wait until every member has called it."""
    get_group_handle(group_name).barrier(types.BarrierOptions())


@_asked_of_ray
def reduce(tensor: Any, dst_rank: int = 0, group_name: str = "default", op: types.ReduceOp = types.ReduceOp.SUM) -> None:
    """Reduce the members' tensors into the tensor of `dst_rank`; the others stay unchanged."""
    group = get_group_handle(group_name)
    with group.refusing():
        _check_tensor(tensor)
        _check_rank(group, dst_rank)
    group.reduce([tensor], types.ReduceOptions(op, dst_rank))


@_asked_of_ray
def broadcast(tensor: Any, src_rank: int = 0, group_name: str = "default") -> None:
    """Copy the tensor of `src_rank` into the tensor of every member."""
    group = get_group_handle(group_name)
    with group.refusing():
        _check_tensor(tensor)
        _check_rank(group, src_rank)
    group.broadcast([tensor], types.BroadcastOptions(src_rank))


@_asked_of_ray
def allgather(tensor_list: list[Any], tensor: Any, group_name: str = "default") -> None:
    """Copy the members' tensors into `tensor_list`, one per rank. RuntimeError when it has another length."""
    group = get_group_handle(group_name)
    with group.refusing():
        _check_tensor(tensor)
        _check_tensors(tensor_list)
        if len(tensor_list) != group.world_size:
            raise RuntimeError("The length of the tensor list operands to allgather must be equal to world_size.")
    group.allgather([tensor_list], [tensor], types.AllGatherOptions())


@_asked_of_ray
def reducescatter(tensor: Any, tensor_list: list[Any], group_name: str = "default", op: types.ReduceOp = types.ReduceOp.SUM) -> None:
    """Reduce the members' tensors for this rank into `tensor`; each member's `tensor_list` has a tensor for each rank.

    The tensors of the list stay unchanged. RuntimeError when the list has another length.
    """
    group = get_group_handle(group_name)
    with group.refusing():
        _check_tensor(tensor)
        _check_tensors(tensor_list)
        if len(tensor_list) != group.world_size:
            raise RuntimeError("The length of the tensor list operands to reducescatter must not be equal to world_size.")
    group.reducescatter([tensor], [tensor_list], types.ReduceScatterOptions(op))


@_asked_of_ray
def send(tensor: Any, dst_rank: int, group_name: str = "default") -> None:
    """Send a tensor to a member; may return before it is received. RuntimeError when the member is this process."""
    group = get_group_handle(group_name)
    _check_rank(group, dst_rank)
    if dst_rank == group.rank:
        raise RuntimeError(f"The destination rank '{dst_rank}' is self.")
    with group.refusing(sent=dst_rank):
        _check_tensor(tensor)
    group.send([tensor], types.SendOptions(dst_rank))


@_asked_of_ray
def recv(tensor: Any, src_rank: int, group_name: str = "default") -> None:
    """Receive the next tensor of a member into `tensor`; ValueError when it has another size or dtype.

    RuntimeError when the member is this process.
    """
    group = get_group_handle(group_name)
    _check_rank(group, src_rank)
    if src_rank == group.rank:
        raise RuntimeError(f"The destination rank '{src_rank}' is self.")
    with group.refusing(received=src_rank):
        _check_tensor(tensor)
    group.recv([tensor], types.RecvOptions(src_rank))


# --------------------------------------------------------------------------------------------- many GPUs
def _refuse_several_gpus(*_arguments: Any, **_options: Any) -> None:
    """Raise RuntimeError: no backend drives several GPUs from one process."""
    raise RuntimeError("Multigpu calls requires NCCL and Cupy.")


allgather_multigpu = allreduce_multigpu = broadcast_multigpu = recv_multigpu = _refuse_several_gpus
reduce_multigpu = reducescatter_multigpu = send_multigpu = _refuse_several_gpus


# ------------------------------------------------------------------------------------------------ checks
def _check_inside_actor() -> dict[str, Any]:
    backend = backend_if_started()
    here = {"mode": "driver"} if backend is None else backend.context()
    if here["mode"] != "worker":
        raise RuntimeError("The collective APIs shall be only used inside a Ray actor or task.")
    return here


def _check_tensor(tensor: Any) -> None:
    if library_of(tensor) is None and not _is_of_device(tensor):
        raise RuntimeError(f"Unrecognized tensor type '{type(tensor)}'. Supported types are: np.ndarray, torch.Tensor, cupy.ndarray.")


def _is_of_device(tensor: Any) -> bool:
    """A tensor of a GPU library other than torch."""
    cupy = sys.modules.get("cupy")
    if cupy is not None and isinstance(tensor, cupy.ndarray):
        return True
    devices = platform()
    return devices is not None and devices.is_tensor(tensor)


def _check_tensors(tensors: Any) -> None:
    if not isinstance(tensors, list):
        raise RuntimeError(f"The input must be a list of tensors. Got '{type(tensors)}'.")
    if not tensors:
        raise RuntimeError("Got an empty list of tensors.")
    for tensor in tensors:
        _check_tensor(tensor)


def _check_rank(group: BaseGroup, rank: int) -> None:
    if rank < 0:
        raise ValueError(f"rank '{rank}' is negative.")
    if rank >= group.world_size:
        raise ValueError(f"rank '{rank}' must be less than world size '{group.world_size}'")
