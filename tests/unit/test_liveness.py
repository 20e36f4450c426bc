"""Whether somebody has died is known before what came after is read."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mray._channel.base import NOTHING
from mray._common import kept
from mray._graph.caller.liveness import Liveness, LivenessReader
from tests.inproc import InprocWriter


def test_a_reader_leaves_what_is_there_when_somebody_has_died(child: subprocess.Popen[bytes]) -> None:
    liveness = Liveness([child.pid])
    writer = InprocWriter(1, 4)
    reader = LivenessReader(writer.reader(0), liveness)
    assert not reader.ready() and reader.try_read() is NOTHING
    writer.try_write(1)
    writer.try_write(2)
    assert reader.ready()
    assert reader.try_read() == 1
    child.kill()
    child.wait()
    assert liveness.someone_died()
    assert not reader.ready()
    assert reader.try_read() is NOTHING
    liveness.close()
    liveness.close()
    assert liveness.someone_died(), "what is known stays known"


def test_who_is_dead_from_the_beginning_is_known_to_be(child: subprocess.Popen[bytes]) -> None:
    child.kill()
    child.communicate()
    liveness = Liveness([child.pid])
    assert liveness.someone_died()
    liveness.close()


def test_where_no_descriptor_is_left_for_one_process_those_of_the_others_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    real, opened = kept.os.open, []

    def open_once(path: str, flags: int) -> int:
        if opened:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        opened.append(real(path, flags))
        return opened[0]

    monkeypatch.setattr(kept.os, "open", open_once)
    with pytest.raises(OSError, match="Too many open files"):
        Liveness([os.getpid()] * 2)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(opened[0])


#: Its first thread ends, as in a process that is killed: before the others, and so before its files are closed.
FIRST_THREAD_ENDS = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=[100]).start()
input()
ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[__import__("platform").machine()], 0)
"""


def test_a_death_is_known_before_the_process_lets_go_of_what_it_shares() -> None:
    with subprocess.Popen([sys.executable, "-c", FIRST_THREAD_ENDS], stdin=subprocess.PIPE) as child:
        try:
            liveness = Liveness([child.pid])
            assert not liveness.someone_died()
            assert child.stdin is not None
            child.stdin.write(b"\n")
            child.stdin.flush()
            stat = Path(f"/proc/{child.pid}/stat")
            deadline = time.monotonic() + 60
            while b") Z" not in stat.read_bytes():
                assert time.monotonic() < deadline
            assert child.poll() is None, "another of its threads lives"
            assert liveness.someone_died()
            liveness.close()
        finally:
            child.kill()


def test_liveness_of_no_process_sees_no_death() -> None:
    liveness = Liveness([])
    assert not liveness.someone_died()
    liveness.close()


def test_several_threads_may_ask_at_once() -> None:
    liveness = Liveness([os.getpid()])
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as threads:
            asked = [threads.submit(lambda: [liveness.someone_died() for _ in range(5000)]) for _ in range(4)]
            assert not any(any(each.result()) for each in asked)
    finally:
        sys.setswitchinterval(before)
        liveness.close()
