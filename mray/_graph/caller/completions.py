"""Who is told when executions of a graph finish, without a thread that waits for each.

    an event loop awaits (`mray._graph.caller.event_loop`)         another process has asked (`mray._graph.caller.remote`)
            └───────────── add(execution, callback) ─────────────┘
    whoever looks reads what has come, and calls back what is finished by now

Looking is done by the event loop itself, or by the thread that reads for the process. A callback says only that it is worth while to
look: that the execution is finished, or that the graph has stopped.
"""

from __future__ import annotations

import contextlib
import weakref
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from mray._graph.caller.pressure import way_is_clear

if TYPE_CHECKING:
    from mray._graph.actor.loop import GraphService
    from mray._graph.caller.compiled import CompiledGraph

Callback = Callable[[], None]


class Completions:
    """The callbacks of one graph. Guarded by the graph's lock; callbacks are called without it, in any thread."""

    def __init__(self, graph: CompiledGraph) -> None:
        #: Those who wait hold the graph; nobody else is kept from dropping it.
        self._of = weakref.ref(graph)
        self._wanted: dict[int, list[Callback]] = {}
        #: The last execution that anybody has wanted.
        self._furthest = -1
        #: Executions before this one have been called back.
        self._seen = 0
        #: Of those who want to submit one more.
        self._room: list[Callback] = []
        #: What is to be called. Kept, so that an interrupt in one thread loses nothing of another's.
        self._due: deque[Callback] = deque()

    @property
    def awaited(self) -> bool:
        """Whether anybody waits for a callback."""
        return bool(self._wanted or self._room or self._due)

    def add(self, index: int, callback: Callback) -> None:
        """Call back when execution `index`, which is not finished yet, may be. Graph's lock held."""
        graph = self._of()
        assert graph is not None
        if not self._wanted:
            self._seen = graph._results.finished
        self._wanted.setdefault(index, []).append(callback)
        self._furthest = max(self._furthest, index)

    def discard(self, index: int, callback: Callback) -> None:
        """The callback is wanted no more. Safe when it was called. Graph's lock held."""
        callbacks = self._wanted.get(index)
        if callbacks is not None and callback in callbacks:
            callbacks.remove(callback)
            if not callbacks:
                del self._wanted[index]

    def add_room(self, callback: Callback) -> None:
        """Call back when one more execution may be submitted. Graph's lock held."""
        self._room.append(callback)
        graph = self._of()
        assert graph is not None
        graph._want_room(1)

    def discard_room(self, callback: Callback) -> None:
        """As `discard`."""
        graph = self._of()
        if callback in self._room and graph is not None:
            self._room.remove(callback)
            graph._want_room(-1)

    def run_here(self, service: GraphService) -> None:
        """In an actor of the graph itself: its main thread, which waits for the graph, runs the actor's part."""
        graph = self._of()
        if graph is not None and graph._runs_here and service.is_its_thread():
            service.run(graph._any_ready)

    def look(self) -> None:
        """Read what has come as far as anybody wants it, and call back. From any thread that does not hold the lock."""
        graph = self._of()
        if graph is None or not self.awaited:
            return
        with graph._lock:
            self._find_due(graph)
        while self._due:
            with contextlib.suppress(IndexError):  # another thread has called the last one
                self._due.popleft()()

    def ready(self) -> bool:
        """Whether `look` would perhaps call back. Takes no lock."""
        graph = self._of()
        if graph is None or not self.awaited:
            return False
        if self._due or graph._stopped or self._seen < graph._results.finished:
            return True
        return graph._any_ready() or bool(self._room and graph._takes_input())

    def _find_due(self, graph: CompiledGraph) -> None:
        results = graph._results
        if not graph._is_teardown:
            if results.dropped:
                results.note_dropped()
            while self._wanted and results.finished <= self._furthest:
                if not results.advance():
                    break
        due = self._due
        if self._wanted:
            if graph._stopped:
                due.extend(callback for callbacks in self._wanted.values() for callback in callbacks)
                self._wanted.clear()
            else:
                for index in range(self._seen, results.finished):
                    due.extend(self._wanted.pop(index, ()))
            self._seen = results.finished
        if self._room and (graph._stopped or (way_is_clear(graph) and graph._takes_input())):
            due.extend(self._room)
            graph._want_room(-len(self._room))
            self._room.clear()
