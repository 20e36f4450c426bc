"""A process of the session and its connections: to the node, and to peers, at most one each way.

How a connection ends::

    the process at the other end dies:       it hangs up                                ──▶ without an error, then WORKER_GONE
    one end got a message that is invalid:   logs why, sends PROTOCOL_ERROR, hangs up   ──▶ with an error, on both sides
    one end failed at a message:             logs why, sends FAULT, hangs up            ──▶ the same
    the other end has no descriptor left:    sends REFUSED, has read nothing            ──▶ the same, `unread`
    the node has seen the process end:       WORKER_GONE, also without a connection     ──▶ `Ended` (`mray._runtime.connections.ends`)

After a hang-up with an error both processes live, and each fails its own waiters for answers over that connection. A hang-up without one
ends what belongs to the connection; waiters for the process wait for the node's report.

When a handler fails, a message that asks for an answer is answered with the error, a message that is an answer fails its waiter
(`Dispatch.failures`), and everything else goes on. After any other message the connection ends, and every call over it fails. When the
node is lost all waiters fail with the cause, and so does every later call.

One lock guards all tables; it is held while a message is dispatched and while a call is submitted, and never while user code runs, a
value is pickled, or a thread waits. Finalizers take no lock: they defer their work to the reactor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Any

from mray._common import messages as m
from mray._common.causes import Cause
from mray._common.clock import monotonic
from mray._common.ids import set_job
from mray._common.kept import os, socket
from mray._common.protocol import misfit
from mray._ipc.connection import Connection, Message, ProtocolViolationError
from mray._ipc.faults import fault_text, message_name
from mray._ipc.interrupts import end_program
from mray._ipc.introductions import NODE
from mray._ipc.quiet_lock import QuietLock
from mray._objects.ownership import Entry
from mray._objects.remote_error import pickle_error
from mray._runtime.connections.deaths import node_error
from mray._runtime.connections.dispatch import Dispatch, Handler
from mray._runtime.connections.ends import Ended, Ends
from mray._runtime.connections.part import Part
from mray._runtime.connections.requests import Answer, Requests
from mray._runtime.connections.transport import CALLS_BEFORE_RING, Callbacks, Transport
from mray.exceptions import GetTimeoutError, RaySystemError

#: Posts to a busy peer wait for further ones until this many bytes are queued.
BATCH_BYTES = 4096
#: Calls in faster succession, in seconds, are a burst, which is batched for this long.
BURST_GAP = 50e-6
BURST_SECONDS = 2e-3


class ProcessHost:
    """A driver's hold on its session, or a worker; this class while there is neither."""

    def node_lost(self) -> BaseException | None:
        """The error for all waiters after the node's hang-up; None: the node has died. A worker ends itself."""
        return None

    def fail(self, failure: RaySystemError) -> None:
        """Give up the session: a worker ends, in a driver everything fails with this error. Any thread."""

    def torn(self, error: Exception) -> None:
        """As `fail`: the program has closed mray's descriptors, and nothing can be sent."""

    def forked(self) -> None:
        """Called in a forked child, which has left the session."""

    def lends(self) -> bool:
        """Whether `block` can give resources back."""
        return False

    def block(self) -> Callable[[], None] | None:
        """Give back resources, because user code is about to block. Returns the function that takes them again, if any."""
        return None

    # Questions about waits: `by_task` and `by_thread` have the numbers of long ones, by the call and by the thread that waits.

    def running_here(self) -> tuple[bytes, str] | None:
        """The id and the name of the call that the calling thread runs; None if it runs none, or belongs to user code."""
        return None

    def held_by(self, task_id: bytes, by_task: Mapping[bytes, int], by_thread: Mapping[int, int]) -> list[int]:
        """The waits of which one must end before this call of another process can go on; empty if it can, or is not here."""
        return []

    def awaited_by(self, task_id: bytes) -> tuple[str, Any, Entry, FrameType | None] | None:
        """For a call here whose coroutine awaits one ref: its name, the future, the ref's entry, and the awaiting frame of user code."""
        return None

    def holds_everything(self, by_thread: Mapping[int, int]) -> int:
        """The wait that must end before any call of another process can go on; 0: none."""
        return 0


class Endpoint:
    def __init__(self, session_dir: str, process: str, role: str, transport: Transport, entry: type[Entry]) -> None:
        self.session_dir = session_dir
        self.process = process
        self.role = role
        self.lock = QuietLock()
        self.transport = transport
        self.reactor = transport.reactor
        guard = self.reactor.guard
        guard.lock = self.lock
        if role == m.ROLE_DRIVER:
            guard.looks, guard.terminated = True, end_program
        self.reactor.closed_descriptors.tell = self._torn
        self.process_host = ProcessHost()
        self.info: dict[str, Any] = {}
        #: The job of a driver in a session that it has not started (see `mray._runtime.node.jobs`).
        self.job_spec: dict[str, Any] | None = None
        self.node: Connection
        #: The error of every further operation, once the node is lost or the session is over.
        self.fatal: BaseException | None = None
        self.peers: dict[str, Connection] = {}
        self.ends = Ends()
        self.requests = Requests(self.ends)
        #: Subclasses replace it.
        self.parts: tuple[Part, ...] = (self.requests,)
        self.ends.followers = (self.requests.process_ended,)
        #: Called in this order when a connection has ended, to release what belongs to it. Arguments: the connection; the error for waiters
        #: if the process at the other end lives and reads no more; whether that process has read no message, for want of a descriptor.
        self.hangup_followers: tuple[Callable[[Connection, Exception | None, bool], None], ...] = (self.requests.connection_ended,)
        #: This session's class of entries.
        self.entry = entry
        self.count_alone = transport.count_alone
        #: The times of the last posted call, and of its batch's start.
        self._posted = 0.0
        self._burst = 0.0
        #: The reactor's count of waits when the last call followed a wait.
        self._waits = 0
        self._of_peers = Callbacks(self._on_peer_message, self._on_peer_hangup)
        closing: dict[int, Handler] = {m.REFUSED: self._on_refused, m.PROTOCOL_ERROR: _on_protocol_error, m.FAULT: _on_fault}
        self.from_node = Dispatch(m.FROM_NODE, {**closing, m.ANSWER: self._on_answer, m.WORKER_GONE: self._on_worker_gone})
        self.from_peers = Dispatch(m.PEERS | m.OBSERVING, {**closing, m.HELLO: self._on_hello, **transport.handlers()})
        self.reactor.on_fault = lambda what, error: self.end_with(fault_error(what, error))

    # ------------------------------------------------------------------------------------ joining a session
    def join(self, sock: socket.socket | None = None) -> None:
        """Send HELLO to the node, over this connection or a new one, and take part in the session after its answer.

        Raises OSError, ValueError for a node of another version, or the error of the node's end.
        """
        node = self.node = self.transport.open_node(sock, Callbacks(self._on_node_message, self._on_node_hangup))
        job_spec = () if self.job_spec is None else (self.job_spec,)
        info = self.transport.enter(node, (m.HELLO, self.role, self.process, os.getpid(), *job_spec), self._of_peers)
        if info is not None:
            set_job(bytes.fromhex(info["job_id"]))
            self.info = info
            for part in self.parts:
                part.joined(info)
        if self.fatal is not None:
            raise self.fatal

    def connect(self, process: str = NODE, timeout: float | None = None) -> socket.socket:
        return self.transport.open_socket(process, timeout)

    def peer(self, process: str) -> Connection:
        """Raises ConnectionError if the process has exited, another OSError as `connect`. Client's lock held."""
        connection = self.peers.get(process)
        if connection is None or connection.closed:
            connection = self.transport.open(process, self._of_peers)
            connection.process = process
            self.peers[process] = connection
            connection.send((m.HELLO, self.role, self.process, os.getpid()))
        return connection

    def try_peer(self, process: str) -> Connection | None:
        """As `peer`, but None if the process or the node has exited, of which a message follows. OSError if it cannot be reached."""
        try:
            return self.peer(process)
        except ConnectionError:
            return None

    # ------------------------------------------------------------------------------------ hearing
    def _on_node_message(self, connection: Connection, message: Message) -> None:
        handle = self.from_node.get(message[0])
        with self.lock.inner:
            if handle is not None:
                try:
                    # POINT node received: message[0]
                    handle(connection, *message[1:])
                except Exception as error:
                    self._fail_node_message(message, error)

    def _fail_node_message(self, message: Message, error: Exception) -> None:
        """Fail the request that an ANSWER was for; other failures at messages of the node end this process's session."""
        if misfit(message):
            raise error
        failure = fault_error(f"The handler of {message_name(message[0])} from the node", error)
        if message[0] != m.ANSWER or not self.requests.settle(message[1], None, failure):
            self.node.give_up(message, error)
            self.end_with(failure)

    def _on_peer_message(self, connection: Connection, message: Message) -> None:
        with self.lock.inner:
            try:
                # POINT peer received: message[0]
                self.from_peers[message[0]](connection, *message[1:])
            except Exception as error:
                if not self.fail_message(connection, message, error):
                    raise

    def fail_message(self, connection: Connection, message: Message, error: Exception) -> bool:
        """Give the error to the waiter for this message of a peer. False: the connection must end."""
        fail = self.from_peers.failures.get(message[0])
        if fail is None or isinstance(error, ProtocolViolationError) or misfit(message):
            return False
        failure = fault_error(f"The handler of {message_name(message[0])}", error)
        fail(connection, failure, pickle_error(failure), *message[1:])
        return True

    def fail_answer(self, _peer: Connection, failure: Exception, _payload: bytes, number: int, *_fields: Any) -> None:
        """Fail the numbered request that a message answers, because its handler has failed."""
        self.requests.settle(number, None, failure)

    def _on_hello(self, connection: Connection, role: str, process: str, pid: int, _job_spec: Any = None) -> None:
        if wrong := misfit((m.HELLO, role, process, pid)):  # before it is known by that name
            raise ProtocolViolationError(wrong)
        connection.role, connection.process, connection.pid = role, process, pid
        known = self.peers.get(process)
        if known is None or known.closed:
            self.peers[process] = connection

    def _on_answer(self, _node: Connection, request: int, ok: bool, value: Any) -> None:
        self.requests.settle(request, value, None if ok else RaySystemError(str(value)))

    # ------------------------------------------------------------------------------------ asking
    def ask(self, code: int, *fields: Any, timeout: float | None = None) -> Any:
        """Send a request to the node and wait for its answer; raises its error, or NodeDiedError."""
        return self.await_answer(self.request(self.node, code, *fields), timeout)

    def request(self, connection: Connection, code: int, *fields: Any) -> Answer:
        """Send a numbered request; the answer is set when it arrives, or when the peer exits."""
        with self.lock:
            self.check()
            return self.requests.send(connection, code, *fields)

    def await_answer(self, answer: Answer, timeout: float | None = None) -> Any:
        """Raises GetTimeoutError after `timeout` seconds."""
        try:
            if not self.reactor.wait(answer, timeout):
                raise GetTimeoutError(f"the answer did not come within {timeout:g} s")
            return answer.result()
        finally:
            # Breaks a cycle through the error's traceback, which would keep the callers' handles alive.
            del answer

    def send_call(self, connection: Connection, message: Message) -> None:
        """Send a call that stands in ``connection.calls``, or batch it with others in a burst or if the peer is busy.

        Batched calls are sent with the next wait, a later call, or the background reader's tick. The first call after a wait is sent
        immediately.
        """
        reactor = self.reactor
        reactor.activity += 1
        if self._waits != reactor.waits and len(connection.calls) == 1:
            self._waits = reactor.waits
            connection.send(message)
            if connection.alone < CALLS_BEFORE_RING:
                self.count_alone(connection)
            return
        queued = connection.post(message)
        now = monotonic()
        alone = now - self._posted > BURST_GAP
        self._posted = now
        if reactor.asleep or queued > BATCH_BYTES or (alone and len(connection.calls) < 2):
            connection.flush()
            return
        if connection not in reactor.unflushed:
            reactor.post_later(connection)
        if self.reactor.asleep:  # since the check above: either the reader has seen the post, or this thread sees it asleep
            reactor.flush()
        elif alone:
            self._burst = now
        elif now - self._burst > BURST_SECONDS:
            # Many peers, each with few calls, which waking them would outweigh.
            self._burst = now
            reactor.flush()

    def check(self) -> None:
        """Raise the fatal error, if any. After the program's end, other threads than the main one end here."""
        if self.fatal is not None:
            if self.reactor.is_over:
                self.reactor.end_thread()
            raise self.fatal.with_traceback(None)  # each raise would extend the previous traceback, and keep its frames

    # ------------------------------------------------------------------------------------ ends
    def _on_peer_hangup(self, connection: Connection) -> None:
        """End the connection to a driver or worker after a hang-up of either side."""
        with self.lock:
            # POINT peer gone
            if self.peers.get(connection.process) is connection:
                del self.peers[connection.process]
            error = _broken_error(connection)
            if error is not None:
                self.ends.tell(Ended(connection.process, error=error))
            self._hung_up(connection, error, unread=False)
            end = self.ends.of(connection.process)
            if end is not None:  # a call of a dead process has arrived after the node's report
                self.ends.settle(end)

    def _on_refused(self, connection: Connection, number: int, text: str) -> None:
        """The other process lives and hangs up. Later calls connect anew."""
        error = OSError(number, text)
        connection.close()
        if connection is self.node:
            self.fail_everything(error)
            return
        if self.peers.get(connection.process) is connection:
            del self.peers[connection.process]
        self._hung_up(connection, error, unread=True)

    def _on_worker_gone(self, _node: Connection, process: str, role: str, cause: tuple[Any, ...], made: Sequence[str] = ()) -> None:
        end = Ended(process, Cause(*cause), role)
        self.ends.tell(end)  # first: its last messages must not cause new work for it
        connection = self.peers.get(process)
        if connection is not None and not connection.closed:
            connection.read_rest()
            connection.hang_up()  # a surviving child of it may hold the other end
        self.ends.settle(end)
        if made:
            for part in self.parts:
                part.segments_orphaned(made)

    def await_end(self, process: str) -> Ended | None:
        """Wait for the node's report of a process's exit; None if it exited before this process joined."""
        if self.ends.of(process) is None:
            self.ask(m.FENCE)
        return self.ends.of(process)

    def after_end(self, process: str, then: Callable[[], None]) -> None:
        """As `await_end` without waiting: call back, with the lock, when the end is known or will never be. Client's lock held."""
        if self.ends.of(process) is not None or self.node.closed:
            then()
        else:
            self.requests.send(self.node, m.FENCE).then(then)

    def _on_node_hangup(self, node: Connection) -> None:
        """Fail everything: the node has died, ends the session, or reads no more from this process."""
        if node.refused and self.fatal is None:
            self.end_with(RaySystemError(f"The connection to the node broke: {node.refused}"))
        self.fail_everything(self.process_host.node_lost() or node_error("the node process has ended"))

    def fail_everything(self, error: BaseException) -> None:
        with self.lock:
            if self.fatal is None:
                self.fatal = error
                if not self.reactor.is_over:  # else waiting threads end silently
                    for part in reversed(self.parts):
                        part.all_lost(error)

    def _torn(self, error: Exception) -> None:
        self.process_host.torn(error)
        self.fail_everything(error)

    def end_with(self, failure: RaySystemError) -> None:
        """End this process's part in its session after an internal failure. Any thread."""
        self.process_host.fail(failure)
        self.fail_everything(failure)
        node: Connection | None = getattr(self, "node", None)
        if node is not None:
            node.hang_up()

    def _hung_up(self, connection: Connection, error: Exception | None, *, unread: bool) -> None:
        for follow in self.hangup_followers:
            follow(connection, error, unread)

    def hang_up(self) -> None:
        """Leave the session. All waiters have failed, and no thread reads any more."""
        with self.lock:
            for connection in self.peers.values():
                connection.close()
            self.peers.clear()
            if self.info:
                self.transport.leave()
            for part in reversed(self.parts):
                part.left()
            # Last: a surviving node then gives this process's row of the table to another process.
            node: Connection | None = getattr(self, "node", None)
            if node is not None:
                node.close()
            if self.reactor.table is not None:
                self.reactor.table.close()

    def abandon(self) -> None:
        self.fatal = RaySystemError("this process was forked from one that uses mray; call mray.init() in it to use mray here")
        self.transport.abandon()
        self.process_host.forked()


def fault_error(what: str, error: BaseException) -> RaySystemError:
    """The error for waiters in this process; `what` has failed."""
    failure = RaySystemError(fault_text(what, error))
    failure.__cause__ = error
    return failure


def _on_protocol_error(connection: Connection, text: str) -> None:
    """The peer could not read a message, and reads no further."""
    connection.refused = f"this process sent it an invalid message: {text}"
    connection.hang_up()


def _on_fault(connection: Connection, text: str) -> None:
    connection.refused = text
    connection.hang_up()


def _broken_error(connection: Connection) -> RaySystemError | None:
    """The error for waiters for a live peer that reads no more, or None."""
    if not connection.refused:
        return None
    error = RaySystemError(f"The connection to process {connection.process} (pid {connection.pid}) broke: {connection.refused}")
    error.__cause__ = connection.cause
    return error
