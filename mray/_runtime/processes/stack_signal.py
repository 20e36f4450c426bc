"""Stacks of a worker that cannot answer because C code holds its interpreter: written by a handler that needs no interpreter.

        the asking process                             a worker
                                                   listen: a file of its own, faulthandler on a real-time signal
    ask: empty the file, send the signal  ------>  all stacks into the file, whatever its threads are doing
    read the file                         <------

A worker without the file does not listen, and would die of the signal: it gets none.
"""

from __future__ import annotations

import faulthandler
import signal

from mray._common.clock import monotonic, sleep
from mray._common.kept import io, os

#: Programs rarely use it.
SIGNAL = signal.SIGRTMAX - 3
#: Seconds between two reads of the file, and without growth until it counts as complete.
_PAUSE, _QUIET = 0.002, 0.05


def _path(session_dir: str, pid: int) -> str:
    return os.path.join(session_dir, f"stacks-{pid}")


def listen(session_dir: str) -> None:
    """Answer until the process ends; main thread of a worker. Does nothing where the session's directory was removed."""
    try:
        fd = os.open(_path(session_dir, os.getpid()), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    except OSError:
        return
    faulthandler.register(SIGNAL, file=fd, all_threads=True, chain=False)


def ask(session_dir: str, pid: int, patience: float) -> str:
    """The stacks of all threads of a worker; "" when it does not listen, or writes nothing within `patience` seconds (it is stopped)."""
    path = _path(session_dir, pid)
    try:
        os.truncate(path, 0)
        os.kill(pid, SIGNAL)
    except OSError:
        return ""
    size, since = 0, monotonic()
    deadline = since + patience
    while monotonic() < deadline and (not size or monotonic() - since < _QUIET):
        sleep(_PAUSE)
        now = os.stat(path).st_size
        if now != size:
            size, since = now, monotonic()
    with io.open(path, encoding="utf-8", errors="replace") as file:
        return file.read().rstrip()
