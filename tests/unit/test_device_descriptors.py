"""Descriptors on their way from the process of some memory to those that open it; none stays anywhere."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mray._device import descriptors
from mray._device.descriptors import HANDLE_SIZE, Handing, handed
from mray._device.libcuda import IPC_HANDLE_SIZE

SIZE = 4096


class Memory:
    """Pieces of so many pages each, whose first bytes are their number; made when they are asked for."""

    def __init__(self, *pages: int) -> None:
        self.sizes = [SIZE * each for each in pages]

    @property
    def size(self) -> int:
        return sum(self.sizes)

    def pieces(self, address: int, size: int) -> Iterator[tuple[int, int]]:
        start = 0
        for number, each in enumerate(self.sizes):
            if address <= start < address + size:
                fd = os.memfd_create("piece", os.MFD_CLOEXEC)
                os.write(fd, b"%d" % number)
                yield each, fd
            start += each
        if address >= start:
            raise RuntimeError("nothing is mapped there")


def open_fds() -> list[str]:
    return os.listdir("/proc/self/fd")


@pytest.fixture
def handing() -> Iterator[Callable[..., Handing]]:
    made: list[Handing] = []

    def make(memory: Memory) -> Handing:
        made.append(Handing(memory.pieces))
        return made[-1]

    before, threads = len(open_fds()), threading.active_count()
    yield make
    for each in made:
        each.close()
        each.close()
    assert len(open_fds()) == before
    assert threading.active_count() == threads


@pytest.mark.parametrize("pages", [(1,), (1, 2, 3), (1,) * 64, (1, 2) * 100], ids=["one", "three", "an answer full", "several answers"])
def test_every_piece_comes_in_order_with_its_size(handing: Callable[..., Handing], pages: tuple[int, ...], eventually: Any) -> None:
    memory = Memory(*pages)
    handle = handing(memory).handle(0, memory.size)
    before = len(open_fds())
    found = [(size, os.pread(fd, 10, 0)) for size, fd in handed(handle)]
    assert found == [(SIZE * each, b"%d" % number) for number, each in enumerate(pages)]
    assert len(handle) == HANDLE_SIZE != IPC_HANDLE_SIZE
    eventually(lambda: len(open_fds()) == before)


def test_a_part_has_the_pieces_that_begin_in_it(handing: Callable[..., Handing]) -> None:
    memory = Memory(1, 2, 3)
    found = [(size, os.pread(fd, 10, 0)) for size, fd in handed(handing(memory).handle(SIZE, 2 * SIZE))]
    assert found == [(2 * SIZE, b"1")]


def test_who_stops_half_way_keeps_no_descriptor(handing: Callable[..., Handing], eventually: Any) -> None:
    memory = Memory(*(1,) * 10)
    handle, before = handing(memory).handle(0, memory.size), len(open_fds())
    coming = handed(handle)
    next(coming)
    coming.close()
    eventually(lambda: len(open_fds()) == before)


def test_the_owners_error_is_told(handing: Callable[..., Handing]) -> None:
    with pytest.raises(RuntimeError, match="nothing is mapped there"):
        list(handed(handing(Memory(1)).handle(SIZE, SIZE)))


def test_an_owner_that_could_not_take_a_connection_looks_again(handing: Callable[..., Handing], monkeypatch: pytest.MonkeyPatch) -> None:
    accept, failures = socket.socket.accept, [OSError(24, "Too many open files"), OSError(24, "Too many open files")]

    def failing(self: socket.socket) -> Any:
        if failures:
            raise failures.pop()
        return accept(self)

    monkeypatch.setattr(socket.socket, "accept", failing)
    assert len(list(handed(handing(Memory(1)).handle(0, SIZE)))) == 1
    assert not failures


def test_nobody_else_is_answered(handing: Callable[..., Handing], monkeypatch: pytest.MonkeyPatch) -> None:
    handle = handing(Memory(1)).handle(0, SIZE)
    monkeypatch.setattr(descriptors, "peer_is_ours", lambda sock: False)
    with pytest.raises(RuntimeError, match="not of this user"):
        list(handed(handle))
    monkeypatch.setattr(descriptors, "peer_is_ours", lambda sock: threading.current_thread() is threading.main_thread())
    with pytest.raises(RuntimeError, match=r"gone|does not give"):
        list(handed(handle))


@pytest.mark.parametrize("answer", [b"", b"abc", b"\1" + bytes(7), b"\1" + bytes(15), b"\2" + bytes(7) + b"\1" + bytes(15)])
def test_a_damaged_answer_is_an_error(handing: Callable[..., Handing], answer: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    handle = handing(Memory(1)).handle(0, SIZE)
    monkeypatch.setattr(descriptors, "receive_fds", lambda *_arguments: (answer, [], False))
    with pytest.raises(RuntimeError, match="damaged|gone"):
        list(handed(handle))


def test_an_owner_that_has_closed_gives_nothing(handing: Callable[..., Handing]) -> None:
    memory = Memory(*(1,) * 200)
    owner = handing(memory)
    handle, coming = owner.handle(0, memory.size), handed(owner.handle(0, memory.size))
    next(coming)
    owner.close()
    with pytest.raises(RuntimeError, match=r"gone|does not give"):
        list(coming)
    with pytest.raises(RuntimeError, match="does not give its descriptors"):
        list(handed(handle))


OWNER = """
import os, signal, sys
from tests.unit.test_device_descriptors import Memory, Handing
memory = Memory(*(1,) * 200)
handing = Handing(memory.pieces)
{then}
print(handing.handle(0, memory.size).hex(), flush=True)
signal.pause()
"""


def owner(then: str = "", *inherited: int) -> tuple[subprocess.Popen[bytes], bytes]:
    root = Path(__file__).resolve().parents[2]
    program = [sys.executable, "-c", OWNER.format(then=then)]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    process = subprocess.Popen(program, cwd=root, stdout=subprocess.PIPE, env=environment, pass_fds=inherited)
    assert process.stdout is not None
    return process, bytes.fromhex(process.stdout.readline().decode())


def end(process: subprocess.Popen[bytes], number: int = signal.SIGKILL) -> None:
    process.send_signal(number)
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def test_another_process_hears_of_the_owners_death() -> None:
    process, handle = owner()
    coming = handed(handle)
    next(coming)
    end(process)
    with pytest.raises(RuntimeError, match=r"gone|does not give"):
        list(coming)
    with pytest.raises(RuntimeError, match="does not give its descriptors"):
        list(handed(handle))


def test_a_forked_child_of_the_owner_does_not_stand_in_for_it() -> None:
    reading, writing = os.pipe()
    # The child ends when nobody can write any more.
    process, handle = owner(
        f"""
if not os.fork():
    os.read({reading}, 1)
    os._exit(0)
""",
        reading,
    )
    end(process)
    with pytest.raises(RuntimeError, match="does not give its descriptors"):
        list(handed(handle))
    os.close(writing)
    os.close(reading)
