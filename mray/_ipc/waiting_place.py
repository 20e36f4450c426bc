"""`WaitingPlace`: where a session member's threads wait, and where its messages are dispatched.

The kernel's is `mray._ipc.reactor.Reactor`, whose module says what reading means; the engine in one process has its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Protocol

from mray._ipc.waiting import Predicate

if TYPE_CHECKING:
    from mray._common.bridge import Cancel, Waitable
    from mray._ipc.closed_descriptors import ClosedDescriptors
    from mray._ipc.interrupts import InterruptGuard
    from mray._ipc.spin import Spinner
    from mray._ipc.table import SessionTable


class Flushable(Protocol):
    """Holds messages back."""

    def flush(self) -> None: ...


class WaitingPlace(Protocol):
    #: The reader may sleep long.
    asleep: bool
    #: Waits that were not over immediately.
    waits: int
    #: Counts API activity, so that the background reader keeps out of a busy thread's way.
    activity: int
    closed: bool
    #: Messages are dispatched although no thread waits and no event loop watches.
    reads_always: bool
    #: The program is over: waiting threads other than the main one end.
    is_over: bool
    guard: InterruptGuard
    closed_descriptors: ClosedDescriptors
    on_fault: Callable[[str, Exception], None]
    #: Its row of the session's table.
    row: int
    #: Eventfds that wake this process.
    wakeup_fd: int
    wakeup_fds: tuple[int, ...]

    @property
    def unflushed(self) -> Collection[Flushable]:
        """All that `post_later` was given since the last `flush`."""

    @property
    def table(self) -> SessionTable | None:
        """None: there is none yet."""

    @property
    def spinner(self) -> Spinner | None:
        """None: not yet."""

    # ------------------------------------------------------------------------------------ waiting
    def wait_until(
        self, predicate: Predicate, timeout: float | None = None, *, spin: bool = True, before_sleep: Callable[[], None] | None = None
    ) -> bool:
        """Wait until `predicate()` is true, or `timeout` seconds; returns its last value. Any thread."""

    def wait(self, waitable: Waitable, timeout: float | None = None) -> bool:
        """As `wait_until`, until it is ready."""

    def is_amidst(self) -> bool:
        """Whether the calling thread must not wait: it reads, or owns the lock under which messages are dispatched."""

    def look(self) -> bool:
        """Read what has arrived. False if another thread reads."""

    def wake(self) -> None:
        """Make the reader test its predicate again. Any thread."""

    def end_threads(self) -> None:
        """End waiting threads: the program is over. Main thread."""

    def end_thread(self) -> None:
        """End this thread, unless it is the main one."""

    # ------------------------------------------------------------------------------------ callbacks
    def call_later(self, seconds: float, callback: Callable[[], None]) -> None:
        """Call `callback` in the reading thread after `seconds`."""

    def defer(self, callback: Callable[[], object]) -> None:
        """Call `callback` soon, in the reading thread. Takes no lock: for finalizers and signal handlers."""

    def run_deferred(self) -> None:
        """Call what is deferred, now."""

    def then(self, ready: Predicate, callback: Callable[[], object]) -> Cancel:
        """Call back once, in any thread, after an iteration in which `ready()` holds. An equal callback replaces the earlier one.

        The caller tests its condition once more after this call.
        """

    def watch_edge(self, fd: int, callback: Callable[[int], None]) -> None:
        """Call `callback(events)` once whenever something new arrives, until `forget`."""

    def watch_wakeup(self, fd: int) -> None:
        """Watch an eventfd, from which nothing is dispatched."""

    def unwatch_wakeup(self, fd: int) -> None:
        """Call before the descriptor is closed."""

    def fileno(self) -> int:
        """Readable when the process has something to read, for event loops to watch."""

    def sleep_outside(self, sleeps: bool) -> None:
        """Whether an event loop's selector watches `fileno` and may sleep: peers must then ring."""

    def forget(self, fd: int) -> None:
        """Stop watching, before the descriptor is closed; ignored when it is not watched."""

    # ------------------------------------------------------------------------------------ messages that are held back
    def post_later(self, held: Flushable) -> None:
        """`held` has messages that are not flushed. Any thread."""

    def flush(self) -> None:
        """Flush what `post_later` was given."""

    # ------------------------------------------------------------------------------------ the reader in the background
    def start_background_reader(self) -> None:
        """It reads while no other thread waits."""

    def wake_background_reader(self) -> None:
        """Let it read now: something waits outside of `wait_until`."""

    def keep_background_ticking(self) -> None:
        """A thread that goes on with user code holds messages back."""

    # ------------------------------------------------------------------------------------ the end
    def close(self) -> None:
        """Stop everything; the calling thread must not be the reader. Idempotent."""

    def abandon(self) -> None:
        """In a forked child: release the parent's descriptors without a message."""
