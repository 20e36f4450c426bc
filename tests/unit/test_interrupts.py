"""Interrupts, and whatever else handlers of signals raise, in the thread that waits in a reactor."""

from __future__ import annotations

import _thread
import os
import signal
import threading
from collections.abc import Callable, Iterator
from signal import signal as install_handler
from typing import Any

import pytest

from mray._ipc import interrupts
from mray._ipc.interrupts import InterruptGuard
from mray._ipc.reactor import Reactor


class Alarm(Exception):
    """The exception of a user's handler."""


@pytest.fixture
def handlers() -> Iterator[None]:
    """The handlers of this process are as Python's own at first, and as they were in the end."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)}
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


def test_interrupts_that_come_while_one_is_put_off_do_not_nest(handlers: None) -> None:
    guard = InterruptGuard()
    soon: list[Callable[[], None]] = []

    def again(callback: Callable[[], None]) -> None:
        soon.append(callback)
        if len(soon) < 100:
            signal.raise_signal(signal.SIGINT)

    guard.lock, guard.again = threading.RLock(), again
    guard.install()
    with guard.lock:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
    assert len(soon) == 1
    with pytest.raises(KeyboardInterrupt):
        soon.pop()()
    guard.uninstall()


def alarm(_number: int, _frame: Any) -> None:
    raise Alarm


def leave(_number: int, _frame: Any) -> None:
    raise SystemExit(3)


def dispatched(reactor: Reactor, act: Callable[[], None]) -> list[str]:
    """Wait while a message is dispatched, in the middle of which `act` is called; the wait's error is the caller's."""
    read, write = os.pipe()
    done: list[str] = []

    def dispatch(_events: int) -> None:
        done.append("begun")
        act()
        done.append("ended")

    reactor.add_fd(read, dispatch)
    try:
        os.write(write, b"x")
        with pytest.raises((Alarm, SystemExit, KeyboardInterrupt)) as caught:
            reactor.wait_until(lambda: False)
        done.append(type(caught.value).__name__)
        if caught.value.__context__ is not None:
            done.append(type(caught.value.__context__).__name__)
        return done
    finally:
        reactor.forget(read)
        os.close(read)
        os.close(write)


@pytest.mark.parametrize("handler", [alarm, leave, signal.default_int_handler])
@pytest.mark.parametrize("when", ["before", "during"])
@pytest.mark.parametrize("install", [signal.signal, install_handler])
def test_what_a_handler_raises_waits_until_the_message_is_dispatched(
    handlers: None, handler: Callable[[int, Any], None], when: str, install: Callable[..., Any]
) -> None:
    reactor = Reactor()
    if when == "before":
        install(signal.SIGUSR1, handler)
    reactor.guard.install()
    try:
        if when == "during":
            install(signal.SIGUSR1, handler)
        name = {alarm: "Alarm", leave: "SystemExit"}.get(handler, "KeyboardInterrupt")
        for _ in range(2):
            assert dispatched(reactor, lambda: signal.raise_signal(signal.SIGUSR1)) == ["begun", "ended", name]
        with pytest.raises((Alarm, SystemExit, KeyboardInterrupt)):  # and at once elsewhere
            signal.raise_signal(signal.SIGUSR1)
        assert signal.getsignal(signal.SIGUSR1) is handler
        assert install(signal.SIGUSR1, signal.SIG_IGN) is handler
        assert signal.signal(signal.SIGUSR1, handler) is signal.SIG_IGN
    finally:
        reactor.guard.uninstall()
        reactor.close()
    assert signal.getsignal(signal.SIGUSR1) is handler


def test_two_that_are_raised_while_a_message_is_dispatched_come_as_the_one_while_the_other_is_handled(reactor: Reactor) -> None:
    signal.signal(signal.SIGUSR1, alarm)

    def both() -> None:
        signal.raise_signal(signal.SIGUSR1)
        signal.raise_signal(signal.SIGINT)

    assert dispatched(reactor, both) == ["begun", "ended", "KeyboardInterrupt", "Alarm"]
    assert dispatched(reactor, lambda: signal.raise_signal(signal.SIGUSR1)) == ["begun", "ended", "Alarm"]


def test_what_is_raised_while_the_lock_is_owned_comes_once_it_is_free(handlers: None) -> None:
    calls: list[int] = []

    def count(number: int, frame: Any) -> None:
        calls.append(number)
        raise Alarm

    guard = InterruptGuard()
    soon: list[Callable[[], None]] = []
    guard.lock, guard.again = threading.RLock(), soon.append
    guard.install()
    try:
        signal.signal(signal.SIGUSR1, count)
        with guard.lock:
            signal.raise_signal(signal.SIGUSR1)
        with pytest.raises(Alarm):
            soon.pop()()
        assert calls == [signal.SIGUSR1] and soon == []
    finally:
        guard.uninstall()


def test_an_interrupt_that_is_dismissed_takes_no_error_of_a_handler_along(reactor: Reactor) -> None:
    signal.signal(signal.SIGUSR1, alarm)
    guard = reactor.guard
    guard.dismiss()
    signal.raise_signal(signal.SIGINT)
    signal.raise_signal(signal.SIGINT)
    guard.dismiss()
    guard.admit()
    guard.dismiss()
    signal.raise_signal(signal.SIGUSR1)
    guard.dismiss()
    with pytest.raises(Alarm):
        guard.admit()


def test_sigterm_ends_a_driver_in_order_and_nobody_else(reactor: Reactor) -> None:
    guard = reactor.guard
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL  # this reactor is no driver's
    guard.uninstall()
    guard.terminated = interrupts.end_program
    guard.install()
    with pytest.raises(SystemExit) as caught:
        signal.raise_signal(signal.SIGTERM)
    assert caught.value.code == signal.SIGTERM
    guard.uninstall()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_handler_of_sigterm_that_the_program_has_stays(reactor: Reactor) -> None:
    came: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: came.append(number))
    reactor.guard.uninstall()
    reactor.guard.terminated = interrupts.end_program
    reactor.guard.install()
    signal.raise_signal(signal.SIGTERM)
    assert came == [signal.SIGTERM]


def test_sigterm_that_comes_while_a_message_is_dispatched_comes_after_it(reactor: Reactor) -> None:
    reactor.guard.uninstall()
    reactor.guard.terminated = interrupts.end_program
    reactor.guard.install()
    dispatched = []

    def dispatch() -> None:
        signal.raise_signal(signal.SIGTERM)
        dispatched.append(True)

    reactor.defer(dispatch)
    with pytest.raises(SystemExit):
        reactor.wait_until(lambda: False)
    assert dispatched


def test_a_forked_child_has_the_handlers_of_a_process_without_a_session(reactor: Reactor) -> None:
    guard = reactor.guard
    guard.uninstall()
    guard.terminated = interrupts.end_program
    guard.install()
    child = os.fork()
    if not child:
        try:
            guard.abandon()
            well = signal.getsignal(signal.SIGTERM) is signal.SIG_DFL and signal.getsignal(signal.SIGINT) is signal.default_int_handler
            os._exit(0 if well and signal.signal is install_handler else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
