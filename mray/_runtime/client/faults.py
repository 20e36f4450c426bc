"""What a driver or a worker ends when it fails at a message (see `mray._ipc.faults`).

In the reading thread, with the client's lock held. A message that asks for an answer gets the error as its answer, a message that is one
fails what waits for it, and everything else goes on. After any other the conversation ends, and with it all that was said over it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mray._common import messages as m
from mray._common.protocol import misfit
from mray._ipc.connection import Connection, Message, ProtocolViolationError
from mray._ipc.faults import fault_text, word_name
from mray._objects.remote_error import pickle_error
from mray._runtime.client.calls import Call, failed_reply
from mray.exceptions import RaySystemError

if TYPE_CHECKING:
    from mray._runtime.client.client import Client


def fault_error(what: str, error: BaseException) -> RaySystemError:
    """What those get who wait in this process."""
    failure = RaySystemError(fault_text(what, error))
    failure.__cause__ = error
    return failure


def lost_call(call: Call, word: str, error: Exception) -> Exception:
    """A call that is not among its connection's any more fails with what this process has raised; returns that, to be raised on."""
    call.fail(fault_error(f"The handler of {word}", error))
    return error


def end_request(client: Client, connection: Connection, message: Message, error: Exception) -> bool:
    """Have whoever waits for this one message get the error. False: its conversation has to end."""
    if isinstance(error, ProtocolViolationError) or misfit(message):
        return False
    end = _ENDS.get(message[0])
    if end is None:
        return False
    failure = fault_error(f"The handler of {word_name(message[0])}", error)
    end(client, connection, failure, pickle_error(failure), *message[1:])
    return True


def end_by_node_word(client: Client, message: Message, error: Exception) -> None:
    """An answer of the node's fails who asked; without anything else that it says this process does not know where it stands."""
    if misfit(message):
        raise error
    failure = fault_error(f"The handler of {word_name(message[0])} from the node", error)
    if message[0] != m.ANSWER or not client.requests.settle(message[1], None, failure):
        client.node.give_up(message, error)
        client.end_with(failure)


def end_driver(client: Client, failure: RaySystemError) -> None:
    """A driver cannot go on with its session. Any thread."""
    client.fail_everything(failure)
    node: Connection | None = getattr(client, "node", None)
    if node is not None:
        node.hang_up()


def _call(_client: Client, peer: Connection, _failure: Exception, payload: bytes, *fields: Any) -> None:
    """CALL or TASK: it is answered as if it had raised."""
    task_id, num_returns, options = fields[0], fields[2], fields[7]
    if options is not None and "stream" in options:
        peer.post((m.STREAM_ITEMS, task_id, options["stream"][0], [(m.FAILED, payload, None)]))
    peer.send(failed_reply(task_id, num_returns, payload))


def _graph(_client: Client, peer: Connection, _failure: Exception, payload: bytes, number: int, *_fields: Any) -> None:
    peer.send((m.GRAPHED, number, False, payload))


def _tensors(_client: Client, peer: Connection, _failure: Exception, payload: bytes, number: int, *_fields: Any) -> None:
    peer.send((m.TENSORS_BROUGHT, number, m.FAILED, payload, b""))


def _fetch(_client: Client, peer: Connection, _failure: Exception, payload: bytes, object_id: bytes, *_asks: bool) -> None:
    peer.send((m.OBJECT, object_id, m.FAILED, payload, None))


def _ask(_client: Client, peer: Connection, failure: Exception, _payload: bytes, number: int, sections: list[str]) -> None:
    peer.send((m.TOLD, number, dict.fromkeys(sections, (False, str(failure)))))


def _answer(client: Client, _peer: Connection, failure: Exception, _payload: bytes, number: int, *_fields: Any) -> None:
    client.requests.settle(number, None, failure)


def _object(client: Client, _peer: Connection, _failure: Exception, payload: bytes, object_id: bytes, *_fields: Any) -> None:
    client.borrowing.fail(object_id, payload)


_ENDS: dict[int, Any] = {
    m.CALL: _call,
    m.TASK: _call,
    m.GRAPH: _graph,
    m.TENSORS_FETCH: _tensors,
    m.FETCH: _fetch,
    m.ASK: _ask,
    m.GRAPHED: _answer,
    m.TENSORS_BROUGHT: _answer,
    m.OBJECT: _object,
}
