"""A worker as a process of the kernel: a pid, and its output pipes.

In the node; the records of `mray._runtime.processes.supervisor` and `mray._runtime.processes.wrapped`.
"""

from __future__ import annotations

from mray._ipc.output import LineSplitter


class OutputStream:
    """The reading end of a worker's stdout or stderr."""

    __slots__ = ("fd", "held", "last_output", "log", "number", "splitter")

    def __init__(self, fd: int, number: int) -> None:
        self.fd = fd
        self.number = number
        self.splitter = LineSplitter()
        #: The log file, opened with the first output.
        self.log = -1
        #: The times of the last output, and from which on the beginning of a line has been held back; 0.0: none.
        self.last_output = 0.0
        self.held = 0.0


class WorkerProcess:
    """A worker as a process of the kernel."""

    __slots__ = ("attempts", "noted", "pid", "process", "streams", "tail", "theirs", "work")

    def __init__(self, process: str, work: str = "") -> None:
        self.process = process
        #: The name of the work that it was started for (see `mray._decide.scheduler.root_names`).
        self.work = work
        #: 0 until it has been forked; failed `attempts`.
        self.pid = 0
        self.attempts = 0
        self.streams: list[OutputStream] = []
        #: The worker's own ends of stdout, stderr and its connection to the node, until it has been forked.
        self.theirs: list[int] = []
        #: The end of its output to either stream, in the order in which it was read.
        self.tail = b""
        #: Whether it has sent the driver a note, so that the driver is notified of its exit.
        self.noted = False
