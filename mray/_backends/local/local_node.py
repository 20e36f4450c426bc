"""The node of a session in one process: the native scheduler, whose instructions simulated processes carry out.

It has no thread: it acts when a message is delivered.
"""

from __future__ import annotations

import contextvars
import functools
import itertools
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from mray._backends.local.environment import EnvironmentVariables
from mray._backends.local.local_memory import HeapMemory
from mray._backends.local.local_process import ProcessExit, SimulatedProcess
from mray._backends.local.patches import FIRST_PID
from mray._backends.local.run_token import RunToken, SimulatedThread
from mray._backends.local.transport import Listener, LocalConnection, connect
from mray._common import messages as m
from mray._common.causes import Cause
from mray._common.invocations import short_name
from mray._common.kept import os
from mray._decide.scheduler import events, instructions
from mray._decide.scheduler.affinity import Topology
from mray._decide.scheduler.message_events import EVENT_OF
from mray._decide.scheduler.records import environment_of
from mray._decide.scheduler.scheduler import Scheduler
from mray._inside.platform import Callbacks, Message, ProcessEnded, Worker
from mray._observe import process_snapshot
from mray._runtime.node import snapshot
from mray._runtime.node.records import NodeRecords
from mray._runtime.node.timers import timer_of


class LocalNode:
    def __init__(
        self, run_token: RunToken, directory: str, options: dict[str, Any], make_backend: Callable[[SimulatedProcess], Any]
    ) -> None:
        self.run_token = run_token
        self.directory = directory
        self._make_backend = make_backend
        self.memory = HeapMemory()
        self.listening: dict[str, Listener] = {}
        self.processes: dict[str, SimulatedProcess] = {}
        self._numbers = itertools.count(1)
        self._pids = itertools.count(1)
        self._mark = os.urandom(2).hex()
        self.by_pid: dict[int, SimulatedProcess] = {}
        default = environment_of(options["env"], ())
        cpus = sorted(os.sched_getaffinity(0))
        self._scheduler = Scheduler(options["resources"], options["gpus"], default, self.new_process, lambda: Topology([tuple(cpus)], {}))
        self._records = NodeRecords(_NoTable())  # type: ignore[arg-type]
        self._members = self._records.members
        self.job = self._records.jobs.admit(options["job"], os.getpid(), "")
        self.info = {
            **options["info"],
            "session_dir": directory,
            "session": os.path.basename(directory),
            "resources": self._scheduler.pool.quantities(),
            "gpus": list(options["gpus"]),
            "env": dict(default),
            "preload": [],
            "persistent": False,
            "mps": "off",
            #: Output of workers is the driver's own.
            "one_process": True,
            "node_pid": os.getpid(),
            "cpus": cpus,
        }
        self._view = snapshot.View(
            self.info,
            self._scheduler,
            self._records,
            lambda: 0,
            LocalNode._on_message.__code__,
        )

    def new_process(self) -> str:
        return f"{next(self._numbers):04x}{os.urandom(4).hex()}{self._mark}"

    # ------------------------------------------------------------------------------------ members
    def open(self, callbacks: Callbacks, home: SimulatedProcess) -> LocalConnection:
        """Open a connection for a new process; returns the process's end."""
        connection = connect(self.run_token, callbacks, home, Callbacks(self._on_message, _nothing), None)
        connection.role = m.ROLE_NODE
        return connection

    def admit(self, connection: LocalConnection, role: str, process: str) -> dict[str, Any]:
        """Let a process join; returns the session info."""
        here = self.processes.get(process)
        pid = os.getpid() if here is None else here.pid
        connection.process, connection.role, connection.pid = process, role, pid
        self._members.join(process, connection)
        if role == m.ROLE_DRIVER:
            self.job.process, self.job.connection = process, connection
        self._apply(events.MemberJoined(process, pid, self.job.id))
        return {**self.info, **self.job.info, "process": process, "row": 0}

    def _spawn(self, process: str, environment: Iterable[tuple[str, str]]) -> None:
        if process not in self._scheduler.workers.workers:
            return
        env_vars = EnvironmentVariables(dict(environment))
        here = self.processes[process] = SimulatedProcess(self, process, m.ROLE_WORKER, env_vars, FIRST_PID + next(self._pids))
        self.by_pid[here.pid] = here
        worker = here.worker = Worker(here.client, here)
        here.sim_threads.append(self.run_token.spawn(f"worker {int(process[:4], 16)}", lambda: self._live(here, worker), here))
        here.client.join()
        here.backend = self._make_backend(here)

    def _live(self, here: SimulatedProcess, worker: Worker) -> None:
        status: int | None = 0
        try:
            worker.run()
        except ProcessExit as end:
            status = end.status
        except ProcessEnded:
            return
        except BaseException:  # the last frame of the process
            sys.excepthook(*sys.exc_info())
            status = 1
        finally:
            here.leave_graphs()
            here.close_loops()
        self.bury(here, status)

    def bury(self, here: SimulatedProcess, status: int | None) -> None:
        """Remove a dead process, as killed (status -9) if it has not ended by itself."""
        if here.dead:
            return
        here.dead = True
        client = here.client
        process = client.process
        record = self._scheduler.workers.workers.get(process)
        cause = Cause(m.CAUSE_CRASH, "", here.pid, status)
        self._records.dead_workers.append(snapshot.dead_worker(record, process, cause))
        for sim_thread in here.sim_threads:
            self.run_token.throw(sim_thread, ProcessEnded(), final=True)
        client.hang_up()
        self._members.connections.pop(process, None)
        self._members.forget(process)
        self.processes.pop(process, None)
        self.by_pid.pop(here.pid, None)
        self.run_token.call_soon(self._apply, events.MemberDied(process, cause))

    # ------------------------------------------------------------------------------------ messages
    def _on_message(self, connection: Any, message: Message) -> None:
        code = message[0]
        make_event = EVENT_OF.get(code)
        if make_event is not None:
            self._apply(make_event(connection.process, *message[1:]))
        elif code == m.QUERY:
            self._query(connection, *message[1:])
        elif code == m.FENCE:
            connection.send((m.ANSWER, message[1], True, None))
        elif code == m.EXITING:
            self._worker_leaves(connection, *message[1:])

    def _worker_leaves(self, worker: LocalConnection, kind: str, text: str, name: str = "", calls: Sequence[Any] = ()) -> None:
        if calls:
            self._records.last_calls.append(worker.pid, name, calls)
        self._apply(events.WorkerLeft(worker.process, kind, text))

    def _query(self, connection: LocalConnection, request: int, what: str, arguments: list[Any]) -> None:
        if what == "nodes":
            connection.send((m.ANSWER, request, True, [snapshot.describe_node(self.info)]))
        elif what == "spilled":
            connection.send((m.ANSWER, request, True, [0, 0]))
        elif what == "mps_hint":
            connection.send((m.ANSWER, request, True, ""))
        elif what == "mps_edges":
            connection.send((m.ANSWER, request, True, []))
        elif what == "key_values":
            connection.send((m.ANSWER, request, True, self._records.key_values.answer(*arguments)))
        else:
            try:
                self._apply(events.Queried(connection.process, request, what, tuple(arguments)))
            except TypeError as error:
                connection.send((m.ANSWER, request, False, f"listing {what!r}: {error}"))

    # ------------------------------------------------------------------------------------ instructions
    def _apply(self, event: events.Event) -> None:
        for instruction in self._scheduler.handle(event):
            self._carry_out(instruction)

    def _carry_out(self, instruction: Any) -> None:
        if isinstance(instruction, instructions.Tell):
            connection = self._members.connections.get(instruction.process)
            if instruction.message[0] == m.ACTOR_START:
                self._name(instruction.process, instruction.message[2])
            if connection is not None:
                connection.send(instruction.message)
        elif isinstance(instruction, instructions.SpawnWorker):
            self.run_token.call_soon(self._spawn, instruction.process, instruction.environment)
        elif isinstance(instruction, instructions.KillWorker):
            here = self.processes.get(instruction.process)
            if here is not None:
                self.bury(here, -9)
        elif (timer := timer_of(instruction, self.info["retry_delay"])) is not None:
            seconds, event = timer
            self.run_token.call_later(seconds, functools.partial(self._apply, event))

    # ------------------------------------------------------------------------------------ for people
    def answer(self, what: str, *arguments: Mapping[str, Any]) -> Any:
        self.run_token.run_callbacks()
        return [] if what == "stacks" else snapshot.answer(self._view, what, *arguments)

    def explain(self) -> str:
        lines = []
        for sim_thread in self.run_token.sim_threads:
            worker = getattr(sim_thread.process, "worker", None)
            what = sim_thread.waits_for() if sim_thread.waits_for is not None else self._owed_to(sim_thread)
            doing = "" if worker is None else _doing(worker)
            if sim_thread.serves or (worker is not None and not doing and not what):
                continue  # it waits for work
            lines.append(f"  {sim_thread.name}{f' ({doing})' if doing else ''} waits{f' for {what}' if what else ''}\n")
        for claimant in self._scheduler.queue.waiting():
            row = snapshot.describe_demand(claimant)
            lines.append(f"  {row['label']} waits for {row['resources']}; there is {self._scheduler.pool.available()}\n")
        return "".join(lines)

    def _name(self, process: str, spec: Mapping[str, Any]) -> None:
        own = short_name(spec["class_name"])
        if process in self.processes:
            self.processes[process].sim_threads[0].name = f"{own} {spec['number']}" if "number" in spec else own

    def _owed_to(self, sim_thread: SimulatedThread) -> str:
        client = getattr(sim_thread.process, "client", None)
        if client is None:
            return ""
        _found, waits = process_snapshot.answer(client, {"waits": {}})["waits"]
        debts = [debt for wait in waits if wait["thread"] == sim_thread.thread.name for debt in wait["on"]]
        return ", ".join(debt["task"] or f"an object of {self._name_of(debt['process'])}" for debt in debts)

    def _name_of(self, process: str) -> str:
        here = self.processes.get(process)
        return here.sim_threads[0].name if here is not None else "the driver"


class _NoTable:
    def add_row(self, _row: int) -> None:
        pass

    def word(self, _row: int, _word: int) -> int:
        return 0

    def total(self, _word: int, _rows: int) -> int:
        return 0

    def set_rows_in_use(self, _rows: int) -> None:
        pass

    def clear(self, _row: int) -> None:
        pass


def _doing(worker: Worker) -> str:
    if worker.groups.running:
        return ", ".join(call.name for call in worker.groups.running.values())
    running = contextvars.Context().run(lambda: worker.context.running)  # not of the caller
    return "" if running is None else str(running.name or worker.executor.shown)


def _nothing(_connection: Any) -> None:
    pass
