"""Event loops whose waiting is a scheduling point.

    a loop in a thread that has the run token  ── select ──▶  CooperativeSelector: give the run token up until something is due
    callbacks in the order of asyncio                     timers by the session's clock

For every loop in a simulated thread; async actors' main loops wait cooperatively already and only get the clock. Loops other than
asyncio's own (uvloop) block all threads while they wait.
"""

from __future__ import annotations

import contextlib
import selectors
import weakref
from asyncio import base_events, events, selector_events, tasks
from collections.abc import Callable
from operator import attrgetter
from typing import Any

from mray._backends.local.run_token import RunToken, here
from mray._inside.platform import main_loop


class CooperativeSelector(selectors.BaseSelector):
    """A loop's selector; `inner` has the descriptors. For the loop's thread."""

    register, unregister, modify, get_key, get_map, close = (
        property(attrgetter(f"inner.{name}")) for name in ("register", "unregister", "modify", "get_key", "get_map", "close")
    )

    def __init__(self, run_token: RunToken, inner: selectors.BaseSelector, ready: Callable[[], bool]) -> None:
        self._run_token = run_token
        self.inner = inner
        #: Whether the loop has callbacks to run.
        self._ready = ready

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        run_token = self._run_token
        if run_token.holder() is None:
            return self.inner.select(timeout)
        if timeout is not None and timeout <= 0:
            run_token.pause()
        else:
            run_token.wait_until(self._is_due, timeout, lambda: "something to do in its event loop")
        return self.inner.select(0)

    def _is_due(self) -> bool:
        return self._ready() or bool(self.inner.select(0))


class Loops:
    def __init__(self, run_token: RunToken) -> None:
        self._run_token = run_token
        self._taken: weakref.WeakSet[Any] = weakref.WeakSet()
        base: Any = base_events.BaseEventLoop
        self._run_forever = run_forever = base.run_forever

        def run_cooperatively(loop: Any) -> None:
            sim_thread = run_token.holder()
            if sim_thread is not None:
                sim_thread.loops[loop] = None
                self.take_over(loop)
            run_forever(loop)

        base.run_forever = run_cooperatively
        running = events._get_running_loop()  # noqa: SLF001  (asyncio's)
        if running is not None:
            self.take_over(running)

    def take_over(self, loop: Any) -> None:
        if loop in self._taken or not isinstance(loop, selector_events.BaseSelectorEventLoop):
            return
        self._taken.add(loop)
        state = vars(loop)
        run_token, inner, ready = self._run_token, state["_selector"], state["_ready"]
        if loop is not main_loop():
            state["_selector"] = CooperativeSelector(run_token, inner, lambda: bool(ready))
        _shift(state["_scheduled"], run_token.clock - loop.time())
        state["time"] = lambda: run_token.clock

    def give_back(self) -> None:
        base: Any = base_events.BaseEventLoop
        base.run_forever = self._run_forever
        for loop in list(self._taken):
            state = vars(loop)
            now = state.pop("time")()
            _shift(state["_scheduled"], loop.time() - now)
            selector = state["_selector"]
            if isinstance(selector, CooperativeSelector):
                state["_selector"] = selector.inner
        self._taken.clear()


def close_loops(before: Callable[[], None]) -> None:
    """Call `before`, then close the calling thread's event loops. Unfinished tasks are dropped silently."""
    sim_thread = here.sim_thread
    assert sim_thread is not None
    for loop in dict.fromkeys((*sim_thread.loops, main_loop())):
        # (An actor's main loop says that it runs between its turns, too.)
        if loop is None or loop.is_closed() or base_events.BaseEventLoop.is_running(loop):
            continue
        before()
        for task in sorted(tasks.all_tasks(loop), key=_number_of):
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001  (asyncio's)
            with contextlib.suppress(BaseException):
                # Runs its ``finally`` clauses now, rather than at garbage collection.
                task.get_coro().close()
        loop.close()


def _number_of(task: Any) -> tuple[int, str]:
    """The sort key of tasks: creation, unless the user has named them."""
    name = str(task.get_name())
    return len(name), name


def _shift(timers: list[Any], seconds: float) -> None:
    """Move all timers, so that they keep their order."""
    for timer in timers:
        timer._when += seconds  # noqa: SLF001  (asyncio's)
