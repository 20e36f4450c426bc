"""``ray._raylet``, as far as Ray's libraries use it."""

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
    """For values of plain types."""

    @staticmethod
    def dumps(obj: Any, python_serializer: object = None) -> bytes:
        """Raises TypeError for values of other types."""
        import msgpack  # noqa: PLC0415  (Ray brings it)

        return bytes(msgpack.packb(obj, use_bin_type=True))

    @staticmethod
    def loads(s: bytes, python_deserializer: object = None) -> Any:
        import msgpack  # noqa: PLC0415

        return msgpack.unpackb(s, raw=False, strict_map_key=False)


class Config:
    """The settings of Ray's core that its libraries read, with its defaults."""

    @staticmethod
    def grpc_client_keepalive_time_ms() -> int:
        """Silence in ms after which a gRPC connection is probed."""
        return 300000

    @staticmethod
    def grpc_client_keepalive_timeout_ms() -> int:
        """Time in ms for the answer to that probe."""
        return 120000

    @staticmethod
    def max_grpc_message_size() -> int:
        """Bytes of a message."""
        return 512 << 20


CONFIG = Config()


class AuthenticationMode(enum.Enum):
    """Only the mode without authentication exists."""

    DISABLED = 0
    TOKEN = 1


def get_authentication_mode() -> AuthenticationMode:
    return AuthenticationMode.DISABLED


def node_labels_match_selector(node_labels: dict[str, str], selector: dict[str, str]) -> bool:
    """Whether node labels satisfy a selector."""
    return selects(selector, node_labels)


# -------------------------------------------------------------------------------------------- addresses
def get_all_interfaces_ip() -> str:
    return "0.0.0.0"


def node_ip_address_from_perspective(_address: str | None = None) -> str:
    """The address of this machine on its route out."""
    return node_address()
