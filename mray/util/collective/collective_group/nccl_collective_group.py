"""The backend NCCL: tensors on GPUs, through `mray._gpu.nccl_member`."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

from mray._device.nccl_library import current_device_index, library
from mray._gpu.nccl_member import join_nccl
from mray.util.collective import types
from mray.util.collective.collective_group.base_collective_group import BaseGroup

__all__ = ["NCCLGroup"]


class NCCLGroup(BaseGroup):
    """Torch tensors and cupy arrays on the GPU that is the process's current one when it joins.

    Calls are queued on the current stream (of torch, or of cupy for its arrays) and return; `barrier` waits for the members, not for
    their GPUs. When a member dies or leaves, streams that wait for it run on, and every later call raises RayChannelError that names
    the member.
    """

    def __init__(self, world_size: int, rank: int, group_name: str, timeout: float | None = None, actors: Sequence[bytes] = ()) -> None:
        """Join; waits at most `timeout` milliseconds for all members. `actors`: their ids by rank, where known.

        ValueError when two members are on one GPU and NCCL does not allow it.
        """
        super().__init__(world_size, rank, group_name)
        self._member = join_nccl(
            f"collective {group_name}",
            world_size,
            rank,
            device=current_device_index(),
            actors=actors,
            timeout=None if timeout is None else timeout / 1000,
        )

    def refusing(self, sent: int = -1, received: int = -1) -> AbstractContextManager[Any]:
        return self._member.group.refusing(sent, received)

    def destroy_group(self) -> None:
        self._member.destroy()

    @classmethod
    def backend(cls) -> str:
        return types.Backend.NCCL

    @classmethod
    def check_backend_availability(cls) -> bool:
        return not cls.why_unavailable()

    @classmethod
    def why_unavailable(cls) -> str:
        try:
            library()
        except LookupError as error:
            return f"{error} On the CPU use backend='gloo'."
        return ""

    def allreduce(self, tensor: list[Any], allreduce_options: types.AllReduceOptions) -> None:
        with self._device_tensors(tensor) as (only,):
            self._member.allreduce(only, only, self._operation(allreduce_options.reduceOp))

    def barrier(self, barrier_options: types.BarrierOptions) -> None:
        self._member.group.barrier()

    def reduce(self, tensor: list[Any], reduce_options: types.ReduceOptions) -> None:
        with self._device_tensors(tensor) as (only,):
            self._member.reduce(only, reduce_options.root_rank, self._operation(reduce_options.reduceOp))

    def broadcast(self, tensor: list[Any], broadcast_options: types.BroadcastOptions) -> None:
        with self._device_tensors(tensor) as (only,):
            self._member.broadcast(only, broadcast_options.root_rank)

    def allgather(self, tensor_list: list[list[Any]], tensor: list[Any], allgather_options: types.AllGatherOptions) -> None:
        with self._device_tensors([*tensor, *tensor_list[0]]) as (only, *outs):
            together = self._like(only, outs)
            self._member.allgather(only, together)
            for rank, out in enumerate(outs):
                out.copy_(together[rank])

    def reducescatter(self, tensor: list[Any], tensor_list: list[list[Any]], reducescatter_options: types.ReduceScatterOptions) -> None:
        with self._device_tensors([*tensor, *tensor_list[0]]) as (into, *parts):
            together = self._like(into, parts)
            for rank, part in enumerate(parts):
                together[rank].copy_(part)
            self._member.reducescatter(together, into, self._operation(reducescatter_options.reduceOp))

    def send(self, tensor: list[Any], send_options: types.SendOptions) -> None:
        with self._device_tensors(tensor, sent=send_options.dst_rank) as (only,):
            self._member.send(_first(only, send_options.n_elements), send_options.dst_rank)

    def recv(self, tensor: list[Any], recv_options: types.RecvOptions) -> None:
        with self._device_tensors(tensor, received=recv_options.src_rank) as (only,):
            self._member.recv_into(_first(only, recv_options.n_elements), recv_options.src_rank)

    # ------------------------------------------------------------------------------------ tensors
    def _like(self, tensor: Any, others: Sequence[Any]) -> Any:
        """A new tensor with room for one like `tensor` of each rank. ValueError when the others differ."""
        shape = tuple(tensor.shape)
        with self.refusing():
            info = {(tuple(other.shape), str(other.dtype)) for other in others}
            if info != {(shape, str(tensor.dtype))}:
                raise ValueError(f"Expected tensors of shape {shape} and {tensor.dtype}, but got {sorted(info)}")
            dtype = str(tensor.dtype).removeprefix("torch.")
            return self._member.device.empty(dtype, (len(others), *shape))

    @contextlib.contextmanager
    def _device_tensors(self, tensors: Sequence[Any], sent: int = -1, received: int = -1) -> Iterator[list[Any]]:
        """The tensors as the group takes them. While entered, work is queued on their library's current stream."""
        device = self._member.device
        with self.refusing(sent, received):
            found = [self._device_tensor(tensor) for tensor in tensors]
        stream = sys.modules["cupy"].cuda.get_current_stream().ptr if any(map(_is_cupy, tensors)) else device.current_stream()
        if stream == device.current_stream():
            yield found
        else:
            with device.on_stream(stream):
                yield found

    def _device_tensor(self, tensor: Any) -> Any:
        if _is_cupy(tensor):
            if not tensor.flags.c_contiguous:
                raise ValueError(f"The array of shape {tensor.shape} is not contiguous: cupy.ascontiguousarray makes it so.")
            return self._member.device.tensor(tensor.data.ptr, tensor.nbytes, tensor.dtype.name, tensor.shape, None, tensor)
        if self._member.platform.is_tensor(tensor):
            return tensor.detach() if hasattr(tensor, "detach") else tensor
        raise RuntimeError(
            f"Torch tensor must be on GPU when using NCCL collectives, and this is a {type(tensor).__name__} on "
            f"{getattr(tensor, 'device', 'the host')}. Move it to the GPU, or make the group with backend='gloo'."
        )


def _is_cupy(tensor: Any) -> bool:
    cupy = sys.modules.get("cupy")
    return cupy is not None and isinstance(tensor, cupy.ndarray)


def _first(tensor: Any, count: int) -> Any:
    """That number of elements; 0: all."""
    return tensor if count <= 0 else tensor.reshape(-1)[:count]
