"""The harm that a process does to itself when it has come into a phase of the crash matrix.

The process that is in the phase calls `point`: it reports that to the runner of the test, through a socket, and waits for an order. The
runner sends signals from outside meanwhile; harm that a process can only do to itself is an order. No process sleeps for a time: the order
comes when the process is there.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

EXIT_CODE = 3
MESSAGE = "this was to be"
GO = "go"
#: The end of the name of the file where a process waits.
REACTOR = "/mray/_ipc/reactor.py"
_AGAIN_SECONDS = 0.005
#: The end of the name of a file that says that the order is being carried out; ... that a partner waits for its order.
OBEYED = ".obeyed"
WAITING = ".waiting"


class Misbehaved(RuntimeError):
    """The exception of the manner "raise"."""


# ------------------------------------------------------------------------------------------------ manners
def _raise() -> None:
    raise Misbehaved(MESSAGE)


def _sys_exit() -> None:
    sys.exit(EXIT_CODE)


def _os_exit() -> None:
    os._exit(EXIT_CODE)


def _become_another_program() -> None:
    """Of no use to the session, and not dead: a worker's is to be ended by others; a driver's ends by itself, later than its session."""
    backend = _backend()
    seconds = 0.3 if backend is None or backend.client.role == "driver" else 600
    os.execv(sys.executable, [sys.executable, "-S", "-c", f"import time; time.sleep({seconds}); raise SystemExit({EXIT_CODE})"])


def _segfault() -> None:
    ctypes.string_at(0)


def _exhaust_memory() -> None:
    """Take all the memory that this process may have; the limit stays."""
    with open("/proc/self/statm") as file:
        pages = int(file.read().split()[0])
    _limits.setdefault(resource.RLIMIT_AS, resource.getrlimit(resource.RLIMIT_AS))
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (4 << 20), _limits[resource.RLIMIT_AS][1]))
    taken = []
    while True:
        taken.append(bytearray(1 << 20))


def _exhaust_files() -> None:
    """No more descriptors for this process; the limit stays."""
    _limits.setdefault(resource.RLIMIT_NOFILE, resource.getrlimit(resource.RLIMIT_NOFILE))
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, _limits[resource.RLIMIT_NOFILE][1]))
    os.close(os.open("/dev/null", os.O_RDONLY))


def _start_endless_thread() -> None:
    threading.Thread(target=threading.Event().wait, name="endless").start()


#: The harm that the process in the phase can do to itself, by manner.
ORDERS: dict[str, Callable[[], None]] = {
    "raise": _raise,
    "sys.exit": _sys_exit,
    "os._exit": _os_exit,
    "exec": _become_another_program,
    "SIGSEGV": _segfault,
    "memory": _exhaust_memory,
    "thread": _start_endless_thread,
    "files": _exhaust_files,
    GO: lambda: None,
}

_limits: dict[int, tuple[int, int]] = {}


def recover() -> None:
    """Take the limits back that an order has left."""
    for kind, limits in _limits.items():
        resource.setrlimit(kind, limits)
    _limits.clear()


# ------------------------------------------------------------------------------------------------- points
def ask(where: str) -> str:
    """Say that the phase is reached; the order. Where nobody listens any more: to go on."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        try:
            sock.connect(where)
        except OSError:
            return GO
        try:
            sock.sendall(json.dumps({"pid": os.getpid(), "process": _process()}).encode() + b"\n")
            return sock.recv(64).decode() or GO
        except ConnectionError:
            return GO


def point(where: str) -> None:
    """The phase is reached, in this thread."""
    ORDERS[ask(where)]()


def _process() -> str:
    """The name of this process in its session; "" while it has none."""
    backend = _backend()
    return "" if backend is None else str(backend.client.process)


def _backend() -> Any:
    """The role of this process in its session; None while it has none."""
    current = sys.modules.get("mray._api.current")
    return None if current is None else current.started


@contextlib.contextmanager
def point_asleep(where: str) -> Iterator[None]:
    """The phase is reached once the main thread waits in the reactor; orders are carried out there, by a signal's handler.

    A signal that comes after the interpreter has looked for signals, and before the kernel puts the thread to sleep, ends no sleep; and an
    error that a handler raises in the middle of dispatching ends there. So the signal is sent until it has met the thread asleep.
    """
    lock = threading.Lock()
    over = False
    order = ""

    def obey(_number: int, frame: Any) -> None:
        nonlocal over
        if not over and _sleeps(frame):
            over = True
            os.close(os.open(where + OBEYED, os.O_WRONLY | os.O_CREAT, 0o600))
            ORDERS[order]()

    def reached() -> None:
        nonlocal order
        order = ask(where)
        while order != GO:
            with lock:
                if over:
                    return
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
            time.sleep(_AGAIN_SECONDS)

    before = signal.signal(signal.SIGUSR1, obey)
    _watch(reached, lambda files: REACTOR in files, lambda: over)
    try:
        yield
    finally:
        with lock:
            over = True
        signal.signal(signal.SIGUSR1, before)


def _sleeps(frame: Any) -> bool:
    """Whether the reactor of the thread whose innermost function this is has it sleep."""
    return frame.f_code.co_name == "sleep" and frame.f_back.f_code.co_filename.endswith(REACTOR)


def point_beside(where: str, inside: Callable[[set[str]], bool]) -> None:
    """The phase is reached once `inside` is true of the files that the main thread is in; orders are carried out by another thread."""
    _watch(lambda: point(where), inside, lambda: False)


def _watch(reached: Callable[[], None], inside: Callable[[set[str]], bool], over: Callable[[], bool]) -> None:
    main = threading.main_thread().ident
    assert main is not None

    def watch() -> None:
        while not inside(_files_of(main)):
            if over():
                return
        reached()

    threading.Thread(target=watch, name="watch", daemon=True).start()


def _files_of(thread: int) -> set[str]:
    """The files of the functions that a thread is in, by the ends of their names."""
    found = set()
    frame: Any = sys._current_frames()[thread]
    while frame is not None:
        name = frame.f_code.co_filename
        found |= {name, name[name.rfind("/mray/") :]}
        frame = frame.f_back
    return found


def _rebuild(where: str, when: str) -> str:
    if when == "unpickle":
        point(where)
    return "rebuilt"


class Traveller:
    """A value that brings whoever pickles it, or unpickles it, into the phase."""

    def __init__(self, where: str, when: str) -> None:
        self.where = where
        self.when = when

    def __reduce__(self) -> tuple[Any, ...]:
        if self.when == "pickle":
            point(self.where)
        return _rebuild, (self.where, self.when)


class Keepsake:
    """A value whose end, in any process but the one that made it, is the phase."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.maker = os.getpid()

    def __del__(self) -> None:
        if os.getpid() != self.maker:
            point(self.where)
