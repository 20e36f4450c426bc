"""``ray._raylet``: the compiled part of Ray, as far as its libraries know it."""

from __future__ import annotations

import contextvars
import enum
from typing import Any

from mray import (
    ActorClassID,
    ActorID,
    ClusterID,
    DynamicObjectRefGenerator,
    FunctionID,
    JobID,
    NodeID,
    ObjectID,
    ObjectRef,
    ObjectRefGenerator,
    PlacementGroupID,
    TaskID,
    UniqueID,
    WorkerID,
)
from mray._api.ref_generator import StreamingGeneratorStats
from mray._common.ids import BaseID
from mray._common.labels import selects
from mray._libraries.core.gcs_client import GcsClient
from mray._libraries.core.network_utils import build_address, get_localhost_ip, is_ipv6, is_localhost, parse_address
from mray._libraries.core.time_series import merge_instantaneous_total as merge_instantaneous_total_cython
from mray._libraries.core.time_series import time_weighted_average as time_weighted_average_cython
from mray.cross_language import Language

__all__ = [
    "ActorClassID",
    "ActorID",
    "AuthenticationMode",
    "BaseID",
    "ClusterID",
    "Config",
    "DynamicObjectRefGenerator",
    "FunctionID",
    "GcsClient",
    "JobID",
    "Language",
    "MessagePackSerializer",
    "NodeID",
    "ObjectID",
    "ObjectRef",
    "ObjectRefGenerator",
    "PlacementGroupID",
    "StreamingGeneratorStats",
    "TaskID",
    "UniqueID",
    "WorkerID",
    "async_task_id",
    "build_address",
    "get_all_interfaces_ip",
    "get_authentication_mode",
    "get_localhost_ip",
    "is_ipv6",
    "is_localhost",
    "merge_instantaneous_total_cython",
    "node_ip_address_from_perspective",
    "node_labels_match_selector",
    "parse_address",
    "time_weighted_average_cython",
]

async_task_id: contextvars.ContextVar[Any] = contextvars.ContextVar("async_task_id", default=None)


class MessagePackSerializer:
    """Values of plain types as MessagePack."""

    @staticmethod
    def dumps(obj: Any, python_serializer: object = None) -> bytes:
        """Pack a value. TypeError for what is not of a plain type."""
        import msgpack  # noqa: PLC0415  (Ray brings it)

        return bytes(msgpack.packb(obj, use_bin_type=True))

    @staticmethod
    def loads(s: bytes, python_deserializer: object = None) -> Any:
        """Unpack a value."""
        import msgpack  # noqa: PLC0415

        return msgpack.unpackb(s, raw=False, strict_map_key=False)


class Config:
    """The settings of Ray's core that its libraries read, with its defaults."""

    @staticmethod
    def grpc_client_keepalive_time_ms() -> int:
        """Milliseconds after which a silent connection of gRPC is tried."""
        return 300000

    @staticmethod
    def grpc_client_keepalive_timeout_ms() -> int:
        """Milliseconds within which the other end answers to that."""
        return 120000

    @staticmethod
    def max_grpc_message_size() -> int:
        """Bytes of a message of gRPC."""
        return 512 << 20


CONFIG = Config()


class AuthenticationMode(enum.Enum):
    """Ways in which processes of a cluster prove who they are. Those of one session need none."""

    DISABLED = 0
    TOKEN = 1


def get_authentication_mode() -> AuthenticationMode:
    """The way that is in use: none."""
    return AuthenticationMode.DISABLED


def node_labels_match_selector(node_labels: dict[str, str], selector: dict[str, str]) -> bool:
    """Whether a node with these labels is one that a selector selects."""
    return selects(selector, node_labels)


# -------------------------------------------------------------------------------------------- addresses
def get_all_interfaces_ip() -> str:
    """The address on which a server listens for all."""
    return "0.0.0.0"


def node_ip_address_from_perspective(_address: str | None = None) -> str:
    """The address of this machine; of one machine alone, that of the loopback interface."""
    return get_localhost_ip()
