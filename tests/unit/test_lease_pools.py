"""The tasks of one scheduling class and the leases that they are granted."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from mray._common import messages as m
from mray._common.clock import Clock
from mray._decide.caller.lease_pool import MOST_UNREACHABLE
from mray._runtime.client.leases import LeasePools
from mray.exceptions import RaySystemError


class Node:
    """Says of each request that it is granted, when it is asked to go on."""

    closed = False

    def __init__(self) -> None:
        self.said: list[tuple[Any, ...]] = []

    def send(self, message: tuple[Any, ...]) -> None:
        self.said.append(message)


class Client:
    """As much of one as pools need; nobody can be connected to."""

    fatal = None
    session_dir = "/tmp/nowhere"

    def __init__(self) -> None:
        self.info = {"retry_delay": 0.0}
        self.node = Node()
        self.from_node = self.from_peers = SimpleNamespace(on=lambda _handlers: None)
        self.leases = LeasePools(self, self, self, str, Clock())  # type: ignore[arg-type]

    def try_peer(self, process: str) -> None:
        return None


class Task:
    name = "f"

    def __init__(self) -> None:
        self.error: BaseException | None = None

    def fail(self, error: BaseException) -> None:
        self.error = error


def test_granted_workers_that_cannot_be_connected_to_are_returned_and_not_asked_for_without_end() -> None:
    client = Client()
    pool = client.leases.pool("key", {"resources": {"CPU": 1.0}}, False)
    task = Task()
    pool.submit(task)  # type: ignore[arg-type]
    for lease in range(MOST_UNREACHABLE):
        assert task.error is None
        code, number, _demand = client.node.said.pop()
        assert code == m.LEASE_REQUEST
        client.leases.on_grant(client.node, number, lease, f"{lease:x}", {}, [])  # type: ignore[arg-type]
        returned = client.node.said.pop() if task.error is not None else client.node.said.pop(-2)
        assert returned == (m.LEASE_RETURN, lease)
    assert isinstance(task.error, RaySystemError)
    assert f"process {MOST_UNREACHABLE - 1:x}" in str(task.error)
    assert client.node.said == []
    with pytest.raises(IndexError):
        client.node.said.pop()
