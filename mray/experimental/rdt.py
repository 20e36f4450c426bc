"""Ray Direct Transport: tensors as objects that stay with the actor that created them.

``@mray.method(tensor_transport=...)`` leaves the tensors of a method's value with its actor; they are copied from actor to actor when a
ref to them is passed. On one host nothing needs to be registered and no group created; RDMA between hosts (NIXL) is not available.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any, NoReturn

from mray._api.current import current_backend
from mray._api.object_ref import ObjectRef
from mray._api.tensor_transport_manager import CommunicatorMetadata, TensorTransportManager, TensorTransportMetadata
from mray._common.tensor_transports import NO_NIXL, TensorTransport, add_tensor_transport

__all__ = [
    "CommunicatorMetadata",
    "TensorTransportManager",
    "TensorTransportMetadata",
    "deregister_nixl_memory",
    "register_nixl_memory",
    "register_nixl_memory_pool",
    "register_tensor_transport",
    "set_nixl_cuda_stream",
    "set_target_device_for_ref",
    "set_target_for_ref",
    "wait_tensor_freed",
]


def wait_tensor_freed(tensor: Any, timeout: float | None = None) -> None:
    """Wait until this tensor of the calling process belongs to no object any more, and may be written to.

    While refs exist, a process that fetches the object gets the tensor's current contents. `timeout` in seconds; TimeoutError after
    that, ``None`` waits forever.
    """
    current_backend().wait_tensor_freed(tensor, timeout)


def set_target_for_ref(ref: ObjectRef, target: Sequence[Any]) -> None:
    """Make `get` of this ref write the tensors of the value into these ones, in the order in which they are pickled.

    They must have the same shapes and dtypes and be contiguous (ValueError from `get`), and may be on another device. Affects only the
    calling process, and only values from another process. The targets are not kept alive; after one is released, new tensors are
    created. ValueError if the tensors of the ref do not stay with their creator. Replaces an earlier setting.
    """
    targets = [weakref.ref(tensor) for tensor in target]

    def place(tensors: list[Any]) -> list[Any]:
        alive = [target() for target in targets]
        return tensors if any(tensor is None for tensor in alive) else _copied_into(alive, tensors)

    current_backend().set_tensor_target(ref, place, None)


def set_target_device_for_ref(ref: ObjectRef, target_device: str) -> None:
    """Make `get` of this ref leave the tensors of the value on this device, ``"cpu"`` or ``"cuda:0"``. Otherwise as `set_target_for_ref`.

    ValueError if the ref's transport does not carry tensors of such devices.
    """

    def place(tensors: list[Any]) -> list[Any]:
        return [tensor.to(target_device) for tensor in tensors]

    current_backend().set_tensor_target(ref, place, str(target_device).partition(":")[0])


def _copied_into(targets: list[Any], tensors: list[Any]) -> list[Any]:
    if len(targets) != len(tensors):
        raise ValueError(f"Length of tensor_buffers ({len(targets)}) does not match length from object metadata ({len(tensors)}).")
    for index, (target, tensor) in enumerate(zip(targets, tensors, strict=True)):
        for what in ("shape", "dtype"):
            is_, wanted = getattr(target, what), getattr(tensor, what)
            if is_ != wanted:
                raise ValueError(
                    f"{what.capitalize()} of tensor_buffer at index {index} ({is_}) does not match {what} from object metadata ({wanted})."
                )
        if hasattr(target, "is_contiguous") and not target.is_contiguous():
            raise ValueError(f"Tensor buffer at index {index} is not contiguous.")
    for target, tensor in zip(targets, tensors, strict=True):
        target.copy_(tensor)
    return targets


def register_tensor_transport(
    transport_name: str, devices: Sequence[str], transport_manager_class: type[TensorTransportManager], data_type: type
) -> None:
    """Add a user-defined transport: ``tensor_transport=transport_name`` then uses `transport_manager_class`.

    It carries objects of exactly `data_type` (``torch.Tensor``, ``numpy.ndarray``) in a value, on these types of `devices`. A process
    that receives a ref learns of the transport automatically. ValueError for a name that is taken, and for a class that is no
    `TensorTransportManager`; NotImplementedError for a transport in which both sides take part.
    """
    if not issubclass(transport_manager_class, TensorTransportManager):
        raise ValueError(f"transport_manager_class {transport_manager_class.__name__} must be a subclass of TensorTransportManager.")
    if not transport_manager_class.is_one_sided():
        raise NotImplementedError(
            f"{transport_manager_class.__name__} is not one-sided: with mray receivers get tensors, and holders do not send them."
        )
    add_tensor_transport(
        TensorTransport(transport_name.upper(), tuple(devices), one_sided=True, custom=transport_manager_class, data_type=data_type)
    )


# ------------------------------------------------------------------------------------- what one host has no use for
def register_nixl_memory(tensor: Any) -> NoReturn:
    """Ray's registration of memory for RDMA: not available."""
    raise NotImplementedError(f"register_nixl_memory() is not available: {NO_NIXL}")


def deregister_nixl_memory(tensor: Any) -> NoReturn:
    """Undo `register_nixl_memory`: not available."""
    raise NotImplementedError(f"deregister_nixl_memory() is not available: {NO_NIXL}")


def register_nixl_memory_pool(size: int, device: Any) -> NoReturn:
    """Ray's pool of memory for RDMA: not available."""
    raise NotImplementedError(f"register_nixl_memory_pool() is not available: {NO_NIXL}")


def set_nixl_cuda_stream(stream: Any) -> NoReturn:
    """Ray's stream to wait for before RDMA: not available."""
    raise NotImplementedError(f"set_nixl_cuda_stream() is not available: {NO_NIXL}")
