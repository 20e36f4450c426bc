"""`Executions`, the interface of a compiled graph for its refs and futures; `Completions`, its callbacks.

    an event loop awaits (`mray._graph.caller.event_loop`): add(execution, callback)
    look() reads the results that have come, and calls back those whose execution is finished by now

The event loop itself looks, or the thread that reads for the process: no thread waits for a single execution. A callback means only that
a look is worth while: the execution is finished, or the graph has stopped.
"""

from __future__ import annotations

import contextlib
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from mray._ipc.spin import AdaptiveSpinner

if TYPE_CHECKING:
    from mray._channel.base import Failed
    from mray._graph.caller.limits import Limits
    from mray._graph.host import GraphHost, Service

Callback = Callable[[], None]


class Executions(Protocol):
    """The executions of one compiled graph, from `submit_nowait` to the results that are fetched. Any thread, unless said otherwise.

    Implemented by `mray._graph.caller.compiled.CompiledGraph`, whose lock guards all of it; no method is called with the lock unless
    its docstring has "lock held".
    """

    #: Takes (execution, output) of a ref that dies unread. For finalizers: takes no lock.
    note_drop: Callable[[tuple[int, int | None]], None]

    @property
    def host(self) -> GraphHost:
        """The process, as graphs see it."""

    @property
    def limits(self) -> Limits:
        """The options for its callers."""

    @property
    def runs_here(self) -> bool:
        """Whether an actor of the graph lives in this process, whose main thread must then run its program while it waits."""

    @property
    def spinner(self) -> AdaptiveSpinner:
        """How long a thread that waits for the graph spins before it sleeps."""

    @property
    def completions(self) -> Completions:
        """The callbacks of callers that wait without a thread."""

    @property
    def finished(self) -> int:
        """The number of finished executions: all their results have come, or they have failed."""

    @property
    def is_stopped(self) -> bool:
        """Whether the graph was torn down, or can go on no more."""

    def get_id(self) -> str:
        """The graph's id."""

    # ------------------------------------------------------------------------------------ submitting
    def submit_nowait(self, value: Any, wait: bool) -> int:
        """Submit; the execution's index, or -1 when there is no room now. Without `wait` too many in flight are an error."""

    def may_submit(self) -> bool:
        """Whether `submit_nowait` would find room, or raise. Lock held."""

    def has_room(self) -> bool:
        """Whether the input channel has room."""

    def want_room(self, change: int) -> None:
        """Count callers that wait for room, by `change`: while there are any, taking or dropping a result wakes them. Lock held."""

    # ------------------------------------------------------------------------------------ fetching
    def fetch(self, index: int, output: int | None, timeout: float | None, deadline: float | None = None) -> Any:
        """Wait for a result and take it: its value or a `Failed`. RayChannelTimeoutError, or the error that has stopped the graph."""

    def take_nowait(self, index: int, output: int | None) -> Any:
        """As `fetch`, or `NOTHING` when it has not come."""

    def put_back(self, index: int, output: int | None, value: Any) -> None:
        """Undo `fetch`."""

    def error(self, failed: Failed) -> BaseException:
        """The exception of a result that is a failure."""

    def read_ahead(self, index: int) -> None:
        """Read results that have come, up to those of execution `index`, and keep them."""

    def read_up_to(self, index: int) -> None:
        """As `read_ahead`, without a limit of kept results. Lock held."""

    def any_ready(self) -> bool:
        """Whether any message of a result has come."""

    def may_finish(self) -> bool:
        """Whether the first unfinished execution can finish: all its missing results have come, or a failure has."""

    def wait_until(self, predicate: Callable[[], bool], deadline: float | None) -> bool:
        """Wait as `fetch` does; the predicate's last value."""

    # ------------------------------------------------------------------------------------ explaining; these ask the actors
    def submit_timed_out(self, timeout: float | None) -> Exception:
        """The error of an execution that could not be submitted in time."""

    def complain_of_waiting(self) -> None:
        """Log that a caller has waited for room for long."""


class Completions:
    """The callbacks of one graph. Guarded by the graph's lock; callbacks are called without it, in any thread."""

    def __init__(self, graph: Executions, lock: AbstractContextManager[bool]) -> None:
        #: Weak: waiting callers hold the graph, and these callbacks keep no caller from dropping it.
        self._of = weakref.ref(graph)
        self._lock = lock
        self._wanted: dict[int, list[Callback]] = {}
        #: The last execution that a callback was added for.
        self._furthest = -1
        #: Executions before this one have been called back.
        self._seen = 0
        #: The callbacks for room: of callers that want to submit one more.
        self._room: list[Callback] = []
        #: The callbacks that are due. Kept here, so that an interrupt in one thread loses no callback of another's.
        self._due: deque[Callback] = deque()

    @property
    def awaited(self) -> bool:
        """Whether there are callbacks."""
        return bool(self._wanted or self._room or self._due)

    def when_finished(self, index: int, callback: Callback) -> Callback:
        """Call back when execution `index` may be finished, at once if it may. Returns the function that takes that back, at any time."""
        graph = self._of()
        assert graph is not None
        with self._lock:
            waits = index >= graph.finished and not graph.is_stopped
            if waits:
                if not self._wanted:
                    self._seen = graph.finished
                self._wanted.setdefault(index, []).append(callback)
                self._furthest = max(self._furthest, index)
        if not waits:
            callback()
        return partial(self._discard, index, callback)

    def _discard(self, index: int, callback: Callback) -> None:
        with self._lock:
            callbacks = self._wanted.get(index)
            if callbacks is not None and callback in callbacks:
                callbacks.remove(callback)
                if not callbacks:
                    del self._wanted[index]

    def when_room(self, callback: Callback) -> Callback:
        """As `when_finished`, when one more execution may be submitted."""
        graph = self._of()
        assert graph is not None
        with self._lock:
            waits = not graph.may_submit()
            if waits:
                self._room.append(callback)
                graph.want_room(1)
        if not waits:
            callback()
        return partial(self._discard_room, callback)

    def _discard_room(self, callback: Callback) -> None:
        with self._lock:
            graph = self._of()
            if callback in self._room and graph is not None:
                self._room.remove(callback)
                graph.want_room(-1)

    def run_here(self, service: Service) -> None:
        """Run the actor's part in its main thread, which waits for the graph itself. In an actor of the graph."""
        graph = self._of()
        if graph is not None and graph.runs_here and service.is_its_thread():
            service.run(graph.any_ready)

    def look(self) -> None:
        """Read results up to the last execution with a callback, and call back. From any thread that does not hold the lock."""
        graph = self._of()
        if graph is None or not self.awaited:
            return
        with self._lock:
            self._find_due(graph)
        while self._due:
            with contextlib.suppress(IndexError):  # another thread has called the last one
                self._due.popleft()()

    def ready(self) -> bool:
        """Whether `look` may call back. Takes no lock."""
        graph = self._of()
        if graph is None or not self.awaited:
            return False
        if self._due or graph.is_stopped or self._seen < graph.finished:
            return True
        return graph.any_ready() or bool(self._room and graph.has_room())

    def _find_due(self, graph: Executions) -> None:
        graph.read_up_to(self._furthest if self._wanted else -1)
        due = self._due
        if self._wanted:
            finished = graph.finished
            if graph.is_stopped:
                due.extend(callback for callbacks in self._wanted.values() for callback in callbacks)
                self._wanted.clear()
            else:
                for index in range(self._seen, finished):
                    due.extend(self._wanted.pop(index, ()))
            self._seen = finished
        if self._room and graph.may_submit():
            due.extend(self._room)
            graph.want_room(-len(self._room))
            self._room.clear()
