"""`SimulatedProcess`: the driver's process, or a worker's, in which simulated threads run.

The holder of the run token acts in it.
"""

from __future__ import annotations

import sys
import weakref
from asyncio import CancelledError, events
from collections import deque
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from mray._backends.local.environment import EnvironmentVariables
from mray._backends.local.local_doorbells import LocalDoorbells
from mray._backends.local.local_memory import HeapMemory
from mray._backends.local.loops import close_loops
from mray._backends.local.run_token import SimulatedThread, here
from mray._backends.local.transport import LocalReactor, LocalTransport, NodeOfMembers
from mray._common.clock import Clock
from mray._common.log import logger
from mray._inside.client import Client
from mray._inside.platform import Platform, ProcessEnded

if TYPE_CHECKING:
    from mray._inside.platform import Worker

#: Decisions for which the end of a session waits until callbacks have run.
_MOST_DECISIONS = 1000


class NodeOfProcesses(NodeOfMembers, Protocol):
    directory: str
    memory: HeapMemory

    def bury(self, here: SimulatedProcess, status: int | None) -> None: ...


class ProcessExit(ProcessEnded):
    """Carries the status that a real process would have had."""

    def __init__(self, status: int) -> None:
        super().__init__()
        self.status = status


class SimulatedProcess:
    """A process of the session. The driver has no worker."""

    def __init__(
        self,
        node: NodeOfProcesses,
        process: str,
        role: str,
        env_vars: EnvironmentVariables | None,
        pid: int,
    ) -> None:
        self.node = node
        self.run_token = run_token = node.run_token
        self.reactor = LocalReactor(run_token, self)
        clock = Clock(lambda: run_token.clock, is_real=False)
        platform = Platform(clock, LocalTransport(node, self.reactor), node.memory, LocalDoorbells)
        self.client = Client(node.directory, process, role, platform)
        self.pid = pid
        self.worker: Worker | None = None
        #: Set while one of its threads runs; None: the driver's.
        self.env_vars = env_vars
        self.sim_threads: list[SimulatedThread] = []
        self.at_exit: list[tuple[Callable[..., object], tuple[Any, ...], dict[str, Any]]] = []
        #: Classes unpickled by value, by cloudpickle's ids.
        self.classes: weakref.WeakValueDictionary[str, type] = weakref.WeakValueDictionary()
        self.dead = False
        self._callbacks: deque[Callable[[], None]] = deque()
        self._caller: SimulatedThread | None = None
        self.backend: Any = None

    # ------------------------------------------------------------------------------------ threads
    def start_thread(self, target: Callable[[], None], name: str) -> None:
        def run() -> None:
            try:
                target()
            finally:
                self.close_loops()

        self.sim_threads.append(self.run_token.spawn(name, run, self))

    def close_loops(self) -> None:
        assert self.worker is not None
        close_loops(self.worker.groups.drop_all)  # nothing begins in a loop that ends

    def interrupt(self) -> None:
        """Raise KeyboardInterrupt at the main thread's next scheduling point."""
        for sim_thread in self.sim_threads[:1]:
            self.run_token.throw(sim_thread, KeyboardInterrupt(), self._is_interrupt_wanted)

    def _is_interrupt_wanted(self) -> bool:
        guard = self.reactor.guard
        is_wanted = guard.is_wanted()
        if is_wanted:
            guard.landed()
        return is_wanted

    # ------------------------------------------------------------------------------------ its resources
    def set_title(self, text: str) -> None:
        """Do nothing: `ps` shows the driver's command."""

    def set_variable(self, name: str, value: str | None) -> None:
        assert self.env_vars is not None
        self.env_vars.restore(name, value)

    def confine(self, cpus: Collection[int] | None) -> None:
        """Do nothing: CPUs are shared."""

    def set_native_threads(self, count: int) -> None:
        """Do nothing: the threads of libraries are shared."""

    def mark_output(self, name: str) -> None:
        """Do nothing: output is not captured."""

    # ------------------------------------------------------------------------------------ its end
    def leave_graphs(self) -> None:
        """Release the memory of graphs, which no kernel frees, without notifying other processes. The main thread's last act."""
        host = self.backend.graphs.made
        if host is not None:
            for graph in list(host.graphs):
                graph.abandon()
            if host.service is not None:
                host.service.close_all()

    def is_forked(self) -> bool:
        return False

    def set_alarm(self, seconds: float) -> None:
        """Do nothing: no thread can be ended between scheduling points."""

    def finalize(self, *, kills_children: bool) -> None:
        while self.at_exit:
            function, args, kwargs = self.at_exit.pop()
            try:
                function(*args, **kwargs)
            except ProcessEnded:
                raise
            except BaseException:
                sys.excepthook(*sys.exc_info())

    def exit(self, status: int) -> None:
        """Does not return in a thread of the process; the other threads end at their next scheduling point."""
        sim_thread = here.sim_thread
        if sim_thread is None or sim_thread.process is not self or self.run_token.is_in_callbacks:
            self.end(status)
            return
        if not sim_thread.final:
            self.end(status)
        if events._get_running_loop() is not None:  # noqa: SLF001  (asyncio's)
            raise CancelledError  # asyncio logs a task that ends with anything else
        raise ProcessExit(status)

    def exit_here(self, status: int) -> NoReturn:
        self.end(status)
        raise ProcessExit(status)

    def end(self, status: int) -> None:
        self.node.bury(self, status)

    def terminate(self) -> None:
        assert self.worker is not None
        error = self.worker.terminate()
        if error is None:
            return
        self.reactor.wake()
        if here.process is self:
            raise error
        for sim_thread in self.sim_threads[:1]:
            self.run_token.throw(sim_thread, error)

    # ------------------------------------------------------------------------------------ callbacks
    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call a user callback on a simulated thread of this process, since it may wait."""
        self._callbacks.append(callback)
        if self._caller is None and not self.dead:
            name = self.sim_threads[0].name if self.sim_threads else "the driver"
            self._caller = self.run_token.spawn(f"callbacks of {name}", self._call, self)
            self._caller.serves = True
            self.sim_threads.append(self._caller)

    def finish_callbacks(self) -> None:
        """Run due callbacks before the session's threads end; those that wait are abandoned."""
        for _ in range(_MOST_DECISIONS):
            self.run_token.pause()
            if not self._callbacks:
                break

    def _call(self) -> None:
        run_token, callbacks = self.run_token, self._callbacks
        while True:
            run_token.wait_until(callbacks.__len__, None)
            try:
                callbacks.popleft()()
            except Exception:
                logger.exception("a callback failed")
            run_token.pause()
