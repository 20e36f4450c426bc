"""The node: the I/O shell around the scheduler.

A process with one thread, which never runs user code, owns the session's table, and connects its processes with each other. Its workers
have their connection to it from the start; at ``node.sock``, the only named socket of a session, it listens for drivers, observers, and
workers behind profilers.

::

   drivers, workers ──messages──▶ Node ──events──▶ Scheduler
                    ◀──messages──  │  ◀─instructions─┘
                                   └── Supervisor ── zygote, workers' pipes and exits

A private session ends when its driver sends SHUTDOWN or is dead (seen by its pidfd and its socket), a persistent one with SIGTERM; the
node then kills all processes below it and removes the session's names. If it dies, the kernel kills the workers and the zygote removes
the names.
"""

from __future__ import annotations

import contextlib
import errno
import reprlib
import resource
import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from mray._common import messages as m
from mray._common import settings
from mray._common.beside import MPS, TOPOLOGY, loaded
from mray._common.causes import Cause
from mray._common.clock import monotonic, time
from mray._common.ids import new_process_id, session_mark
from mray._common.kept import io, os, socket
from mray._common.protocol import misfit
from mray._decide.scheduler import events
from mray._decide.scheduler.instructions import (
    Instruction,
    KillWorker,
    RemoveObjects,
    SpawnWorker,
    Tell,
)
from mray._decide.scheduler.message_events import EVENT_OF
from mray._decide.scheduler.records import environment_of
from mray._decide.scheduler.root_names import job_of
from mray._decide.scheduler.scheduler import Scheduler
from mray._ipc import process as processes
from mray._ipc.connection import Connection, Message, ProtocolViolationError, SocketConnection, peer_pid
from mray._ipc.faults import fault, fault_text, message_name
from mray._ipc.kept_sessions import kept_count
from mray._ipc.limits import above_limit, advice, is_exhausted
from mray._ipc.pidfd import PidFd
from mray._ipc.reactor import Reactor
from mray._ipc.reaper import (
    hold,
    is_published,
    keep_young,
    remove_leftovers,
    remove_session,
    segment_prefix,
    session_of,
    withdraw,
)
from mray._ipc.segment import SHM, new_nonce
from mray._ipc.sessions import address_of
from mray._ipc.table import POOLED, SPILLED_EVER, SPILLED_OBJECTS, SessionTable
from mray._runtime.node import last_records, snapshot
from mray._runtime.node.introducer import Introducer
from mray._runtime.node.jobs import Job
from mray._runtime.node.memory_monitor import MemoryMonitor
from mray._runtime.node.records import NodeRecords
from mray._runtime.node.session_reset import SessionReset
from mray._runtime.node.stray_workers import StrayWorkers
from mray._runtime.node.task_trees import TaskTrees
from mray._runtime.node.timers import timer_of
from mray._runtime.node.unmet_waits import UnmetWaits
from mray._runtime.processes.supervisor import Supervisor

if TYPE_CHECKING:
    from mray._runtime.node.deadlocks import Deadlocks
    from mray._runtime.node.graceful_kill import GracefulKill
    from mray._runtime.node.mps_contract import Mps

#: Unsent bytes of output for a driver that does not read; further output stays in the log files only.
_OUTPUT_BACKLOG = 8 << 20
#: Seconds between touches of the session's files: programs that remove old files wait for a day at least.
_TOUCH_SECONDS = 3600.0
#: Seconds that TRIM waits for other processes to free memory, and between two checks.
_TRIM_WAIT = 0.1
_TRIM_LOOK = 0.005
#: Descriptors reserved for connections that it creates (see `mray._ipc.limits.above_limit`).
_RESERVE = 16
#: Seconds, for each process of the session and at least, until a worker is sent the end of one that it was not connected with.
_STRANGERS_SECONDS, _LEAST_STRANGERS_SECONDS = 0.001, 0.05
#: Fields of a report without segments.
_BARE_REPORT = 4
#: Seconds that the driver gets to read the last output.
_DRAIN_SECONDS = 2.0


class Node:
    def __init__(self, session_dir: str, options: dict[str, Any], lifeline: tuple[int, int], lock: int) -> None:
        self._session_dir = session_dir
        self._options = options
        self._session = session_of(session_dir)
        self.reactor = Reactor()
        table_name = f"{segment_prefix(self._session)}table-{new_nonce():x}"
        self._records = records = NodeRecords(SessionTable.create(table_name))
        self._members, self.jobs = records.members, records.jobs
        default = environment_of(options["env"], ())
        # The cores that workers inherit.
        cpus = sorted(os.sched_getaffinity(0))
        self._scheduler = Scheduler(
            options["resources"],
            options["gpus"],
            default,
            partial(new_process_id, session_mark(session_dir)),
            lambda: loaded(TOPOLOGY).read_topology(options["gpus"], cpus),
            mps=options["mps"]["mode"] in ("on", "auto"),
        )
        self._introducer = Introducer(self.reactor, self._meet)
        #: Connections of `_flush_for_strangers`.
        self._told_strangers: dict[Connection, None] = {}
        self._supervisor = Supervisor(
            self.reactor,
            session_dir,
            options,
            lifeline,
            lock,
            self._introducer.new_connection,
            self._worker_ended,
            self._printed,
            records.written,
        )
        self._stray_workers = StrayWorkers(self.reactor, self._supervisor, lambda process: self._kill(process), table_name)
        #: The job of a private session's own driver, with which it ends.
        self._only_job = None if options["persistent"] else self.jobs.admit(options["job"], options["driver_pid"], "")
        self._waits = UnmetWaits(self.reactor, self._scheduler, self._tell)
        self._trees = TaskTrees(self._scheduler, self._tell)
        #: None before the first long wait.
        self._deadlocks: Deadlocks | None = None
        #: None unless workers are measured.
        self._graceful_kill = self._new_graceful_kill() if options["coverage"] is not None else None
        self._kill = self._supervisor.kill if self._graceful_kill is None else self._graceful_kill.kill
        #: None without GPUs.
        self._mps = self._new_mps(self._kill) if options["gpus"] else None
        if self._mps is not None:
            self._kill = self._mps.kill
        self._held_output: list[tuple[Any, ...]] = []
        #: Spilled bytes at which the user gets a message.
        self._tell_spilled_at = settings.VERBOSE_SPILL_LOGS.get()
        #: Why the session ends, once it does.
        self.ending: str | None = None
        #: The node's own failure, if that is the reason.
        self._failure: Exception | None = None
        self._told_failure, self._driver_refused = "", False
        self.reactor.on_fault = self._fail
        self._info: dict[str, Any] = {
            **options["info"],
            "session_dir": session_dir,
            "address": address_of(session_dir),
            "session": self._session,
            "table": table_name,
            "rows": self._members.table.rows,
            "resources": self._scheduler.pool.quantities(),
            "gpus": list(options["gpus"]),
            "mps": options["mps"]["mode"],
            "env": dict(default),
            "preload": list(options["preload"]),
            "persistent": self._only_job is None,
            "patience": max(0.0, settings.WARN_WAITING.get()),
            "node_pid": os.getpid(),
            "cpus": cpus,
        }
        self._session_reset = SessionReset(
            session_dir,
            self.reactor,
            self._scheduler,
            self._supervisor,
            self._members,
            apply=self._apply,
            forget=self._records.forget_the_dead,
            prestarts=self._only_job is not None and options["job"]["eager_install"],
        )
        self._memory = MemoryMonitor(
            options["memory_monitor"],
            f"IP: {self._info['node_ip_address']}, ID: {self._info['node_id']}",
            segment_prefix(self._session),
            self.reactor,
            self._scheduler,
            self._members,
            check=self._check_rows,
            trim=lambda: self._ask_to_trim(""),
            tell=self._tell,
            apply=self._apply,
        )
        self._view = snapshot.View(
            self._info,
            self._scheduler,
            records,
            lambda: self._supervisor.zygote_pid,
            type(self).serve.__code__,
        )
        self._event_makers: dict[int, Callable[..., events.Event]] = {**EVENT_OF, m.EXITING: self._worker_leaves}

    def _new_graceful_kill(self) -> GracefulKill:
        from mray._runtime.node.graceful_kill import GracefulKill  # noqa: PLC0415  (on the way to the first answer of a session)

        return GracefulKill(self.reactor, self._scheduler, self._supervisor, self._members)

    def _new_mps(self, kill: Callable[[str], None]) -> Mps:
        options = self._options["mps"], self._options["gpus"]
        found: Mps = loaded(MPS)(self.reactor, self._session_dir, *options, self._scheduler, self._supervisor, kill, self._tell)
        return found

    @above_limit()  # it imports
    def _new_deadlocks(self) -> Deadlocks:
        from mray._runtime.node.deadlocks import Deadlocks  # noqa: PLC0415  (on the way to the first answer of a session)

        return Deadlocks(self.reactor, self._scheduler, self._members.connections, self._tell_of, self._supervisor.log)

    # ------------------------------------------------------------------------------------ running
    def serve(self, listener: socket.socket, zygote_pid: int, zygote: socket.socket) -> None:
        self.reactor.serve(listener, "The node process", self._on_message, self._hung_up, checks_frames=True)
        self._watch_driver(self._options["driver_pid"])
        self._supervisor.adopt_zygote(zygote_pid, zygote)
        self._memory.start()
        self._hold = hold(self._session_dir)
        self.reactor.call_later(_TOUCH_SECONDS, self._touch_files)
        if self._only_job is not None and self._options["job"]["eager_install"]:
            self._apply(events.PrestartAllowed(self._only_job.id))
        while self.ending is None:
            self.reactor.run_once(None)
            self.reactor.flush()
            failure = self._failure or self._supervisor.failure
            if failure is not None:
                raise failure

    def _watch_driver(self, pid: int) -> None:
        """Watch the process that has started this one: the driver, or `mray start`, which exits once drivers can find the session."""
        fd = int(self._options.get("driver_pidfd", -1))  # where a template forked this node; the template is not watched
        with contextlib.suppress(OSError):
            PidFd(pid, fd).then(self.reactor, self._starter_died)
        # Once it is dead its children have another parent, and its pid may be reused.
        if fd < 0 and os.getppid() != pid:
            self._starter_died()

    def _starter_died(self) -> None:
        if self._only_job is not None:
            self.finish("the driver is dead")
        elif not is_published(self._session_dir):
            self.finish("mray start has died")

    def finish(self, why: str) -> None:
        if self.ending is None:
            self.ending = why

    def _touch_files(self) -> None:
        keep_young(self._session_dir)
        self.reactor.call_later(_TOUCH_SECONDS, self._touch_files)

    # ------------------------------------------------------------------------------------ connections
    def _meet(self, sock: socket.socket) -> SocketConnection:
        return self.reactor.meet(sock, self._on_message, self._hung_up, checks_frames=True)

    # ------------------------------------------------------------------------------------ messages
    def _on_message(self, connection: SocketConnection, message: Message) -> None:
        """Handle one message. An invalid one closes the connection of its sender only."""
        try:
            wrong = misfit(message)
            if wrong:
                raise ProtocolViolationError(wrong)
            if self._failure is not None and not connection.process:
                raise self._failure
            # POINT member received: message[0]
            if connection.role == m.ROLE_OBSERVER:
                self._look_on(connection, *message)
            elif not connection.process:
                self._begin(connection, *message)
            else:
                self._understand(connection, message)
        except Exception as error:
            sys.stderr.write(f"{connection!r} sent {reprlib.repr(message)}\n")
            sys.excepthook(*sys.exc_info())
            self._end_for(connection, message, error)

    def _end_for(self, connection: SocketConnection, message: Message, error: Exception) -> None:
        """End the query or the connection of this message, or the session where the scheduler's state may be half changed."""
        what = f"The handler of {message_name(message[0])} from {connection!r}"
        if not isinstance(error, ProtocolViolationError):
            if message[0] == m.QUERY:
                return connection.send((m.ANSWER, message[1], False, fault_text(what, error)))
            if connection.process in self._members.connections and message[0] in self._event_makers:
                return self._fail(what, error)
        if connection.role == m.ROLE_DRIVER and self.jobs.of_driver(connection) is None:
            # It was not admitted: its end concerns no other process.
            self._members.connections.pop(connection.process, None)
            self._forget_process(connection.process)
        connection.give_up(message, error)
        self._driver_refused = self._driver_refused or message[1:2] == (m.ROLE_DRIVER,)
        return connection.hang_up()

    def _fail(self, what: str, error: Exception) -> None:
        """End the session: the node has failed in a timer or a callback, or while it changed the scheduler's state."""
        sys.stderr.write(f"{self._scheduler.event_log}\n")
        self._failure = self._failure or fault(what, error)

    def _understand(self, connection: SocketConnection, message: Message) -> None:
        code = message[0]
        if (connection.role, m.ROLE_NODE) not in m.MESSAGES[code].ways:
            raise ProtocolViolationError(f"a {connection.role} must not send {message_name(code)} to the node")
        if connection.role == m.ROLE_WORKER and self._members.impossible(connection.process):
            self._check_row(connection)
        make_event = self._event_makers.get(code)
        if make_event is not None:
            self._apply(make_event(connection.process, *message[1:]))
        elif code == m.QUERY:
            self._query(connection, *message[1:])
        elif code in (m.LONG_WAIT, m.WAITS_TOLD):
            if self._deadlocks is None:
                self._deadlocks = self._new_deadlocks()
            self._deadlocks.on_message(connection.process, *message)
        elif code == m.FENCE:
            connection.send((m.ANSWER, message[1], True, None))
        elif code == m.MAKE_ROOM:
            self._ask_to_trim(connection.process)
            self._answer_trimmed(connection, message[1], _TRIM_WAIT)
        elif code == m.SPILLED:
            self._spilled()
        elif code == m.SETTING_UP:
            self._stray_workers.sets_up(connection.process, message[1])
        elif code == m.KILL_ME:
            self._kill(connection.process)
        elif code == m.SHUTDOWN:
            self._driver_leaves(connection)
        elif code == m.RESET and self._only_job is not None and connection is self._only_job.connection:
            self._session_reset.begin(self._only_job, connection)
        elif code != m.HELLO:
            raise ProtocolViolationError(f"message {code} is not for the node")

    def _begin(self, connection: SocketConnection, code: int, *fields: Any) -> None:
        if code == m.HELLO:
            self._hello(connection, *fields)
        elif code == m.PASS_ON:
            self._introducer.pass_on(connection, *fields)
        else:
            raise ProtocolViolationError("the first message must be HELLO")

    def _hello(self, connection: SocketConnection, role: str, process: str, pid: int, job_spec: dict[str, Any] | None = None) -> None:
        if role == m.ROLE_OBSERVER:
            connection.role, connection.pid = role, pid
            return
        if role == m.ROLE_WORKER:
            known = self._supervisor.expects(process, pid) and connection.peer.expected in ("", process)
        else:
            only = self._only_job
            known = role == m.ROLE_DRIVER and (job_spec is not None or (only is not None and only.connection is None))
        if not known or process in self._members.connections or not process.isalnum():
            raise ProtocolViolationError(f"no process of this session: {role} {process}")
        channels: tuple[socket.socket, ...] = ()
        lacks = "file descriptor left"
        try:
            channels = self._introducer.admit(process, pid)
            connection.role, connection.process, connection.pid = role, process, pid
            # POINT member known
            lacks = f"room in the session's table, which lies in {SHM},"
            row = self._members.join(process, connection)
        except OSError as error:
            for each in channels:
                each.close()
            self._introducer.forget(process)
            self._refuse(connection, error, f"no {lacks} for process {process}")
            connection.close()
            return
        self._supervisor.joined(process, pid)
        if role == m.ROLE_DRIVER:
            job = self._admit(connection, job_spec)
        else:
            job = self.jobs.by_id[job_of(self._supervisor.workers[process].work)]
        with contextlib.ExitStack() as stack:
            info = {**self._info, **job.info, "process": process, "row": row}
            fds = [stack.enter_context(each).fileno() for each in channels]
            table = self._members.table.segment.descriptor
            assert table is not None
            try:
                connection.send_with((m.WELCOME, info), [table.fd, *fds])
            except OSError as error:
                if is_exhausted(error):  # else the process has died since
                    self._refuse(connection, error, f"no file descriptor left for process {process}")
                    if role == m.ROLE_WORKER:  # it ends, as one that has never joined
                        connection.close()
                        return
        if role == m.ROLE_DRIVER:
            for message in self._held_output:
                self._show(job, message, message[-1])
            self._held_output.clear()
            connection.flush()
        # POINT member welcomed
        self._apply(events.MemberJoined(process, pid, job.id))
        if role == m.ROLE_DRIVER and job_spec is not None and job_spec["eager_install"]:
            self._apply(events.PrestartAllowed(job.id, job_spec["env"]))

    @staticmethod
    def _refuse(connection: SocketConnection, error: OSError, what: str) -> None:
        text = f"{advice(error)}. The node process (pid {os.getpid()}) has {what}."
        connection.send((m.REFUSED, error.errno or errno.EMFILE, text))

    # ------------------------------------------------------------------------------------ drivers
    def _admit(self, connection: SocketConnection, job_spec: dict[str, Any] | None) -> Job:
        """The job of a joined driver: the one that it brings, else that of the private session."""
        job = self._only_job
        if job_spec is not None or job is None:
            assert job_spec is not None
            job = self.jobs.admit(job_spec, connection.pid, connection.process)
            with contextlib.suppress(OSError):  # the driver is dead already, and its socket hangs up
                # A child that the driver forks may hold its socket open for longer than the driver lives.
                job.unwatch = PidFd(peer_pid(connection.socket)).then(self.reactor, lambda: self._driver_gone(job))
        elif job.process:  # the driver's name before a reset, whose row it no longer writes
            self._forget_process(job.process)
        job.process, job.connection = connection.process, connection
        return job

    def _driver_leaves(self, connection: SocketConnection) -> None:
        """SHUTDOWN: end the driver's work, and a private session."""
        job = self.jobs.of_driver(connection)
        if job is not None and job is self._only_job:
            self.finish("shutdown")
        elif job is not None and not job.leaving:
            job.leaving = True
            self._end_job(job)

    def _driver_gone(self, job: Job) -> None:
        """End the job of a driver that has hung up or is dead, one among several."""
        connection = job.connection
        if connection is None:
            return
        connection.read_rest()
        connection.close()
        job.unwatch()
        if not job.ended:
            self._end_job(job)
        job.connection = None
        self._forget_process(job.process)
        self._look_at(job)

    def _end_job(self, job: Job) -> None:
        """End all work of a job but its detached actors."""
        job.ended = time()
        self._members.connections.pop(job.process, None)
        cause = Cause(m.CAUSE_CRASH, "", job.pid, processes.status_of_dead(job.pid))
        self._report_end(events.MemberDied(job.process, cause, role=f"the driver of job {job.id}"))
        self._look_at(job)

    def _look_at(self, job: Job) -> None:
        """Once none of an ended job's work runs any more, notify its driver and forget the job."""
        if not job.ended:
            return
        running = {worker.work for worker in self._supervisor.workers.values() if job_of(worker.work) == job.id}
        if job.leaving and job.connection is not None and job.id not in running:
            job.connection.send((m.LEFT,))
        if job.connection is None and not running and not self._scheduler.roots.of_job(job.id):
            self.jobs.forget(job)

    def _query(self, connection: SocketConnection, request: int, what: str, arguments: list[Any]) -> None:
        if what == "nodes":
            connection.send((m.ANSWER, request, True, [snapshot.describe_node(self._info)]))
        elif what == "spilled":
            connection.send((m.ANSWER, request, True, [self._members.total(SPILLED_EVER), self._members.total(SPILLED_OBJECTS)]))
        elif what == "printed":
            self._supervisor.take_output()
            connection.send((m.ANSWER, request, True, None))
        elif what.startswith("mps_"):
            self._answer_of_mps(connection, request, what, arguments)
        elif what == "key_values":
            connection.send((m.ANSWER, request, True, self._records.key_values.answer(*arguments)))
        else:
            try:
                self._apply(events.Queried(connection.process, request, what, tuple(arguments)))
            except TypeError as error:
                connection.send((m.ANSWER, request, False, f"listing {what!r}: {error}"))

    def _answer_of_mps(self, connection: SocketConnection, request: int, what: str, arguments: list[Any]) -> None:
        assert self._mps is not None, "only work with GPUs asks"

        def answer(well: bool, value: object) -> None:
            if not connection.closed:
                connection.send((m.ANSWER, request, well, value))

        self._mps.answer(connection.process, what, arguments, answer)

    def _look_on(self, connection: SocketConnection, code: int, *fields: Any) -> None:
        """Answer an observer, which may send nothing but queries."""
        if code != m.QUERY:
            raise ProtocolViolationError("an observer may only send queries")
        request, what, arguments = fields
        connection.send((m.ANSWER, request, True, snapshot.answer(self._view, what, *arguments)))

    # ------------------------------------------------------------------------------------ trimming
    def _ask_to_trim(self, asker: str) -> None:
        self._check_rows()
        for process, connection in self._members.connections.items():
            if process != asker:
                connection.send((m.TRIM_NOW,))

    def _answer_trimmed(self, connection: SocketConnection, request: int, left: float) -> None:
        """Answer when no other process has pooled memory any more, or after `left` seconds."""
        own = self._members.word(connection.process, POOLED)
        if left <= 0 or self._members.total(POOLED) <= own:
            connection.send((m.ANSWER, request, True, None))
        else:
            self.reactor.call_later(_TRIM_LOOK, lambda: self._answer_trimmed(connection, request, left - _TRIM_LOOK))

    def _spilled(self) -> None:
        """Notify the user that objects were spilled, once and at each doubling."""
        if not self._tell_spilled_at:
            return
        spilled = self._members.total(SPILLED_EVER)
        if spilled >= self._tell_spilled_at:
            while self._tell_spilled_at <= spilled:
                self._tell_spilled_at *= 2
            objects = self._members.total(SPILLED_OBJECTS)
            text = f"Spilled {spilled >> 20} MiB, {objects} objects. Set {settings.VERBOSE_SPILL_LOGS.name}=0 to disable this message.\n"
            self._tell(text)

    def _check_rows(self) -> None:
        """Kill the workers with impossible words in their rows of the session's table."""
        for connection in list(self._members.connections.values()):
            self._check_row(connection)

    def _check_row(self, connection: Connection) -> None:
        wrong = self._members.impossible(connection.process) if connection.role == m.ROLE_WORKER else ""
        if wrong:
            text = f"wrote nonsense into the session's memory ({wrong} in its row of the table), as code with a wrong pointer does"
            self._stray_workers.end(connection.process, connection.pid, text)

    # ------------------------------------------------------------------------------------ deaths
    def _hung_up(self, connection: SocketConnection) -> None:
        if connection.role == m.ROLE_WORKER:
            self._stray_workers.hung_up(connection.process, connection.pid)
            return
        job = self.jobs.of_driver(connection)
        if job is not None and job is self._only_job:
            self.finish("the driver has hung up")
        elif job is not None:
            self._driver_gone(job)

    def _worker_ended(self, process: str, work: str, cause: Cause) -> None:
        connection = self._members.connections.get(process)
        if connection is not None:
            connection.read_rest()  # its last message may give the reason
            connection.close()
            self._members.connections.pop(process, None)
        # POINT death received
        made = self._forget_process(process, cause.pid)
        if cause.kind != m.CAUSE_REFUSED:
            self._records.dead_workers.append(snapshot.dead_worker(self._scheduler.workers.workers.get(process), process, cause))
        cause = self._stray_workers.explain(process, cause)
        if cause.status == 0:  # it has sent all its replies, so every owner knows of its segments
            made = {}
        self._report_end(events.MemberDied(process, cause, made))
        job = self.jobs.by_id.get(job_of(work))
        if job is not None:
            self._look_at(job)
        self._session_reset.worker_gone(process)

    def _worker_leaves(self, process: str, kind: str, text: str, name: str = "", calls: Sequence[Any] = ()) -> events.Event:
        pid = self._members.connections[process].pid
        if calls:
            self._records.last_calls.append(pid, name, calls)
        return events.WorkerLeft(process, kind, text)

    def _report_end(self, death: events.MemberDied) -> None:
        self._apply(death)
        self._introducer.part(death.process)

    def _forget_process(self, process: str, pid: int = 0) -> dict[str, list[str]]:
        """Free the row, the channels and the objects of an exited process. Returns the segments that it created for others, by owner."""
        self._members.forget(process)
        self._introducer.forget(process)
        # POINT channels closed
        return remove_leftovers(self._session_dir, process, pid)

    # ------------------------------------------------------------------------------------ instructions
    def _apply(self, event: events.Event) -> None:
        if self._failure is not None:  # the scheduler's state may be half changed: none of its instructions is carried out
            return
        killed: set[str] = set()
        for instruction in self._scheduler.handle(event):
            # POINT instruction due
            if isinstance(instruction, KillWorker):
                killed.add(instruction.process)
            if killed and self._mps is not None and isinstance(instruction, Tell) and instruction.message[0] == m.ANSWER:
                self._mps.when_killed(killed, partial(self._carry_out, instruction))  # the caller of kill waits for that
            else:
                self._carry_out(instruction)
        if not self._waits.attended and self._scheduler.queue.lacked():
            self._waits.begin()

    def _carry_out(self, instruction: Instruction) -> None:
        if isinstance(instruction, Tell):
            connection = self._members.connections.get(instruction.process)
            if connection is not None and not connection.closed:
                connection.post(instruction.message)
                if self._is_of_a_stranger(connection, instruction.message):
                    self._flush_for_strangers(connection)
                else:
                    self.reactor.post_later(connection)
        elif isinstance(instruction, SpawnWorker):
            self._supervisor.spawn(instruction.process, dict(instruction.environment))
            if (workers := len(self._supervisor.workers)) >= self._trees.due:
                with above_limit():  # the first time imports
                    self._trees.examine(workers)
        elif isinstance(instruction, KillWorker):
            self._kill(instruction.process)
        elif isinstance(instruction, RemoveObjects):
            remove_leftovers(self._session_dir, instruction.owner)
        elif (timer := timer_of(instruction, self._info["retry_delay"])) is not None:
            seconds, event = timer
            self.reactor.call_later(seconds, partial(self._apply, event))

    def _is_of_a_stranger(self, connection: Connection, message: tuple[Any, ...]) -> bool:
        """Whether this reports to a worker the end of a process that it was never connected with, and of whose segments it owns none."""
        is_bare = message[0] == m.WORKER_GONE and len(message) == _BARE_REPORT and connection.role == m.ROLE_WORKER
        return is_bare and not self._introducer.have_met(connection.process, message[1])

    def _flush_for_strangers(self, connection: Connection) -> None:
        """Flush the reports for strangers together: each flush wakes a process, and each of many ends would wake all the others."""
        if not self._told_strangers:
            seconds = max(_LEAST_STRANGERS_SECONDS, _STRANGERS_SECONDS * len(self._members.connections))
            self.reactor.call_later(seconds, self._flush_strangers)
        self._told_strangers[connection] = None

    def _flush_strangers(self) -> None:
        while self._told_strangers:
            self._told_strangers.popitem()[0].flush()

    # ------------------------------------------------------------------------------------ output
    def _tell(self, text: str, work: str = "") -> None:
        self._printed(work, 0, 2, "mray", text)

    def _tell_of(self, text: str, process: str) -> None:
        """Show a text to the driver of a process's job."""
        worker = self._supervisor.workers.get(process)
        self._tell(text, "" if worker is None else worker.work)

    def _printed(self, work: str, pid: int, stream: int, name: str, text: str) -> None:
        """Show lines of a worker to its job's driver, or without `work` to all drivers."""
        message = (m.OUTPUT, pid, stream, name, text)
        only = self._only_job
        if only is not None and only.connection is None:
            self._held_output.append(message)
            return
        for job in self.jobs.there():
            if not work or job.id == job_of(work):
                self._show(job, message, text)

    def _show(self, job: Job, message: Message, text: str) -> None:
        if not job.info["log_to_driver"]:
            return
        driver = job.connection
        assert driver is not None
        if driver.unsent > _OUTPUT_BACKLOG:
            job.unshown += text.count("\n")
            return
        if job.unshown:
            lines, job.unshown = job.unshown, 0
            logs = os.path.join(self._session_dir, "logs")
            driver.post((m.OUTPUT, 0, 2, "mray", f"{lines} lines came faster than they were read; they are in {logs}\n"))
        driver.post(message)
        self.reactor.post_later(driver)

    # ------------------------------------------------------------------------------------ ending
    def tell_failure(self, error: BaseException) -> None:
        """Show the user the node's failure and the end of its log."""
        with io.open(os.path.join(self._session_dir, "logs", "node.log"), encoding="utf-8", errors="replace") as log:
            text = log.read()[-4000:]
        self._tell(f"the node fails: {type(error).__name__}: {error}. Its log ends:\n{text}\n")
        self._told_failure = f"the node is at fault: {error}"
        self._failure = error if isinstance(error, Exception) else RuntimeError(repr(error))
        deadline, job = monotonic() + _DRAIN_SECONDS, self._only_job  # its driver may not have joined yet: it gets the text then
        while job is not None and job.connection is None and not self._driver_refused and monotonic() < deadline:
            self.reactor.run_once(deadline - monotonic())

    def end(self) -> None:
        """End every process of the session, send the last output and the reason, remove every name."""
        # POINT session ending
        withdraw(self._session_dir)
        for job in self.jobs.there():
            assert job.connection is not None
            if job is not self._only_job or self._told_failure:  # else its driver has asked for the end, or has exited
                job.connection.send((m.ENDING, self._told_failure or self.ending or ""))
        if self._mps is not None:
            self._mps.end_clients()
        is_kept = kept_count(self._session_dir) > 0
        if self._graceful_kill is not None:
            self._graceful_kill.end_all()
        if self._mps is not None:
            self._mps.end_daemons()
        if is_kept and self._graceful_kill is None:
            saving = last_records.SavingWorkers(self._supervisor, self._members, self._scheduler)
            self._supervisor.end_all(saving.workers, saving.end)
        else:
            self._supervisor.end_all()
        # POINT workers ended
        if is_kept:
            last_records.write_own(self._session_dir, self._records, self._scheduler, self._told_failure or self.ending or "")
        kept = remove_session(self._session_dir)
        if kept is not None:
            self._tell(f"the profiles of this session are in {kept}\n")
        for job in self.jobs.there():
            assert job.connection is not None
            job.connection.drain(_DRAIN_SECONDS)


def run(
    session_dir: str, options: dict[str, Any], listener: int, lock: int, lifeline: tuple[int, int], zygote_pid: int, zygote: socket.socket
) -> int:
    """The node's main function; returns its exit code."""
    processes.adopt_orphans()
    # Six descriptors a worker. The zygote has been forked, so workers have the user's own limit.
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(hard - _RESERVE, _RESERVE), hard))
    # POINT becomes node
    processes.Title().set("node")
    code = 0
    node = Node(session_dir, options, lifeline, lock)
    if options["persistent"]:
        signal.signal(signal.SIGTERM, lambda *_args: node.finish("it was stopped (SIGTERM to its node)"))
    try:
        node.serve(socket.socket(fileno=listener), zygote_pid, zygote)
    except BaseException as error:  # the session ends in order even when the node has failed
        sys.excepthook(*sys.exc_info())
        node.tell_failure(error)
        code = 1
    node.end()
    return code
