"""A worker: the process that runs user code, either tasks or one actor.

    reading thread (main while idle, background reader while main is busy)          main thread
    ---------------------------------------------------------          --------------------------------------
    CALL, TASK, FUNCTION, GRAPH, EXIT, ...            -- inbox -->       takes one after the other, executes, replies
    RECLAIM, BORROW, FETCH ... : answered immediately
    node hangs up: the process exits

Replies leave together while more calls wait, and immediately when none does or when the calls are long.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Any

from mray._common import messages as m
from mray._common.clock import perf_counter, time
from mray._common.ids import TaskID
from mray._common.invocations import ArgumentValue, MethodInvocation, TaskInvocation, read, short_name
from mray._common.kept import os
from mray._common.places import frame_of
from mray._common.protocol import misfit
from mray._common.uncollected import uncollected
from mray._ipc.connection import Connection
from mray._ipc.faults import message_name
from mray._objects.ownership import Entry
from mray._objects.remote_error import pickle_error
from mray._runtime.client import failed_calls
from mray._runtime.client.call_context import CallContext, Running
from mray._runtime.client.calls import failed_reply
from mray._runtime.client.cancelling import Interrupts
from mray._runtime.client.client import Client
from mray._runtime.connections.endpoint import ProcessHost, fault_error
from mray._runtime.connections.ends import Ended
from mray._runtime.processes.native_threads import VARIABLE
from mray._runtime.processes.process import Process
from mray._runtime.worker.concurrency_groups import ConcurrencyGroups
from mray._runtime.worker.devices import Devices
from mray._runtime.worker.executor import Executor, end_fork
from mray._runtime.worker.exits import EXITED, TERMINATED, ExitActor, Terminated, flush_output
from mray._runtime.worker.finished_calls import FinishedCalls
from mray._runtime.worker.main_thread import Arrived, GraphRunner, MainThread
from mray._runtime.worker.own_process import survive
from mray._runtime.worker.running import StartedCall, TaskCall, current_call
from mray._runtime.worker.thread_group import ThreadGroupExecutor
from mray.exceptions import AsyncioActorExit, RaySystemError, TaskCancelledError

#: Seconds; the reply of a call that took longer is sent immediately.
_LONG = 100e-6
#: Queued calls whose tensors are fetched while others run.
_AHEAD = 2
_CALLS = (m.CALL, m.TASK)
#: The most finished calls that a leaving worker sends.
LAST_TOLD = 1000


class Worker(ProcessHost):
    def __init__(self, client: Client, process: Process) -> None:
        self.client = client
        self.process = process
        self.context = CallContext()
        self.interrupts = Interrupts(client, client.cancelling, self.context, process)
        self.main_thread = main = MainThread()
        self.inbox = main.inbox
        self.executor = Executor(client, self.context, self.interrupts, main, process)
        #: Handles CALL where the actor has groups.
        self.groups = ConcurrencyGroups(client, self.executor, main, process)
        #: Threads that wait in `get`; while there are any, arriving tasks go back.
        self._blocked = 0
        #: Whether this worker ends, and takes no more tasks.
        self._leaving = False
        self._lease_cpus = False
        self._prefetches = False
        self._devices = Devices(process.set_variable)
        client.from_peers.on(
            {
                m.FUNCTION: main.enqueuing(m.FUNCTION),
                m.FUNCTION_OVER: main.enqueuing(m.FUNCTION_OVER),
                m.CALL: self._on_call,
                m.TASK: self._on_task,
                m.LEASED: self._on_leased,
                m.RECLAIM: self._on_reclaim,
                m.CANCEL: self._on_cancel,
            }
        )
        #: Whether the main thread has other work than graphs. A C function: called around each sleep.
        self._pending: Callable[[], object] = self.inbox.__len__
        client.from_node.on({m.ACTOR_START: main.enqueuing(m.ACTOR_START), m.EXIT: main.enqueuing(m.EXIT)})
        client.process_host = self
        client.reactor.guard.terminated = self._terminated
        client.sections.update({"work": self.work, **FinishedCalls(main, self.executor).sections()})

    # ------------------------------------------------------------------------------------ reading thread
    def _on_leased(self, connection: Connection, *fields: Any) -> None:
        self.client.ends.then(connection.process, self._holder_ended)
        self.inbox.append((connection, m.LEASED, fields))

    def _on_call(self, connection: Connection, *fields: Any) -> None:
        inbox, call = self.inbox, read(MethodInvocation, fields)
        if call.arguments is not None and len(inbox) < _AHEAD:
            self._prefetch(call.arguments)
        inbox.append((connection, m.CALL, call))

    def _look_ahead(self) -> None:
        for place in range(_AHEAD):
            try:
                _connection, code, call = self.inbox[place]
            except IndexError:  # the inbox is empty, or the reading thread has taken the call back
                return
            if code == m.CALL and call.arguments is not None:
                self._prefetch(call.arguments)

    def _prefetch(self, arguments: Sequence[ArgumentValue]) -> None:
        if any(value.form == m.TENSORS for value in arguments):
            self._prefetches = True
            self.client.tensors.look_ahead(arguments)

    def _on_task(self, connection: Connection, *fields: Any) -> None:
        call = read(TaskInvocation, fields)
        # A thread left behind by a finished task may wait forever, and must not block other tasks.
        if self._leaving or (self._blocked and self.context.running is not None):
            connection.send((m.GIVEN_BACK, [call.task_id]))
        else:
            self.inbox.append((connection, m.TASK, call))

    def _on_reclaim(self, connection: Connection, most: int) -> None:
        connection.send((m.GIVEN_BACK, self._take_back(connection, most)))

    def _take_back(self, connection: Connection, most: int) -> list[bytes]:
        """Remove tasks of this caller that have not started, newest first."""
        kept: list[Arrived] = []
        taken: list[bytes] = []
        inbox = self.inbox
        while inbox:
            try:
                arrived = inbox.pop()
            except IndexError:
                break
            sender, code, call = arrived
            if sender is connection and code == m.TASK and len(taken) < most:
                taken.append(call.task_id)
            else:
                kept.append(arrived)
        inbox.extendleft(kept)
        taken.reverse()
        return taken

    def _on_cancel(self, connection: Connection, task_id: bytes, force: bool, recursive: bool) -> None:
        if self.groups.exist:
            self.groups.cancel(connection, task_id, recursive)
            return
        for arrived in tuple(self.inbox):
            _sender, code, call = arrived
            if code in _CALLS and call.task_id == task_id:
                with contextlib.suppress(ValueError):
                    self.inbox.remove(arrived)
                    if code == m.CALL and self._prefetches:
                        self.client.tensors.look_back(call.arguments)
                    connection.send(failed_reply(task_id, call.num_returns, pickle_error(TaskCancelledError(TaskID(task_id)))))
                return
        if self.executor.actor.instance is not None:
            self.executor.cancel_running(task_id)
            self.executor.producers.stop(task_id)
            if recursive:
                self.client.cancelling.cancel_children(task_id)
        else:
            self.interrupts.cancel(task_id, force, recursive)

    def is_cancelled(self) -> bool:
        """Whether the call that the calling code belongs to was cancelled. Any thread."""
        running = self.context.running
        return running is not None and (running.canceled or self.interrupts.is_cancelled(running.task_id))

    def exit_actor(self) -> BaseException:
        """End the actor from its own code: running calls finish. Returns the exception for that code to raise. Any thread."""
        final_error = ExitActor()
        if self.groups.exist:
            running = current_call.get()
            if running is not None:  # the call may have ended, and left this code behind as a task
                running.final_error = final_error
            self.groups.leave(*EXITED)
            if self.groups.is_async:
                return AsyncioActorExit()
            return SystemExit(0) if running is None else final_error
        is_main = self.main_thread.is_current()
        running_here = self.context.running
        if is_main and running_here is not None:
            running_here.final_error = final_error
        else:  # a method in a graph, or a thread of user code, where SystemExit prints no traceback
            self.inbox.appendleft((self.client.node, m.EXIT, EXITED))
            self.client.reactor.wake()
        return final_error if is_main else SystemExit(0)

    def node_lost(self) -> BaseException | None:
        self.process.exit(1)
        return None

    def torn(self, error: Exception) -> None:
        sys.stderr.write(f"mray: {error}\n")
        flush_output()
        self.process.exit(1)

    def _holder_ended(self, end: Ended) -> None:
        """End a task's worker that cannot answer its lease's holder. An actor goes on, over other connections."""
        if end.error is not None and self.executor.actor.instance is None:
            self.fail(RaySystemError(str(end.error)))

    def fail(self, failure: RaySystemError) -> None:
        """End this process after an internal failure, of which waiting callers get the text. Any thread."""
        text = str(failure)
        with contextlib.suppress(Exception):
            sys.stderr.write(f"{text}\n")
            flush_output()
        with contextlib.suppress(Exception):
            node = self.client.node
            node.send((m.EXITING, m.CAUSE_CRASH, text))
            node.drain(1.0)
        self.process.exit(1)

    # ------------------------------------------------------------------------------------ main thread
    def run(self) -> None:
        """Serve until the node, user code or SIGTERM ends the worker."""
        # Two calls, so that no frame that refers to the actor is left when it ends.
        self._leave(*self._serve_until_end())

    def _serve_until_end(self) -> tuple[str, str]:
        """Serve; returns (cause kind, text) of the end."""
        try:
            return self.serve_all()
        except SystemExit as error:  # SIGTERM, or from a method in a graph, or from a task of the event loop that no call waits for
            step = error.__dict__.get("step")
            return self.executor.exit_by(error, f"{step}, a step of a compiled graph," if step else "Its code, in no call,")

    def serve_all(self) -> tuple[str, str]:
        """Serve until user code ends the worker; returns (cause kind, text). Observers read `began`."""
        inbox = self.inbox
        reactor = self.client.reactor
        executor = self.executor
        main = self.main_thread
        note = main.recent.append
        context = self.context
        reactor.guard.serves = True
        main.ident = threading.get_ident()
        while True:
            if inbox:
                reactor.activity += 1
                began = perf_counter()
                try:
                    connection, code, fields = inbox.popleft()
                except IndexError:  # the reading thread has taken it back
                    continue
                name = self._serve(connection, code, fields)
                # POINT call served
                ended = perf_counter()
                if code in _CALLS:
                    main.served += 1
                    note((fields.task_id, name, began, ended, context.resources if code == m.TASK else None))
                end = executor.end
                if end is not None:  # (a group may reset it meanwhile, and put a message into the inbox)
                    return end
                if connection.unsent:
                    if not inbox or ended - began > _LONG or reactor.asleep:
                        connection.flush()
                    elif connection not in reactor.unflushed:
                        reactor.post_later(connection)
                continue
            service = main.service
            if service is not None:
                # It spins by itself, and meanwhile the background reader reads.
                service.run(self._pending)
                if inbox:
                    continue
            self._await(inbox.__len__, service)

    def _await(self, pending: Callable[[], object], service: GraphRunner | None) -> None:
        wait_until = self.client.reactor.wait_until
        loop = self.groups.main
        try:
            if loop is not None:
                if service is None or not service.is_active:
                    loop.run_while_idle(pending)
                else:
                    ready = service.ready
                    loop.run_while_idle(lambda: pending() or ready(), spin=False)
            elif service is None or not service.is_active:
                wait_until(pending, before_sleep=self.groups.rest)
            else:
                ready = service.ready
                wait_until(lambda: pending() or ready(), spin=False, before_sleep=self.groups.rest)
        except KeyboardInterrupt:
            pass  # a cancellation that arrived after its task had ended

    def _serve(self, connection: Connection, code: int, fields: Any) -> str | None:
        """Returns the name of a call, None for other messages."""
        executor = self.executor
        try:
            # POINT main thread received: code
            if code == m.CALL:
                if self._prefetches:
                    self._look_ahead()
                return executor.run_method(connection, fields)
            if code == m.TASK:
                return executor.run_task(connection, fields)
            if code == m.FUNCTION:
                executor.unpacker.add_code(connection, *fields)
            elif code == m.FUNCTION_OVER:
                executor.unpacker.drop_code(connection, *fields)
            elif code == m.LEASED:
                self._lease(*fields)
            elif code == m.ACTOR_START:
                self._start_actor(*fields)
            elif code == m.GRAPH:
                self._graph(connection, *fields)
            elif code == m.EXIT:
                executor.end = executor.end or fields
        except KeyboardInterrupt:
            pass  # a cancellation that arrived after its task had ended
        except Exception as error:
            message = (code, *fields)
            wrong = misfit(message)
            if wrong:
                self.client.reactor.defer(lambda: connection.refuse(wrong))
            elif not self.client.fail_message(connection, message, error):
                # Later messages rely on it.
                self.fail(fault_error(f"The handler of {message_name(code)}", error))
        return None

    def _lease(self, _lease_id: int, resources: dict[str, float], gpus: list[Any], options: dict[str, Any] | None) -> None:
        context = self.context
        context.resources = resources
        context.gpu_ids = gpus
        context.runtime_env = (options or {}).get("runtime_env") or {}
        placement = (options or {}).get("placement")
        if placement != context.placement:
            context.placement = placement
        self._lease_cpus = bool(resources.get("CPU"))
        self._set_up(options or {})

    def _start_actor(self, actor_id: bytes, spec: dict[str, Any], incarnation: int) -> None:
        context = self.context
        context.gpu_ids = list(spec.get("gpu_ids") or ())
        context.resources = dict(spec.get("resources") or {})
        context.runtime_env = spec.get("runtime_env") or {}
        context.placement = spec.get("current_group")
        self._set_up(spec)
        failure = self.executor.become(actor_id, spec, incarnation, self.groups.prepare)
        # POINT actor constructed
        loop = self.groups.main
        if loop is not None:
            self._pending = lambda: self.inbox or loop.is_due()
        node = self.client.node
        if failure is None:
            if self.executor.end is None:
                node.send((m.ACTOR_READY, actor_id))
        else:
            node.send((m.ACTOR_FAILED, actor_id, failure))
            self.executor.end = (m.CAUSE_INIT, "its constructor raised")

    def _set_up(self, has: Mapping[str, Any]) -> None:
        """Set the CPUs, devices and native threads of the task or actor."""
        context = self.context
        self.process.confine(has.get("cpus"))
        context.accelerators = self._devices.show(context.gpu_ids, has.get("accelerators") or {}, self._ask_for_mps())
        if VARIABLE not in (context.runtime_env.get("env_vars") or {}):  # else the user has set their number
            self.process.set_native_threads(max(1, int(context.resources.get("CPU", 0))))

    def _ask_for_mps(self) -> tuple[str, str]:
        """Wait for the daemon; a process that cannot be its client ends."""
        client = self.client
        if not self.context.gpu_ids or client.info["mps"] not in ("on", "auto"):
            return "", ""
        try:
            pipe, uuid = client.ask(m.QUERY, "mps_client", [])
        except RaySystemError as error:
            self.fail(error)
            raise
        return pipe, uuid

    def _graph(self, connection: Connection, number: int, verb: str, payload: bytes) -> None:
        service = self.main_thread.service
        try:
            assert service is not None
            connection.send((m.GRAPHED, number, True, service.handle(verb, payload, self.executor.actor.instance)))
        except Exception as error:
            connection.send((m.GRAPHED, number, False, pickle_error(error)))
        except KeyboardInterrupt:
            text = f"{self.name} (pid {os.getpid()}) was interrupted at {verb!r} of a compiled graph."
            connection.send((m.GRAPHED, number, False, pickle_error(TaskCancelledError(None, text))))

    # ------------------------------------------------------------------------------------ blocking
    def lends(self) -> bool:
        return self.executor.actor.instance is None and self.context.task_id is not None and self._lease_cpus

    def block(self) -> Callable[[], None] | None:
        """Give back the CPUs of a task that is about to wait, and the tasks queued behind it."""
        if not self.lends():
            return None
        client = self.client
        with client.lock:
            self._blocked += 1
            self._give_back_all()
            # POINT tasks handed back
            client.node.send((m.BLOCKED,))
        return self._unblock

    def _unblock(self) -> None:
        with self.client.lock:
            self._blocked -= 1
            if not self._blocked and not self.client.node.closed:
                self.client.node.send((m.UNBLOCKED,))

    def _give_back_all(self) -> None:
        for connection in dict.fromkeys(sender for sender, code, _call in tuple(self.inbox) if code == m.TASK):
            taken = self._take_back(connection, len(self.inbox))
            if taken:
                connection.send((m.GIVEN_BACK, taken))

    def running_here(self) -> tuple[bytes, str] | None:
        running = self.context.running if self.main_thread.is_current() else ThreadGroupExecutor.call_of(sys._getframe())
        return None if running is None else (running.task_id, running.name)

    def held_by(self, task_id: bytes, by_task: Mapping[bytes, int], by_thread: Mapping[int, int]) -> list[int]:
        if task_id in by_task:
            return [by_task[task_id]]
        if self.groups.exist:
            return self.groups.held_by(task_id, by_task, by_thread)
        main = self.holds_everything(by_thread)
        is_queued = main and any(code in _CALLS and call.task_id == task_id for _sender, code, call in tuple(self.inbox))
        return [main] if is_queued else []

    def awaited_by(self, task_id: bytes) -> tuple[str, Any, Entry, FrameType | None] | None:
        return self.groups.awaited_by(task_id)

    def holds_everything(self, by_thread: Mapping[int, int]) -> int:
        return 0 if self.groups.exist and not self.groups.constructs else by_thread.get(self.main_thread.ident, 0)

    # ------------------------------------------------------------------------------------ ending
    @property
    def name(self) -> str:
        context = self.context
        if not context.class_name or not context.actor_id:
            return self.client.role
        return f"{f'{context.actor_name}: ' if context.actor_name else ''}{short_name(context.class_name)}({context.actor_id.hex()[:8]})"

    def _terminated(self, number: int, _frame: FrameType | None) -> None:
        """The handler of SIGTERM. Main thread."""
        if self.process.is_forked():  # a child that user code forks, before the fork hooks have run there
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        else:
            error = self.terminate()
            if error is not None:
                raise error

    def terminate(self) -> BaseException | None:
        """Begin the orderly end for SIGTERM. Returns the exception to raise on the main thread, if calls run there."""
        if self.groups.terminate():
            return None
        self.inbox.appendleft((self.client.node, m.EXIT, TERMINATED))  # user code may catch what is raised
        return Terminated()

    def forked(self) -> None:
        """In a process forked by user code, which exits when the running call ends."""
        self.inbox.clear()
        self.executor.become_fork()

    def _leave(self, kind: str, text: str) -> None:
        """End in order: running calls, user hooks, sending all messages, then the process."""
        client = self.client
        if self.process.is_forked():
            end_fork(None, None)
        self.groups.finish(kind)
        with client.lock:
            self._leaving = True
            self._give_back_all()
            client.leases.give_back_idle()  # else these workers are killed
        if signal.getsignal(signal.SIGTERM) == self._terminated:  # in case the rest takes too long, a second SIGTERM kills
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        for connection in tuple(client.peers.values()):
            connection.drain(1.0)
        client.node.send((m.EXITING, kind, text, self.name, [*self.main_thread.recent][-LAST_TOLD:]))
        # POINT exit told
        crashes = kind == m.CAUSE_CRASH
        if kind != m.CAUSE_INIT:
            survive(self.executor.shut_down_instance)
        self.groups.let_go()
        self.executor.let_go()
        self.process.finalize(kills_children=(kind, text) == TERMINATED)
        if not crashes:  # else its end is not reported yet, and waiting processes may hold objects that it owns
            self._finish_own_calls()
        for connection in [*client.peers.values(), client.node]:
            connection.drain(1.0)
        with contextlib.suppress(Exception):
            client.owner.store.close()
        with contextlib.suppress(Exception):
            flush_output()
        self.process.exit(self._status(kind))

    def _status(self, kind: str) -> int:
        status = self.executor.status
        return int(kind == m.CAUSE_CRASH) if status is None else status

    def _finish_own_calls(self) -> None:
        """Wait, at max_calls, until the task's calls are done, its objects are not borrowed, and its actors have ended.

        Meanwhile the task's CPUs and GPUs are free.
        """
        client = self.client

        def done() -> bool:
            peers = tuple(client.peers.values())
            lent = client.borrowing.lent.out or client.borrowing.pins.out
            return not lent and not any(peer.calls for peer in peers) and client.leases.is_idle() and client.actors.is_idle()

        def actors_ended() -> bool:
            return self.context.actor_id is not None or not client.actors.own_live()  # an actor's own actors end with it

        if done() and actors_ended():
            return
        client.node.send((m.BLOCKED,))
        client.reactor.wait_until(done)
        client.borrowing.drop_handles()
        client.reactor.wait_until(actors_ended)

    # ------------------------------------------------------------------------------------ observers
    def last_calls(self) -> list[tuple[bytes, str | None, float, float, Any]]:
        """The last calls: task, name, begin, end, resources. Any thread."""
        return list(self.main_thread.recent)

    def running_calls(self) -> list[tuple[bytes, str, float]]:
        """The running calls: task, name, begin. Any thread."""
        found = [(call.task_id, call.name, call.began) for call in list(self.groups.running.values())]
        running, began = self.context.running, self._begun_on_main()
        if running is not None and began is not None:
            found.append((running.task_id, running.name, began))
        return found

    def _begun_on_main(self) -> float | None:
        with uncollected:
            for innermost in sys._current_frames().values():
                frame = frame_of(type(self).serve_all.__code__, innermost)
                if frame is not None and frame.f_locals.get("self") is self:
                    began: float | None = frame.f_locals.get("began")
                    return began
        return None

    def record(self) -> dict[str, Any]:
        """The record of this worker in a kept session (see `mray._ipc.kept_sessions`). Any thread."""
        return {
            "pid": os.getpid(),
            "name": self.name,
            #: Seconds since 1970 when the clock of the calls was 0.
            "epoch": time() - perf_counter(),
            "calls": self.last_calls(),
            "running": self.running_calls(),
            "functions": list(self.executor.named),
            "errors": list(self.executor.packer.failed_calls().items()),
            "failures": list(self.executor.packer.failures),
            "failed": failed_calls.rows(self.client.process)["rows"][::-1],
        }

    def work(self) -> dict[str, Any]:
        """The running calls, and how many wait and are over, for observers. Any thread."""
        context, executor = self.context, self.executor
        running, beside = context.running, dict(self.groups.running)
        named = dict(executor.named)
        calls: list[tuple[Running, float | None]] = [(call, call.began) for call in beside.values()]
        if running is not None and running.task_id not in beside:
            calls.append((running, self._begun_on_main()))

        def told(call: Running, began: float | None) -> tuple[Any, ...]:
            caller = getattr(call, "connection", None)  # of a constructor: None
            function = named.get(call.task_id, call.name)
            resources = context.resources if isinstance(call, TaskCall) else {}
            owner = caller.process if caller is not None else ""
            return tuple(StartedCall(call.task_id, call.name, function, began, resources, owner))

        return {
            "running": [told(*call) for call in sorted(calls, key=lambda call: call[1] or 0.0)],
            "actor_id": context.actor_id or b"",
            "class_name": short_name(context.class_name or ""),
            "repr": executor.actor.repr,
            "groups": self.groups.exist,
            "blocked": self._blocked > 0,
            "queued": sum(code in _CALLS for _sender, code, _call in tuple(self.inbox)) + self.groups.queued(),
            "served": self.main_thread.served,
        }
