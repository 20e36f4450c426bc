"""Loans of a process come back, after every end of its receivers."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mray._common.settings import NullDevices
from mray._device import mappings
from mray._device.arrivals import note_of
from mray._device.departures import Departures
from mray._device.mappings import FORSAKEN
from mray._device.timelines import Peers, Where, mark, sweep_retired
from mray._runtime.objects.device_loans import DeviceLoans, _Loans
from mray.testing.null import NullPlatform

ROOT = Path(__file__).resolve().parents[2]
SCOPE = f"loans{os.getpid()}"
#: Prints a point that its stream never comes to.
OTHER = """
import sys
from mray._common.settings import NullDevices
from mray._device.arrivals import note_of
from mray._device.timelines import mark
from mray.testing import null
platform = null.NullPlatform(NullDevices(1, scope=sys.argv[1]))
hold = null.StreamHold(platform.devices[0].streams.get(0))
where = mark(platform.devices[0], 0).where
print(note_of(where).hex(), where.key.hex(), where.handle.hex(), where.offset, where.number, flush=True)
sys.stdin.read()
"""


class Other:
    """A process at the other end of a connection."""

    def __init__(self) -> None:
        command = [sys.executable, "-c", OTHER, SCOPE]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.pid = self._process.pid
        assert self._process.stdout is not None
        note, key, handle, offset, number = self._process.stdout.readline().split()
        #: The point, as a note that ends a loan; and as it is.
        self.note = bytes.fromhex(note)
        self.where = Where(bytes.fromhex(key), bytes.fromhex(handle), int(offset), int(number))
        assert note_of(self.where) == self.note

    def kill(self) -> None:
        """Dead when this returns; nobody has asked for its end."""
        pidfd = os.pidfd_open(self.pid)
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        select.select([pidfd], [], [])
        os.close(pidfd)

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def other() -> Iterator[Other]:
    made = Other()
    yield made
    made.close()


@pytest.fixture
def machine(eventually: Any) -> Iterator[NullPlatform]:
    made = NullPlatform(NullDevices(1, scope=SCOPE))
    yield made
    # Retired ends mark their streams, which have to come there; mappings of the other process go with that.
    eventually(lambda: sweep_retired() and not mappings._mappings._known)
    made.close()


class Shipment:
    """Has the stream wait for the points with which it is ended, as shipments do."""

    def __init__(self, machine: NullPlatform) -> None:
        self.device = machine.devices[0]
        self.ended: list[list[Where]] = []

    def end(self, points: Any = (), peers: Peers | None = None) -> bool:
        self.ended.append(list(points))
        for point in points:
            assert peers is not None
            peers.wait(self.device, 0, *point)
        return True


def test_a_loan_ends_once_with_the_point_at_which_its_receiver_is_done(machine: NullPlatform, other: Other) -> None:
    loans, shipment = _Loans(), Shipment(machine)
    lent: Any = 7, shipment
    loans.lent[3] = lent
    loans.end(3, 6, other.note)
    assert not shipment.ended, "that was an earlier loan of this lease"
    loans.end(3, 7, other.note)
    loans.end(3, 7, other.note)
    assert (shipment.ended, loans.spare, loans.lent) == ([[other.where]], [3], {})
    after = mark(machine.devices[0], 0)
    assert not after.reached()
    other.kill()
    machine.synchronize(machine.devices[0], 0)
    assert after.reached()
    loans.end_all()


def test_a_loan_ends_also_when_the_receiver_whose_point_ends_it_is_gone(machine: NullPlatform, other: Other) -> None:
    shipments: list[Any] = []
    loans, departures = _Loans(), Departures(machine, lambda shipment: (shipments.append(shipment), (3, 7))[1])
    tensor = machine.devices[0].empty("float32", (4,))
    assert departures.add(tensor) is not None
    departures.seal()
    loans.lent[3] = 7, shipments[0]
    other.kill()
    loans.end(3, 7, other.note)
    assert (loans.spare, loans.lent) == ([3], {})
    departures.close()
    assert departures.held == 0, "its memory is used again"
    loans.end_all()
    del tensor


def test_streams_that_wait_for_a_dead_receiver_go_on_though_nobody_reads_the_news(machine: NullPlatform, other: Other) -> None:
    device, loans, shipment = machine.devices[0], _Loans(), Shipment(machine)
    lent: Any = 7, shipment
    loans.lent[3] = lent
    loans.end(3, 7, other.note)
    after = mark(device, 0)
    assert not after.reached()
    other.kill()
    machine.synchronize(device, 0)
    assert after.reached()
    loans.end_all()


def test_streams_that_wait_for_a_dead_holder_go_on_though_nobody_reads_the_news(machine: NullPlatform, other: Other) -> None:
    device, reactor = machine.devices[0], SimpleNamespace(defer=lambda function: function())
    loans = DeviceLoans(reactor)  # type: ignore[arg-type]
    peer: Any = object()
    arrivals = loans._arrivals_from(peer, machine)
    assert loans._arrivals_from(peer, machine) is arrivals
    arrivals._peers.wait(device, 0, *other.where)
    after = mark(device, 0)
    assert not after.reached()
    other.kill()
    machine.synchronize(device, 0)
    assert after.reached()
    assert set(arrivals._peers.open(device, *other.where[:2]).words) == {FORSAKEN}
    loans.peer_gone(peer)
    loans.close()


def test_what_a_holder_has_open_of_its_receivers_goes_with_the_session(machine: NullPlatform, other: Other) -> None:
    reactor: Any = SimpleNamespace(defer=lambda function: function())
    loans, of_receiver = DeviceLoans(reactor), _Loans()
    peer: Any = object()
    loans._of_peers[peer] = of_receiver
    of_receiver.peers.open(machine.devices[0], *other.where[:2])
    loans.close()
    assert sweep_retired()
    loans.on_done(peer, 3, 7, other.note)
    loans._arrivals_from(peer, machine)
    loans.close()
    loans.peer_gone(peer)
    assert sweep_retired()
    other.kill()
