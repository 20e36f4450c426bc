"""Messages between the simulated processes of a session: the runtime's connections and reactors, without sockets and threads.

A message is a callback of the run token: the thread that makes the next decision dispatches it, in the order of sending, between
operations.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Protocol

from mray._backends.local.run_token import RunToken, here
from mray._common.bridge import Cancel, Waitable
from mray._common.log import logger
from mray._inside.client import Connection
from mray._inside.platform import AdaptiveSpinner, ClosedDescriptors, InterruptGuard, Message, Spinner

if TYPE_CHECKING:
    from mray._inside.platform import Callbacks


class LocalConnection(Connection):
    __slots__ = ("_run_token", "home", "other")

    def __init__(self, run_token: RunToken, callbacks: Callbacks) -> None:
        super().__init__(*callbacks)
        self._run_token = run_token
        self.other: LocalConnection | None = None
        #: The process at this end; None for the node.
        self.home: Any = None

    def post(self, message: Message) -> int:
        if not self.closed:
            self._run_token.callbacks.append((_deliver, (self.other, message)))
        return 0

    def send(self, message: Message) -> None:
        if not self.closed:
            self._run_token.call_soon(_deliver, self.other, message)

    def flush(self) -> None:
        """Do nothing: sending is unbuffered."""

    def read_rest(self) -> None:
        """Do nothing: earlier messages are dispatched before a death."""

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            if self.other is not None:
                self._run_token.call_soon(self.other.hang_up)

    def is_cut(self) -> bool:
        return self.closed

    def drain(self, timeout: float) -> bool:
        return True


def _deliver(connection: LocalConnection, message: Message) -> None:
    if connection.closed:
        return
    was, here.process = here.process, connection.home
    try:
        connection.deliver(message)
    except Exception:
        # A bug must not lose the messages behind this one.
        logger.exception("message %s from %r failed", message[:1], connection)
    finally:
        here.process = was


def connect(run_token: RunToken, here: Callbacks, home: Any, there: Callbacks, other_home: Any) -> LocalConnection:
    """Connect two processes (None: the node); returns this end."""
    mine, others = LocalConnection(run_token, here), LocalConnection(run_token, there)
    mine.other, others.other = others, mine
    mine.home, others.home = home, other_home
    return mine


class Listener(NamedTuple):
    callbacks: Callbacks
    home: Any


class NodeOfMembers(Protocol):
    run_token: RunToken
    #: Keyed by process id.
    listening: dict[str, Listener]

    def open(self, callbacks: Callbacks, home: Any) -> LocalConnection: ...

    def admit(self, connection: LocalConnection, role: str, process: str) -> dict[str, Any]: ...


class LocalTransport:
    def __init__(self, node: NodeOfMembers, reactor: LocalReactor) -> None:
        self.reactor = reactor
        self._node = node
        self._process = ""

    def open_node(self, sock: Any, callbacks: Callbacks) -> Connection:
        return self._node.open(callbacks, self.reactor.process)

    def enter(self, node: LocalConnection, hello: Message, callbacks: Callbacks) -> dict[str, Any] | None:
        assert node.other is not None
        _code, role, self._process, *_more = hello
        self._node.listening[self._process] = Listener(callbacks, self.reactor.process)
        return self._node.admit(node.other, role, self._process)

    def open(self, process: str, callbacks: Callbacks) -> Connection:
        there = self._node.listening.get(process)
        if there is None:
            raise ConnectionRefusedError(f"process {process} is no longer in this session")
        return connect(self._node.run_token, callbacks, self.reactor.process, *there)

    def open_socket(self, process: str, timeout: float | None) -> NoReturn:
        raise ConnectionRefusedError("processes of a session in one process have no sockets")

    def knows(self, process: str) -> bool:
        return process in self._node.listening

    def handlers(self) -> dict[int, Any]:
        return {}

    def count_alone(self, connection: Connection) -> None:
        """Do nothing: all messages are alike."""

    def leave(self) -> None:
        self._node.listening.pop(self._process, None)

    def abandon(self) -> None:
        self.reactor.abandon()
        self._node.run_token.abandon()


class NeverSpins(Spinner):
    """Spinning is futile, since no other thread computes while one waits."""

    def __init__(self) -> None:
        AdaptiveSpinner.__init__(self, 0.0)

    def may_spin(self, takes_turns: bool = False) -> bool:
        return False

    def is_oversubscribed(self) -> bool:
        return True

    def in_turns(self, window: float = 0.0) -> AdaptiveSpinner:
        return self


class LocalReactor:
    def __init__(self, run_token: RunToken, process: Any) -> None:
        self.run_token = run_token
        self.process = process
        self.asleep = self.is_over = self.closed = False
        self.reads_always = True
        self.activity = self.waits = 0
        self.unflushed: Collection[Any] = ()
        self.guard = InterruptGuard(self.defer, self.call_later)
        self.closed_descriptors = ClosedDescriptors()
        self.on_fault: Callable[[str, Exception], None] = lambda _what, _error: None
        self.table = None
        self.row = 0
        self.spinner = NeverSpins()
        self.wakeup_fd = -1
        self.wakeup_fds: tuple[int, ...] = ()
        #: Descriptor -> its poller.
        self._watched: dict[int, Callable[[], None]] = {}
        #: Keyed by the callbacks of waits without a thread.
        self._cancels: dict[Callable[[], object], Cancel] = {}

    def _call(self, callback: Callable[[], None]) -> None:
        was, here.process = here.process, self.process
        try:
            callback()
        finally:
            here.process = was

    def call_later(self, seconds: float, callback: Callable[[], None]) -> None:
        self.run_token.call_later(seconds, lambda: self._call(callback))

    def defer(self, callback: Callable[[], object]) -> None:
        self.run_token.call_soon(self._call, callback)

    def post_later(self, held: Any) -> None:
        held.flush()

    def flush(self) -> None:
        """Do nothing: sending is unbuffered."""

    def wake_background_reader(self) -> None:
        """Do nothing: decisions deliver messages."""

    def keep_background_ticking(self) -> None:
        """Do nothing."""

    def wake(self) -> None:
        """Make a decision, which checks every predicate."""
        self.run_token.call_soon(_nothing)

    def run_deferred(self) -> None:
        self.run_token.run_callbacks()

    def wait_until(
        self,
        predicate: Callable[[], object],
        timeout: float | None = None,
        *,
        spin: bool = True,
        before_sleep: Callable[[], None] | None = None,
    ) -> bool:
        if before_sleep is not None:
            before_sleep()
        with self.run_token.held():
            return self.run_token.wait_until(predicate, timeout)

    def wait(self, waitable: Waitable, timeout: float | None = None) -> bool:
        return self.wait_until(waitable.ready, timeout)

    def is_amidst(self) -> bool:
        return self.run_token.is_in_callbacks or self.guard.owns_lock()

    def then(self, ready: Callable[[], object], callback: Callable[[], object]) -> Cancel:
        pollers = self.run_token.pollers

        def poll() -> None:
            if ready():
                cancel()
                callback()

        def cancel() -> None:
            if poll in pollers:
                pollers.remove(poll)
                del self._cancels[callback]

        if callback in self._cancels:
            self._cancels[callback]()
        self._cancels[callback] = cancel
        pollers.append(poll)
        return cancel

    def watch_edge(self, fd: int, callback: Callable[[int], None]) -> None:
        poll = select.poll()
        poll.register(fd, select.POLLIN)

        def look() -> None:
            if poll.poll(0):
                callback(select.POLLIN)

        self._watched[fd] = look
        self.run_token.pollers.append(look)

    def forget(self, fd: int) -> None:
        look = self._watched.pop(fd, None)
        if look is not None:
            self.run_token.pollers.remove(look)

    def look(self) -> bool:
        self.run_token.pause()
        return True

    def watch_wakeup(self, fd: int) -> None:
        """Do nothing: decisions check waiting threads."""

    def unwatch_wakeup(self, fd: int) -> None:
        """Do nothing."""

    def fileno(self) -> int:
        return -1

    def sleep_outside(self, sleeps: bool) -> None:
        """Do nothing: no event loop watches."""

    def start_background_reader(self) -> None:
        """Do nothing: no such thread exists."""

    def end_threads(self) -> None:
        """Do nothing: they end with the session."""

    def end_thread(self) -> None:
        """As `end_threads`."""

    def close(self) -> None:
        self.closed = True

    def abandon(self) -> None:
        self.closed = True


def _nothing() -> None:
    pass
