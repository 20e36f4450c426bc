"""Interrupts, and whatever else handlers of signals raise, in the thread that waits in a reactor."""

from __future__ import annotations

import _thread
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mray._ipc import interrupts
from mray._ipc.interrupts import InterruptGuard
from mray._ipc.reactor import Reactor


class Alarm(Exception):
    """What a handler of the user's raises."""


@pytest.fixture
def handlers() -> Iterator[None]:
    """The handlers of this process are as Python's own at first, and as they were in the end."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGUSR1)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def reactor(handlers: None) -> Iterator[Reactor]:
    reactor = Reactor()
    reactor.guard.install()
    yield reactor
    reactor.guard.uninstall()
    reactor.close()


def send_while_asleep(reactor: Reactor, number: int, done: threading.Event) -> threading.Thread:
    """Have this thread, once it sleeps in the reactor, get the signal until it is `done`: one may come a moment before the sleep."""
    main = threading.main_thread().ident
    assert main is not None

    def send() -> None:
        while not done.wait(0.001):
            if reactor.guard.is_open:
                signal.pthread_kill(main, number)

    thread = threading.Thread(target=send)
    thread.start()
    return thread


def test_a_handler_that_raises_out_of_a_sleep_leaves_interrupts_as_they_were(reactor: Reactor) -> None:
    done = threading.Event()

    def ring(_number: int, frame: Any) -> None:
        if not done.is_set() and reactor.guard.is_open:
            done.set()
            raise Alarm

    signal.signal(signal.SIGUSR1, ring)
    thread = send_while_asleep(reactor, signal.SIGUSR1, done)
    with pytest.raises(Alarm):
        reactor.wait_until(lambda: False)
    thread.join()
    assert not reactor.guard.is_open
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert not reactor.wait_until(lambda: False, 0.001)


@pytest.mark.parametrize("reads", [True, False], ids=["reader", "waiter"])
def test_an_interrupt_that_ends_no_sleep_is_seen_by_a_driver(reactor: Reactor, reads: bool) -> None:
    """As one does that comes a moment before the sleep: the handler is due, and no system call has been interrupted."""
    reactor.guard.looks = True
    over = threading.Event()
    other = threading.Thread(target=reactor.wait_until, args=(over.is_set,))
    if not reads:
        other.start()
        while not reactor.asleep:
            pass

    def interrupt() -> None:
        while not reactor.guard.is_open:
            pass
        _thread.interrupt_main()

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        reactor.wait_until(lambda: False)
    thread.join()
    if not reads:
        over.set()
        reactor.wake()
        other.join()


def test_an_interrupt_that_met_the_lock_is_sent_until_it_lands(handlers: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one comes when the main thread has looked for signals and does not sleep yet: nobody sees that it has come."""
    guard = InterruptGuard()
    sent: list[int] = []
    soon: list[Callable[[], None]] = []
    later: list[Callable[[], None]] = []
    monkeypatch.setattr(interrupts.signal, "pthread_kill", lambda _thread, number: sent.append(number))
    guard.lock, guard.again, guard.later = threading.RLock(), soon.append, lambda _seconds, callback: later.append(callback)
    guard.install()
    with guard.lock:
        signal.raise_signal(signal.SIGINT)
    assert len(soon) == 1 and sent == []
    soon.pop()()
    for times in (1, 2, 3):
        assert sent == [signal.SIGINT] * times
        later.pop()()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    later.pop()()
    assert len(sent) == 4 and later == [], "it is sent on although it has landed"
    guard.uninstall()
