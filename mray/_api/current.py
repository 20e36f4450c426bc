"""The backend of this process.

`init` starts it, or the first call that needs one; a worker sets it before any user code runs. Any thread.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mray._api.object_ref import NO_SESSION, ObjectRef, ask_through
from mray._common import settings
from mray._common.dropped_errors import import_whole
from mray._common.kept import os
from mray._common.options import SessionOptions, session_options
from mray._common.slow import told_when_slow
from mray.exceptions import RaySystemError

if TYPE_CHECKING:
    from mray._api.backend import Backend

NOT_STARTED = "Ray has not been started yet. You can start Ray with 'ray.init()'."

#: Modules with ``start(options)``.
_ENGINES = {"native": "mray._backends.native_start", "local": "mray._backends.local", "ray": "mray._backends.ray"}

#: The backend of this process, if a session has been started. Calls read it directly, instead of calling `current_backend`.
started: Backend | None = None
#: After a fork: the parent's backend, retained so that nothing of it is finalized.
_inherited: Backend | None = None
_options: SessionOptions | None = None
#: Whether the session is unused, so that `init` replaces it.
_kept = False
_lock = threading.RLock()
#: Called, and dropped, when the session of this process ends.
ends_with_session: list[Callable[[], object]] = []
#: `init`, once that is imported.
start_by_default: Callable[[], object] = lambda: start(session_options())  # noqa: E731


def current_backend() -> Backend:
    """The backend of this process; starts a session when there is none and that is allowed.

    Raises RaySystemError when it is not (``RAY_ENABLE_AUTO_CONNECT=0``).
    """
    backend = started
    if backend is not None:
        return backend
    return _start_by_itself()


def backend_of(ref: ObjectRef) -> Backend:
    """The backend of this process, which a ref needs. Starts nothing: a ref that there is without a session belongs to an ended one."""
    if started is not None:
        return started
    check_start()
    raise ValueError(f"Ray object whose owner is unknown: {ref}: {NO_SESSION}.")


def _start_by_itself() -> Backend:
    check_start()
    with _lock:
        if started is None:
            start_by_default()
        assert started is not None
        return started


def check_start() -> None:
    """Raises RaySystemError where this process must not start a session by itself."""
    if _inherited is not None:
        raise RaySystemError("this process was forked from one that uses mray; call mray.init() in it to use mray here")
    if not settings.ENABLE_AUTO_CONNECT.get():
        raise RaySystemError(NOT_STARTED)


def backend_if_started() -> Backend | None:
    """The backend, or None; starts nothing."""
    return started


def backend_in_use() -> Backend | None:
    """As `backend_if_started`, unless the session is unused (see `keep`)."""
    return None if _kept else started


def keep(kept: bool) -> None:
    """Retain the session unused for a later caller, or use it again. Meanwhile it serves calls, and makes way for `init`."""
    global _kept
    _kept = kept and started is not None


def started_backend(otherwise: str = NOT_STARTED) -> Backend:
    """The backend; raises RaySystemError with this text when there is none. Starts nothing."""
    if started is None:
        raise RaySystemError(otherwise)
    return started


def set_backend(backend: Any) -> None:
    """Install the backend of this process. For workers and tests."""
    global started, _kept
    started, _kept = backend, False


def start(options: SessionOptions) -> Backend:
    """Start a session with the engine that the options name. Raises RuntimeError when this process has one that allows no nested one."""
    global _options
    with _lock:
        if _kept:
            stop()
        if started is not None:
            within = started.start_within(options)
            set_backend(within)
            return within
        backend: Backend = import_whole(_ENGINES[options.backend]).start(options)
        set_backend(backend)
        _options = options
        return backend


def reset() -> None:
    """Reset the session of this driver; where the engine cannot, start a new one with the same options.

    Raises RaySystemError without a session, and in a worker.
    """
    with _lock:
        backend = started
        if backend is None:
            raise RaySystemError(NOT_STARTED)
        if backend.context()["mode"] != "driver":
            raise RaySystemError("a worker belongs to its session and cannot reset it; only the driver can")
        options = _options
        try:
            new = backend.after_reset()
        except BaseException:
            stop()
            raise
        if new is not None:
            set_backend(new)
            return
        assert options is not None
        stop()
        start(options)


def stop() -> None:
    """End the session, if there is one; a nested session first."""
    with _lock:
        backend = started
        if backend is None or backend.context()["mode"] != "driver":
            return  # neither user code nor its `atexit` hooks end a worker's session
        try:
            with told_when_slow("Ending the session"):
                backend.shutdown()
        finally:
            set_backend(backend.outer)
            while ends_with_session:
                ends_with_session.pop()()


def _stop_at_exit() -> None:
    """End the session at exit: no other thread calls any more, and no session starts by itself."""
    global start_by_default
    start_by_default = _refuse
    backend = started
    if backend is not None and backend.context()["mode"] == "driver":
        backend.end_threads()
        stop()


def _refuse() -> None:
    if threading.current_thread() is not threading.main_thread():
        raise SystemExit  # a daemon, which Python is about to end
    raise RaySystemError("the program is over, and its session has ended")


def _after_fork() -> None:
    """Leave the session in the child of a fork: its sockets and threads are the parent's."""
    global started, _inherited, _lock
    if started is not None:
        _inherited = started
        started = None
    _lock = threading.RLock()


ask_through(current_backend, backend_of)
os.register_at_fork(after_in_child=_after_fork)
atexit.register(_stop_at_exit)
