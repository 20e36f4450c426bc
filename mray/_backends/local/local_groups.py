"""Concurrency groups of a simulated process: each of their threads is a simulated thread, each loop waits cooperatively.

The native ones (`mray._runtime.worker.concurrency_groups`) run unchanged otherwise: they decide where each call runs and in which order
calls begin.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from mray._backends.local.run_token import ThreadEnded
from mray._graph.actor.coroutines import own_loop, use_loop
from mray._runtime.worker.concurrency_groups import ConcurrencyGroups

if TYPE_CHECKING:
    from mray._backends.local.local_client import LocalClient


def _runs_now(loop: Any) -> bool:
    """Whether a thread is inside the loop. A loop itself may say so between two of its turns, too."""
    return bool(sys.modules["asyncio"].BaseEventLoop.is_running(loop))


def _number_of(task: Any) -> tuple[int, str]:
    """Sort tasks in the order in which they were made, unless the user has named them."""
    name = str(task.get_name())
    return len(name), name


class LocalConcurrencyGroups(ConcurrencyGroups):
    """All concurrency groups of one actor."""

    client: LocalClient

    def prepare(self, spec: dict[str, Any]) -> Callable[..., None] | None:
        construct = super().prepare(spec)
        if self.main is not None:
            use_loop(self.main.loop)
        return construct

    def start_thread(self, target: Callable[[], None], name: str) -> None:
        process = self.client.reactor.process

        def run() -> None:
            try:
                target()
            finally:
                self.close_loops()

        process.sim_threads.append(process.client.reactor.run_token.spawn(name, run, process))

    def close_loops(self) -> None:
        """The calling simulated thread is over: close its event loops. Tasks that have not ended are dropped without a message."""
        loops = [own_loop()]
        for group_executor in (self._executors or {}).values():
            state = vars(group_executor)
            if state.get("_thread") == threading.get_ident():
                loops.append(state["_loop"])
        for loop in loops:
            if loop is not None and not loop.is_closed() and not _runs_now(loop):
                for group_executor in (self._executors or {}).values():
                    group_executor.drop_all()  # nothing begins in a loop that ends
                for task in sorted(sys.modules["asyncio"].all_tasks(loop), key=_number_of):
                    task._log_destroy_pending = False  # noqa: SLF001  (asyncio's)
                    with contextlib.suppress(BaseException):
                        # Now, not whenever the garbage collector or the interpreter's end comes to it. Its ``finally`` clauses run.
                        task.get_coro().close()
                loop.close()

    def crash(self) -> NoReturn:
        error = sys.exc_info()[1]
        if not isinstance(error, (ThreadEnded, GeneratorExit)):  # GeneratorExit is raised by `close_loops`
            sys.excepthook(*sys.exc_info())
            self.client.reactor.process.end(1)
        asyncio = sys.modules.get("asyncio")
        if asyncio is not None and asyncio._get_running_loop() is not None:  # noqa: SLF001  (asyncio's)
            raise asyncio.CancelledError  # asyncio logs a task that ends with anything else
        raise ThreadEnded
