"""Functions that are replaced while a session in one process runs, nearly all of the standard library.

Functions that block a thread (`time.sleep`, conditions, `Thread.join`), or that a program polls (`Future.done`), become scheduling
points; the others answer for the simulated process (pid, exit handlers, its unpickled classes). Large copies are made by one thread,
since only that one is simulated.

A thread without the run token gets the original function, and so does a module that imported a function by name before `init`: its
calls block all threads.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import os
import signal
import sys
import threading
import time
from _thread import allocate_lock
from collections.abc import Mapping, MutableMapping
from concurrent.futures import Future
from typing import Any

import cloudpickle.cloudpickle

from mray._backends.local import locks
from mray._backends.local.run_token import RunToken, here
from mray._common import clock, kept
from mray._ipc import copying

#: The first simulated pid, above all pids of the kernel.
FIRST_PID = 1 << 22

#: The name prefix of mray's own threads that never wait in the kernel and so are simulated.
OURS = "proxy "

_sleep = clock.sleep
_condition_wait = threading.Condition.wait
_join = threading.Thread.join
_start = threading.Thread.start
_done = Future.done
_exit = os._exit
_kill = os.kill
_getpid = os.getpid
_register = atexit.register
_unregister = atexit.unregister
_classes: MutableMapping[str, type] = vars(cloudpickle.cloudpickle)["_DYNAMIC_CLASS_TRACKER_BY_ID"]

_run_token: RunToken | None = None
#: Living processes by pid.
_processes: Mapping[int, Any] = {}


def _holder() -> Any:
    return None if _run_token is None else _run_token.holder()


def sleep(seconds: float, /) -> None:
    """`time.sleep`, on the session's clock."""
    sim_thread = _holder()
    if sim_thread is None or sim_thread.closed_in:
        _sleep(seconds)
        return
    if not seconds > 0:
        _sleep(seconds)
    sim_thread.run_token.sleep(seconds, lambda: f"time.sleep({seconds:g})")


def wait(self: Any, timeout: float | None = None) -> bool:
    """`threading.Condition.wait`, as a scheduling point."""
    sim_thread = _holder()
    if sim_thread is None or sim_thread.closed_in:
        return _condition_wait(self, timeout)
    if not self._is_owned():
        raise RuntimeError("cannot wait on un-acquired lock")
    waiter = allocate_lock()
    waiter.acquire()
    self._waiters.append(waiter)
    saved = self._release_save()
    notified = False
    try:
        notified = bool(sim_thread.run_token.wait_until(lambda: not waiter.locked(), timeout, lambda: "a condition of threading"))
        return notified
    finally:
        self._acquire_restore(saved)
        if not notified:
            with contextlib.suppress(ValueError):
                self._waiters.remove(waiter)


def join(self: Any, timeout: float | None = None) -> None:
    """`threading.Thread.join`, as a scheduling point."""
    sim_thread = _holder()
    if sim_thread is not None and not sim_thread.closed_in and self.ident is not None and self is not threading.current_thread():
        if not self.name.startswith(OURS):
            sim_thread.run_token.guests.add(self)  # also daemons older than the session
        sim_thread.run_token.wait_until(lambda: not self.is_alive(), timeout, lambda: f"the end of thread {self.name}")
        if self.is_alive():
            return
    _join(self, timeout)


def done(self: Any) -> bool:
    """A scheduling point, since a program may poll nothing else."""
    sim_thread = _holder()
    if sim_thread is not None and not sim_thread.closed_in:
        sim_thread.run_token.pause()
    return _done(self)


def start(self: Any) -> None:
    """The thread belongs to the simulated process that starts it."""
    sim_thread = _holder()
    if sim_thread is None:
        _start(self)
        return
    run_token, process = sim_thread.run_token, sim_thread.process
    if self.name.startswith(OURS):
        process.sim_threads.append(run_token.enlist(self, process))
        return
    run_token.guests.add(self)
    run = self.run

    def run_there() -> None:
        here.process = process
        run()

    self.run = run_there
    was, sim_thread.closed_in = sim_thread.closed_in, True
    try:
        _start(self)
    finally:
        sim_thread.closed_in = was


def end_process(status: int) -> None:
    """`os._exit`: ends a task's or actor's simulated process."""
    process = here.process if _holder() is not None else None
    if process is None or process.worker is None:
        _exit(status)
    process.exit_here(status)


def getpid() -> int:
    """The simulated process's pid; `multiprocessing` gets the real one, since its processes are children of this one."""
    process = here.process
    if process is None or _run_token is None or process.worker is None:
        return _getpid()
    return _getpid() if sys._getframe(1).f_globals.get("__name__", "").startswith("multiprocessing.") else int(process.pid)


def kill(pid: int, number: int, /) -> None:
    if _run_token is None or pid < FIRST_PID:
        _kill(pid, number)
        return
    process = _processes.get(pid)
    if process is None:
        raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))
    if number == signal.SIGINT:
        process.interrupt()
    elif number in (signal.SIGSTOP, signal.SIGCONT):
        raise NotImplementedError(
            f"{signal.Signals(number).name} needs a process of its own, but init(local_mode=True) runs everything in one"
        )
    elif number not in (0, signal.SIGCHLD, signal.SIGURG, signal.SIGWINCH):
        if number == signal.SIGTERM:
            process.terminate()
            return
        if process is here.process:
            process.exit_here(-number)
        process.end(-number)


def register(function: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Runs at the end of the simulated process, unless the hook belongs to a module or finalizer that outlives it."""
    process = here.process
    if process is None or _run_token is None or process.worker is None or _is_everybodys(function):
        return _register(function, *args, **kwargs)
    process.at_exit.append((function, args, kwargs))
    return function


def _is_everybodys(function: Any) -> bool:
    """Whether a hook serves all finalizers (`weakref.finalize`), or a module being imported."""
    if getattr(function, "__module__", "") == "weakref":
        return True
    frame: Any = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename != "<frozen importlib._bootstrap>":
        frame = frame.f_back
    return frame is not None


def unregister(function: Any, /) -> None:
    process = here.process
    if process is None or _run_token is None or process.worker is None:
        _unregister(function)
    else:
        process.at_exit[:] = [hook for hook in process.at_exit if hook[0] != function]


class Classes:
    """cloudpickle's table of unpickled classes, by id, for each simulated process.

    With a shared table, the state of a class that arrives in an actor would overwrite the driver's.
    """

    def _here(self) -> MutableMapping[str, type]:
        process = here.process
        return _classes if process is None or process.worker is None else process.classes

    def __setitem__(self, number: str, kind: type) -> None:
        self._here()[number] = kind

    def setdefault(self, number: str, kind: type) -> type:
        return self._here().setdefault(number, kind)


_REPLACED: tuple[tuple[Any, str, Any], ...] = (
    (time, "sleep", sleep),
    (clock, "sleep", sleep),
    (threading.Condition, "wait", wait),
    (threading.Thread, "join", join),
    (threading.Thread, "start", start),
    (Future, "done", done),
    (os, "_exit", end_process),
    *((each, name, ours) for each in (os, kept.os) for name, ours in (("kill", kill), ("getpid", getpid))),
    *locks.REPLACED,
    (atexit, "register", register),
    (atexit, "unregister", unregister),
    (cloudpickle.cloudpickle, "_DYNAMIC_CLASS_TRACKER_BY_ID", Classes()),
    (copying, "usable_cores", lambda: 1),
)
_ORIGINALS: tuple[Any, ...] = tuple(getattr(owner, name) for owner, name, _ours in _REPLACED)


def install(run_token: RunToken, processes: Mapping[int, Any]) -> None:
    global _run_token, _processes
    _run_token, _processes = run_token, processes
    for owner, name, ours in _REPLACED:
        setattr(owner, name, ours)


def uninstall() -> None:
    global _run_token, _processes
    _run_token, _processes = None, {}
    for (owner, name, _ours), original in zip(_REPLACED, _ORIGINALS, strict=True):
        setattr(owner, name, original)
