"""MPS: the daemons of a session, their clients among its workers, and the exits of both.

In the node of a session with GPUs, on its one thread.

::

    worker with a fraction ──QUERY mps_client──▶ "on": once the daemon of its GPU answers     ──▶ folder and uuid, before any cuInit
                                                 "auto": immediately, before there is a daemon
    compiler ──QUERY mps_edges──▶ "auto": once the daemons of GPUs that ends of its edges share answer ──▶ failures
    KillWorker ──▶ get_server_list ──▶ terminate_client ──▶ SIGKILL, which comes after `_TERMINATE_SECONDS` in any case
    the session's end ──▶ the same for all clients, then quit ──▶ SIGKILL of the daemon's kernel session

SIGKILL of a client with work on the GPU leaves the server, and so the other clients, in an undefined state. A daemon of the user is
neither started nor ended here.

When the node dies, the kernel kills the daemons (PR_SET_PDEATHSIG), and the cleaner of the session kills their servers, found by the
session's variable in their environments.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from mray._common import settings
from mray._common.accelerator_kinds import GpuId
from mray._common.clock import monotonic
from mray._common.kept import os
from mray._decide.scheduler.records import SHARED
from mray._decide.scheduler.scheduler import Scheduler
from mray._device import mps_control
from mray._device.topology import uuids
from mray._ipc.output import end_of_file
from mray._ipc.pidfd import PidFd
from mray._ipc.process import kill
from mray._ipc.reactor import Reactor
from mray._runtime.processes.supervisor import Supervisor
from mray.exceptions import describe_status

if TYPE_CHECKING:
    from subprocess import Popen

#: Seconds until a daemon must answer; and between the first two polls (each pause doubles).
_START_SECONDS = 15.0
_FIRST_PAUSE = 0.01
#: Seconds for clients to terminate before they are killed; and for a daemon to quit.
_TERMINATE_SECONDS = 3.0
_QUIT_SECONDS = 3.0
#: Variables by which the user chooses a worker's daemon or GPUs, so that it is left alone.
_LEFT_ALONE = settings.NOSET_CUDA_VISIBLE_DEVICES
_OWN = frozenset({mps_control.PIPE, "CUDA_VISIBLE_DEVICES", _LEFT_ALONE.name, _LEFT_ALONE.ray})
_LOG_LINES = 10

_COST = (
    "{pairs} share a GPU as processes that take turns: each message between them costs two context switches on the GPU, about 150 µs each"
)
_OFF = '. With init(mps="auto"), or MRAY_MPS=auto, they would share one context scheduler (NVIDIA\'s MPS).'
_IMPOSSIBLE = f". NVIDIA's MPS would avoid them, but its program {mps_control.PROGRAM} is not on this machine."
_LATE = (
    ", since {late} initialised CUDA before MPS was available to it, or has a CUDA_VISIBLE_DEVICES of its own. Compile the graph before "
    'they use CUDA, or enable MPS from the start: init(mps="on"), or MRAY_MPS=on.'
)


class _Daemon:
    def __init__(self, gpu: GpuId, folder: str) -> None:
        self.gpu = gpu
        self.pipe = os.path.join(folder, "pipe")
        self.log = os.path.join(folder, "log")
        self.output = os.path.join(folder, "output")
        self.process: Popen[bytes] | None = None
        #: Whether it has answered; why it never will.
        self.is_ready = False
        self.failure = ""
        #: Called with the failure, or "".
        self.waiters: list[Callable[[str], None]] = []
        self.give_up_at = 0.0


class SessionMps:
    def __init__(
        self,
        reactor: Reactor,
        session_dir: str,
        options: dict[str, str],
        gpus: Sequence[GpuId],
        scheduler: Scheduler,
        supervisor: Supervisor,
        kill_worker: Callable[[str], None],
        tell: Callable[[str], None],
    ) -> None:
        self._reactor = reactor
        self._folder = os.path.join(session_dir, mps_control.FOLDER)
        self.mode = options["mode"]
        self._program = options["program"]
        self._gpus = gpus
        self._scheduler = scheduler
        self._supervisor = supervisor
        self._kill_worker = kill_worker
        self._tell = tell
        self._daemons: dict[GpuId, _Daemon] = {}
        #: Workers that are killed as soon as their work on the GPU has ended; those whose turn is next, by folder.
        self._ending: set[str] = set()
        self._next: dict[str, list[tuple[str, int]]] = {}
        #: Called when these workers have been killed.
        self._after: list[tuple[set[str], Callable[[], None]]] = []
        self._is_hinted = False

    # ------------------------------------------------------------------------------------ questions
    def answer(self, process: str, what: str, arguments: list[Any], answer: Callable[[bool, object], None]) -> None:
        if what == "mps_client":
            self._answer_client(process, answer)
        elif what == "mps_edges":
            self._answer_edges(arguments, answer)
        else:
            answer(True, self._hint(*arguments))

    def _answer_client(self, process: str, answer: Callable[[bool, object], None]) -> None:
        """Answer with the folder of a worker's daemon and its GPU's uuid; neither if it is to be no client."""
        gpu = self._shared_gpu(process)
        if gpu is None:
            answer(True, ["", ""])
        elif self.mode == "auto":
            uuid = self._uuid(gpu)
            answer(True, [self._daemon(gpu).pipe if uuid else "", uuid])
        else:
            found = [self._daemon(gpu).pipe, self._uuid(gpu)]
            self._when_ready(gpu, lambda failure: answer(not failure, failure or found))

    def _answer_edges(self, pairs: Sequence[tuple[str, str]], answer: Callable[[bool, object], None]) -> None:
        shared = {gpu for one, other in pairs if (gpu := self._shared_gpu(one)) is not None and gpu == self._shared_gpu(other)}
        if self.mode != "auto" or not shared:
            answer(True, [])
            return
        failures: list[str] = []

        def known(failure: str) -> None:
            failures.append(failure)
            if len(failures) == len(shared):
                answer(True, [each for each in failures if each])

        for gpu in shared:
            self._when_ready(gpu, known)

    def _hint(self, pairs: str, late: str) -> str:
        """A sentence about edges within a GPU whose ends share no context scheduler; "" if it was said before. `late`: those ends."""
        if self.mode == "auto":
            return _COST.format(pairs=pairs) + _LATE.format(late=late)
        if self.mode != "off" or self._is_hinted:
            return ""
        self._is_hinted = True
        return _COST.format(pairs=pairs) + (_OFF if self._program else _IMPOSSIBLE)

    def _shared_gpu(self, process: str) -> GpuId | None:
        worker = self._scheduler.workers.workers.get(process)
        if worker is None or not worker.gpus or worker.gpus[-1] != SHARED or not _OWN.isdisjoint(dict(worker.environment)):
            return None
        return worker.gpus[0]

    def _uuid(self, gpu: GpuId) -> str:
        return uuids(self._gpus).get(gpu, "")

    # ------------------------------------------------------------------------------------ daemons
    def _daemon(self, gpu: GpuId) -> _Daemon:
        if gpu not in self._daemons:
            self._daemons[gpu] = _Daemon(gpu, os.path.join(self._folder, str(self._gpus.index(gpu))))
        return self._daemons[gpu]

    def _when_ready(self, gpu: GpuId, then: Callable[[str], None]) -> None:
        """Call ``then("")`` when the daemon of a GPU answers, or with the reason why it does not; starts it if needed."""
        daemon = self._daemon(gpu)
        if daemon.is_ready or daemon.failure:
            then(daemon.failure)
            return
        daemon.waiters.append(then)
        if daemon.process is None:
            self._start(daemon)

    def _start(self, daemon: _Daemon) -> None:
        uuid = self._uuid(daemon.gpu)
        if not uuid:
            self._fail(daemon, "its uuid is not known, by which a daemon and its clients name it")
            return
        try:
            for folder in (self._folder, os.path.dirname(daemon.pipe), daemon.pipe, daemon.log):
                os.makedirs(folder, 0o700, exist_ok=True)
            output = os.open(daemon.output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            try:
                # POINT mps daemon due
                daemon.process = mps_control.start_daemon(self._program, uuid, daemon.pipe, daemon.log, output)
            finally:
                os.close(output)
        except OSError as error:
            self._fail(daemon, f"{self._program} cannot be started: {error}")
            return
        self._supervisor.others[daemon.process.pid] = partial(self._daemon_ended, daemon, daemon.process)
        daemon.give_up_at = monotonic() + _START_SECONDS
        self._look(daemon, _FIRST_PAUSE)

    def _look(self, daemon: _Daemon, pause: float) -> None:
        def looked(servers: str | None) -> None:
            if daemon.failure or daemon.process is None:
                return
            if servers is not None:
                daemon.is_ready = True
                self._settle(daemon)
            elif monotonic() < daemon.give_up_at:
                self._reactor.call_later(pause, lambda: self._look(daemon, min(2 * pause, 0.5)))
            else:
                self._fail(daemon, f"{self._program} does not answer")
                self._end_session_of(daemon)

        if mps_control.has_daemon(daemon.pipe):
            self._ask(daemon.pipe, ("get_server_list",), looked)
        else:
            looked(None)

    def _fail(self, daemon: _Daemon, why: str) -> None:
        logs = [daemon.output, *(os.path.join(daemon.log, name) for name in ("control.log", "server.log"))]
        said = "\n".join(filter(None, (end_of_file(path, _LOG_LINES) for path in logs if os.path.exists(path))))
        daemon.failure = f"there is no MPS on GPU {daemon.gpu}: {why}" + (f". Its last lines:\n{said}" if said else "")
        self._settle(daemon)

    @staticmethod
    def _settle(daemon: _Daemon) -> None:
        waiters, daemon.waiters = daemon.waiters, []
        for waiter in waiters:
            waiter(daemon.failure)

    def _daemon_ended(self, daemon: _Daemon, process: Popen[bytes], status: int) -> None:
        process.returncode = status
        daemon.process = None
        if daemon.is_ready:  # the next query starts another one
            del self._daemons[daemon.gpu]
            text = "its clients go on while its server lives, and the next workers with a fraction of that GPU get another one"
            self._tell(f"the MPS daemon of GPU {daemon.gpu} {describe_status(status)}: {text}\n")
        elif not daemon.failure:
            self._fail(daemon, f"{self._program} {describe_status(status)}")

    @staticmethod
    def _end_session_of(daemon: _Daemon) -> None:
        if daemon.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(daemon.process.pid, signal.SIGKILL)

    def _ask(self, pipe: str, commands: Sequence[str], then: Callable[[str | None], None]) -> None:
        """Call `then` with the daemon's answers; None: none in time."""
        try:
            asking = mps_control.start_asking(self._program, pipe, commands)
        except OSError:
            self._reactor.call_later(0, lambda: then(None))
            return
        others, pid = self._supervisor.others, asking.pid

        def ended(status: int) -> None:
            asking.returncode = status
            assert asking.stdout is not None
            with asking.stdout as stdout:
                os.set_blocking(stdout.fileno(), False)
                said = stdout.read() or b""
            then(said.decode(errors="replace") if status == 0 else None)

        others[pid] = ended
        self._reactor.call_later(mps_control.ANSWER_SECONDS, lambda: kill(pid) if others.get(pid) is ended else None)

    # ------------------------------------------------------------------------------------ ends of clients
    def kill(self, process: str) -> None:
        pipe, pid = self._client(process)
        if not pipe:
            self._kill_worker(process)
        elif process not in self._ending:
            self._ending.add(process)
            if pipe not in self._next:
                self._reactor.call_later(0, lambda: self._terminate(pipe))
            self._next.setdefault(pipe, []).append((process, pid))

    def when_killed(self, processes: Iterable[str], then: Callable[[], None]) -> None:
        waiting = self._ending.intersection(processes)
        if waiting:
            self._after.append((waiting, then))
        else:
            then()

    def _client(self, process: str) -> tuple[str, int]:
        """The folder of the daemon that may serve a worker ("": none), and the worker's pid."""
        worker, running = self._scheduler.workers.workers.get(process), self._supervisor.workers.get(process)
        if not self._program or worker is None or running is None or not running.pid or not worker.gpus:
            return "", 0
        gpu = self._shared_gpu(process)
        if gpu is not None:
            pipe = self._daemons[gpu].pipe if gpu in self._daemons and self._daemons[gpu].is_ready else ""
        else:
            pipe = dict(worker.environment).get(mps_control.PIPE) or mps_control.pipe_directory()
        return (pipe, running.pid) if pipe and mps_control.has_daemon(pipe) else ("", 0)

    def _terminate(self, pipe: str) -> None:
        clients = self._next.pop(pipe)

        def finish(_answers: str | None = None) -> None:
            for process, _pid in clients:
                self._finish(process)

        def servers_known(servers: str | None) -> None:
            commands = mps_control.terminations(servers, [pid for process, pid in clients if process in self._ending])
            # POINT mps clients terminated
            if commands:
                self._ask(pipe, commands, finish)
            else:
                finish()

        self._reactor.call_later(_TERMINATE_SECONDS, finish)
        self._ask(pipe, ("get_server_list",), servers_known)

    def _finish(self, process: str) -> None:
        if process not in self._ending:
            return
        self._ending.discard(process)
        self._kill_worker(process)
        for waiting, then in tuple(self._after):
            waiting.discard(process)
            if not waiting:
                self._after.remove((waiting, then))
                then()

    # ------------------------------------------------------------------------------------ the session's end
    def end_clients(self) -> None:
        """End all clients. Blocks for `_TERMINATE_SECONDS` at most."""
        clients: dict[str, list[int]] = {}
        for process in self._supervisor.workers:
            pipe, pid = self._client(process)
            if pipe:
                clients.setdefault(pipe, []).append(pid)
        deadline = monotonic() + _TERMINATE_SECONDS
        for pipe, pids in clients.items():
            servers = mps_control.ask(pipe, ("get_server_list",), max(0.0, deadline - monotonic()))
            if commands := mps_control.terminations(servers, pids):
                mps_control.ask(pipe, commands, max(0.0, deadline - monotonic()))

    def end_daemons(self) -> None:
        """End all clients and daemons. Blocks for `_QUIT_SECONDS` at most."""
        running = [daemon for daemon in self._daemons.values() if daemon.process is not None]
        if not running:
            return
        deadline = monotonic() + _QUIT_SECONDS
        workers = list(self._supervisor.workers.items())
        pids = [worker.pid for process, worker in workers if worker.pid and self._shared_gpu(process) is not None]
        for pid in pids:
            kill(pid)
        _await_ends(pids, deadline)  # a server waits for its clients
        # POINT mps daemons ending
        for daemon in running:
            if daemon.is_ready:
                with contextlib.suppress(OSError):
                    mps_control.start_asking(self._program, daemon.pipe, ("quit",)).returncode = 0  # reaped with all others
        _await_ends((daemon.process.pid for daemon in running if daemon.is_ready and daemon.process is not None), deadline)
        for daemon in running:
            self._end_session_of(daemon)


def _await_ends(pids: Iterable[int], deadline: float) -> None:
    for pid in pids:
        with contextlib.suppress(OSError), PidFd(pid) as found:
            found.wait(max(0.0, deadline - monotonic()))
