"""Processes by descriptors that become readable when they end."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable

import pytest

from mray._ipc.pidfd import PidFd
from mray._ipc.reactor import Reactor


def test_an_end_is_waited_for(child: subprocess.Popen[bytes]) -> None:
    with PidFd(child.pid) as process:
        assert not process.wait(0)
        process.signal(signal.SIGKILL)
        assert process.wait()
        assert process.wait(0)
        child.communicate()
        process.signal(signal.SIGKILL)
        assert process.wait()
    process.close()
    with pytest.raises(ProcessLookupError):
        PidFd(child.pid)


@pytest.mark.parametrize("given", [False, True])
def test_an_end_is_told_once_and_leaves_no_descriptor(child: subprocess.Popen[bytes], given: bool) -> None:
    reactor = Reactor()
    try:
        before = os.listdir("/proc/self/fd")
        told: list[int] = []
        process = PidFd(child.pid, os.pidfd_open(child.pid)) if given else PidFd(child.pid)
        end: Callable[[], None] = process.then(reactor, lambda: told.append(1))
        child.kill()
        while not told:
            reactor.run_once(None)
        end()
        assert told == [1]
        PidFd(os.getpid()).then(reactor, lambda: told.append(2))()
        assert os.listdir("/proc/self/fd") == before
    finally:
        reactor.close()


def test_a_process_that_cannot_be_watched_leaves_no_descriptor() -> None:
    reactor = Reactor()
    before = os.listdir("/proc/self/fd")
    reactor.close()
    process = PidFd(os.getpid())
    with pytest.raises((OSError, ValueError)):
        process.then(reactor, lambda: None)
    assert process.fd < 0
    assert len(os.listdir("/proc/self/fd")) < len(before)
