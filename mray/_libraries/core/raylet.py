"""``ray._raylet``: the compiled part of Ray, as far as its libraries use it."""

from __future__ import annotations

import contextvars
import enum
from typing import Any

from mray._common.labels import selects
from mray._inside.addresses import node_address

__all__ = [
    "AuthenticationMode",
    "Config",
    "MessagePackSerializer",
    "async_task_id",
    "get_all_interfaces_ip",
    "get_authentication_mode",
    "node_ip_address_from_perspective",
    "node_labels_match_selector",
]

async_task_id: contextvars.ContextVar[Any] = contextvars.ContextVar("async_task_id", default=None)


class MessagePackSerializer:
    """Values of plain types as MessagePack."""

    @staticmethod
    def dumps(obj: Any, python_serializer: object = None) -> bytes:
        """Pack a value. Raises TypeError for values of other types."""
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
        """Milliseconds after which a silent gRPC connection is probed."""
        return 300000

    @staticmethod
    def grpc_client_keepalive_timeout_ms() -> int:
        """Milliseconds for the answer to that probe."""
        return 120000

    @staticmethod
    def max_grpc_message_size() -> int:
        """Bytes of a gRPC message."""
        return 512 << 20


CONFIG = Config()


class AuthenticationMode(enum.Enum):
    """How processes of a cluster authenticate. Those of one session need not."""

    DISABLED = 0
    TOKEN = 1


def get_authentication_mode() -> AuthenticationMode:
    """The mode in use: none."""
    return AuthenticationMode.DISABLED


def node_labels_match_selector(node_labels: dict[str, str], selector: dict[str, str]) -> bool:
    """Whether node labels satisfy a selector."""
    return selects(selector, node_labels)


# -------------------------------------------------------------------------------------------- addresses
def get_all_interfaces_ip() -> str:
    """The address that listens on all interfaces."""
    return "0.0.0.0"


def node_ip_address_from_perspective(_address: str | None = None) -> str:
    """The address of this machine on its route out."""
    return node_address()
