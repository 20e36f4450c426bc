"""The names of ``ray.experimental``: where objects are, and tensors that stay with their maker (`rdt`).

For users. Subpackages (channels, collectives) are imported by name.
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
