"""``breakpoint()`` in a task or an actor: the debugger of a worker, and the terminal that attaches to it.

::

    worker: breakpoint() ── socket <session>/debug/<pid>-<n>, with a description ───┐
       │  └── note to the driver: "I wait at file:line"                            ├──▶ pdb talks over it
       └── waits until a terminal connects ◀── driver's printing thread, or `mray debug`

The session's directory is private and the socket 0600: no other user connects. A waiting worker is killed like any other one, with its
node. Where no terminal could attach (the driver has none) `breakpoint` raises.

The driver debugs in its own terminal while its main thread waits for a result, because no other code reads the terminal then; its other
output is held back meanwhile.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import select
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from mray._common import settings
from mray._common.clock import time
from mray._common.kept import io, os, socket
from mray._common.places import frame_of, sleeps
from mray._common.record import Record
from mray._common.uncollected import uncollected
from mray._ipc import process as processes
from mray._ipc import reactor
from mray._ipc.connection import connect, peer_is_ours
from mray._ipc.listener import listen_at
from mray._ipc.output import LONGEST_NOTE, note
from mray._ipc.process import has_terminal
from mray._ipc.reaper import is_of_this_namespace

FOLDER = "debug"
_MODES = ("terminal", "wait", "raise")
_READ_BYTES = 4096


class BreakpointStop(Record):
    """A worker that waits at a breakpoint."""

    session_dir: str
    #: The socket that it listens at.
    path: str
    pid: int
    #: The task or actor, as in the prefix of its output.
    name: str
    file: str
    line: int
    function: str
    #: Seconds since 1970.
    since: float


# ------------------------------------------------------------------------------------------------ workers
class Breakpoints:
    def __init__(self, session_dir: str, has_terminal: bool, name: Callable[[], str]) -> None:
        self._session_dir = session_dir
        self._has_terminal = has_terminal
        self._numbers = itertools.count(1)
        #: Returns the task or actor that runs.
        self._name = name

    def install(self) -> None:
        """Take over ``breakpoint()``, unless the user has chosen another debugger."""
        global _here
        _here = self
        if settings.of_library("PYTHONBREAKPOINT") is None:
            sys.breakpointhook = self._hook

    def _hook(self, *_args: Any, **_kwargs: Any) -> None:
        self.stop(sys._getframe(1))

    def stop(self, frame: FrameType) -> None:
        """Debug `frame` once a terminal attaches. Raises RuntimeError where none could."""
        mode = settings.BREAKPOINT.get()
        if mode not in _MODES:
            raise ValueError(f"MRAY_BREAKPOINT={mode!r}: expected one of {', '.join(_MODES)}")
        where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        if mode == "raise" or (mode == "terminal" and not self._has_terminal):
            raise RuntimeError(
                f"breakpoint() at {where} in a worker: the driver has no terminal to debug in. Run it in one, or set MRAY_BREAKPOINT=wait "
                "and attach with `mray debug`."
            )
        # Slow, and needed by workers with breakpoints only.
        from mray._runtime.session.remote_pdb import RemotePdb  # noqa: PLC0415

        connection = self._await_visitor(frame, where, mode)
        RemotePdb(connection).set_trace(frame)

    @sleeps
    def _await_visitor(self, frame: FrameType, where: str, mode: str) -> socket.socket:
        folder = os.path.join(self._session_dir, FOLDER)
        os.makedirs(folder, 0o700, exist_ok=True)
        path = os.path.join(folder, f"{os.getpid()}-{next(self._numbers)}")
        info = {
            "pid": os.getpid(),
            "start": processes.start_of(os.getpid()),
            "name": self._name()[:200],
            "file": frame.f_code.co_filename[-1000:],
            "line": frame.f_lineno,
            "function": frame.f_code.co_name[:200],
            "since": time(),
        }
        listener = listen_at(path, 1)
        try:
            draft = path + ".new"
            with io.open(draft, "w", encoding="utf-8") as file:
                json.dump(info, file)
            os.rename(draft, path + ".json")
            self._tell(path, where, mode)
            while True:
                connection, _address = listener.accept()
                if peer_is_ours(connection):
                    return connection
                connection.close()
        finally:
            listener.close()
            for name in (path, path + ".json"):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(name)

    @staticmethod
    def _tell(path: str, where: str, mode: str) -> None:
        said = json.dumps({"kind": "breakpoint", "path": path, "where": where, "wait": mode == "wait"})
        if len(said) <= LONGEST_NOTE:
            with contextlib.suppress(OSError):
                os.write(1, note(said))


_here: Breakpoints | None = None


def current() -> Breakpoints | None:
    return _here


# ------------------------------------------------------------------------------------------------ visitors
def stops(session_dir: str) -> Iterator[BreakpointStop]:
    """The workers that wait at a breakpoint without a terminal, the longest waiting first."""
    found = []
    is_seen = is_of_this_namespace(session_dir)
    folder = os.path.join(session_dir, FOLDER)
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for name in names:
        if not name.endswith(".json"):
            continue
        path = os.path.join(folder, name.removesuffix(".json"))
        try:
            with io.open(path + ".json", encoding="utf-8") as file:
                info = json.load(file)
            # With an empty pid the kernel's file would be that of the whole machine.
            start = info.pop("start")
            if isinstance(info["pid"], int) and (not is_seen or start == processes.start_of(info["pid"])):
                found.append(BreakpointStop(session_dir=session_dir, path=path, **{**info, "since": float(info["since"])}))
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):  # removed, or damaged
            continue
    yield from sorted(found, key=lambda stop: stop.since)


def attach(path: str, stdin: int = 0, stdout: int = 1) -> bool:
    """Debug the worker that listens at `path` from these descriptors, until it continues, exits, or the input ends. Returns False if it no
    longer waits.
    """
    try:
        connection = connect(path)
    except OSError:
        return False
    with connection:
        poll = select.poll()
        poll.register(connection, select.POLLIN)
        poll.register(stdin, select.POLLIN)
        while True:
            ready = {fd for fd, _events in poll.poll()}
            if connection.fileno() in ready:
                try:
                    data = connection.recv(_READ_BYTES)
                except OSError:
                    return True
                if not data:
                    return True
                while data:
                    data = data[os.write(stdout, data) :]
            elif stdin in ready:
                typed = os.read(stdin, _READ_BYTES)
                if not typed:
                    poll.unregister(stdin)
                    connection.shutdown(socket.SHUT_WR)
                with contextlib.suppress(OSError):  # the worker has exited: the next read shows it
                    connection.sendall(typed)


class Visitor:
    """Attaches the driver's terminal to breakpoints. In its printing thread."""

    LOOK_SECONDS = 0.05

    def __init__(self) -> None:
        self._pending: list[str] = []
        self._closed = False

    @property
    def waits(self) -> bool:
        return bool(self._pending)

    def announce(self, pid: int, name: str, said: dict[str, Any]) -> None:
        if said["wait"] or not has_terminal():
            how = "attach with `mray debug`"
        else:
            how = "debug it here while the program waits for a result, or with `mray debug`"
            self._pending.append(said["path"])
        with contextlib.suppress(OSError, ValueError, AttributeError):
            sys.stderr.write(f"({name} pid={pid}) breakpoint at {said['where']}: {how}\n")
            sys.stderr.flush()
        self.look()

    def look(self) -> None:
        """Attach to a waiting worker if the main thread waits for a result. Blocks until the worker continues."""
        while self._pending and not self._closed:
            path = self._pending[0]
            if os.path.exists(path):
                if not _main_thread_waits():
                    return
                attach(path, sys.stdin.fileno(), sys.stderr.fileno())
            del self._pending[0]

    def close(self) -> None:
        self._closed = True


def _main_thread_waits() -> bool:
    """Whether the main thread waits inside of mray, and so reads no terminal."""
    with uncollected:
        innermost = sys._current_frames().get(threading.main_thread().ident or 0)
        return frame_of(reactor.Reactor.wait_until.__code__, innermost) is not None
