"""Workers that run under a profiler: their starts, exits, and the time that the profiler gets to write its file.

On the node's one thread, for the supervisor.

Note [wrapped workers]
----------------------
::

    node ──exec, own kernel session──▶ profiler ──any processes──▶ worker ──HELLO (its pid)──▶ node
      └──────────────── SIGCHLD: the profiler's exit                    └── pidfd: the worker's exit

The profiler is the node's child, the worker need not be. So the worker is known by the pid that it sends, its exit is seen through a
pidfd, and the worker is killed, never the profiler, which sees its program end, writes its file and exits. Callers get the error of the
death immediately; a profiler that is not done after MRAY_PROFILER_TIMEOUT is killed with all processes that it started, found by a
variable in their environments. When a profiler exits before its worker, the worker is killed.

The kernel reports a worker's exit status to its parent only. The node looks into /proc before the parent has read it; failing that, it
takes the profiler's exit code if that comes soon, as a shell's is its child's, and otherwise the death has no status.

Descriptors that a profiler opens in the worker stay open, and the node's need not pass through it: the worker opens its lifeline by a
path (see Note [lifeline] in `mray._ipc.process`), and connects to the node by name, as joining drivers do.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

from mray._common import settings
from mray._common.bridge import Cancel, nothing
from mray._common.clock import monotonic
from mray._common.kept import os
from mray._ipc import process as processes
from mray._ipc.pidfd import PidFd
from mray._ipc.reactor import Reactor
from mray._runtime.processes.launch import LIFELINE_VARIABLE, PROCESS_VARIABLE, Wrapper, launch_wrapped
from mray._runtime.processes.worker_process import WorkerProcess

#: Seconds in which a wrapper's exit code is taken for that of its worker.
_STATUS_SECONDS = 0.5
#: Exit codes of a wrapper whose worker was killed by a signal start here, as with a shell.
_SIGNALLED = 128
_LOOK_SECONDS = 0.02


class _Wrapped:
    __slots__ = ("announced", "unwatch", "worker", "wrapper")

    def __init__(self, worker: WorkerProcess, wrapper: int) -> None:
        self.worker = worker
        #: The wrapper's pid, a child of the node.
        self.wrapper = wrapper
        #: Cancels the watch of the worker, which begins once its pid is known.
        self.unwatch: Cancel = nothing
        self.announced = False


class WrappedWorkers:
    """All workers of the session that run under a wrapper."""

    def __init__(
        self,
        reactor: Reactor,
        session_dir: str,
        lifeline: int,
        options: int,
        on_died: Callable[[WorkerProcess, int | None], None],
        on_finished: Callable[[WorkerProcess], None],
    ) -> None:
        self._reactor = reactor
        self._session_dir = session_dir
        self._options = options
        #: The path of the lifeline's reading end, for the workers.
        self._lifeline = f"/proc/{os.getpid()}/fd/{lifeline}"
        self._on_died = on_died
        #: Called when the wrapper has exited too, and the pipes have no more output.
        self._on_finished = on_finished
        self._by_wrapper: dict[int, _Wrapped] = {}
        self._by_process: dict[str, _Wrapped] = {}

    def workers(self) -> list[WorkerProcess]:
        return [wrapped.worker for wrapped in self._by_wrapper.values()]

    def start(self, worker: WorkerProcess, wrapper: Wrapper, variables: dict[str, str], interpreter: Sequence[str]) -> None:
        descriptors = {0: 0, 1: worker.theirs[0], 2: worker.theirs[1]}
        variables = {**variables, LIFELINE_VARIABLE: self._lifeline}
        pid = launch_wrapped(wrapper, self._session_dir, worker.process, variables, descriptors, interpreter, self._options)
        wrapped = _Wrapped(worker, pid)
        self._by_wrapper[pid] = self._by_process[worker.process] = wrapped

    def joined(self, process: str, pid: int) -> None:
        """Watch a worker whose pid is known now; ignored if it has no wrapper."""
        wrapped = self._by_process.get(process)
        if wrapped is None:
            return
        wrapped.worker.pid = pid
        if pid == wrapped.wrapper:
            return  # a profiler inside of the worker
        try:
            wrapped.unwatch = PidFd(pid).then(self._reactor, lambda: self._worker_ended(wrapped))
        except ProcessLookupError:
            self._worker_ended(wrapped)
        except OSError:  # an old kernel: the wrapper's exit stands for the worker's
            pass

    def knows(self, process: str) -> bool:
        return process in self._by_process

    def wrapper_of(self, process: str) -> int:
        wrapped = self._by_process.get(process)
        return 0 if wrapped is None else wrapped.wrapper

    def has_session(self, number: int) -> bool:
        """Whether this is the kernel session of a wrapper or of its worker."""
        return number in self._by_wrapper or any(number == wrapped.worker.pid for wrapped in self._by_wrapper.values())

    def kill(self, process: str) -> None:
        """Kill the worker, and let the wrapper see that; kill both while the worker has not joined."""
        wrapped = self._by_process[process]
        if wrapped.worker.pid:
            processes.kill(wrapped.worker.pid)
        else:
            self._end_everything(wrapped)

    # ------------------------------------------------------------------------------------ ends
    def _worker_ended(self, wrapped: _Wrapped) -> None:
        status = processes.status_of_dead(wrapped.worker.pid)
        if status is not None:
            self._announce(wrapped, status)
        else:
            self._reactor.call_later(_STATUS_SECONDS, lambda: self._announce(wrapped, None))
        self._reactor.call_later(settings.PROFILER_TIMEOUT.get(), lambda: self._overdue(wrapped))

    def _overdue(self, wrapped: _Wrapped) -> None:
        if self._by_wrapper.get(wrapped.wrapper) is wrapped:
            self._end_everything(wrapped)

    def _end_everything(self, wrapped: _Wrapped) -> None:
        # It is reaped in `wrapper_ended` only, so its pid is not reused before.
        if wrapped.wrapper in self._by_wrapper:
            processes.kill(wrapped.wrapper)
        for pid in processes.with_variable(PROCESS_VARIABLE, wrapped.worker.process):
            processes.kill(pid)

    def _announce(self, wrapped: _Wrapped, status: int | None) -> None:
        if not wrapped.announced:
            wrapped.announced = True
            self._on_died(wrapped.worker, status)

    def wrapper_ended(self, pid: int, status: int) -> bool:
        """Handle the exit of a child of the node. Returns whether it was a wrapper."""
        wrapped = self._by_wrapper.pop(pid, None)
        if wrapped is None:
            return False
        del self._by_process[wrapped.worker.process]
        worker_pid = wrapped.worker.pid or pid
        if worker_pid != pid and status > _SIGNALLED:
            status = _SIGNALLED - status
        wrapped.unwatch()
        self._end_everything(wrapped)
        self._announce(wrapped, status)
        self._on_finished(wrapped.worker)
        return True

    # ------------------------------------------------------------------------------------ the end of the session
    def end_all(self, pump: Callable[[], None]) -> None:
        """Kill all workers, and give their wrappers time to write. `pump` reads their output meanwhile."""
        until = monotonic() + settings.PROFILER_TIMEOUT.get()
        # A worker that has not joined has nothing to write.
        for process in list(self._by_process):
            self.kill(process)
        for pid in list(self._by_wrapper):
            with contextlib.suppress(OSError), PidFd(pid) as wrapper:
                while not wrapper.wait(_LOOK_SECONDS) and monotonic() < until:
                    pump()
        for wrapped in list(self._by_wrapper.values()):
            self._end_everything(wrapped)
