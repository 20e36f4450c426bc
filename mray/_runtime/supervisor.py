"""The node's hold on processes: starts workers, hears what they print, learns how each one ended.

In the node, on its one thread. Workers are children of the zygote, which reports their ends; if the zygote dies, they become children
of the node, which reaps them itself and starts a new zygote. So do the children of dead workers: what a dead worker left behind is ended.

::

    spawn ──SPAWN──▶ zygote ──SPAWNED──▶ alive ──REAPED, or reaped here──▶ pipes drained, on_died
       └─(needs its own interpreter)──exec──▶ ┘
"""

from __future__ import annotations

import contextlib
import marshal
import os
import signal
import socket
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from mray._common.messages import REAPED, SPAWN, SPAWNED
from mray._ipc import process as processes
from mray._ipc.output import LineSplitter
from mray._ipc.reactor import Reactor
from mray._runtime.launch import PACKET, WORKER_VARIABLE, launch, new_channel
from mray._scheduler.policy import needs_fresh_interpreter

#: Zygotes that may die in a row without having forked a worker.
_ZYGOTE_ATTEMPTS = 3
_READ_BYTES = 64 * 1024
#: SPAWN messages under way at once, and bytes of the largest: together they fit into the socket, so sending never blocks.
_UNDER_WAY = 16
_LARGEST_SPAWN = 32 * 1024


class Stream:
    """The reading end of what a worker prints to stdout or stderr."""

    __slots__ = ("fd", "log", "number", "splitter")

    def __init__(self, fd: int, number: int) -> None:
        self.fd = fd
        self.number = number
        self.splitter = LineSplitter()
        #: The file that keeps a copy, opened with the first output.
        self.log = -1


class WorkerProcess:
    """A worker as the node's kernel side sees it."""

    __slots__ = ("pid", "process", "streams", "write_ends")

    def __init__(self, process: str) -> None:
        self.process = process
        #: 0 until it has been forked.
        self.pid = 0
        self.streams: list[Stream] = []
        #: Kept until it has been forked.
        self.write_ends: list[int] = []


class Supervisor:
    """All worker processes, and the zygote."""

    def __init__(
        self,
        reactor: Reactor,
        session_dir: str,
        options: dict[str, Any],
        lifeline: tuple[int, int],
        lock: int,
        on_died: Callable[[str, int, int], None],
        on_output: Callable[[int, int, str, str], None],
    ) -> None:
        self._reactor = reactor
        self._session_dir = session_dir
        self._options = options
        #: Reading end (for workers) and writing end (ours alone). See Note [lifeline] in `mray._ipc.process`.
        self._lifeline = lifeline
        self._lock = lock
        self._on_died = on_died
        self._on_output = on_output
        self.workers: dict[str, WorkerProcess] = {}
        self._by_pid: dict[int, WorkerProcess] = {}
        #: SPAWN packets that the zygote has not answered, and those that wait for their turn.
        self._under_way: dict[str, bytes] = {}
        self._waiting: deque[tuple[str, bytes]] = deque()
        #: Session ids of dead workers: what still runs under one is to be ended.
        self._dead_sids: set[int] = set()
        self._zygote: socket.socket
        self._zygote_pid = 0
        self._zygote_failures = 0
        #: Why no worker can be started any more.
        self.failure: Exception | None = None
        wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._wake_read = wake_read
        signal.signal(signal.SIGCHLD, lambda *_args: None)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        reactor.add_fd(wake_read, self._child_ended)

    # ------------------------------------------------------------------------------------ the zygote
    def adopt_zygote(self, pid: int, channel: socket.socket) -> None:
        """Talk to this zygote from now on."""
        self._zygote, self._zygote_pid = channel, pid
        channel.setblocking(False)
        self._reactor.add_fd(channel.fileno(), self._zygote_spoke)

    def _start_zygote(self) -> None:
        ours, theirs = new_channel()
        descriptors = {0: 0, 3: theirs.fileno(), 4: self._lifeline[0], 5: self._lock}
        pid = launch("zygote", self._session_dir, "-", os.environ, descriptors)
        theirs.close()
        self.adopt_zygote(pid, ours)
        for process, packet in self._under_way.items():
            self._send_spawn(process, packet)

    def _zygote_spoke(self, _events: int) -> None:
        while True:
            try:
                packet = self._zygote.recv(PACKET)
            except BlockingIOError:
                return
            except OSError:
                packet = b""
            if not packet:
                # It is dead, or about to be; its status comes with SIGCHLD.
                self._reactor.remove_fd(self._zygote.fileno())
                processes.kill(self._zygote_pid)
                return
            message = marshal.loads(packet)
            if message[0] == SPAWNED:
                self._zygote_failures = 0
                self._forked(message[1], message[2])
            elif message[0] == REAPED:
                self._ended(message[1], message[2])
            else:
                self._trouble(f"preload: module {message[1]!r} could not be imported: {message[2]}\n")

    def _zygote_ended(self, status: int) -> None:
        if self._zygote.fileno() >= 0:
            self._zygote_spoke(0)  # what it had still reported
            self._reactor.remove_fd(self._zygote.fileno())
            self._zygote.close()
        self._zygote_failures += 1
        how = processes.describe_exit(status)
        if self._zygote_failures > _ZYGOTE_ATTEMPTS:
            self._zygote_pid = 0
            self.failure = RuntimeError(f"the zygote cannot start: {how} ({_ZYGOTE_ATTEMPTS} times in a row)")
            return
        # A worker that was forked and not reported is started again: two must not answer to one name.
        for pid in processes.children():
            if pid not in self._by_pid and _session_id(pid) not in self._by_pid:
                processes.kill(pid)
        self._start_zygote()

    # ------------------------------------------------------------------------------------ starting workers
    def spawn(self, process: str, environment: dict[str, str]) -> None:
        """Start a worker with these variables."""
        worker = self.workers[process] = WorkerProcess(process)
        for number in (1, 2):
            read_end, write_end = os.pipe2(os.O_CLOEXEC)
            os.set_blocking(read_end, False)
            stream = Stream(read_end, number)
            worker.streams.append(stream)
            worker.write_ends.append(write_end)
            self._reactor.add_fd(read_end, partial(self._printed, worker, stream))
        packet = marshal.dumps((SPAWN, process, environment))
        if needs_fresh_interpreter(environment, bool(self._options.get("preload"))) or len(packet) > _LARGEST_SPAWN:
            self._exec(worker, environment)
            return
        self._waiting.append((process, packet))
        self._send_waiting()

    def _send_waiting(self) -> None:
        while self._waiting and len(self._under_way) < _UNDER_WAY:
            process, packet = self._waiting.popleft()
            self._under_way[process] = packet
            self._send_spawn(process, packet)

    def _send_spawn(self, process: str, packet: bytes) -> None:
        # On an error the zygote is dead, and the next one is asked again.
        with contextlib.suppress(OSError):
            socket.send_fds(self._zygote, [packet], self.workers[process].write_ends)

    def _exec(self, worker: WorkerProcess, environment: dict[str, str]) -> None:
        """Start an interpreter of its own: these variables come too late for a forked process."""
        variables = {
            **os.environ,
            **processes.expand_all(environment, os.environ),
            WORKER_VARIABLE: marshal.dumps(environment).hex(),
        }
        descriptors = {0: 0, 1: worker.write_ends[0], 2: worker.write_ends[1], 3: self._lifeline[0]}
        try:
            pid = launch("worker", self._session_dir, worker.process, variables, descriptors)
        except OSError as error:
            self._trouble(f"a worker could not be started with env_vars {environment}: {error}\n")
            self._reactor.call_later(0, lambda: self._never_started(worker))
        else:
            self._forked(worker.process, pid)

    def _never_started(self, worker: WorkerProcess) -> None:
        for fd in worker.write_ends:
            os.close(fd)
        del self.workers[worker.process]
        for stream in worker.streams:
            self._close(worker, stream)
        self._on_died(worker.process, 0, 127)

    def _forked(self, process: str, pid: int) -> None:
        worker = self.workers[process]
        if self._under_way.pop(process, None) is not None:
            self._send_waiting()
        worker.pid = pid
        self._by_pid[pid] = worker
        self._dead_sids.discard(pid)
        for fd in worker.write_ends:
            os.close(fd)
        worker.write_ends.clear()

    def _trouble(self, text: str) -> None:
        """Tell the user, on the driver's stderr."""
        self._on_output(0, 2, "mray", text)

    def kill(self, process: str) -> None:
        """End a worker at once; `on_died` follows."""
        worker = self.workers.get(process)
        if worker is not None and not worker.pid and process in self._under_way:
            self._zygote_spoke(0)  # the news of its birth is still in the other socket
        # Its pid is its own until we are told that it was reaped.
        if worker is not None and worker.pid:
            processes.kill(worker.pid)

    # ------------------------------------------------------------------------------------ ends
    def _child_ended(self, _events: int) -> None:
        """SIGCHLD: one of our own children. The zygote, workers of a dead zygote or with an interpreter of their own, orphans."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake_read, 4096)
        orphans = False
        while True:
            try:
                info = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG)
            except ChildProcessError:
                break
            if info is None:
                break
            status = processes.exit_status(info)
            if info.si_pid == self._zygote_pid:
                self._zygote_ended(status)
            elif info.si_pid in self._by_pid:
                self._ended(info.si_pid, status)
            else:
                orphans = True
        if orphans:
            self._end_orphans()

    def _ended(self, pid: int, status: int) -> None:
        worker = self._by_pid.pop(pid, None)
        if worker is None:
            return
        del self.workers[worker.process]
        self._dead_sids.add(pid)
        self._end_orphans()
        for stream in worker.streams:
            self._drain(worker, stream)
        self._on_died(worker.process, pid, status)

    def _end_orphans(self) -> None:
        """End the children that dead workers left behind. What such a child leaves behind is found when it is reaped."""
        left = set()
        for pid in processes.children():
            sid = _session_id(pid)
            if sid in self._dead_sids and pid not in self._by_pid:
                left.add(sid)
                processes.kill(pid)
        self._dead_sids = left

    def end_all(self) -> None:
        """End every process below the node, and reap it. Blocks until the last one is gone."""
        signal.set_wakeup_fd(-1)
        if self._zygote_pid:
            processes.kill(self._zygote_pid)
        for pid in self._by_pid:
            processes.kill(pid)
        while True:
            for pid in processes.children():
                processes.kill(pid)
            try:
                os.waitpid(-1, 0)
            except ChildProcessError:
                break
        for worker in self.workers.values():
            for stream in worker.streams:
                self._drain(worker, stream)

    # ------------------------------------------------------------------------------------ output
    def _printed(self, worker: WorkerProcess, stream: Stream, _events: int) -> None:
        """One read of what a worker prints."""
        if not worker.pid:
            self._zygote_spoke(0)  # the news of its birth is still in the other socket
        try:
            data = os.read(stream.fd, _READ_BYTES)
        except BlockingIOError:
            return
        if data:
            self._pass_on(worker, stream, stream.splitter.feed(data))
        else:
            self._close(worker, stream)

    def _drain(self, worker: WorkerProcess, stream: Stream) -> None:
        """The worker is dead: take what is in the pipe, and let go of it (its children may hold the other end for ever)."""
        while stream.fd >= 0:
            try:
                data = os.read(stream.fd, _READ_BYTES)
            except BlockingIOError:
                break
            if not data:
                break
            self._pass_on(worker, stream, stream.splitter.feed(data))
        self._close(worker, stream)

    def _close(self, worker: WorkerProcess, stream: Stream) -> None:
        if stream.fd < 0:
            return
        self._pass_on(worker, stream, stream.splitter.finish())
        self._reactor.remove_fd(stream.fd)
        os.close(stream.fd)
        stream.fd = -1
        if stream.log >= 0:
            os.close(stream.log)
            stream.log = -1

    def _pass_on(self, worker: WorkerProcess, stream: Stream, lines: list[tuple[str, bytes]]) -> None:
        for name, text in lines:
            if stream.log < 0:
                suffix = "out" if stream.number == 1 else "err"
                path = os.path.join(self._session_dir, "logs", f"worker-{worker.process}-{worker.pid}.{suffix}")
                stream.log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            with contextlib.suppress(OSError):  # a full disk must not end the session
                os.write(stream.log, text)
            self._on_output(worker.pid, stream.number, name, text.decode("utf-8", "replace"))


def _session_id(pid: int) -> int:
    try:
        return os.getsid(pid)
    except OSError:
        return 0
