"""The collector is off while any quiet lock is owned, and on when none is, in whatever order threads enter and leave several."""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Iterator

import pytest

from mray._ipc import quiet_lock
from mray._ipc.quiet_lock import QuietLock


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    assert gc.isenabled()
    yield
    gc.enable()


def test_the_collector_is_off_until_the_last_lock_is_left() -> None:
    """Here the first that is left is the one that was entered first, as when two threads own them."""
    first, second = QuietLock(), QuietLock()
    first.__enter__()
    second.__enter__()
    first.__exit__()
    assert not gc.isenabled()
    with second:
        pass
    assert not gc.isenabled()
    second.__exit__()
    assert gc.isenabled()


def test_a_nested_entry_of_a_lock_leaves_the_collector_as_it_was() -> None:
    lock = QuietLock()
    with lock:
        gc.enable()  # as code of the program may
        with lock:
            assert not gc.isenabled()
        assert not gc.isenabled() and lock.is_owned()
    assert gc.isenabled() and not lock.is_owned()


def test_a_collector_that_the_program_disabled_stays_off() -> None:
    gc.disable()
    with QuietLock():
        assert not gc.isenabled()
    assert not gc.isenabled()


def test_threads_that_own_several_never_meet_an_enabled_collector() -> None:
    locks = [QuietLock() for _ in range(3)]
    stop = threading.Event()
    wrong: list[int] = []

    def own(k: int) -> None:
        while not stop.is_set():
            with locks[k % 3]:
                wrong.extend([k] * gc.isenabled())
                with locks[(k + 1) % 3] if k % 3 < 2 else locks[k % 3]:  # always in the order of the list
                    wrong.extend([k] * gc.isenabled())
                wrong.extend([k] * gc.isenabled())

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    threads = [threading.Thread(target=own, args=(k,)) for k in range(6)]
    try:
        for thread in threads:
            thread.start()
        stop.wait(1)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        sys.setswitchinterval(interval)
    assert not wrong
    assert gc.isenabled() and not quiet_lock.pause.reasons


def test_the_collector_runs_while_a_thread_waits_for_a_lock() -> None:
    lock, owned, leave = QuietLock(), threading.Event(), threading.Event()

    def own() -> None:
        with lock.inner:
            owned.set()
            leave.wait()

    def enter() -> None:
        with lock:
            pass

    owner, waiter = threading.Thread(target=own), threading.Thread(target=enter)
    owner.start()
    owned.wait()
    waiter.start()
    waiter.join(0.05)
    assert waiter.is_alive() and gc.isenabled()
    leave.set()
    owner.join()
    waiter.join()
    assert gc.isenabled()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_collects_though_another_thread_of_its_parent_owned_a_lock() -> None:
    lock, owned, leave = QuietLock(), threading.Event(), threading.Event()

    def own() -> None:
        with lock:
            owned.set()
            leave.wait()

    owner = threading.Thread(target=own)
    owner.start()
    owned.wait()
    child = os.fork()
    if not child:
        with QuietLock():
            off = not gc.isenabled()
        os._exit(0 if off and gc.isenabled() else 1)
    leave.set()
    owner.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert gc.isenabled()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_child_forked_by_the_owner_collects_after_it_has_left() -> None:
    with QuietLock():
        child = os.fork()
    if not child:
        with QuietLock():
            off = not gc.isenabled()
        os._exit(0 if off and gc.isenabled() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
