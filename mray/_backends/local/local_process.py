"""`Process`: a simulated process, in which simulated threads run.

The driver's, or that of a worker. The thread that has the run token acts in it.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mray._backends.local.environment import EnvironmentVariables
from mray._backends.local.local_client import LocalClient
from mray._backends.local.run_token import SimulatedThread
from mray._common.log import logger

if TYPE_CHECKING:
    from mray._runtime.worker.worker import Worker

#: Decisions for which the end of a session waits until callbacks have run.
_MOST_DECISIONS = 1000


class Process:
    """A simulated process: the driver, or a worker."""

    def __init__(
        self,
        client: LocalClient,
        worker: Worker | None,
        env_vars: EnvironmentVariables | None,
        pid: int,
        bury: Callable[[Process, int], None],
    ) -> None:
        self.client = client
        #: The value of `os.getpid` in it.
        self.pid = pid
        self.worker = worker
        #: Set only while one of its simulated threads runs; None: the driver's.
        self.env_vars = env_vars
        self.sim_threads: list[SimulatedThread] = []
        #: Hooks of `atexit.register` in it: function, arguments.
        self.at_exit: list[tuple[Callable[..., object], tuple[Any, ...], dict[str, Any]]] = []
        #: Classes that have arrived in it by value, by cloudpickle's ids.
        self.classes: weakref.WeakValueDictionary[str, type] = weakref.WeakValueDictionary()
        self.dead = False
        self._bury = bury
        client.reactor.process = self
        self._callbacks: deque[Callable[[], None]] = deque()
        self._caller: SimulatedThread | None = None
        #: The user's verbs of this process.
        self.backend: Any = None

    def end(self, status: int) -> None:
        """Kill the process now."""
        self._bury(self, status)

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call the user's callback on a simulated thread of this process: it may wait, for a lock that another one has, say."""
        self._callbacks.append(callback)
        if self._caller is None and not self.dead:
            run_token = self.client.reactor.run_token
            name = self.sim_threads[0].name if self.sim_threads else "the driver"
            self._caller = run_token.spawn(f"callbacks of {name}", self._call, self)
            self._caller.serves = True
            self.sim_threads.append(self._caller)

    def finish_callbacks(self) -> None:
        """Let the callbacks that are due run before the session's threads end; those that wait are left behind."""
        run_token = self.client.reactor.run_token
        for _ in range(_MOST_DECISIONS):
            run_token.pause()
            if not self._callbacks:
                break

    def _call(self) -> None:
        run_token, callbacks = self.client.reactor.run_token, self._callbacks
        while True:
            run_token.wait_until(callbacks.__len__, None)
            try:
                callbacks.popleft()()
            except Exception:
                logger.exception("a callback failed")
            run_token.pause()
