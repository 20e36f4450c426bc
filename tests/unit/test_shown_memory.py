"""Memory in listings: a process's own pages and its share of others', read for processes whose pages have changed."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mray._ipc.process import stat_of
from mray._libraries.core.test_utils import wait_for_condition
from mray.util.state import _processes
from mray.util.state._processes import infos_of

SIZE = 48 << 20


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Pids whose pages are summed up."""
    found: list[int] = []
    read: Callable[[int], int | None] = _processes.proportional_bytes

    def reading(pid: int) -> int | None:
        found.append(pid)
        return read(pid)

    monkeypatch.setattr(_processes, "proportional_bytes", reading)
    monkeypatch.setattr(_processes, "_shares", {})
    return found


class Forked:
    """A child that shares these pages with its parent and sleeps, until it is asked to write to them."""

    def __init__(self, pages: mmap.mmap) -> None:
        self.to_child, self.to_parent = os.pipe(), os.pipe()
        self.pid = os.fork()
        if not self.pid:
            os.close(self.to_child[1])
            while os.read(self.to_child[0], 1):
                pages[:: mmap.PAGESIZE] = b"y" * len(range(0, SIZE, mmap.PAGESIZE))
                os.write(self.to_parent[1], b"x")
            os._exit(0)
        os.close(self.to_child[0])
        self.settle()

    def settle(self) -> None:
        """Until it sleeps: what it does on its way there has pages of its own, too."""
        wait_for_condition(lambda: stat_of(self.pid)[0] == b"S", timeout=60, retry_interval_ms=1)

    def write(self) -> None:
        os.write(self.to_child[1], b"x")
        os.read(self.to_parent[0], 1)
        self.settle()

    def end(self) -> None:
        os.close(self.to_child[1])
        os.waitpid(self.pid, 0)
        for descriptor in self.to_parent:
            os.close(descriptor)


@pytest.fixture
def child() -> Iterator[Forked]:
    with mmap.mmap(-1, SIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as pages:
        pages.write(b"x" * SIZE)
        made = Forked(pages)
        yield made
        made.end()


def test_shared_pages_count_once_for_all_who_hold_them(readings: list[int], child: Forked) -> None:
    info = infos_of([child.pid])[child.pid]
    assert info["pss_bytes"] < info["rss_bytes"] - SIZE // 3
    assert info["cpu_seconds"] >= 0 and info["start_time_ms"] > 0


def test_pages_are_summed_up_again_where_they_have_changed(readings: list[int], child: Forked) -> None:
    before = infos_of([child.pid])[child.pid]["pss_bytes"]
    assert infos_of([child.pid])[child.pid]["pss_bytes"] == before
    assert readings == [child.pid]
    child.write()  # to pages that were shared: no page more is resident
    assert infos_of([child.pid])[child.pid]["pss_bytes"] > before + SIZE // 3
    assert readings == [child.pid] * 2


def test_a_look_reads_the_longest_unread_first_and_no_longer_than_it_may(
    readings: list[int], monkeypatch: pytest.MonkeyPatch, child: Forked
) -> None:
    infos_of([child.pid])
    infos_of([os.getpid()])
    readings.clear()
    monkeypatch.setattr(_processes, "_BUDGET", 0.0)
    child.write()
    old = infos_of([child.pid])[child.pid]
    assert readings == [] and old["pss_bytes"] > 0  # as it was
    monkeypatch.setattr(_processes, "_BUDGET", 10.0)
    kept: list[Any] = [bytearray(1 << 22)]  # this process has changed too
    infos_of([os.getpid(), child.pid])
    assert readings == [child.pid, os.getpid()] and kept


def test_a_process_that_is_gone_has_no_memory(readings: list[int]) -> None:
    pid = os.fork()
    if not pid:
        os._exit(0)
    os.waitpid(pid, 0)
    assert infos_of([pid]) == {} and _processes.proportional_bytes(pid) is None
