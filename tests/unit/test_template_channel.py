"""A template's conversation with its driver, with a test in the driver's place."""

from __future__ import annotations

import contextlib
import marshal
import os
import socket
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from mray._common.messages import DONE, FORK, LOAD, REAP
from mray._ipc.frames import decode_message
from mray._runtime.processes import template
from mray._runtime.processes.launch import PACKET, new_channel


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """The driver's end of a template that runs in this process."""
    before = set(os.listdir("/proc/self/fd"))
    driver, theirs = new_channel()
    monkeypatch.setattr(template.socket, "socket", lambda fileno: theirs)
    monkeypatch.setattr(template.processes, "Title", lambda: SimpleNamespace(set=lambda _title: None))
    monkeypatch.setattr(template.gc, "freeze", lambda: None)
    yield driver
    driver.close()
    theirs.close()
    for fd in set(os.listdir("/proc/self/fd")) - before:
        with contextlib.suppress(OSError):  # (one was that of the listing)
            os.close(int(fd))


def never(*_fields: object) -> int:
    pytest.fail("no node is forked")


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (("fork", "/tmp", {}, "/"), "'fork' is no message"),
        ((LOAD, 1), "its field 'module' cannot be 1"),
        ((FORK, "/tmp", {}), "came with 2 fields instead of 3"),
        ((DONE, True, 1), "a driver must not send DONE"),
    ],
)
def test_a_driver_that_sends_what_it_must_not_ends_the_template(driver: socket.socket, message: tuple[Any, ...], reason: str) -> None:
    driver.send(marshal.dumps(message))
    with pytest.raises(ValueError, match=f"^the driver sent the template an invalid message: .*{reason}"):
        template.serve(never)


def test_the_reaping_of_a_process_that_is_no_child_is_answered_by_an_errno(driver: socket.socket) -> None:
    driver.send(marshal.dumps((REAP, 1)))
    driver.shutdown(socket.SHUT_WR)
    assert template.serve(never) == 0
    done, ok, _number = decode_message(driver.recv(PACKET))
    assert (done, ok) == (DONE, False)


def test_the_driver_is_told_of_a_template_that_exits_as_it_is_asked() -> None:
    class Asked:
        """The template's end, which a thread reads once and then closes."""

        def begin(self, descriptors: dict[int, int]) -> int:
            theirs = socket.socket(fileno=os.dup(descriptors[template.TEMPLATE_DRIVER]))

            def exit_at_the_first_message() -> None:
                with theirs:
                    theirs.recv(PACKET)

            self.thread = threading.Thread(target=exit_at_the_first_message)
            self.thread.start()
            return os.getpid()

    asked = Asked()
    running = template._Running(asked.begin)
    with pytest.raises(OSError, match="the template is dead"):
        running.fork("/tmp", {}, ())
    asked.thread.join()
    running._channel.close()
