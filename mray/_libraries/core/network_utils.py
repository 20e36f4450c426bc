"""``ray._common.network_utils``."""

from __future__ import annotations

import ipaddress
import socket

from mray._inside.addresses import LOOPBACK, join_host
from mray.util import get_node_ip_address

__all__ = ["build_address", "find_free_port", "get_localhost_ip", "is_ipv6", "is_localhost", "parse_address"]


def find_free_port(family: socket.AddressFamily = socket.AF_INET) -> int:
    with socket.socket(family) as sock:
        sock.bind(("", 0))
        return int(sock.getsockname()[1])


def is_ipv6(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).version == 6
    except ValueError:
        return False


def build_address(host: str, port: int | str) -> str:
    """``host:port``, with brackets around an IPv6 address."""
    return join_host(host, port)


def parse_address(address: str) -> tuple[str, str] | None:
    """(host, port); None without a port."""
    host, colon, port = address.rpartition(":")
    return (host.removeprefix("[").removesuffix("]"), port) if colon else None


def is_localhost(host: str) -> bool:
    return host in LOOPBACK


def get_localhost_ip() -> str:
    return LOOPBACK[0]


def get_address_and_port() -> tuple[str, int]:
    """The address of this machine, and a free port."""
    return get_node_ip_address(), find_free_port()
