"""The reactor: the one place where a process waits.

It watches sockets, the doorbell and timers with a single epoll. *The thread that waits is the thread that reads*.

    thread that waits          other threads that wait         background reader
    -----------------          -----------------------         ---------------------------------
    holds the reading lock,    sleep on a lock each; the       holds the lock only while no thread
    polls, dispatches,         reader wakes those whose        waits: user code computes, yet peers
    checks its predicate       predicate holds                 need answers

A thread that leaves `wait_until` passes the right to read to another waiter, if there is one. The node has one thread and calls
`run_once` in a loop. `_reader` and `asleep`:

    reader       asleep   in the session's table   the background reader
    ----------   ------   ----------------------   -----------------------------------------------------------------------------
    NO_READER    no       AWAKE                    checks each tick; if that is still so, it reads
    WAITER       no       AWAKE                    checks each tick
    WAITER       yes      PARKED                   is dormant after a tick without activity: a thread that leaves rings its alarm
    BACKGROUND   no       DOZING                   polls once, while the process is active
    BACKGROUND   yes      DOZING                   sleeps; a thread that begins to wait rings the doorbell

While a callback waits (`then`) the table says PARKED; while event loops sleep in their own selectors it says DOZING instead of AWAKE.

Callbacks run in the reading thread and must not wait unless they were deferred. Finalizers take no locks and call `defer`.
"""

from __future__ import annotations

import contextlib
import errno
import select
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

from mray._common.bridge import Cancel, Then, Waitable, nothing
from mray._common.clock import monotonic
from mray._common.kept import os, socket
from mray._common.log import logger
from mray._common.places import dispatches, frame_of, precedes_dispatch
from mray._ipc.closed_descriptors import ClosedDescriptors
from mray._ipc.connection import HangupCallback, MessageCallback, SocketConnection
from mray._ipc.doorbell import new_wakeup_fd
from mray._ipc.interrupts import LOOK_SECONDS, InterruptGuard
from mray._ipc.listener import Acceptor, ChannelAcceptor, ListenerAcceptor
from mray._ipc.memory_order import fence
from mray._ipc.spin import Spinner
from mray._ipc.table import AWAKE, DOZING, PARKED, ROW_WORDS, STATE, SessionTable
from mray._ipc.waiting import Predicate, Timers, Waiter
from mray._ipc.waiting_place import Flushable

_READ = select.EPOLLIN | select.EPOLLRDHUP
_READ_WRITE = _READ | select.EPOLLOUT
_BUFFER_BYTES = 256 * 1024

#: Ring pairs of a process: every spinning wait polls each.
MOST_RINGS = 16
#: Polls of rings between two polls of the kernel.
RING_LOOKS = 12

#: The kind of thread that reads.
NO_READER, WAITER, BACKGROUND = range(3)

#: Seconds between the background reader's checks while the process is active.
TICK = 0.004


class Reactor:
    """The kernel's `WaitingPlace`, and the `Watching` of its connections; undocumented methods are described there."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._callbacks: dict[int, Callable[[int], None]] = {}
        self._connections: dict[int, SocketConnection] = {}
        #: Edge-triggered, by descriptor.
        self._edges: dict[int, Callable[[int], None]] = {}
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._timers = Timers()
        self._deferred: deque[Callable[[], object]] = deque()
        #: Unflushed; a dict for its order and `popitem`.
        self.unflushed: dict[Flushable, None] = {}

        #: The right to read: only its holder polls and dispatches. (Reentrant: a finalizer may want it while it is being acquired.)
        self._reading = threading.RLock()
        self._owns_reading: Callable[[], bool] = self._reading._is_owned  # type: ignore[attr-defined]  # noqa: SLF001  (Python's)
        #: Set shortly after `_reading` is acquired, reset just before it is released.
        self._reader = NO_READER
        self._waiters: list[Waiter] = []
        self.asleep = False
        self.waits = 0
        self.activity = 0

        self._background_reader: threading.Thread | None = None
        self._background_alarm = threading.Lock()
        self._background_alarm.acquire()
        #: The background reader sleeps without a tick.
        self._dormant = False
        #: `activity` at its last check; None: it must read regardless of activity.
        self._looked: int | None = -1
        self.closed = False
        self.reads_always = False
        #: The program is over: waiting threads other than the main one end silently, as on Ray.
        self.is_over = False
        self.closed_descriptors = ClosedDescriptors()
        self.guard = InterruptGuard(self.defer, self.call_later)
        self.guard.reads, self.guard.wake = self._owns_reading, self._wake_all
        #: Called with a failure that belongs to no connection; the owner ends what cannot continue.
        self.on_fault: Callable[[str, Exception], None] = lambda _what, _error: None

        self.table: SessionTable | None = None
        self.row = 0
        #: A dict (writes are lost) without a table and after the end.
        self._words: Any = {}
        self._state_index = STATE
        self.spinner: Spinner | None = None
        #: This process's own threads ring it, too.
        self.wakeup_fd = new_wakeup_fd()
        self._epoll.register(self.wakeup_fd, select.EPOLLIN | select.EPOLLET)
        #: Replaced, never changed.
        self.wakeup_fds: tuple[int, ...] = (self.wakeup_fd,)
        #: Callbacks of waits without a thread, with their conditions.
        self._polled: dict[Callable[[], object], Predicate] = {}
        self._rings: tuple[SocketConnection, ...] = ()
        self._unasked = 0
        self._outside = 0
        self._acceptors: list[Acceptor] = []

    def join_table(self, table: SessionTable, row: int) -> None:
        self.table = table
        self.row = row
        self._state_index = row * ROW_WORDS + STATE
        self._words = table.words
        self._words[self._state_index] = AWAKE
        self.spinner = Spinner(table, row, table.rows_in_use)

    # ------------------------------------------------------------------------------------ what is watched
    def add_fd(self, fd: int, callback: Callable[[int], None]) -> None:
        self._callbacks[fd] = callback
        try:
            self._epoll.register(fd, _READ)
        except OSError as error:
            del self._callbacks[fd]
            raise self.closed_descriptors.found(error) from error

    def watch_wakeup(self, fd: int) -> None:
        """Wake up by this eventfd; nothing is dispatched."""
        self._epoll.register(fd, select.EPOLLIN | select.EPOLLET)
        self.wakeup_fds = (*self.wakeup_fds, fd)

    def watch_edge(self, fd: int, callback: Callable[[int], None]) -> None:
        """Call `callback(events)` in the reading thread whenever something new arrives, or spuriously, until `forget`."""
        self._callbacks[fd] = self._edges[fd] = callback
        self._epoll.register(fd, select.EPOLLIN | select.EPOLLET)

    def unwatch_wakeup(self, fd: int) -> None:
        self.wakeup_fds = tuple(each for each in self.wakeup_fds if each != fd)
        with contextlib.suppress(OSError, ValueError):
            self._epoll.unregister(fd)

    def forget(self, fd: int) -> None:
        self._connections.pop(fd, None)
        if self._callbacks.pop(fd, None) is not None:
            self._edges.pop(fd, None)
            with contextlib.suppress(OSError, ValueError):
                self._epoll.unregister(fd)

    def watch_writable(self, fd: int, wanted: bool) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._epoll.modify(fd, _READ_WRITE if wanted else _READ)

    def register(self, sock: socket.socket, on_message: MessageCallback, on_hangup: HangupCallback) -> SocketConnection:
        connection = SocketConnection(sock, self, on_message, on_hangup)
        buffer = self._buffer

        def ready(events: int) -> None:
            if events & select.EPOLLOUT:
                connection.writable()
            if events & ~select.EPOLLOUT and not connection.closed:
                connection.readable(buffer)

        self.add_fd(connection.fd, ready)
        self._connections[connection.fd] = connection
        return connection

    def has_room_for_ring(self) -> bool:
        return self.table is not None and len(self._rings) < MOST_RINGS

    def retire_idle_ring(self) -> None:
        """Retire one ring pair that was not used since the previous call."""
        idle = [connection for connection in self._rings if connection.ring_is_idle()]
        if idle:
            idle[0].retire_ring()

    def watch_ring(self, connection: SocketConnection) -> None:
        if connection not in self._rings:
            self._rings = (*self._rings, connection)

    def forget_ring(self, connection: SocketConnection) -> None:
        self._rings = tuple(each for each in self._rings if each is not connection)

    def _rings_have_entries(self) -> bool:
        for connection in self._rings:
            if connection.has_ring_entries():
                return True
        return False

    def meet(
        self, sock: socket.socket, on_message: MessageCallback, on_hangup: HangupCallback, *, checks_frames: bool = False
    ) -> SocketConnection:
        connection = self.register(sock, on_message, on_hangup)
        connection.is_unknown, connection.checks_frames = True, checks_frames
        return connection

    def serve(
        self, source: socket.socket, who: str, on_message: MessageCallback, on_hangup: HangupCallback, *, checks_frames: bool = False
    ) -> None:
        """Accept this user's connections, at a listener or a channel from the node, and read each. `who` names this process to refused
        peers.
        """

        def welcome(sock: socket.socket) -> None:
            self.meet(sock, on_message, on_hangup, checks_frames=checks_frames)

        kind = ListenerAcceptor if source.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) else ChannelAcceptor
        self._acceptors.append(kind(self, source, welcome, who))

    def call_later(self, seconds: float, callback: Callable[[], None]) -> None:
        self._timers.add(seconds, callback)
        if self.asleep:
            self.wake()

    def defer(self, callback: Callable[[], object]) -> None:
        self._deferred.append(callback)
        if self.asleep:
            self.wake()

    def post_later(self, held: Flushable) -> None:
        self.unflushed[held] = None

    def flush(self) -> None:
        unflushed = self.unflushed
        while unflushed:
            try:
                held, _none = unflushed.popitem()
            except KeyError:
                return
            held.flush()

    def wake_background_reader(self) -> None:
        self._looked = None
        if self._dormant or not (self.asleep or self._owns_reading()):
            with contextlib.suppress(RuntimeError):
                self._background_alarm.release()

    def keep_background_ticking(self) -> None:
        if self._reader == BACKGROUND:
            self.wake()
        elif self._dormant:
            with contextlib.suppress(RuntimeError):
                self._background_alarm.release()

    def wake(self) -> None:
        if not self.closed:
            self.closed_descriptors.ring(self.wakeup_fd)

    # ------------------------------------------------------------------------------------ one iteration
    @dispatches
    def run_once(self, timeout: float | None = None) -> int:
        """Poll once, for up to `timeout` seconds (None: until an event), and dispatch; returns `activity` right after the poll. Only for
        the reader, or in a process with one thread.
        """
        if self._deferred:
            self.run_deferred()
            timeout = 0  # a waiter's predicate may hold now
        if self._timers:
            timeout = self._timers.shorten(timeout)
        if self.closed_descriptors.error is not None:
            raise self.closed_descriptors.error
        try:
            events = self._epoll.poll(0) if timeout == 0 else self._sleep(timeout)
        except OSError as error:
            if self.closed_descriptors.found(error) is error:
                raise
            return self.activity
        # A callback deferred after this line is called before the next sleep.
        self.asleep = False
        polled = self.activity
        self._unasked = 0
        for connection in self._rings:
            connection.read_ring()
        callbacks = self._callbacks
        for fd, mask in events:
            callback = callbacks.get(fd)
            if callback is not None:
                try:
                    callback(mask)
                except Exception as error:
                    self.failed("A callback of the reactor", error)
        if self._polled:
            self._poll()
        if self._timers:
            for due in self._timers.take_due():
                self._call_safely(due)
        if self._deferred:
            self.run_deferred()
        return polled

    @precedes_dispatch
    def _sleep(self, timeout: float | None) -> list[tuple[int, int]]:
        if self.unflushed:
            self.flush()  # peers may wait for these
        guard = self.guard
        if guard.looks and (timeout is None or timeout > LOOK_SECONDS):
            timeout = LOOK_SECONDS
        try:
            events = guard.sleep(self._epoll.poll, timeout)
        except BaseException:  # an edge may have been reported and lost
            for callback in self._edges.values():
                callback(0)
            raise
        if not events and guard.looks:
            self.closed_descriptors.look(self._callbacks)
            self.closed_descriptors.look((self.wakeup_fd,))
        return events

    @dispatches
    def run_deferred(self) -> None:
        """Call deferred callbacks. Any thread that holds none of mray's locks."""
        deferred = self._deferred
        while deferred:
            try:
                callback = deferred.popleft()
            except IndexError:
                return
            self._call_safely(callback)

    def _call_safely(self, callback: Callable[[], object], what: str = "A callback") -> None:
        """Call; report an error instead of raising it in whichever thread reads."""
        try:
            # POINT callback due
            callback()
        except Exception as error:
            self.failed(what, error)

    def failed(self, what: str, error: Exception) -> None:
        """Report an error of this process. Any thread."""
        if not self.closed and self.closed_descriptors.error is None:
            logger.error("%s failed in process %d", what, os.getpid(), exc_info=error)
            self.on_fault(what, error)

    # ------------------------------------------------------------------------------------ waiting
    def fileno(self) -> int:
        return self._epoll.fileno()

    def look(self) -> bool:
        self.activity += 1
        if self.unflushed:
            self.flush()
        if self._owns_reading():
            self._run_once_and_notify(0)
            return True
        if not self._reading.acquire(False):
            return False
        self._reader = WAITER
        try:
            self._run_once_and_notify(0)
        finally:
            self._release_reading()
        return True

    def wait_until(
        self,
        predicate: Predicate,
        timeout: float | None = None,
        *,
        spin: bool = True,
        before_sleep: Callable[[], None] | None = None,
        then: Then | None = None,
    ) -> bool:
        """Wait until `predicate()` is true, reading meanwhile; returns its last value. Any thread.

        `timeout` in seconds: None waits forever, 0 reads what has arrived. The predicate is called often and in other threads: it must
        be quick and without side effects. Code that changes its value outside this process's dispatch must ring the doorbell or call
        `wake`. `spin=False` is for callers that have spun; `before_sleep` is called after a vain spin.
        """
        self.activity += 1
        if self.unflushed:
            self.flush()
        if predicate():
            return True
        self.waits += 1
        begun = monotonic()
        deadline = None if timeout is None else begun + timeout
        # A deferred user callback may wait in the reading thread.
        reads = self._owns_reading()
        spinner = self.spinner if spin else None
        try:
            if not reads:
                if not self._reading.acquire(False):
                    if before_sleep is not None:
                        before_sleep()
                    if not self._become_reader(predicate, deadline, then):
                        return bool(predicate())
                self._reader = WAITER
                if self.closed and predicate():
                    return True  # the session ended meanwhile
            if spinner is not None and spinner.spin(partial(self._look_for, predicate), takes_turns=True, deadline=deadline):
                return True
            if before_sleep is not None:
                before_sleep()
            while True:
                remaining = None if deadline is None else deadline - monotonic()
                if remaining is not None and remaining <= 0:
                    self._run_once_and_notify(0)
                    return bool(predicate())
                self._park(predicate, remaining)
                if predicate():
                    if self.spinner is not None:
                        self.spinner.slept(monotonic() - begun)
                    return True
        finally:
            if not reads and self._owns_reading():
                self._release_reading()

    def wait(self, waitable: Waitable, timeout: float | None = None) -> bool:
        """As `wait_until`; a thread that is not the reader sleeps until it is called back."""
        return self.wait_until(waitable.ready, timeout, then=waitable.then)

    def is_amidst(self) -> bool:
        return self._owns_reading() or self.guard.owns_lock()

    def _become_reader(self, predicate: Predicate, deadline: float | None, then: Then | None) -> bool:
        """Become the reader (True), or sleep until the predicate holds or the deadline has passed (False)."""
        reading = self._reading
        if reading.acquire(False):
            return True
        waiter = Waiter(predicate if then is None else _never)
        self._waiters.append(waiter)
        cancel: Cancel = nothing
        try:
            while True:
                if reading.acquire(False):
                    return True
                if predicate():
                    return False
                if then is not None:  # each time: the predicate may no longer hold after the callback
                    cancel()
                    cancel = then(waiter.wake)
                # It stops reading when a thread waits, and wakes a waiter.
                if self._reader == BACKGROUND and self.asleep and not self.closed and not self.closed_descriptors.ring(self.wakeup_fd):
                    raise self.closed_descriptors.found(OSError(errno.EBADF, ""))
                remaining = None if deadline is None else deadline - monotonic()
                if remaining is not None and remaining <= 0:
                    return False
                self.guard.sleep(waiter.lock.acquire, True, self.guard.longest(remaining))
                if self.is_over:
                    self.end_thread()
        finally:
            cancel()
            self._waiters.remove(waiter)
            # A thread that stopped reading may have woken this one to take over.
            if self._reader == NO_READER:
                self._offer_reading()

    def _release_reading(self) -> None:
        self._reader = NO_READER
        self._reading.release()
        if self._waiters or self._dormant:
            self._offer_reading()
        if self._outside:
            self._tell_of_outside()

    def _offer_reading(self) -> None:
        for waiter in self._waiters:
            waiter.wake()
            return
        if self._dormant:
            self._dormant = False
            with contextlib.suppress(RuntimeError):
                self._background_alarm.release()

    @dispatches
    def _look_for(self, predicate: Predicate) -> bool:
        rings = self._rings
        for connection in rings:
            self._unasked += 1
            ring = connection.inward
            if ring is None:
                continue
            reader = ring.reader
            if reader.words[reader.published] > reader.next and connection.read_ring():
                if self._waiters:
                    self._notify()
                if predicate():
                    return True
        if rings and self._unasked < RING_LOOKS:
            return False
        self._run_once_and_notify(0)
        return bool(predicate())

    def _park(self, predicate: Predicate, timeout: float | None) -> None:
        self.asleep = True
        try:
            if self.is_over:
                self.end_thread()
            # SYNC POINT bell: publish, fence, read the sleeper's word | write the own word, fence, look again.
            self._words[self._state_index] = PARKED
            fence()
            # POINT sleep announced
            if (
                self._deferred
                or predicate()
                or (self._waiters and self._any_waiter_ready())
                or (self._rings and self._rings_have_entries())
            ):
                timeout = 0
            self._run_once_and_notify(timeout)
            if self.is_over:
                self.end_thread()
        finally:
            self.asleep = False
            self._set_state(AWAKE)

    def _any_waiter_ready(self) -> bool:
        return any(waiter.predicate() for waiter in tuple(self._waiters))

    def _run_once_and_notify(self, timeout: float | None) -> None:
        self.run_once(timeout)
        if self._waiters:
            self._notify()

    def _notify(self) -> None:
        for waiter in tuple(self._waiters):
            if waiter.predicate():
                waiter.wake()

    # ------------------------------------------------------------------------------------ waiting without a thread
    def then(self, ready: Predicate, callback: Callable[[], object]) -> Cancel:
        """Call back once, in any thread, when a condition may hold that peers change before they ring.

        The reader calls `ready` after each iteration: it must be quick, and runs in any thread. The caller checks the condition once
        more after this call. An equal callback replaces the earlier one.
        """
        self._polled[callback] = ready
        # SYNC POINT bell: publish, fence, read the sleeper's word | write the own word, fence, look again.
        self._words[self._state_index] = PARKED
        fence()
        return partial(self._cancel, callback)

    def _cancel(self, callback: Callable[[], object]) -> None:
        self._polled.pop(callback, None)
        # Only the reader knows that no thread sleeps; otherwise peers ring needlessly until it wakes up.
        if not self._polled and self._reading.acquire(False):
            self._set_state(AWAKE)
            self._release_reading()

    @dispatches
    def _poll(self) -> None:
        for callback, ready in tuple(self._polled.items()):
            try:
                if ready() and self._polled.pop(callback, None) is not None:  # another thread may have taken it
                    callback()
            except Exception:
                logger.exception("A callback failed")

    def sleep_outside(self, sleeps: bool) -> None:
        self._outside += 1 if sleeps else -1
        self._tell_of_outside()

    def _tell_of_outside(self) -> None:
        """Publish whether a loop may sleep outside. If another thread reads, it does so when it leaves."""
        if self.closed or not self._reading.acquire(False):
            return
        # SYNC POINT bell: publish, fence, read the sleeper's word | write the own word, fence, look again.
        self._set_state(AWAKE)
        fence()
        if self._outside and self._rings_have_entries():
            self.wake()
        self._reading.release()
        self._offer_reading()

    def _set_state(self, state: int) -> None:
        """AWAKE or DOZING (peers need not ring), unless a callback waits."""
        self._words[self._state_index] = DOZING if self._outside else state
        # Invariant: the state is PARKED while a callback waits. It was briefly something else, so the conditions are checked again. (A
        # callback added later sets the state.)
        if self._polled:
            self._words[self._state_index] = PARKED
            fence()
            self._poll()

    # ------------------------------------------------------------------------------------ reading in the background
    def start_background_reader(self) -> None:
        thread = threading.Thread(
            target=lambda: self._call_safely(self._run_background_reader, "The background reader"), name="mray-reader", daemon=True
        )
        thread.start()
        self._background_reader = thread

    def _run_background_reader(self) -> None:
        active = True
        alarm = self._background_alarm
        while not self.closed and self.closed_descriptors.error is None:
            # A reader that has slept for a tick needs no help until it leaves: it sees the flag then, or this thread sees that it has left.
            # Wake-ups by frequent readers would cost more than the ticks.
            self._dormant = not active
            if not (self.asleep and self._looked == self.activity):
                self._dormant = False
            alarm.acquire(True, -1 if self._dormant else TICK)
            self._dormant = False
            if self.unflushed:
                self.flush()
            active = self._looked not in (None, self.activity)
            self._looked = self.activity
            if self._waiters or not self._reading.acquire(False):
                continue
            self._reader = BACKGROUND
            try:
                self._read_in_background(0 if active else None)
            finally:
                self._release_reading()

    def _read_in_background(self, timeout: float | None) -> None:
        seen = self.activity
        while not self.closed and not self._waiters and self.closed_descriptors.error is None:
            self.asleep = timeout != 0
            if not self._polled:
                self._set_state(DOZING)
            if self._rings:
                # SYNC POINT bell: publish, fence, read the sleeper's word | write the own word, fence, look again.
                fence()
            try:
                polled = self.run_once(0 if self._deferred or self._rings_have_entries() or self._waiters else timeout)
            finally:
                self.asleep = False
                self._set_state(AWAKE)
            # Activity of its own callbacks is no sign that another thread is about to read.
            if timeout == 0 or seen != polled:
                return
            seen = self.activity

    # ------------------------------------------------------------------------------------ ending
    def end_threads(self) -> None:
        self.is_over = True
        self._wake_all()

    def _wake_all(self) -> None:
        self.wake()
        for waiter in tuple(self._waiters):
            waiter.wake()

    @staticmethod
    def end_thread() -> None:
        if threading.current_thread() is not threading.main_thread():
            raise SystemExit

    def close(self) -> None:
        if self.closed:
            return
        self.wake()
        self.closed = True
        self._words = {}
        self._polled.clear()
        with contextlib.suppress(RuntimeError):
            self._background_alarm.release()
        is_broken = not self.closed_descriptors.ring(self.wakeup_fd) or self.closed_descriptors.error is not None
        thread = self._background_reader
        if thread is not None and thread is not threading.current_thread() and not is_broken:
            thread.join()
        for waiter in tuple(self._waiters):
            waiter.wake()
        # Give a reading thread time to leave.
        if self._reading.acquire(True, 5.0):
            self._reading.release()
        if is_broken:
            return
        self._epoll.close()
        os.close(self.wakeup_fd)
        for acceptor in self._acceptors:
            acceptor.close()

    def abandon(self) -> None:
        """In a forked child: close the parent's descriptors without a message to any peer. Idempotent.

        Each holder closes its own descriptors and records that, since the numbers are reused. Watched ones stay open.
        """
        if self.closed:  # the numbers may be reused
            return
        self.closed = True
        self._words = {}
        self.guard.abandon()
        self._callbacks.clear()
        self.unflushed.clear()
        self._deferred.clear()
        if self.closed_descriptors.error is not None:
            return
        for connection in self._connections.values():
            connection.abandon()
        self._connections.clear()
        for acceptor in self._acceptors:
            acceptor.close()
        self._epoll.close()
        os.close(self.wakeup_fd)
        self.wakeup_fd = -1
        self.wakeup_fds = ()


def _never() -> bool:
    return False


def reading_frame(innermost: FrameType) -> FrameType:
    """The frame that reads messages, below the handler that it runs; `innermost` where there is none."""
    return frame_of(Reactor.run_once.__code__, innermost) or innermost
