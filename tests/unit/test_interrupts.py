"""Interrupts, and whatever else handlers of signals raise, in the thread that waits in a reactor."""

from __future__ import annotations

import _thread
import ctypes
import os
import pickle
import signal
import socket
import sys
import threading
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from signal import signal as install_handler
from typing import Any, ClassVar

import pytest

from mray._common import dropped_errors
from mray._common import messages as m
from mray._common.clock import now
from mray._common.places import frame_of, place_of, undone
from mray._ipc import interrupts
from mray._ipc.connection import encode
from mray._ipc.interrupts import InterruptGuard
from mray._ipc.reactor import Reactor
from mray._libraries.core.test_utils import wait_for_condition
from mray._observe import observer
from mray._runtime.client.cancelling import Interrupts
from mray._runtime.session.breakpoints import Breakpoints
from mray.util import _worker_pool
from tests.faults.interrupts.steps import as_own


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


def test_two_that_come_while_a_message_is_dispatched_are_raised_one_after_the_other(reactor: Reactor) -> None:
    signal.signal(signal.SIGUSR1, alarm)
    soon: list[Callable[[], None]] = []
    later: list[Callable[[], None]] = []
    reactor.guard.again, reactor.guard.later = soon.append, lambda _seconds, callback: later.append(callback)

    def both() -> None:
        signal.raise_signal(signal.SIGUSR1)
        signal.raise_signal(signal.SIGINT)

    assert dispatched(reactor, both) == ["begun", "ended", "Alarm"]
    soon.pop()()
    again = threading.Thread(target=later.pop())
    with pytest.raises(KeyboardInterrupt):
        again.start()
        again.join()
        for _ in range(1000):
            pass
    assert dispatched(reactor, lambda: signal.raise_signal(signal.SIGUSR1)) == ["begun", "ended", "Alarm"]


class Clockwork:
    """A guard whose looking again the test calls."""

    def __init__(self) -> None:
        self.guard = InterruptGuard()
        self.soon: list[Callable[[], None]] = []
        self.later: list[Callable[[], None]] = []
        self.guard.again = self.soon.append
        self.guard.later = lambda _seconds, callback: self.later.append(callback)
        self.guard.install()

    def look_again(self) -> None:
        """As another thread does."""
        thread = threading.Thread(target=self.later.pop())
        thread.start()
        thread.join()


@pytest.fixture
def clockwork(handlers: None) -> Iterator[Clockwork]:
    clockwork = Clockwork()
    yield clockwork
    clockwork.guard.uninstall()


def signalled() -> str:
    """A function of mray's, in the middle of which a signal comes."""
    signal.raise_signal(signal.SIGUSR1)
    sorted([3, 1, 2])
    return "value"


own_signalled = as_own(signalled)


def test_an_error_comes_in_the_place_of_the_value_of_mrays_function_which_takes_it_back(clockwork: Clockwork) -> None:
    signal.signal(signal.SIGUSR1, alarm)
    given: list[Any] = []

    def take(word: str) -> str:
        signal.raise_signal(signal.SIGUSR1)
        return word + "!"

    outermost = undone(lambda local, value: given.append((local["word"], value)))(as_own(take))
    after = []
    with pytest.raises(Alarm):
        after.append(outermost("item"))
    assert given == [("item", "item!")] and after == []
    assert sys.gettrace() is None


def test_a_handler_that_does_not_raise_runs_before_the_users_next_line(clockwork: Clockwork) -> None:
    came: list[str] = []

    def note(_number: int, frame: Any) -> None:
        came.append(frame.f_code.co_name)
        with pytest.raises(RuntimeError):  # it may do anything
            raise RuntimeError

    signal.signal(signal.SIGUSR1, note)
    value = own_signalled()
    assert value == "value"
    assert came == ["test_a_handler_that_does_not_raise_runs_before_the_users_next_line"]


def test_an_error_of_mrays_gives_way_to_the_one_that_waits(clockwork: Clockwork) -> None:
    signal.signal(signal.SIGUSR1, alarm)

    def fail() -> None:
        signal.raise_signal(signal.SIGUSR1)
        raise ValueError("mray's")

    with pytest.raises(Alarm):
        as_own(fail)()


def test_a_finalizer_of_mrays_drops_no_error_and_no_lock_of_the_users_is_kept(clockwork: Clockwork) -> None:
    signal.signal(signal.SIGUSR1, alarm)

    class Ref:
        pass

    vars(Ref)  # a class of the user's, with mray's finalizer
    finalizer = as_own(lambda _self: signal.raise_signal(signal.SIGUSR1))
    path = next(path for path in [dropped_errors._DROPPING["__del__"]])
    finalizer.__code__ = finalizer.__code__.replace(co_name="__del__", co_filename=path + "x.py")
    Ref.__del__ = finalizer  # type: ignore[attr-defined]
    lock = threading.Lock()
    ref: Any = Ref()
    reached = []
    with pytest.raises(Alarm):
        with lock:
            ref = None
        reached.append(len(reached))
        reached.append(len(reached))
    assert ref is None and not lock.locked()
    assert len(reached) < 2, "it comes at the next call"


def test_where_somebody_traces_it_comes_when_somebody_looks_again(clockwork: Clockwork) -> None:
    signal.signal(signal.SIGUSR1, alarm)
    tracer = lambda *_what: None  # noqa: E731
    sys.settrace(tracer)
    try:
        value = own_signalled()
    finally:
        kept = sys.gettrace()
        sys.settrace(None)
    assert value == "value" and kept is tracer
    clockwork.soon.pop()()
    with pytest.raises(Alarm):
        clockwork.look_again()
        for _ in range(1000):
            pass
    clockwork.look_again()
    assert clockwork.later == [], "somebody looks again although it has come"


def test_an_interrupt_that_waits_for_longer_than_its_task_runs_is_not_the_next_tasks(clockwork: Clockwork) -> None:
    context: Any = types.SimpleNamespace(task_id=b"cancelled", gpu_ids=[])
    client: Any = types.SimpleNamespace(reactor=types.SimpleNamespace(guard=clockwork.guard, call_later=lambda *_: None))
    process: Any = types.SimpleNamespace(interrupt=as_own(lambda: signal.raise_signal(signal.SIGINT)))
    nobody: Any = None
    sent = Interrupts(client, nobody, context, process)

    def begin(task_id: bytes) -> None:
        context.task_id = task_id
        if sent.active:
            sent.begin(task_id)

    sys.settrace(lambda *_what: None)  # so that the handler waits until somebody looks again
    try:
        sent.cancel(b"cancelled", False, False)
    finally:
        sys.settrace(None)
    assert clockwork.guard.is_due(signal.SIGINT)
    for task_id in (b"second", b"third", b"fourth"):
        begin(task_id)
    clockwork.soon.pop()()
    clockwork.look_again()
    for _ in range(1000):
        pass
    assert not clockwork.guard.is_due(signal.SIGINT)
    for task_id in (b"fifth", b"sixth"):
        begin(task_id)
    with pytest.raises(KeyboardInterrupt):  # the user's
        signal.raise_signal(signal.SIGINT)


def test_signals_that_come_while_one_waits_do_not_nest(clockwork: Clockwork) -> None:
    deepest = 0

    def again(callback: Callable[[], None]) -> None:
        nonlocal deepest
        clockwork.soon.append(callback)
        deepest = max(deepest, len(clockwork.soon))
        if len(clockwork.soon) < 100:
            signal.raise_signal(signal.SIGUSR1)

    clockwork.guard.again = as_own(again)
    signal.signal(signal.SIGUSR1, alarm)
    with pytest.raises(Alarm):
        own_signalled()
    assert deepest == 1


def test_signals_that_come_faster_than_the_place_is_found_do_not_nest(clockwork: Clockwork, monkeypatch: pytest.MonkeyPatch) -> None:
    came = depth = deepest = looked = 0
    find = interrupts.place_of

    def place_of(*args: Any) -> Any:
        nonlocal depth, deepest, looked
        looked += 1
        depth += 1
        deepest = max(deepest, depth)
        for _ in range(3 if looked < 100 else 0):
            signal.raise_signal(signal.SIGUSR1)
            signal.raise_signal(signal.SIGUSR2)
        depth -= 1
        return find(*args)

    def note(_number: int, _frame: Any) -> None:
        nonlocal came
        came += 1

    monkeypatch.setattr(interrupts, "place_of", as_own(place_of))
    before = signal.signal(signal.SIGUSR2, note)
    try:
        signal.signal(signal.SIGUSR1, note)
        signal.raise_signal(signal.SIGUSR1)
        assert (looked, deepest, came) == (1, 1, 2), "the first one delivers both"
        own_signalled()
        assert deepest == 1 and came >= 4
    finally:
        signal.signal(signal.SIGUSR2, before)


def test_a_signal_that_meets_the_users_handler_interrupts_it(clockwork: Clockwork) -> None:
    said: list[str] = []

    def outer(_number: int, _frame: Any) -> None:
        said.append("begun")
        signal.raise_signal(signal.SIGUSR2)
        said.append("ended")

    before = signal.signal(signal.SIGUSR2, lambda _number, _frame: said.append("inner"))
    try:
        signal.signal(signal.SIGUSR1, outer)
        signal.raise_signal(signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert said == ["begun", "inner", "ended"]


def test_a_signal_costs_no_more_the_deeper_the_users_code_is(clockwork: Clockwork) -> None:
    seen: set[int] = set()
    code = (lambda: None).__code__

    class Frame:
        """One of a function of the user's, so many calls deep."""

        f_globals: ClassVar = {"__name__": "program"}
        f_code = code

        def __init__(self, depth: int) -> None:
            self.depth = depth

        @property
        def f_back(self) -> Any:
            seen.add(self.depth)
            return Frame(self.depth - 1) if self.depth else None

    came: list[int] = []
    signal.signal(signal.SIGUSR1, lambda number, _frame: came.append(number))
    innermost: Any = Frame(100_000)
    clockwork.guard.came(signal.SIGUSR1, innermost)
    assert came == [signal.SIGUSR1]
    assert len(seen) < 100


def test_a_handler_that_the_user_takes_back_does_not_run(clockwork: Clockwork) -> None:
    signal.signal(signal.SIGUSR1, alarm)

    def take_back() -> str:
        signal.raise_signal(signal.SIGUSR1)
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        return "value"

    assert as_own(take_back)() == "value"


def test_a_handler_that_has_waited_for_long_runs_wherever_mray_is(clockwork: Clockwork, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupts, "PATIENCE", 0.0)
    signal.signal(signal.SIGUSR1, alarm)
    reached: list[bool] = []

    def wait() -> None:
        signal.raise_signal(signal.SIGUSR1)
        while now() - clockwork.guard._since <= 0:
            pass
        signal.raise_signal(signal.SIGUSR1)
        reached.append(True)

    with pytest.raises(Alarm):
        as_own(wait)()
    assert reached == []


def in_thread_of_a_worker(guard: InterruptGuard, act: Callable[[], None]) -> list[BaseException]:
    """Call mray's code with no code of the user's below it; what comes out."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            act()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=as_own(run))
    thread.start()
    thread.join()
    return errors


def test_between_two_calls_an_interrupt_is_nobodys_and_an_error_is_the_next_calls(clockwork: Clockwork) -> None:
    guard = clockwork.guard
    guard.serves = True
    signal.signal(signal.SIGUSR1, alarm)

    def come(number: int) -> Callable[[], None]:
        return as_own(lambda: guard.sleep(as_own(lambda: guard.came(number, sys._getframe(1)))))

    assert in_thread_of_a_worker(guard, come(signal.SIGINT)) == []
    assert guard.late is None
    assert in_thread_of_a_worker(guard, come(signal.SIGUSR1)) == []
    assert isinstance(guard.late, Alarm)
    with pytest.raises(Alarm):
        guard.raise_late()
    assert guard.late is None
    signal.signal(signal.SIGUSR1, leave)
    assert [type(error) for error in in_thread_of_a_worker(guard, come(signal.SIGUSR1))] == [SystemExit], "it ends the worker"


def test_a_signal_that_a_fork_gets_before_it_has_left_the_session_is_the_forks() -> None:
    """A pool ends its workers by SIGTERM, as early as that."""
    child = os.fork()
    if not child:
        try:
            guard = InterruptGuard()
            guard.terminated = leave
            guard.install()
            as_own(lambda: (signal.raise_signal(signal.SIGTERM), guard.abandon()))()
        finally:
            os._exit(7)
    _pid, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGTERM


# ---------------------------------------------------------------------------------------- what another thread raises


def raise_in(ident: int | None, kind: type[BaseException] = Alarm) -> int:
    return int(ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident or 0), ctypes.py_object(kind)))


class Target(threading.Thread):
    """A thread in which errors are raised; what it has `done`, and the errors that it has `caught`."""

    def __init__(self, work: Callable[[Target], None]) -> None:
        super().__init__()
        self.work = work
        self.done: list[str] = []
        self.caught: list[str] = []
        self.begun = threading.Event()

    def run(self) -> None:
        try:
            self.work(self)
        except BaseException as error:
            self.caught.append(type(error).__name__)


def test_what_another_thread_raises_waits_until_mrays_code_ends(clockwork: Clockwork) -> None:
    over = threading.Event()

    def step(target: Target) -> None:
        target.begun.set()
        while not over.is_set():
            sorted([3, 1, 2])
        target.done.append("mray's")

    own_step = as_own(step)

    def work(target: Target) -> None:
        own_step(target)
        while True:
            target.done = target.done[:1]

    target = Target(work)
    target.start()
    target.begun.wait()
    counts: list[int] = []
    raiser = threading.Thread(target=lambda: counts.append(raise_in(target.ident)))
    raiser.start()
    for _ in range(1000):
        sorted([3, 1, 2])
    assert raiser.is_alive() and not counts
    over.set()
    raiser.join()
    target.join()
    assert (counts, target.done, target.caught) == ([1], ["mray's"], ["Alarm"])


@pytest.mark.parametrize("reads", [True, False], ids=["reader", "waiter"])
def test_what_another_thread_raises_ends_a_sleep(reactor: Reactor, reads: bool) -> None:
    over = threading.Event()
    other = threading.Thread(target=reactor.wait_until, args=(over.is_set,))
    if not reads:
        other.start()
        while not reactor.asleep:
            pass
    target = Target(lambda _target: (reactor.wait_until(lambda: False), None)[1])
    target.start()
    while frame_of(InterruptGuard.sleep.__code__, sys._current_frames().get(target.ident or 0)) is None:
        pass
    assert raise_in(target.ident) == 1
    target.join()
    assert target.caught == ["Alarm"]
    if not reads:
        over.set()
        reactor.wake()
        other.join()
    assert not reactor.wait_until(lambda: False, 0.001)


def test_what_another_thread_raises_does_not_come_into_a_message_in_hand(reactor: Reactor) -> None:
    read, write = os.pipe()
    counts: list[int] = []
    handled: list[str] = []
    target: Target
    raiser = threading.Thread(target=lambda: counts.append(raise_in(target.ident)))

    def dispatch(_events: int) -> None:
        os.read(read, 1)
        raiser.start()
        for _ in range(10_000):
            sorted([3, 1, 2])
        handled.append("whole")

    reactor.add_fd(read, dispatch)
    try:
        target = Target(lambda _target: (reactor.wait_until(lambda: False), None)[1])
        target.start()
        os.write(write, b"x")
        target.join()
        raiser.join()
        assert (counts, handled, target.caught) == ([1], ["whole"], ["Alarm"])
    finally:
        reactor.forget(read)
        os.close(read)
        os.close(write)


def test_a_thread_of_mrays_own_is_left_alone(clockwork: Clockwork) -> None:
    over = threading.Event()

    def wait(target: Target) -> None:
        target.begun.set()
        over.wait()
        target.done.append("whole")

    target = Target(as_own(wait, "mray._ipc.pretended"))
    target.run = as_own(Target.run, "mray._ipc.pretended").__get__(target)  # type: ignore[method-assign]
    target.start()
    target.begun.wait()
    assert raise_in(target.ident) == 1
    over.set()
    target.join()
    assert (target.done, target.caught) == (["whole"], [])


def test_a_thread_that_leaves_a_generator_while_its_frames_are_looked_at_is_looked_at_again(
    clockwork: Clockwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No frame is outside of a generator's then: the thread might be taken for one of mray's own."""

    def work(target: Target) -> None:
        target.begun.set()
        while True:
            target.done = target.done[:1]

    def items() -> Iterator[int]:
        yield from (1, 2)

    left = as_own(items, "mray._ipc.pretended")()
    next(left)
    frames = sys._current_frames
    looks: list[int] = []

    def look() -> dict[int, Any]:
        looks.append(1)
        return {**frames(), target.ident: left.gi_frame} if len(looks) < 3 else frames()  # type: ignore[dict-item]

    target = Target(work)
    target.start()
    target.begun.wait()
    monkeypatch.setattr(sys, "_current_frames", look)
    assert raise_in(target.ident) == 1
    target.join(10)
    assert target.caught == ["Alarm"]
    assert len(looks) >= 3


@pytest.fixture
def patient(handlers: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Handlers wait for ever for mray's code to come to its end."""
    monkeypatch.setattr(interrupts, "PATIENCE", 1e9)
    with interrupts.guarded():
        yield
        signal.setitimer(signal.ITIMER_REAL, 0)


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Sends messages as the node of a session, which each question finds connected."""
    ours, node = socket.socketpair()
    monkeypatch.setattr(observer, "_connect", lambda *_where: ours)
    yield lambda *messages: node.sendall(b"".join(map(encode, messages)))
    node.close()


def at_alarm(act: Callable[[], object]) -> None:
    signal.signal(signal.SIGALRM, lambda _number, _frame: act())
    signal.setitimer(signal.ITIMER_REAL, 0.05)


def test_a_handler_runs_while_a_session_is_asked(patient: None, answer: Callable[..., None]) -> None:
    at_alarm(lambda: answer((m.ANSWER, 1, True, "told")))
    assert observer.ask_node("", "snapshot", 20) == "told"


def test_a_handler_runs_while_processes_are_asked(patient: None, answer: Callable[..., None]) -> None:
    at_alarm(lambda: answer((m.REFUSED, "no such process")))
    assert observer.ask_processes("", ["w1"], ["calls"], 20).keys() == {"w1"}


def test_a_handler_runs_while_a_condition_is_waited_for(patient: None) -> None:
    came: list[int] = []
    at_alarm(lambda: came.append(1))
    wait_for_condition(came.__len__, timeout=5, retry_interval_ms=200)  # type: ignore[arg-type]
    assert came == [1]


def test_a_breakpoint_that_nobody_comes_to_is_left_by_an_error(patient: None, tmp_path: Path) -> None:
    breakpoints = Breakpoints(str(tmp_path), has_terminal=True, name=lambda: "f")
    signal.signal(signal.SIGALRM, alarm)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    with pytest.raises(Alarm):
        breakpoints._await_visitor(sys._getframe(), "here", "wait")
    assert [*tmp_path.glob("debug/*")] == []


@pytest.mark.parametrize("verb", ["call_with", "map", "starmap"])
def test_a_process_of_a_pool_runs_functions_of_c_as_the_users(monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    monkeypatch.setattr(_worker_pool, "current_backend", lambda: types.SimpleNamespace(flush=lambda: None))
    monkeypatch.setattr(_worker_pool, "pack", lambda values: values[0])
    arguments = {"call_with": ((), {}), "map": ([0],), "starmap": ([[0]],)}
    frame = getattr(_worker_pool.PoolMember(), verb)(pickle.dumps(sys._getframe), *arguments[verb])
    assert frame.f_code.co_name == verb
    assert place_of(frame).is_open


def test_threads_that_raise_in_each_other_do_not_wait_for_each_other(clockwork: Clockwork) -> None:
    targets: list[Target] = []

    def work(target: Target) -> None:
        target.begun.wait()
        other = targets[targets[0] is target]
        while True:
            raise_in(other.ident)

    targets[:] = [Target(work), Target(work)]
    for target in targets:
        target.start()
    for target in targets:
        target.begun.set()
    for target in targets:
        target.join(0.5)
    for target in targets:
        while target.is_alive():
            raise_in(target.ident)
        assert target.caught == ["Alarm"]


def test_a_function_of_ctypes_that_the_program_has_kept_waits_too_and_is_as_it_was_in_the_end(handlers: None) -> None:
    kept = ctypes.pythonapi.PyThreadState_SetAsyncExc
    address = ctypes.c_void_p.from_address(ctypes.addressof(kept))
    before = address.value
    guard = InterruptGuard()
    guard.install()
    try:
        assert ctypes.pythonapi.PyThreadState_SetAsyncExc is kept and address.value != before
        assert raise_in(12345) == 0, "there is no such thread"
        assert kept(ctypes.c_ulong(12345), None) == 0
        with pytest.raises(ctypes.ArgumentError):
            kept(object(), object())
        kept.argtypes = [ctypes.c_ulong, ctypes.py_object]
        assert kept(12345, Alarm) == 0
        reached = []
        with pytest.raises(Alarm):
            kept(threading.get_ident(), Alarm)
            reached.append(True)
        assert reached == []
    finally:
        kept.argtypes = None
        guard.uninstall()
    assert address.value == before
