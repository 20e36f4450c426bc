"""The node's hold on processes, with a test in the zygote's place: what comes through one socket overtakes what another tells."""

from __future__ import annotations

import contextlib
import errno
import marshal
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mray._common.causes import Cause
from mray._common.messages import CAUSE_CRASH, NOT_SPAWNED, PRELOAD_FAILED, REAPED, SPAWN, SPAWNED
from mray._ipc import process as processes
from mray._ipc.output import WrittenParts
from mray._ipc.reactor import Reactor
from mray._runtime.processes.launch import OPTIONS, PACKET, new_channel
from mray._runtime.processes.supervisor import Supervisor

#: No process has it.
PID = (1 << 22) + 1
PROCESS = "0123456789abcdef"


class Scene:
    """A supervisor, and one worker that it has asked for."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (folder / "logs").mkdir()
        (folder / OPTIONS).touch()
        monkeypatch.setattr(signal, "signal", lambda *_words: None)
        monkeypatch.setattr(signal, "set_wakeup_fd", lambda *_words, **_options: None)
        monkeypatch.setattr(processes, "kill", lambda pid, *_words: self.killed.append(pid))
        self.killed: list[int] = []
        self.died: list[Any] = []
        self.output: list[str] = []
        self.faults: list[Exception] = []
        self.reactor = Reactor()
        self.reactor.on_fault = lambda _what, error: self.faults.append(error)
        self.supervisor = Supervisor(
            self.reactor,
            str(folder),
            {},
            (-1, -1),
            -1,
            self._new_connection,
            lambda *fields: self.died.append(fields),
            self._printed,
            WrittenParts(),
        )
        self.channel, self.zygote = new_channel()
        self.supervisor.adopt_zygote(PID - 1, self.channel)
        self.supervisor.spawn(PROCESS, {})
        _packet, (self.stdout, *others), _flags, _address = socket.recv_fds(self.zygote, PACKET, 3)
        for fd in others:
            os.close(fd)

    def _new_connection(self, _process: str) -> socket.socket:
        ours, theirs = socket.socketpair()
        ours.close()
        return theirs

    def _printed(self, _work: str, _pid: int, _stream: int, _name: str, text: str) -> None:
        self.output.append(text)

    def dies_at_once(self) -> None:
        """The worker prints and dies, and the node is told of its birth and its death after it could read what was printed."""
        os.write(self.stdout, b"words\n")
        os.close(self.stdout)
        self.zygote.send(marshal.dumps((SPAWNED, PROCESS, PID)))
        self.zygote.send(marshal.dumps((REAPED, PID, 1)))


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    before = set(os.listdir("/proc/self/fd"))
    scene = Scene(tmp_path, monkeypatch)
    yield scene
    scene.reactor.close()
    scene.channel.close()
    scene.zygote.close()
    for fd in set(os.listdir("/proc/self/fd")) - before:
        with contextlib.suppress(OSError):  # (one was that of the listing)
            os.close(int(fd))


def test_a_worker_that_prints_and_dies_as_it_starts_is_a_death_and_no_more(scene: Scene) -> None:
    scene.dies_at_once()
    scene.reactor.run_once(0)
    scene.reactor.run_once(0)
    assert scene.faults == []
    assert scene.output == ["words\n"]
    assert scene.died == [(PROCESS, "", Cause(CAUSE_CRASH, "", PID, 1, b"words"))]


def test_what_is_printed_is_taken_of_a_worker_whose_death_is_still_to_be_read(scene: Scene) -> None:
    scene.dies_at_once()
    scene.supervisor.take_output()
    assert scene.output == ["words\n"]
    assert len(scene.died) == 1


def test_a_worker_whose_death_is_still_to_be_read_is_not_killed_again(scene: Scene) -> None:
    scene.dies_at_once()
    scene.supervisor.kill(PROCESS)
    assert PID not in scene.killed, "it may be somebody else's"
    assert len(scene.died) == 1


def test_while_there_is_no_zygote_what_a_worker_prints_is_taken_and_nobody_is_killed(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_descriptor() -> Any:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr("mray._runtime.processes.supervisor.new_channel", no_descriptor)
    scene.supervisor._zygote_ended(1)
    scene.killed.clear()
    os.write(scene.stdout, b"words\n")
    scene.supervisor.take_output()
    assert scene.output == ["words\n"]
    assert scene.killed == []


def test_a_worker_that_is_killed_as_it_is_refused_ends_once(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mray._runtime.processes.supervisor._START_ATTEMPTS", 0)
    scene.zygote.send(marshal.dumps((NOT_SPAWNED, PROCESS, "no process")))
    scene.supervisor._zygote_spoke(0)
    scene.supervisor.kill(PROCESS)
    scene.reactor.run_once(0)
    assert scene.faults == []
    assert len(scene.died) == 1


def test_a_module_that_could_not_be_preloaded_is_named_to_the_user(scene: Scene) -> None:
    scene.zygote.send(marshal.dumps((PRELOAD_FAILED, "torch", "could not be imported: ImportError: no torch")))
    scene.reactor.run_once(0)
    assert scene.output == ["preload: module 'torch' could not be imported: ImportError: no torch\n"]
    assert scene.killed == []


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (("preload failed", "torch", "could not be imported"), "'preload failed' is no message"),
        ((999, "torch", "could not be imported"), "999 is no message"),
        ((PRELOAD_FAILED, "torch"), "came with 1 fields instead of 2"),
        ((SPAWN, PROCESS, {}), "a zygote must not send SPAWN"),
        ((), "a message is a tuple"),
    ],
)
def test_a_zygote_that_sends_what_it_must_not_is_named_and_killed(scene: Scene, message: tuple[Any, ...], reason: str) -> None:
    scene.zygote.send(marshal.dumps(message))
    scene.zygote.send(marshal.dumps((SPAWNED, PROCESS, PID)))
    scene.reactor.run_once(0)
    (text,) = scene.output
    assert text.startswith("the zygote sent an invalid message, and is started anew: ") and reason in text
    assert scene.killed == [PID - 1]
    assert scene.supervisor.workers[PROCESS].pid == 0, "nothing is read behind it"
    assert scene.faults == []
