"""`OwnProcess`: a worker's process of the operating system, behind the contract `mray._runtime.processes.process.Process`."""

from __future__ import annotations

import atexit
import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Collection

from mray._common.kept import os
from mray._ipc.output import name_marker
from mray._ipc.process import Title
from mray._runtime.processes.native_threads import native_threads
from mray._runtime.processes.process import ProcessEnded
from mray._runtime.worker.finalizing import end_children, finalize
from mray._runtime.worker.pinning import Pinning


class OwnProcess:
    """Created by the worker's main thread, after the fork."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._main = threading.main_thread().ident or 0
        self._pinning = Pinning()
        #: The names of modules that are not the user's.
        self._known = frozenset(sys.modules)
        self.set_title = Title().set

    # ------------------------------------------------------------------------------------ threads
    def start_thread(self, target: Callable[[], None], name: str) -> None:
        threading.Thread(target=target, name=name, daemon=True).start()

    def interrupt(self) -> None:
        signal.pthread_kill(self._main, signal.SIGINT)

    # ------------------------------------------------------------------------------------ its resources
    def set_variable(self, name: str, value: str | None) -> None:
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value

    def confine(self, cpus: Collection[int] | None) -> None:
        self._pinning.set(cpus)

    def set_native_threads(self, count: int) -> None:
        native_threads.set(count)

    def mark_output(self, name: str) -> None:
        marker = name_marker(name)
        for stream, fd in ((sys.stdout, 1), (sys.stderr, 2)):
            # Before code in this process, or its children, writes to the descriptor.
            with contextlib.suppress(OSError, ValueError, AttributeError):
                stream.flush()
            with contextlib.suppress(OSError):
                os.write(fd, marker)

    # ------------------------------------------------------------------------------------ its end
    def is_forked(self) -> bool:
        return os.getpid() != self._pid

    def set_alarm(self, seconds: float) -> None:
        if seconds:  # by the kernel, because user code may block all threads
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, seconds)

    def finalize(self, *, kills_children: bool) -> None:
        if kills_children:
            end_children()
        survive(atexit._run_exitfuncs)  # noqa: SLF001  (Python's)
        finalize(self._known)

    def exit(self, status: int) -> None:
        os._exit(status)


def survive(hook: Callable[[], object]) -> None:
    """Call a user's hook; its error is printed."""
    try:
        hook()
    except ProcessEnded:
        raise
    except BaseException:
        sys.excepthook(*sys.exc_info())
