"""Copies of large values by several threads: every byte arrives, whoever has copied it, and helpers rest where they do not pay."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from functools import partial

import pytest

from mray._ipc import copying

ODD = 3 * copying.PIECE + 12_345


@pytest.fixture(autouse=True)
def small_copies_count(monkeypatch):
    """Copies of a few pieces are large, there are two helpers whatever the machine has, and they never rest unless a test lets them."""
    monkeypatch.setattr(copying, "LEAST", copying.PIECE)
    monkeypatch.setattr(copying, "usable_cores", lambda: 3)
    monkeypatch.setattr(copying, "WORTH", 0)
    monkeypatch.setattr(copying, "LATE", 60)
    yield
    monkeypatch.undo()
    copying.end_helpers()


def copied(size: int, start: int = 0) -> bool:
    source = random.randbytes(size)
    target = bytearray(start + size + 7)
    copying.copy_into(memoryview(target)[start : start + size], source)
    return target[start : start + size] == source and not any(target[:start]) and not any(target[start + size :])


@pytest.mark.parametrize("size", [0, 1, copying.PIECE - 1, copying.PIECE, copying.PIECE + 1, ODD, 40 * copying.PIECE])
def test_every_byte_arrives_and_none_beside_it(size):
    assert copied(size)
    assert copied(size, start=3)


def await_helper(helped):
    """In a piece of work: one of the thread that needs it is not done before a helper has begun one."""
    if threading.current_thread().name == "mray-copier":
        helped.set()
    assert helped.wait(60)


def test_helpers_take_part(monkeypatch):
    took: set[str] = set()
    helped = threading.Event()
    move = copying.ctypes.memmove

    def slow_move(*arguments):
        took.add(threading.current_thread().name)
        await_helper(helped)
        move(*arguments)

    monkeypatch.setattr(copying.ctypes, "memmove", slow_move)
    assert copied(40 * copying.PIECE)
    assert took == {threading.current_thread().name, "mray-copier"}


def test_a_helper_that_comes_late_writes_nothing(monkeypatch):
    assert copied(ODD)  # there are helpers now
    (first, *_) = helpers = list(copying._helpers._all)
    for helper in helpers:
        helper._at_work.acquire()  # they were called, and have not come to it
    began = threading.Event()
    monkeypatch.setattr(copying._Helper, "dismiss", lambda helper: (began.set(), helper.engaged.release()))
    source, target = random.randbytes(ODD), bytearray(ODD)
    copying.copy_into(memoryview(target), source)
    assert began.is_set()
    assert target == source
    target[:] = bytes(ODD)
    for helper in helpers:
        helper._at_work.release()
    while first._called.locked() is False:
        time.sleep(0.001)
    time.sleep(0.05)
    assert not any(target)


def test_copies_of_several_threads_at_a_time():
    wrong = []

    def work() -> None:
        wrong.extend(size for size in (ODD, 10 * copying.PIECE, copying.PIECE + 1) * 4 if not copied(size))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_an_interrupt_waits_for_the_pieces_that_are_being_copied(monkeypatch):
    """Else the memory could be somebody else's by the time a helper writes into it."""
    assert copied(ODD)
    move = copying.ctypes.memmove
    ended = []

    def slow_move(*arguments):
        if threading.current_thread() is threading.main_thread():
            signal.raise_signal(signal.SIGINT)
        time.sleep(0.2)
        move(*arguments)
        ended.append(threading.current_thread().name)

    monkeypatch.setattr(copying.ctypes, "memmove", slow_move)
    source, target = random.randbytes(ODD), bytearray(ODD)
    with pytest.raises(KeyboardInterrupt):
        copying.copy_into(memoryview(target), source)
    before = bytes(target), len(ended)
    time.sleep(0.5)
    assert (bytes(target), len(ended)) == before
    assert not any(helper.engaged.locked() for helper in copying._helpers._all)


@pytest.mark.parametrize(("name", "value"), [("WORTH", 2), ("LATE", -1)])
def test_helpers_that_do_not_pay_rest(monkeypatch, name, value):
    monkeypatch.setattr(copying, name, value)

    def copy_until_they_rest():
        """One copy, or more where this thread gets no core before helpers have copied all: they have paid then."""
        for _ in range(100):
            assert copied(ODD)
            if copying._helpers.rest:
                return

    copy_until_they_rest()
    assert copying._helpers.rest == copying.COPIES_ALONE
    for left in reversed(range(copying.COPIES_ALONE)):
        assert copied(ODD)
        assert copying._helpers.rest == left
    copy_until_they_rest()
    assert copying._helpers.rest == copying.COPIES_ALONE


def test_helpers_end_with_the_session():
    before = threading.active_count()
    assert copied(ODD)
    assert threading.active_count() == before + 2
    copying.end_helpers()
    assert threading.active_count() == before
    assert copied(ODD)  # others begin


def test_helpers_without_work_end_and_others_follow(monkeypatch):
    monkeypatch.setattr(copying, "IDLE", 0.05)
    before = threading.active_count()
    for _ in range(3):
        assert copied(ODD)
        deadline = time.monotonic() + 30
        while threading.active_count() > before:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_a_process_that_may_have_no_more_threads_copies_alone(monkeypatch):
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert copied(ODD)
    called: list[int] = []
    copying.call_all([partial(called.append, number) for number in range(3)])
    assert called == [0, 1, 2]


def test_one_core_has_no_helpers(monkeypatch):
    monkeypatch.setattr(copying, "usable_cores", lambda: 1)
    before = threading.active_count()
    assert copied(ODD)
    assert threading.active_count() == before


def test_a_forked_child_copies_with_helpers_of_its_own():
    assert copied(ODD)
    child = os.fork()
    if not child:
        os._exit(0 if copied(ODD) and len(copying._helpers._all) == 2 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_all_functions_are_called_once_by_several_threads():
    called = []
    helped = threading.Event()

    def call(number: int) -> None:
        await_helper(helped)
        called.append((number, threading.current_thread().name))

    copying.call_all([partial(call, number) for number in range(40)])
    assert sorted(number for number, _thread in called) == list(range(40))
    assert {thread for _number, thread in called} == {threading.current_thread().name, "mray-copier"}


@pytest.mark.parametrize("thrower", ["MainThread", "mray-copier"])
def test_an_error_of_any_thread_is_raised_after_what_has_begun(thrower):
    running = set()

    def call(number: int) -> None:
        running.add(number)
        time.sleep(0.01)
        if threading.current_thread().name == thrower:
            running.discard(number)
            raise OSError(thrower)
        time.sleep(0.02)
        running.discard(number)

    with pytest.raises(OSError, match=thrower):
        copying.call_all([partial(call, number) for number in range(100)])
    assert not running
    assert copied(ODD)  # the helpers go on
