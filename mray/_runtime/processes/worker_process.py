"""A worker as a process of the kernel: a pid, and its output pipes. In the node."""

from __future__ import annotations

from mray._ipc.output import FatalError, LineSplitter


class OutputStream:
    __slots__ = ("fatal_error", "fd", "file", "held", "last_output", "log", "number", "splitter", "written")

    def __init__(self, fd: int, number: int) -> None:
        self.fd = fd
        self.number = number
        self.splitter = LineSplitter()
        self.fatal_error = FatalError()
        #: The log file's descriptor; -1 before the first output.
        self.log = -1
        #: Its name, and the bytes in it.
        self.file = ""
        self.written = 0
        #: The times of the last output, and from which on the beginning of a line has been held back; 0.0: none.
        self.last_output = 0.0
        self.held = 0.0


class WorkerProcess:
    __slots__ = ("attempts", "noted", "pid", "process", "streams", "tail", "theirs", "work")

    def __init__(self, process: str, work: str = "") -> None:
        self.process = process
        #: The name of its work (`mray._decide.scheduler.root_names`).
        self.work = work
        #: 0 until it has been forked; failed `attempts`.
        self.pid = 0
        self.attempts = 0
        self.streams: list[OutputStream] = []
        #: The worker's ends of stdout, stderr and its connection to the node, until it has been forked.
        self.theirs: list[int] = []
        #: The end of its output to either stream, in order of reading.
        self.tail = b""
        #: Whether it has sent the driver a note, so that the driver is notified of its exit.
        self.noted = False
