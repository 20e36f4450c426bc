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
from mray._device.exports import TensorExports
from mray._device.mappings import FORSAKEN
from mray._device.timelines import Peers, Where, mark, point_of, sweep_retired
from mray._gpu.device_loans import DeviceLoans
from mray.testing.null import NullPlatform

ROOT = Path(__file__).resolve().parents[2]
SCOPE = f"loans{os.getpid()}"
#: Prints a point that its stream never comes to.
OTHER = """
import sys
from mray._common.settings import NullDevices
from mray._device.timelines import timelines_of
from mray.testing import null
platform = null.NullPlatform(NullDevices(1, scope=sys.argv[1]))
hold = null.StreamHold(platform.devices[0].streams.get(0))
timeline = timelines_of(platform.devices[0]).of(0)
where = timeline.where(timeline.mark(0))
print(timeline.note.hex(), where.key.hex(), where.handle.hex(), where.offset, where.number, flush=True)
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
        #: The point, as a note and a number that end a loan; and as it is.
        self.note = bytes.fromhex(note), int(number)
        self.where = Where(bytes.fromhex(key), bytes.fromhex(handle), int(offset), int(number))
        assert point_of(*self.note) == self.where

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
    eventually(lambda: sweep_retired() and not mappings._known)
    made.close()


class ExportedMessage:
    """Has the stream wait for the points with which it is ended, as messages do."""

    def __init__(self, machine: NullPlatform, *, may_wait: bool = True) -> None:
        self.device = machine.devices[0]
        self.may_wait = may_wait
        self.ended: list[list[Where]] = []

    def end(self, points: Any = (), peers: Peers | None = None) -> bool:
        self.ended.append(list(points))
        if points and not self.may_wait:
            return False
        for point in points:
            assert peers is not None
            peers.wait(self.device, 0, *point)
        return True


@pytest.fixture
def loans() -> Iterator[DeviceLoans]:
    reactor: Any = SimpleNamespace(defer=lambda function: function())
    made = DeviceLoans(reactor)
    yield made
    made.close()


class Link:
    """The connection to the other process."""

    process = "other"
    closed = False


def test_a_loan_ends_once_with_the_point_at_which_its_receiver_is_done(machine: NullPlatform, other: Other, loans: DeviceLoans) -> None:
    message = ExportedMessage(machine)
    link: Any = Link()
    lent: Any = message
    loans._lent.lend(lent, link, 3)
    loans.on_done(link, 2, *other.note)
    assert not message.ended, "that was another loan"
    loans.on_done(link, 3, *other.note)
    loans.on_done(link, 3, *other.note)
    assert (message.ended, loans._lent.out) == ([[other.where]], 0)
    after = mark(machine.devices[0], 0)
    assert not after.reached()
    other.kill()
    machine.synchronize(machine.devices[0], 0)
    assert after.reached()
    loans.ended("other")
    assert len(message.ended) == 1


def test_a_loan_ends_also_when_the_receiver_whose_point_ends_it_is_gone(machine: NullPlatform, other: Other, loans: DeviceLoans) -> None:
    messages: list[Any] = []
    link: Any = Link()
    exports = TensorExports(machine, lambda message: (messages.append(message), (3, 0))[1])
    tensor = machine.devices[0].empty("float32", (4,))
    assert exports.add(tensor) is not None
    exports.seal()
    loans._lent.lend(messages[0], link, 3)
    other.kill()
    loans.on_done(link, 3, *other.note)
    exports.close()
    assert exports.held == 0, "its memory is used again"
    loans.ended("other")
    del tensor


def test_a_loan_whose_end_cannot_be_waited_for_yet_ends_with_the_next_return_or_its_receiver(
    machine: NullPlatform, other: Other, loans: DeviceLoans
) -> None:
    """As while a graph is captured."""
    link: Any = Link()
    lent: list[Any] = [ExportedMessage(machine, may_wait=False) for _ in range(3)]
    for number, message in enumerate(lent):
        loans._lent.lend(message, link, number)
    loans.on_done(link, 0, *other.note)
    loans.on_done(link, 1, *other.note)
    lent[0].may_wait = True
    loans.on_done(link, 2, b"", 0)
    loans.ended("other")
    where = [other.where]
    assert [message.ended for message in lent] == [[where] * 3, [where, where, []], [[]]]
    other.kill()


def test_streams_that_wait_for_a_dead_receiver_go_on_though_nobody_reads_the_news(
    machine: NullPlatform, other: Other, loans: DeviceLoans
) -> None:
    device, lent = machine.devices[0], ExportedMessage(machine)
    message: Any = lent
    link: Any = Link()
    loans._lent.lend(message, link, 3)
    loans.on_done(link, 3, *other.note)
    after = mark(device, 0)
    assert not after.reached()
    other.kill()
    machine.synchronize(device, 0)
    assert after.reached()
    loans.ended("other")


def test_streams_that_wait_for_a_dead_holder_go_on_though_nobody_reads_the_news(
    machine: NullPlatform, other: Other, loans: DeviceLoans
) -> None:
    device = machine.devices[0]
    peer: Any = Link()
    imports = loans._imports_from(peer, machine)
    assert loans._imports_from(peer, machine) is imports
    imports._peers.wait(device, 0, *other.where)
    after = mark(device, 0)
    assert not after.reached()
    other.kill()
    machine.synchronize(device, 0)
    assert after.reached()
    assert set(imports._peers.open(device, *other.where[:2]).words) == {FORSAKEN}
    loans.hung_up(peer)


def test_what_a_holder_has_open_of_its_receivers_goes_with_the_session(machine: NullPlatform, other: Other, loans: DeviceLoans) -> None:
    message = ExportedMessage(machine)
    peer: Any = Link()
    lent: Any = message
    loans._lent.lend(lent, peer, 3)
    loans._peers["other"].open(machine.devices[0], *other.where[:2])
    loans.close()
    assert sweep_retired()
    loans.on_done(peer, 3, *other.note)
    loans._imports_from(peer, machine)
    loans.close()
    loans.hung_up(peer)
    loans.ended("other")
    assert sweep_retired()
    assert not message.ended, "others may look at it still"
    other.kill()
