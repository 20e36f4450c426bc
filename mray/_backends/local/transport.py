"""Messages between the simulated processes of a session: the runtime's connections and reactors, without sockets and threads.

A message is a callback of the run token: it is dispatched at the next decision, in the order in which messages were sent, by the thread
that chooses. So the runtime above sees what it sees natively: messages that arrive later, never in the middle of something.
"""

from __future__ import annotations

import select
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mray._backends.local.run_token import RunToken, here
from mray._common.log import logger
from mray._ipc.closed_descriptors import ClosedDescriptors
from mray._ipc.connection import Connection, HangupCallback, Message, MessageCallback
from mray._ipc.interrupts import InterruptGuard
from mray._ipc.reactor import Reactor
from mray._ipc.waiting import Predicate

if TYPE_CHECKING:
    from mray._ipc.reactor import Flushable


class _NoSocket:
    """Stands for the socket of a conversation, which has none."""

    def setblocking(self, _flag: bool) -> None:
        pass

    def fileno(self) -> int:
        return -1


class LocalConnection(Connection):
    """One end of a conversation between two of our processes."""

    __slots__ = ("_run_token", "home", "other")

    def __init__(self, run_token: RunToken, on_message: MessageCallback, on_hangup: HangupCallback) -> None:
        super().__init__(_NoSocket(), None, on_message, on_hangup)  # type: ignore[arg-type]
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
        """Nothing is held back."""

    def readable(self, buffer: memoryview) -> None:
        """Nothing lies unread: what was sent before a death is dispatched before it."""

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            if self.other is not None:
                self._run_token.call_soon(self.other.hang_up)

    def is_cut(self) -> bool:
        return self.closed

    def drain(self, timeout: float) -> bool:
        return True

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other


def _deliver(connection: LocalConnection, message: Message) -> None:
    if connection.closed:
        return
    was, here.process = here.process, connection.home
    try:
        connection.on_message(connection, message)
    except Exception:
        # A bug of ours: the messages behind this one must not be lost with it.
        logger.exception("message %s from %r failed", message[:1], connection)
    finally:
        here.process = was


#: Called with messages for a process, called when a peer hangs up, and the process (None: the node).
End = tuple[MessageCallback, HangupCallback, Any]


def connect(run_token: RunToken, here: End, there: End) -> LocalConnection:
    """A conversation; returns this end of it."""
    mine, others = LocalConnection(run_token, *here[:2]), LocalConnection(run_token, *there[:2])
    mine.other, others.other = others, mine
    mine.home, others.home = here[2], there[2]
    return mine


class LocalReactor(Reactor):
    """The waiting place of a simulated process: all of them wait at the run token."""

    def __init__(self, run_token: RunToken) -> None:
        self.run_token = run_token
        #: The process that it belongs to; set once there is one.
        self.process: Any = None
        self.asleep = False
        self.activity = self.waits = 0
        self.closed = False
        self.guard = InterruptGuard(self.defer, self.call_later)
        self.closed_descriptors = ClosedDescriptors()
        self.table = None
        self.row = 0
        self.spinner = None
        self.wakeup_fd = -1
        self.wakeup_fds = ()
        self.is_over = False
        #: Descriptor -> the poller that looks whether there is something to read.
        self._watched: dict[int, Callable[[], None]] = {}

    def _call(self, callback: Callable[[], None]) -> None:
        """Call as this process."""
        was, here.process = here.process, self.process
        try:
            callback()
        finally:
            here.process = was

    def call_later(self, seconds: float, callback: Callable[[], None]) -> None:
        self.run_token.call_later(seconds, lambda: self._call(callback))

    def defer(self, callback: Callable[[], object]) -> None:
        self.run_token.call_soon(self._call, callback)

    def post_later(self, held: Flushable) -> None:
        held.flush()

    def flush(self) -> None:
        """Nothing is held back."""

    @property
    def has_unsent(self) -> bool:
        return False

    def has_room_for_ring(self) -> bool:
        return False

    def wake_background_reader(self) -> None:
        """Messages are delivered at each decision: nothing to do."""

    def keep_background_ticking(self) -> None:
        """Nothing is held back."""

    def wake(self) -> None:
        """Make a decision, at which every predicate is asked."""
        self.run_token.call_soon(_nothing)

    def run_once(self, timeout: float | None = None) -> int:
        self.run_token.pause()
        return self.activity

    def run_deferred(self) -> None:
        self.run_token.run_callbacks()

    def wait_until(
        self, predicate: Predicate, timeout: float | None = None, *, spin: bool = True, before_sleep: Callable[[], None] | None = None
    ) -> bool:
        if before_sleep is not None:
            before_sleep()
        return self.run_token.wait_until(predicate, timeout)

    def is_amidst(self) -> bool:
        return self.run_token.is_in_callbacks or self.guard.owns_lock()

    def add_poller(self, poller: Callable[[], None]) -> None:
        self.run_token.pollers.append(poller)

    def remove_poller(self, poller: Callable[[], None]) -> None:
        if poller in self.run_token.pollers:
            self.run_token.pollers.remove(poller)

    def watch_edge(self, fd: int, callback: Callable[[int], None]) -> None:
        poll = select.poll()
        poll.register(fd, select.POLLIN)

        def look() -> None:
            if poll.poll(0):
                callback(select.POLLIN)

        self._watched[fd] = look
        self.add_poller(look)

    def forget(self, fd: int) -> None:
        look = self._watched.pop(fd, None)
        if look is not None:
            self.remove_poller(look)

    def look(self) -> bool:
        self.run_token.pause()
        return True

    def start_background_reader(self) -> None:
        """There is no such thread."""

    def close(self) -> None:
        self.closed = True

    def abandon(self) -> None:
        self.closed = True


def _nothing() -> None:
    pass
