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
from collections.abc import Callable, Iterable
from typing import Any

from mray._common import messages as m
from mray._common.clock import monotonic
from mray._common.kept import os, socket
from mray._common.places import sleeps
from mray._common.protocol import misfit
from mray._inside.messages import advice, connect_to_node, encode, first_message, is_exhausted
from mray._observe.process_snapshot import answer_here, client_here

#: Seconds for a connection that is already late.
_LEAST_WAIT = 0.001
#: Section -> (True, rows) or (False, a text), of one process.
Answers = dict[str, tuple[bool, Any]]


#: Nodes in this process, which are asked without a socket: the session's directory to the function that answers.
own_nodes: dict[str, Callable[[str], Any]] = {}


class SessionGoneError(Exception):
    """The session has ended, or never existed."""


@sleeps
def ask_node(directory: str, what: str, timeout: float) -> Any:
    """Return the node's answer.

    Raises SessionGoneError, TimeoutError after `timeout` seconds, and OSError when this process or the node is out of descriptors.
    """
    here = own_nodes.get(directory)
    if here is not None:
        return here(what)
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
            sock.sendall(encode((m.HELLO, m.ROLE_OBSERVER, "", os.getpid())) + encode((m.QUERY, 1, what, [])))
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


@sleeps
def ask_processes(directory: str, processes: Iterable[str], sections: list[str], timeout: float) -> dict[str, Answers | str]:
    """Process -> its answers, or a text about why there are none. Waits at most `timeout` seconds."""
    told: dict[str, Answers | str] = {}
    deadline = monotonic() + timeout
    with selectors.DefaultSelector() as selector, contextlib.ExitStack() as stack:
        for process in processes:
            here = answer_here(process, directory, sections)
            if here is not None:
                told[process] = here
                continue
            try:
                sock = stack.enter_context(_connect(directory, max(deadline - monotonic(), _LEAST_WAIT)))
                sock.settimeout(max(deadline - monotonic(), _LEAST_WAIT))
                sock.sendall(encode((m.PASS_ON, process)))
            except TimeoutError:
                told[process] = "could not be asked: the node does not answer"
                continue
            except OSError as error:
                told[process] = f"could not be asked: {advice(error) if is_exhausted(error) else _no_answer(directory, error)}"
                continue
            sock.setblocking(False)
            selector.register(sock, selectors.EVENT_READ, (process, _Reader(m.PASSED)))
        while selector.get_map() and (left := deadline - monotonic()) > 0:
            for key, _events in selector.select(left):
                process, reader = key.data
                try:
                    data = key.fileobj.recv(1 << 20)  # type: ignore[union-attr]
                except BlockingIOError:
                    continue
                except OSError:
                    data = b""
                try:
                    reader.feed(data)
                    if reader.message is not None and reader.message[0] == m.PASSED:
                        with contextlib.suppress(OSError):  # it has ended, or refused before the query was sent: still to be read
                            key.fileobj.send(encode((m.ASK, 1, sections)))  # type: ignore[union-attr]
                        rest, reader = reader.rest, _Reader(m.TOLD)
                        selector.modify(key.fileobj, selectors.EVENT_READ, (process, reader))
                        reader.feed(rest)
                except ValueError as error:
                    told[process] = f"has sent an invalid answer: {error}"
                    selector.unregister(key.fileobj)
                    continue
                if reader.message is not None:
                    code, number, answer = reader.message
                    gone = code == m.REFUSED and number == errno.ECONNREFUSED
                    told[process] = "has ended" if gone else answer if code == m.TOLD else f"cannot answer: {answer.rstrip('.')}"
                    selector.unregister(key.fileobj)
                elif not data:
                    told[process] = "has ended"
                    selector.unregister(key.fileobj)
        for key in selector.get_map().values():
            told[key.data[0]] = f"does not answer within {timeout:g} s: it is stopped, or C code holds its interpreter"
    return told


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
