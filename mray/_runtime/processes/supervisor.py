"""The node's supervision of processes: starts workers, reads their output, learns how each one exited.

On the node's one thread. Workers are children of the zygote, which reports their exits; if the zygote dies, they become children of the
node, which reaps them and starts a new zygote. So do the children of dead workers, which the node kills.

::

    spawn ──SPAWN──▶ zygote ──SPAWNED──▶ alive ──REAPED, or reaped here──▶ pipes drained, on_ended
       └─(needs its own interpreter)──exec──▶ ┘
       └─(a profiler)── see `mray._runtime.processes.wrapped`

The output of a worker goes to a file for each stream and on to `on_output`; its end is retained for the errors of calls to a worker that
crashes.
"""

from __future__ import annotations

import contextlib
import marshal
import signal
from collections import deque
from collections.abc import Callable, Collection
from functools import partial
from typing import Any

from mray._common.causes import Cause
from mray._common.clock import monotonic
from mray._common.ids import worker_id_of
from mray._common.kept import os, socket
from mray._common.messages import (
    CAUSE_CRASH,
    CAUSE_REFUSED,
    MESSAGES,
    NOT_SPAWNED,
    NOTE_STREAM,
    PRELOAD_FAILED,
    REAPED,
    SPAWN,
    SPAWNED,
    ZYGOTE_TO_NODE,
)
from mray._common.protocol import misfit
from mray._decide.scheduler.policy import INTERPRETER_VARIABLE, PRIVATE_VARIABLES, WRAPPER_VARIABLE, needs_fresh_interpreter
from mray._decide.scheduler.root_names import ROOT_VARIABLE, job_of
from mray._ipc import process as processes
from mray._ipc.faults import message_name
from mray._ipc.frames import decode_message, to_text
from mray._ipc.limits import advice, exhausted, is_passing
from mray._ipc.output import TAIL_BYTES, WrittenParts, last_lines
from mray._ipc.reactor import Reactor
from mray._runtime.processes.interpreters import Interpreters
from mray._runtime.processes.launch import (
    OPTIONS,
    PACKET,
    WORKER_VARIABLE,
    LaunchedInterpreter,
    Wrapper,
    is_of_a_guest,
    launch,
    new_channel,
    start_zygote,
)
from mray._runtime.processes.worker_process import OutputStream, WorkerProcess
from mray._runtime.processes.wrapped import WrappedWorkers
from mray.exceptions import describe_status

#: Zygotes in a row that may die without having forked a worker.
_ZYGOTE_ATTEMPTS = 3
#: Attempts to start a worker after a lack of processes or descriptors; the first pause in seconds, which doubles.
_START_ATTEMPTS = 5
_FIRST_PAUSE = 0.05
_STDERR = 2
_READ_BYTES = 64 * 1024
#: Seconds after which the beginning of a line is shown: since the last output, and since it has been held back.
_SILENCE = 0.2
_LONGEST_HOLD = 0.8
#: SPAWN messages in flight, and bytes of the largest: together they fit into the socket, so sending never blocks.
_UNDER_WAY = 16
_LARGEST_SPAWN = 32 * 1024
_NEVER_STARTED = Cause(CAUSE_CRASH, status=127)
#: For an interpreter that is started by a command, which may be any program.
_NO_PROFILER = Wrapper("", False, ()).encode()


class Supervisor:
    def __init__(
        self,
        reactor: Reactor,
        session_dir: str,
        options: dict[str, Any],
        lifeline: tuple[int, int],
        lock: int,
        new_connection: Callable[[str], socket.socket],
        on_ended: Callable[[str, str, Cause], None],
        on_output: Callable[[str, int, int, str, str], None],
        written: WrittenParts,
    ) -> None:
        """`new_connection` creates a connection to a process that is to be started, and returns that process's end.

        `on_ended` gets process, work and cause, of kind CAUSE_REFUSED for a worker that cannot be started and is not retried;
        `on_output` work, pid, stream, name, whole lines.
        `written` notes the parts of log files.
        """
        self._reactor = reactor
        self._session_dir = session_dir
        self._options = options
        #: Variables of a private session's job, which a zygote is started with.
        self._at_start: dict[str, str] = options.get("at_start", {})
        self._zygotes = {**options.get("variables", {}), **self._at_start}
        #: Reading end (for workers) and writing end (the node's alone). See Note [lifeline] in `mray._ipc.process`.
        self._lifeline = lifeline
        self._lock = lock
        self._new_connection = new_connection
        self._on_ended = on_ended
        self._on_output = on_output
        self._written = written
        self._options_fd = os.open(os.path.join(session_dir, OPTIONS), os.O_RDONLY | os.O_CLOEXEC)
        self._wrapped = WrappedWorkers(reactor, session_dir, lifeline[0], self._options_fd, self._wrapped_died, self._wrapper_finished)
        self._interpreters = Interpreters(
            reactor, session_dir, lifeline[0], self._options_fd, lambda text: on_output("", 0, 2, "mray", text)
        )
        #: Workers that wait for their interpreter, or for the next attempt.
        self._unready: set[str] = set()
        self.workers: dict[str, WorkerProcess] = {}
        self._by_pid: dict[int, WorkerProcess] = {}
        #: SPAWN packets that the zygote has not answered; unsent ones.
        self._under_way: dict[str, bytes] = {}
        self._waiting: deque[tuple[str, bytes]] = deque()
        #: Pids of workers that a dead zygote had forked and not reported: they are killed and replaced.
        self._disowned: set[int] = set()
        #: Kernel session ids of dead workers, whose processes are killed.
        self._dead_sids: set[int] = set()
        #: Further children of the node, by pid, called with the exit status. They end with the session.
        self.others: dict[int, Callable[[int], None]] = {}
        self._zygote: socket.socket
        self.zygote_pid = 0
        self._zygote_failures = 0
        #: Failed starts of a zygote in a row.
        self._zygote_starts = 0
        #: Why no worker can be started any more.
        self.failure: Exception | None = None
        wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._wake_read = wake_read
        signal.signal(signal.SIGCHLD, lambda *_args: None)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        reactor.add_fd(wake_read, self._child_ended)

    # ------------------------------------------------------------------------------------ the zygote
    def adopt_zygote(self, pid: int, channel: socket.socket) -> None:
        self._zygote, self.zygote_pid = channel, pid
        self._zygote_starts = 0
        channel.setblocking(False)
        self._reactor.add_fd(channel.fileno(), self._zygote_spoke)

    def _start_zygote(self) -> None:
        try:
            for process in self._under_way:  # which may have been forked, and begun to talk
                self._replace_connection(self.workers[process])
            ours, theirs = new_channel()
            with theirs:
                pid = start_zygote(self._session_dir, self._at_start, theirs.fileno(), self._lifeline[0], self._lock, self._options_fd)
        except OSError as error:
            self._no_zygote(error)
            return
        self.adopt_zygote(pid, ours)
        for process, packet in tuple(self._under_way.items()):
            self._send_spawn(process, packet)

    def _no_zygote(self, error: OSError) -> None:
        """The zygote could not be started: retry later, if that may help."""
        self.zygote_pid = 0
        self._zygote_starts += 1
        if not is_passing(error) or self._zygote_starts > _START_ATTEMPTS:
            self.failure = exhausted(error, "The zygote could not be started.")
            return
        self._reactor.call_later(_FIRST_PAUSE * 2 ** (self._zygote_starts - 1), self._start_zygote)

    def _zygote_spoke(self, _events: int) -> None:
        while self._zygote.fileno() >= 0:  # else there is none for a while
            try:
                packet = self._zygote.recv(PACKET)
            except BlockingIOError:
                return
            except OSError:
                packet = b""
            message: tuple[Any, ...] = ()
            if packet:
                try:
                    message = decode_message(packet)
                    if wrong := misfit(message):
                        raise ValueError(wrong)
                    if MESSAGES[message[0]].ways != ZYGOTE_TO_NODE:
                        raise ValueError(f"a zygote must not send {message_name(message[0])}")
                except ValueError as error:
                    self._trouble(f"the zygote sent an invalid message, and is started anew: {error}\n")
                    message = ()
            if not message:
                # The zygote is dead, or about to be; its status comes with SIGCHLD, unless it died before there was a handler.
                self._reactor.forget(self._zygote.fileno())
                processes.kill(self.zygote_pid)
                self._reactor.call_later(0, partial(self._child_ended, 0))
                return
            # POINT node received of zygote: message[0]
            if message[0] == SPAWNED:
                self._zygote_failures = 0
                if message[1] in self._under_way:  # else it has joined already
                    self._forked(message[1], message[2])
            elif message[0] == REAPED:
                self._ended(message[1], message[2])
            elif message[0] == NOT_SPAWNED:
                self._not_spawned(message[1], message[2])
            elif message[0] == PRELOAD_FAILED:
                self._trouble(f"preload: module {message[1]!r} {message[2]}\n")

    def _zygote_ended(self, status: int) -> None:
        self._zygote_spoke(0)  # its last reports
        self._reactor.forget(self._zygote.fileno())
        self._zygote.close()
        self._zygote_failures += 1
        if self._zygote_failures > _ZYGOTE_ATTEMPTS and self._at_start:
            self._go_without()
        if self._zygote_failures > _ZYGOTE_ATTEMPTS:
            self.zygote_pid = 0
            self.failure = RuntimeError(f"the zygote cannot start: it {describe_status(status)} ({_ZYGOTE_ATTEMPTS} times in a row)")
            return
        # A worker that was forked, and has neither been reported nor joined, is started again: two must not have one name.
        for pid in processes.children():
            if pid in self.others or self._interpreters.knows(pid):
                continue
            if pid not in self._by_pid and _session_id(pid) not in self._by_pid and not self._wrapped.has_session(_session_id(pid)):
                processes.kill(pid)
                self._disowned.add(pid)
        self._start_zygote()

    def _go_without(self) -> None:
        """Start zygotes without the variables with which none starts. Workers are started by exec with them, and fail for themselves."""
        for name in self._at_start:
            del self._zygotes[name]
        self._at_start, self._zygote_failures = {}, 0
        for process in [*self._under_way, *(process for process, _packet in self._waiting)]:
            self._reactor.call_later(0, partial(self._give_up, self.workers[process]))
        self._under_way.clear()
        self._waiting.clear()

    # ------------------------------------------------------------------------------------ starting workers
    def spawn(self, process: str, environment: dict[str, str]) -> None:
        self._begin(WorkerProcess(process, environment.get(ROOT_VARIABLE, "")), environment)

    def _begin(self, worker: WorkerProcess, environment: dict[str, str]) -> None:
        process = worker.process
        self.workers[process] = worker
        try:
            self._connect(worker)
        except OSError as error:
            self._forget(worker)
            worker.streams.clear()
            self.workers[process] = worker
            self._pause(worker, f"the node (pid {os.getpid()}): {advice(error)}", lambda: self._begin(worker, environment))
            return
        if INTERPRETER_VARIABLE in environment:
            recipe = LaunchedInterpreter.decode(environment[INTERPRETER_VARIABLE]).recipe
            self._unready.add(process)
            self._interpreters.when_ready(recipe, environment, lambda: self._ready(worker, environment), partial(self._refuse, worker))
            return
        public = {name: value for name, value in environment.items() if not name.startswith(PRIVATE_VARIABLES)}
        own = {**environment, **processes.expand_all(public, os.environ)}
        packet = marshal.dumps((SPAWN, process, own))
        is_preloaded = any(map(self._options.get, ("preload", "note")))
        is_guests = is_preloaded and is_of_a_guest(self._options, worker.work)
        if is_guests or needs_fresh_interpreter(own, self._zygotes, os.environ, is_preloaded) or len(packet) > _LARGEST_SPAWN:
            self._exec(worker, environment)
            return
        self._waiting.append((process, packet))
        self._send_waiting()

    def _connect(self, worker: WorkerProcess) -> None:
        """Create the pipes for the output, and the connection to the node. Raises OSError when there is no descriptor."""
        for number in (1, 2):
            read_end, write_end = os.pipe2(os.O_CLOEXEC)
            os.set_blocking(read_end, False)
            stream = OutputStream(read_end, number)
            worker.streams.append(stream)
            worker.theirs.append(write_end)
            self._reactor.add_fd(read_end, partial(self._printed, worker, stream))
        worker.theirs.append(self._new_connection(worker.process).detach())

    def _replace_connection(self, worker: WorkerProcess) -> None:
        end = self._new_connection(worker.process).detach()
        os.close(worker.theirs[-1])
        worker.theirs[-1] = end

    def _not_spawned(self, process: str, text: str) -> None:
        """Retry: the zygote could not fork."""
        packet = self._under_way.pop(process, None)
        worker = self.workers.get(process)
        if packet is not None and worker is not None:
            self._pause(worker, text, lambda: self._wait_for_zygote(process, packet))
        self._send_waiting()

    def _wait_for_zygote(self, process: str, packet: bytes) -> None:
        self._waiting.append((process, packet))
        self._send_waiting()

    def _pause(self, worker: WorkerProcess, text: str, again: Callable[[], None]) -> None:
        """Call `again` later, since there was no process or descriptor; fail with `text` if that does not help."""
        worker.attempts += 1
        self._unready.add(worker.process)
        if worker.attempts > _START_ATTEMPTS:
            self._reactor.call_later(0, partial(self._refuse, worker, text))
            return

        def go_on() -> None:
            if worker.process in self._unready:  # else it is no longer wanted
                self._unready.discard(worker.process)
                again()

        self._reactor.call_later(_FIRST_PAUSE * 2 ** (worker.attempts - 1), go_on)

    def _send_waiting(self) -> None:
        while self._waiting and len(self._under_way) < _UNDER_WAY:
            process, packet = self._waiting.popleft()
            self._under_way[process] = packet
            # POINT worker ordered
            self._send_spawn(process, packet)

    def _send_spawn(self, process: str, packet: bytes) -> None:
        worker = self.workers[process]
        try:
            socket.send_fds(self._zygote, [packet], worker.theirs)
        except OSError as error:
            if is_passing(error):
                del self._under_way[process]
                text = f"the node (pid {os.getpid()}) could not ask for its process: {advice(error)}"
                self._pause(worker, text, lambda: self._wait_for_zygote(process, packet))
            # Else the zygote is dead, and the next one is asked.

    def _exec(self, worker: WorkerProcess, environment: dict[str, str]) -> None:
        """Start the worker by exec: a forked process would get these variables too late, or it runs under a wrapper."""
        own = dict(environment)
        wrapper = own.pop(WRAPPER_VARIABLE, None)
        encoded = own.pop(INTERPRETER_VARIABLE, None)
        variables = {**os.environ, **processes.expand_all(own, os.environ), WORKER_VARIABLE: to_text(own)}
        interpreter: tuple[str, ...] = ()
        if encoded is not None:
            chosen = LaunchedInterpreter.decode(encoded)
            interpreter = chosen.command
            variables.update(chosen.variables(variables))
        stdout, stderr, line = worker.theirs
        descriptors = {0: 0, 1: stdout, 2: stderr, 3: self._lifeline[0], 4: line}
        try:
            if wrapper is None and len(interpreter) > 1:
                wrapper = _NO_PROFILER  # any program may be in front of the interpreter
            if wrapper is None:
                pid = launch("worker", self._session_dir, worker.process, variables, descriptors, (*interpreter, None)[0], self._options_fd)
            else:
                self._wrapped.start(worker, Wrapper.decode(wrapper), variables, interpreter)
        except ValueError as error:
            impossible = f"no process can have such variables or arguments: {error}"
            self._reactor.call_later(0, lambda: self._refuse(worker, impossible))
            return
        except OSError as error:
            if is_passing(error):
                text = f"the node (pid {os.getpid()}) could not start its interpreter: {advice(error)}"
                self._pause(worker, text, lambda: self._exec(worker, environment))
                return
            if interpreter:
                text = f"the interpreter {' '.join(interpreter)!r} cannot be started: {error}"
                self._reactor.call_later(0, lambda: self._refuse(worker, text))
                return
            names = [name for name in own if not name.startswith(PRIVATE_VARIABLES)]
            self._trouble(f"a worker could not be started with the env_vars {names}: {error}\n", worker.work)
            self._reactor.call_later(0, partial(self._give_up, worker))
            return
        if wrapper is None:
            self._forked(worker.process, pid)
        else:
            self._close_theirs(worker)

    def _ready(self, worker: WorkerProcess, environment: dict[str, str]) -> None:
        if worker.process in self._unready:  # else it is no longer wanted
            self._unready.discard(worker.process)
            self._exec(worker, environment)

    def _refuse(self, worker: WorkerProcess, text: str) -> None:
        self._give_up(worker, Cause(CAUSE_REFUSED, text))

    def _give_up(self, worker: WorkerProcess, cause: Cause = _NEVER_STARTED) -> None:
        self._unready.discard(worker.process)
        if worker.process in self.workers:
            self._forget(worker)
            self._on_ended(worker.process, worker.work, cause)

    def _forget(self, worker: WorkerProcess) -> None:
        self._close_theirs(worker)
        del self.workers[worker.process]
        for stream in worker.streams:
            self._close(worker, stream)

    @staticmethod
    def _close_theirs(worker: WorkerProcess) -> None:
        for fd in worker.theirs:
            os.close(fd)
        worker.theirs.clear()

    def _forked(self, process: str, pid: int) -> None:
        # POINT worker born
        worker = self.workers[process]
        if self._under_way.pop(process, None) is not None:
            self._send_waiting()
        worker.pid = pid
        self._by_pid[pid] = worker
        self._dead_sids.discard(pid)
        self._disowned.discard(pid)
        self._close_theirs(worker)

    def expects(self, process: str, pid: int) -> bool:
        """Whether this is a worker of the session: its first message may be read after its end has been decided."""
        return process in self.workers and pid not in self._disowned

    def joined(self, process: str, pid: int) -> None:
        """Record a joined worker's pid: it may join before the zygote reports it, which may die before that."""
        if process in self._under_way:
            self._forked(process, pid)
        self._wrapped.joined(process, pid)

    def _trouble(self, text: str, work: str = "") -> None:
        self._on_output(work, 0, 2, "mray", text)

    def kill(self, process: str) -> None:
        worker = self.workers.get(process)
        if worker is not None and process in self._unready:
            self._unready.discard(process)
            self._reactor.call_later(0, partial(self._give_up, worker))
            return
        if self._wrapped.knows(process):
            self._wrapped.kill(process)
            return
        if worker is not None and not worker.pid and process in self._under_way:
            self._zygote_spoke(0)  # the report that it was forked may still be in the other socket
        # Its pid is not reused until the zygote has reported that it was reaped.
        if worker is not None and worker.pid in self._by_pid:
            processes.kill(worker.pid)

    # ------------------------------------------------------------------------------------ ends
    def _child_ended(self, _events: int) -> None:
        """SIGCHLD of the zygote, a worker of a dead zygote or with its own interpreter, or an orphan."""
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
            if info.si_pid == self.zygote_pid:
                self._zygote_ended(status)
            elif info.si_pid in self._by_pid:
                self._ended(info.si_pid, status)
            elif info.si_pid in self.others:
                self.others.pop(info.si_pid)(status)
            elif self._interpreters.child_ended(info.si_pid, status):
                orphans = True
            elif self._wrapped.wrapper_ended(info.si_pid, status):
                self._dead_sids.add(info.si_pid)
                orphans = True
            else:
                orphans = True
        if orphans:
            self._end_orphans()

    def _ended(self, pid: int, status: int) -> None:
        worker = self._by_pid.pop(pid, None)
        if worker is None:
            return
        del self.workers[worker.process]
        # POINT worker reaped
        self._dead_sids.add(pid)
        self._end_orphans()
        for stream in worker.streams:
            self._drain(worker, stream)
        self._died(worker, pid, status)

    def _died(self, worker: WorkerProcess, pid: int, status: int | None) -> None:
        for stream in worker.streams:
            worker.tail = (worker.tail + stream.fatal_error.finish())[-TAIL_BYTES:]
        if worker.noted:
            self._on_output(worker.work, pid, NOTE_STREAM, "", '{"kind": "gone"}')
        self._on_ended(worker.process, worker.work, Cause(CAUSE_CRASH, "", pid, status, last_lines(worker.tail) or None))

    def _wrapped_died(self, worker: WorkerProcess, status: int | None) -> None:
        """Report the death of a wrapped worker; its wrapper may live on, and print."""
        del self.workers[worker.process]
        if worker.pid:
            self._dead_sids.add(worker.pid)
        for stream in worker.streams:
            self._read_rest(worker, stream)
        self._died(worker, worker.pid, status)

    def _wrapper_finished(self, worker: WorkerProcess) -> None:
        for stream in worker.streams:
            self._drain(worker, stream)

    def _end_orphans(self) -> None:
        """Kill orphans. The children of each are found when it is reaped."""
        left = set()
        for pid in processes.children():
            sid = _session_id(pid)
            if sid in self._dead_sids and pid not in self._by_pid:
                left.add(sid)
                processes.kill(pid)
        self._dead_sids = left

    def end_all(self, others: Collection[int] = (), end_others: Callable[[], None] | None = None) -> None:
        """Kill every process below the node, and reap it. Blocks. `end_others` ends workers with the pids `others`."""
        signal.set_wakeup_fd(-1)
        if self.zygote_pid:
            processes.kill(self.zygote_pid)
        for pid in self._by_pid:
            if pid not in others:
                processes.kill(pid)
        if end_others is not None:
            end_others()
        self._wrapped.end_all(self._read_all)
        while True:
            for pid in processes.children():
                processes.kill(pid)
            try:
                os.waitpid(-1, 0)
            except ChildProcessError:
                break
        for worker in [*self.workers.values(), *self._wrapped.workers()]:
            for stream in worker.streams:
                self._drain(worker, stream)

    def _read_all(self) -> None:
        for worker in [*self.workers.values(), *self._wrapped.workers()]:
            for stream in worker.streams:
                self._read_rest(worker, stream)

    # ------------------------------------------------------------------------------------ output
    def take_output(self) -> None:
        """Read all output of workers so far: a pipe holds no more than one read takes."""
        for worker in [*self.workers.values()]:
            for stream in worker.streams:
                if stream.fd >= 0:
                    self._printed(worker, stream, 0)

    def _printed(self, worker: WorkerProcess, stream: OutputStream, _events: int) -> None:
        if not worker.pid:
            self._zygote_spoke(0)  # the report that it was forked may still be in the other socket
            if stream.fd < 0:  # and the report of its exit, too
                return
        try:
            data = os.read(stream.fd, _READ_BYTES)
        except BlockingIOError:
            return
        if data:
            self._pass_on(worker, stream, stream.splitter.feed(data))
            if stream.splitter.holds:
                self._hold(worker, stream)
        else:
            self._close(worker, stream)

    def _hold(self, worker: WorkerProcess, stream: OutputStream) -> None:
        """Hold back the beginning of a line, for `_SILENCE` seconds."""
        stream.last_output = monotonic()
        if not stream.held:
            stream.held = stream.last_output
            self._reactor.call_later(_SILENCE, partial(self._look_at_piece, worker, stream))

    def _look_at_piece(self, worker: WorkerProcess, stream: OutputStream) -> None:
        now = monotonic()
        if not stream.splitter.holds:
            stream.held = 0.0
        elif now - stream.last_output < _SILENCE and now - stream.held < _LONGEST_HOLD:
            self._reactor.call_later(_SILENCE, partial(self._look_at_piece, worker, stream))
        else:
            stream.held = 0.0
            self._pass_on(worker, stream, stream.splitter.piece())

    def _drain(self, worker: WorkerProcess, stream: OutputStream) -> None:
        """Read a dead worker's pipe, and close it: its children may hold the other end indefinitely."""
        self._read_rest(worker, stream)
        self._close(worker, stream)

    def _read_rest(self, worker: WorkerProcess, stream: OutputStream) -> None:
        while stream.fd >= 0:
            try:
                data = os.read(stream.fd, _READ_BYTES)
            except BlockingIOError:
                break
            if not data:
                break
            self._pass_on(worker, stream, stream.splitter.feed(data))

    def _close(self, worker: WorkerProcess, stream: OutputStream) -> None:
        if stream.fd < 0:
            return
        self._pass_on(worker, stream, stream.splitter.finish())
        self._reactor.forget(stream.fd)
        os.close(stream.fd)
        stream.fd = -1
        if stream.log >= 0:
            os.close(stream.log)
            stream.log = -1

    def _pass_on(self, worker: WorkerProcess, stream: OutputStream, lines: list[tuple[str, bytes]]) -> None:
        for name, text in lines:
            self._write_log(worker, stream, name, text)
            shown, last = stream.fatal_error.feed(text)
            worker.tail = (worker.tail + last)[-TAIL_BYTES:]
            if shown:
                self._on_output(worker.work, self._shown_pid(worker), stream.number, name, shown.decode("utf-8", "replace"))
        notes = stream.splitter.notes
        if notes:
            worker.noted = True
            for each in notes:
                self._on_output(worker.work, self._shown_pid(worker), NOTE_STREAM, stream.splitter.name, each.decode("utf-8", "replace"))
            notes.clear()

    def log(self, process: str, text: str) -> None:
        """Write a text of the node's into a worker's log of errors. It is not shown."""
        worker = self.workers.get(process)
        if worker is None or not worker.pid:
            return
        for stream in worker.streams:
            if stream.number == _STDERR and stream.fd >= 0:
                self._write_log(worker, stream, "mray", text.encode())

    def _write_log(self, worker: WorkerProcess, stream: OutputStream, name: str, text: bytes) -> None:
        if stream.log < 0:
            stream.log = self._open_log(worker, stream)
        with contextlib.suppress(OSError):  # a full disk must not end the session
            begin = stream.written
            stream.written += os.write(stream.log, text)
            self._written.note(stream.file, name, begin, stream.written, b"\n" in text)

    def _shown_pid(self, worker: WorkerProcess) -> int:
        return worker.pid or self._wrapped.wrapper_of(worker.process)

    def _open_log(self, worker: WorkerProcess, stream: OutputStream) -> int:
        """The descriptor of a worker's log file, named as Ray names it; -1 when it cannot be opened."""
        suffix = "out" if stream.number == 1 else "err"
        stream.file = name = f"worker-{worker_id_of(worker.process).hex()}-{job_of(worker.work)}-{self._shown_pid(worker)}.{suffix}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        try:
            return os.open(os.path.join(self._session_dir, "logs", name), flags, 0o600)
        except OSError:  # a full disk or a removed directory must not end the session
            return -1


def _session_id(pid: int) -> int:
    try:
        return os.getsid(pid)
    except OSError:
        return 0
