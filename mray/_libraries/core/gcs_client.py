"""``GcsClient``, as far as Ray's libraries use it: the key-value table of the session and its one node."""

from __future__ import annotations

from typing import Any

import mray
from mray import ClusterID, NodeID
from mray._api.context import runtime_context
from mray.experimental.internal_kv import (
    _internal_kv_del,
    _internal_kv_exists,
    _internal_kv_get,
    _internal_kv_list,
    _internal_kv_put,
)


class GcsClient:
    """Any process of the session."""

    def __init__(self, address: str | None = None, cluster_id: ClusterID | None = None) -> None:
        self._address = address

    @property
    def address(self) -> str:
        """An address for `init`, in any process of this user."""
        return self._address or runtime_context.gcs_address

    # ------------------------------------------------------------------------------------ keys and values
    def internal_kv_get(self, key: bytes, namespace: bytes | None = None, timeout: float | None = None) -> bytes | None:
        return _internal_kv_get(key, namespace=namespace)

    def internal_kv_multi_get(self, keys: list[bytes], namespace: bytes | None = None, timeout: float | None = None) -> dict[bytes, bytes]:
        """Keys without a value are left out."""
        found = {key: _internal_kv_get(key, namespace=namespace) for key in keys}
        return {key: value for key, value in found.items() if value is not None}

    def internal_kv_put(
        self, key: bytes, value: bytes, overwrite: bool = False, namespace: bytes | None = None, timeout: float | None = None
    ) -> int:
        """Returns the number of new keys; without `overwrite` an existing value stays."""
        return int(not _internal_kv_put(key, value, overwrite, namespace=namespace))

    def internal_kv_del(self, key: bytes, del_by_prefix: bool, namespace: bytes | None = None, timeout: float | None = None) -> int:
        """Delete a key, or all keys with that prefix; returns their number."""
        return _internal_kv_del(key, del_by_prefix=del_by_prefix, namespace=namespace)

    def internal_kv_keys(self, prefix: bytes, namespace: bytes | None = None, timeout: float | None = None) -> list[bytes]:
        """The keys that begin with `prefix`."""
        return _internal_kv_list(prefix, namespace=namespace)

    def internal_kv_exists(self, key: bytes, namespace: bytes | None = None, timeout: float | None = None) -> bool:
        return _internal_kv_exists(key, namespace=namespace)

    # ------------------------------------------------------------------------------------ nodes
    def get_all_node_info(self, *_arguments: Any, **_options: Any) -> dict[NodeID, Any]:
        """The one node, as a message of Ray's."""
        from ray.core.generated.gcs_pb2 import GcsNodeInfo  # noqa: PLC0415

        found = {}
        for node in mray.nodes():
            node_id = NodeID.from_hex(node["NodeID"])
            found[node_id] = GcsNodeInfo(
                node_id=node_id.binary(),
                node_manager_address=node["NodeManagerAddress"],
                node_manager_hostname=node["NodeManagerHostname"],
                node_name=node["NodeName"],
                state=GcsNodeInfo.GcsNodeState.ALIVE,
                resources_total=node["Resources"],
                labels=node["Labels"],
            )
        return found

    def get_draining_nodes(self, timeout: float | None = None) -> dict[NodeID, int]:
        return {}

    def get_all_resource_usage(self, timeout: float | None = None) -> Any:
        """The free resources of the node, as a message of Ray's."""
        from ray.core.generated.gcs_service_pb2 import GetAllResourceUsageReply  # noqa: PLC0415

        reply = GetAllResourceUsageReply()
        for node in mray.nodes():
            usage = reply.resource_usage_data.batch.add()
            usage.node_id = bytes.fromhex(node["NodeID"])
            usage.resources_total.update(node["Resources"])
            usage.resources_available.update(mray.available_resources())
        return reply


def _pin_runtime_env_uri(uri: str, *, expiration_s: int = 0) -> None:
    """Do nothing: no package is removed while the session lives."""


connected = GcsClient()


def internal_kv_get_gcs_client() -> GcsClient:
    return connected
