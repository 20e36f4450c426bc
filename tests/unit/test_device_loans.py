"""Loans of a process come back, after every end of its receivers."""

from __future__ import annotations

import os
import subprocess
from types import SimpleNamespace
from typing import Any

import pytest

from mray._common.settings import NullDevices
from mray._runtime.objects import device_loans
from mray._runtime.objects.device_loans import DeviceLoans, _Loans
from mray.testing.null import NullPlatform


class Device:
    """Of a receiver that is dead before its event was opened."""

    index = 0

    def open_event(self, _handle: bytes) -> Any:
        raise RuntimeError("the process is gone")


class Shipment:
    """Notes with which events it has ended."""

    device = Device()

    def __init__(self) -> None:
        self.ended: list[list[Any]] = []

    def end(self, events: Any = ()) -> None:
        self.ended.append(list(events))


def connection(pid: int = os.getpid()) -> Any:
    return SimpleNamespace(pid=pid)


def test_a_loan_ends_also_when_the_event_that_ends_it_is_gone() -> None:
    loans, shipment = _Loans(connection()), Shipment()
    lent: Any = 7, shipment
    loans.lent[3] = lent
    loans.end(3, 7, b"\0handle")
    loans.end(3, 7, b"\0handle")
    assert (shipment.ended, loans.spare, loans.lent) == ([[]], [3], {})


class Event:
    """Notes whether it was forsaken."""

    def __init__(self) -> None:
        self.is_forsaken = False

    def forsake(self) -> None:
        self.is_forsaken = True

    def close(self) -> None:
        """Nothing is open."""


def test_streams_that_wait_for_a_dead_receiver_go_on_though_nobody_reads_the_news(eventually: Any) -> None:
    with subprocess.Popen(["sleep", "1000"]) as receiver:
        loans, event = _Loans(connection(receiver.pid)), Event()
        loans.events[b"handle", 0] = event  # type: ignore[assignment]
        assert not event.is_forsaken
        receiver.kill()
    eventually(lambda: event.is_forsaken)
    loans.end_all()
    loans.end_watch()


def test_streams_that_wait_for_a_dead_holder_go_on_though_nobody_reads_the_news(eventually: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    forsaken: list[object] = []
    monkeypatch.setattr(device_loans.Arrivals, "forsake", lambda self: forsaken.append(self))
    reactor: Any = SimpleNamespace(defer=lambda function: function())
    loans, found = DeviceLoans(reactor), NullPlatform(NullDevices(1, scope=f"loans{os.getpid()}"))
    with subprocess.Popen(["sleep", "1000"]) as holder:
        peer = SimpleNamespace(pid=holder.pid, facts={}, closed=False)
        arrivals = loans._arrivals_from(peer, found)
        assert loans._arrivals_from(peer, found) is arrivals
        assert not forsaken
        holder.kill()
    eventually(lambda: arrivals in forsaken)
    loans.peer_gone(peer)  # type: ignore[arg-type]
    loans.close()
    found.close()
