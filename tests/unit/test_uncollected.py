"""Looking into other threads while no garbage is collected."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import threading
from collections.abc import Iterator

import pytest

from mray._common.uncollected import Uncollected, uncollected


@pytest.fixture
def collections() -> Iterator[list[str]]:
    """Collections that have begun since; the collector runs at every third object."""
    begun: list[str] = []
    usual = gc.get_threshold()

    def note(phase: str, _info: dict[str, int]) -> None:
        if phase == "start":
            begun.append(threading.current_thread().name)

    gc.callbacks.append(note)
    gc.set_threshold(3)
    yield begun
    gc.callbacks.remove(note)
    gc.set_threshold(*usual)


class Thing:
    """Memory for it is asked for each time."""


def make_objects() -> list[Thing]:
    return [Thing() for _ in range(1000)]


def test_nothing_is_collected_within_also_within_another_one(collections: list[str]) -> None:
    collector = Uncollected()
    make_objects()
    assert collections
    with collector:
        collections.clear()
        with collector:
            make_objects()
        make_objects()
        assert not collections
    make_objects()
    assert collections
    assert gc.get_threshold()[0] == 3


def test_the_last_of_several_threads_has_garbage_collected_again(collections: list[str]) -> None:
    collector = Uncollected()
    inside, leave = threading.Event(), threading.Event()

    def stay() -> None:
        with collector:
            inside.set()
            leave.wait()

    thread = threading.Thread(target=stay)
    thread.start()
    inside.wait()
    with collector, contextlib.suppress(ValueError):
        raise ValueError
    collections.clear()
    make_objects()
    assert not collections
    leave.set()
    thread.join()
    assert gc.get_threshold()[0] == 3


@pytest.mark.parametrize("before", [0, 3])
def test_what_the_program_says_meanwhile_holds(collections: list[str], before: int) -> None:
    collector = Uncollected()
    gc.set_threshold(before)
    with collector:
        gc.set_threshold(50)
    assert gc.get_threshold()[0] == 50
    gc.set_threshold(before)
    with collector:
        pass
    assert gc.get_threshold()[0] == before


def test_a_child_that_is_forked_within_collects_its_garbage(collections: list[str]) -> None:
    collector = Uncollected()
    read, write = os.pipe()
    with collector:
        child = os.fork()
        if not child:
            with contextlib.suppress(BaseException):
                threshold = gc.get_threshold()[0]
                with collector:
                    pass
                os.write(write, bytes((threshold, gc.get_threshold()[0])))
            os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 10) == bytes((3, 3))
    os.close(read)
    os.close(write)


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="the collector runs between byte codes from Python 3.12 on")
def test_where_the_collector_runs_as_objects_are_made_it_is_kept_from_that() -> None:
    assert isinstance(uncollected, Uncollected)
