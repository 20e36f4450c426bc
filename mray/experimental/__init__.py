"""The names of ``ray.experimental``: where objects are, and tensors that stay with their creator (`rdt`).

====================  ====================================================================================================
location              the node that has a copy of an object: this machine, or none any more; and its size
direct transport      tensors that are copied from actor to actor and never become objects of the store (RDT)
transport manager     what a user registers to carry tensors of another kind
internal key-value    the session's table of small values, as Ray's libraries use it
====================  ====================================================================================================
"""

from __future__ import annotations

from mray.experimental.locations import get_local_object_locations, get_object_locations
from mray.experimental.rdt import (
    CommunicatorMetadata,
    TensorTransportManager,
    TensorTransportMetadata,
    deregister_nixl_memory,
    register_nixl_memory,
    register_nixl_memory_pool,
    register_tensor_transport,
    set_nixl_cuda_stream,
    set_target_device_for_ref,
    set_target_for_ref,
    wait_tensor_freed,
)

__all__ = [
    "CommunicatorMetadata",
    "TensorTransportManager",
    "TensorTransportMetadata",
    "deregister_nixl_memory",
    "get_local_object_locations",
    "get_object_locations",
    "register_nixl_memory",
    "register_nixl_memory_pool",
    "register_tensor_transport",
    "set_nixl_cuda_stream",
    "set_target_device_for_ref",
    "set_target_for_ref",
    "wait_tensor_freed",
]
