"""A process of a session on the platform of the single-process engine, with a scripted node and scripted peers.

The runtime is the real one. Messages are delivered when a test says so, time passes when all threads wait, and a wait that nothing can
end raises an error.
"""

from __future__ import annotations

import pickle
from asyncio import CancelledError, events
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

from mray._api.object_ref import ObjectRef
from mray._backends.local import patches
from mray._backends.local.local_doorbells import LocalDoorbells
from mray._backends.local.local_memory import HeapMemory
from mray._backends.local.loops import close_loops
from mray._backends.local.run_token import RunToken, here
from mray._backends.local.transport import Listener, LocalConnection, LocalReactor, LocalTransport, connect
from mray._common import messages as m
from mray._common.clock import Clock
from mray._common.ids import FIRST, new_task_id
from mray._objects.remote_error import unpickle_error
from mray._objects.serializer import deserialize
from mray._runtime.client.calls import Call
from mray._runtime.client.client import Client
from mray._runtime.client.platform import Platform
from mray._runtime.connections.transport import Callbacks
from mray._runtime.processes.process import ProcessEnded
from mray._runtime.worker.worker import Worker

Message = tuple[Any, ...]


class Peer:
    """Another process: what it has received, and its end of the connection."""

    def __init__(self) -> None:
        self.received: list[Message] = []
        self.link: Any = None
        self.hung_up = 0

    def on_message(self, link: LocalConnection, message: Message) -> None:
        self.link = link
        self.received.append(message)

    def on_hangup(self, _link: LocalConnection) -> None:
        self.hung_up += 1

    def take(self, *codes: int) -> list[Message]:
        """Remove and return the received messages, or those with these codes."""
        taken = [message for message in self.received if not codes or message[0] in codes]
        self.received = [message for message in self.received if message not in taken]
        return taken


class Stage:
    """A driver or worker named "me"."""

    def __init__(self, role: str = m.ROLE_DRIVER, **info: Any) -> None:
        self.run_token = RunToken(0, real_time=False)
        self.run_token.guests.clear()
        here.sim_thread = self.run_token.driver
        patches.install(self.run_token, {})  # a thread that waits for a lock passes the run token on
        self.listening: dict[str, Listener] = {}
        self.node = Peer()
        self._info = {
            "job_id": "01000000",
            "session": "stage",
            "retry_delay": 0.0,
            "oom_retries": (0, 1.0),
            "spilling": True,
            "node_ip_address": "127.0.0.1",
            "mps": "off",
            **info,
        }
        run_token = self.run_token
        clock = Clock(lambda: run_token.clock, is_real=False)
        platform = Platform(clock, LocalTransport(self, LocalReactor(run_token, None)), HeapMemory(), LocalDoorbells)
        self.client = Client("/nowhere", "me", role, platform)
        self.client.join()

    def close(self) -> None:
        self.client.close()
        self.run_token.close()
        patches.uninstall()

    # ------------------------------------------------------------------------------------ the node of `LocalTransport`
    def open(self, callbacks: Callbacks, home: Any) -> LocalConnection:
        node = connect(self.run_token, callbacks, home, Callbacks(self.node.on_message, self.node.on_hangup), None)
        node.role = m.ROLE_NODE
        self.node.link = node.other
        return node

    def admit(self, _connection: LocalConnection, _role: str, process: str) -> dict[str, Any]:
        return {**self._info, "process": process}

    # ------------------------------------------------------------------------------------ acting
    def deliver(self) -> None:
        """Deliver all messages, and those that result from them."""
        self.run_token.run_callbacks()

    def tell(self, *message: Any) -> None:
        """Receive a message of the node."""
        self.node.link.send(message)
        self.deliver()

    def pass_time(self, seconds: float) -> None:
        self.run_token.sleep(seconds)

    def until(self, condition: Callable[[], object]) -> None:
        self.run_token.wait_until(condition, None)

    def peer(self, process: str) -> Peer:
        """A process that this one may connect to."""
        peer = Peer()
        self.listening[process] = Listener(Callbacks(peer.on_message, peer.on_hangup), None)
        return peer

    def caller(self, process: str) -> Peer:
        """A process that has connected to this one."""
        peer = Peer()
        there = self.listening["me"]
        peer.link = connect(self.run_token, Callbacks(peer.on_message, peer.on_hangup), None, *there)
        peer.link.send((m.HELLO, m.ROLE_DRIVER, process, 7))
        self.deliver()
        return peer

    def end(self, process: str, kind: str = m.CAUSE_CRASH, text: str = "", status: int | None = -9) -> None:
        """Let the node report the end of a process."""
        self.listening.pop(process, None)
        self.tell(m.WORKER_GONE, process, "", (kind, text, 7, status))


@contextmanager
def staged(role: str = m.ROLE_DRIVER, **info: Any) -> Iterator[Stage]:
    stage = Stage(role, **info)
    try:
        yield stage
    finally:
        stage.close()


# ---------------------------------------------------------------------------------------- calls of this process
def call_of(stage: Stage, method: Any, retries: int = 0, task_id: bytes = b"") -> Call:
    """A call with one return value and without arguments."""
    entry = stage.client.entry()
    call = Call(task_id or new_task_id(), method, 1, entry)
    entry.task = call
    call.payload = pickle.dumps(((), {}), 5)
    call.retries = retries
    return call


def ref_of(call: Call) -> ObjectRef:
    return ObjectRef(call.task_id + FIRST, call.entry)


def result(call: Call) -> Any:
    """The value of a call, its error, or Ellipsis while it is pending."""
    entry = call.entry
    assert entry is not None
    if entry.form is None:
        return ...
    return unpickle_error(entry.payload) if entry.form == m.FAILED else deserialize(entry.form, entry.payload)


def reply(peer: Peer, task_id: bytes, value: Any) -> None:
    peer.link.send((m.REPLY, task_id, m.PICKLED, pickle.dumps(value, 5), None))


# --------------------------------------------------------------------------------------------------- a worker
class SteppedProcess:
    """The process of a worker on a stage: lists what is asked of it."""

    def __init__(self, stage: WorkerStage) -> None:
        self.stage = stage
        self.done: list[tuple[Any, ...]] = []
        self.variables: dict[str, str | None] = {}
        self.threads: list[str] = []
        self.interrupts = 0
        self.status: int | None = None

    def set_title(self, text: str) -> None:
        self.done.append(("title", text))

    def start_thread(self, target: Callable[[], None], name: str) -> None:
        self.threads.append(name)
        self.spawn(target, name)

    def spawn(self, target: Callable[[], None], name: str) -> None:
        def run() -> None:
            try:
                target()
            finally:
                close_loops(self.stage.worker.groups.drop_all)

        self.stage.run_token.spawn(name, run, None)

    def interrupt(self) -> None:
        self.interrupts += 1

    def set_variable(self, name: str, value: str | None) -> None:
        self.variables[name] = value

    def confine(self, cpus: Collection[int] | None) -> None:
        self.done.append(("cpus", cpus))

    def set_native_threads(self, count: int) -> None:
        self.done.append(("native threads", count))

    def mark_output(self, name: str) -> None:
        self.done.append(("output", name))

    def is_forked(self) -> bool:
        return False

    def set_alarm(self, seconds: float) -> None:
        self.done.append(("alarm", seconds))

    def finalize(self, *, kills_children: bool) -> None:
        self.done.append(("finalize", kills_children))

    def exit(self, status: int) -> None:
        self.status = status
        if events._get_running_loop() is not None:
            raise CancelledError  # asyncio logs a task that ends with anything else
        if here.sim_thread is not self.stage.run_token.driver:
            raise ProcessEnded


class WorkerStage(Stage):
    """A worker that one process calls."""

    def __init__(self, **info: Any) -> None:
        super().__init__(m.ROLE_WORKER, **info)
        self.process = SteppedProcess(self)
        self.worker = Worker(self.client, self.process)
        self.executor = self.worker.executor
        self.other = self.caller("caller")
        self._functions: dict[Any, bytes] = {}

    def serve(self) -> None:
        """Start the main thread of the worker, which may be chosen whenever the test waits."""
        self.process.spawn(self.worker.run, "main")

    def step(self) -> None:
        """Deliver all messages, and handle those for the main thread in this one, in order."""
        self.deliver()
        while self.worker.inbox:
            self.worker._serve(*self.worker.inbox.popleft())
        for connection in self.client.peers.values():
            connection.flush()
        self.deliver()

    def start_actor(self, cls: type, **spec: Any) -> None:
        values = {"arguments": (m.PICKLED, pickle.dumps(((), {}))), "code": by_value(cls), "class_name": cls.__qualname__, **spec}
        self.tell(m.ACTOR_START, b"\1" * 16, values, 0)
        self.step()

    def task(self, function: Any, *args: Any, num_returns: int = 1, options: Any = None, arguments: Any = None) -> bytes:
        """Send a task; returns its id."""
        function_id = self._functions.get(function)
        if function_id is None:
            function_id = self._functions[function] = bytes([len(self._functions)]) * 16
            self.other.link.send((m.FUNCTION, function_id, by_value(function)))
        task_id = new_task_id()
        payload = pickle.dumps((args, {}), 5)
        self.other.link.send(
            (m.TASK, task_id, function_id, num_returns, m.PICKLED, payload, None, arguments, options, f"tests.{function.__name__}")
        )
        return task_id

    def call(self, method: str, *args: Any, num_returns: int = 1, options: Any = None) -> bytes:
        """Send a call of the actor; returns its id."""
        task_id = new_task_id()
        self.other.link.send((m.CALL, task_id, method, num_returns, m.PICKLED, pickle.dumps((args, {}), 5), None, None, options))
        return task_id

    def answers(self) -> list[tuple[bytes, Any]]:
        """The answers that have arrived: the id of each call, with its value, its error, or a list of these."""
        found: list[tuple[bytes, Any]] = []
        for code, task_id, *fields in self.other.take(m.REPLY, m.REPLIES):
            found.append((task_id, answered(*fields) if code == m.REPLY else [answered(*each) for each in fields[0]]))
        return found


def answered(form: int, payload: Any, _refs: Any) -> Any:
    if form == m.FAILED:
        return unpickle_error(payload)
    return payload if form == m.SEGMENT else deserialize(form, payload)


_by_value: dict[bytes, Any] = {}


class _Found:
    def __init__(self, key: bytes) -> None:
        self.key = key

    def __reduce__(self) -> Any:
        return _found, (self.key,)


def _found(key: bytes) -> Any:
    return _by_value[key]


def by_value(thing: Any) -> bytes:
    """A pickle of a function or class of a test that unpickles as the thing itself, since worker and test are one process."""
    key = str(id(thing)).encode()
    _by_value[key] = thing
    return pickle.dumps(_Found(key))
