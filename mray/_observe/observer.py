"""Queries of a session's state from any process of its user: a command, or a process of the session itself.

    observer ──HELLO as observer, QUERY──▶ node          answered by `mray._runtime.node.snapshot`
             ──PASS_ON──▶ node ──the connection──▶ driver, workers
             ──ASK──▶ driver, workers                    answered by `mray._observe.process_snapshot`
             (its own process is asked directly)

The node is found by the name of its socket, or in this process without one. Plain sockets and one loop: an observer is no member
of the session, gets no row in its table, and no process waits for it. All peers are asked concurrently; one that does not answer in time
(it is stopped, or its interpreter is held by C code) costs only its own rows. Thread-safe: every query has its own sockets.
"""

from __future__ import annotations

import contextlib
import errno
import selectors
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from mray._common import messages as m
from mray._common.clock import monotonic
from mray._common.kept import os, socket
from mray._common.places import sleeps
from mray._common.protocol import misfit
from mray._inside.messages import advice, connect_to_node, encode, first_message, is_exhausted
from mray._observe.process_snapshot import Sections, answer_here, client_here

#: Seconds for a connection that is already late.
_LEAST_WAIT = 0.001
#: Section -> (True, rows) or (False, a text), of one process.
Answers = dict[str, tuple[bool, Any]]


#: Nodes in this process, which are asked without a socket: the session's directory to the function that answers.
own_nodes: dict[str, Callable[..., Any]] = {}


class SessionGoneError(Exception):
    """The session has ended, or never existed."""


@sleeps
def ask_node(directory: str, what: str, timeout: float, **arguments: Any) -> Any:
    """Return the node's answer.

    Raises SessionGoneError, TimeoutError after `timeout` seconds, and OSError when this process or the node is out of descriptors.
    """
    here, given = own_nodes.get(directory), [arguments] if arguments else []
    if here is not None:
        return here(what, *given)
    deadline = monotonic() + timeout
    try:
        sock = _connect(directory, timeout)
    except TimeoutError:
        raise _too_late(directory, timeout) from None
    except OSError as error:
        if is_exhausted(error):
            if error.strerror != os.strerror(error.errno or 0):
                raise  # the node's own text about its descriptors
            raise OSError(error.errno, f"{advice(error)}. The node of {directory} could not be asked.") from None
        raise SessionGoneError(_no_answer(directory, error)) from None
    with sock:
        with contextlib.suppress(OSError):  # it has ended, or refused before the query was sent: still to be read
            sock.sendall(encode((m.HELLO, m.ROLE_OBSERVER, "", os.getpid())) + encode((m.QUERY, 1, what, given)))
        sock.settimeout(timeout)
        reader = _Reader(m.ANSWER)
        while reader.message is None:
            left = deadline - monotonic()
            if left <= 0:
                raise _too_late(directory, timeout)
            sock.settimeout(left)
            try:
                data = sock.recv(1 << 20)
            except TimeoutError:
                continue
            except OSError:
                data = b""
            if not data:
                raise SessionGoneError(f"the session of {directory} has just ended")
            try:
                reader.feed(data)
            except ValueError as error:
                raise SessionGoneError(f"the node of {directory} has sent an invalid answer: {error}") from None
    if reader.message[0] == m.REFUSED:
        raise OSError(*reader.message[1:])
    _code, _number, ok, value = reader.message
    if not ok:
        raise ValueError(str(value))
    return value


def ask_processes(directory: str, processes: Iterable[str], sections: Sections | Iterable[str], timeout: float) -> dict[str, Answers | str]:
    """Process -> its answers, or a text about why there are none. Waits at most `timeout` seconds."""
    with Interview(directory) as interview:
        wanted: Sections = sections if isinstance(sections, dict) else {section: {} for section in sections}
        return interview.ask(dict.fromkeys(processes, wanted), timeout)


class Interview:
    """Several questions to processes of a session, over the same connections. Not thread-safe."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._sockets: dict[str, socket.socket] = {}
        self._number = 0
        self._deadline = 0.0

    def __enter__(self) -> Interview:
        return self

    def __exit__(self, *_error: object) -> None:
        for sock in self._sockets.values():
            sock.close()
        self._sockets.clear()

    @sleeps
    def ask(self, wanted: Mapping[str, Sections], timeout: float) -> dict[str, Answers | str]:
        """Process -> its answers, or a text about why there are none. Waits at most `timeout` seconds."""
        told: dict[str, Answers | str] = {}
        deadline = self._deadline = monotonic() + timeout
        self._number += 1
        with selectors.DefaultSelector() as selector:
            for process, sections in wanted.items():
                here = answer_here(process, self._directory, sections)
                if here is not None:
                    told[process] = here
                    continue
                question = encode((m.ASK, self._number, sections))
                known = self._sockets.get(process)
                if known is None:
                    try:
                        sock = self._connect(process)
                    except TimeoutError:
                        told[process] = "could not be asked: the node does not answer"
                        continue
                    except OSError as error:
                        told[process] = (
                            f"could not be asked: {advice(error) if is_exhausted(error) else _no_answer(self._directory, error)}"
                        )
                        continue
                    selector.register(sock, selectors.EVENT_READ, (process, question, _Reader(m.PASSED)))
                else:
                    self._send(known, question)
                    selector.register(known, selectors.EVENT_READ, (process, question, _Reader(m.TOLD)))
            while selector.get_map() and (left := deadline - monotonic()) > 0:
                for key, _events in selector.select(left):
                    answer = self._read(selector, key)
                    if answer is not None:
                        told[key.data[0]] = answer
                        selector.unregister(key.fileobj)
            for key in selector.get_map().values():
                told[key.data[0]] = f"does not answer within {timeout:g} s: it is stopped, or C code holds its interpreter"
        for process, answer in told.items():
            if isinstance(answer, str) and process in self._sockets:
                self._sockets.pop(process).close()
        return told

    def _left(self) -> float:
        return max(self._deadline - monotonic(), _LEAST_WAIT)

    def _connect(self, process: str) -> socket.socket:
        sock = self._sockets[process] = _connect(self._directory, self._left())
        sock.settimeout(self._left())
        sock.sendall(encode((m.PASS_ON, process)))
        sock.setblocking(False)
        return sock

    def _send(self, sock: socket.socket, question: bytes) -> None:
        """A process that has ended is noticed when its answer is read."""
        sock.settimeout(self._left())
        with contextlib.suppress(OSError):
            sock.sendall(question)
        sock.setblocking(False)

    @sleeps
    def _read(self, selector: selectors.BaseSelector, key: selectors.SelectorKey) -> Answers | str | None:
        """Read what has arrived; returns the answer once it is complete, or a text about why there will be none."""
        process, question, reader = key.data
        sock: socket.socket = key.fileobj  # type: ignore[assignment]
        try:
            data = sock.recv(1 << 20)
        except BlockingIOError:
            return None
        except OSError:
            data = b""
        try:
            reader.feed(data)
            if reader.message is not None and reader.message[0] == m.PASSED:
                self._send(sock, question)
                rest, reader = reader.rest, _Reader(m.TOLD)
                selector.modify(sock, selectors.EVENT_READ, (process, question, reader))
                reader.feed(rest)
        except ValueError as error:
            return f"has sent an invalid answer: {error}"
        if reader.message is not None:
            code, number, answer = reader.message
            if code == m.TOLD:
                return answer  # type: ignore[no-any-return]
            return "has ended" if number == errno.ECONNREFUSED else f"cannot answer: {answer.rstrip('.')}"
        return "has ended" if not data else None


def _connect(directory: str, timeout: float) -> socket.socket:
    """Connect to the node of a session. TimeoutError when this process belongs to the session and waits longer."""
    client = client_here(directory)
    return connect_to_node(directory) if client is None else client.connect(timeout=timeout)


def _too_late(directory: str, timeout: float) -> TimeoutError:
    return TimeoutError(f"the node of {directory} did not answer within {timeout:g} s")


def _no_answer(directory: str, error: OSError) -> str:
    return f"no session answers in {directory}: {error}"


class _Reader:
    """Assembles one frame: a `code` answer, or REFUSED; FAULT, from a process that failed at the query, becomes REFUSED."""

    def __init__(self, code: int) -> None:
        self._code = code
        self._bytes = bytearray()
        self.message: tuple[Any, ...] | None = None
        self.rest = b""

    def feed(self, data: bytes) -> None:
        """Add some bytes; ValueError if they are no such answer."""
        self._bytes += data
        found = first_message(self._bytes)
        if found is not None:
            message, rest = found
            if message[0] == m.FAULT and not misfit(message):
                message = (m.REFUSED, errno.EIO, message[1])
            wrong = misfit(message) or ("" if message[0] in (self._code, m.REFUSED) else f"message {message[0]} is no answer")
            if wrong:
                raise ValueError(wrong)
            self.message, self.rest = message, rest
