"""The replies to the calls of this process: their values go into the entries that refs hold. In the reading thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from mray._common import messages as m
from mray._common.ids import FIRST, return_id
from mray._objects.remote_error import unpickle_error
from mray._runtime.client.calls import SENT, fail_call, lost_call
from mray._runtime.connections.part import Part, Unanswered

if TYPE_CHECKING:
    from mray._common.invocations import Result
    from mray._ipc.connection import Connection
    from mray._objects.ownership import Entry
    from mray._runtime.objects.borrowing import Borrowing
    from mray._runtime.objects.owner import Owner
    from mray._runtime.objects.tensor_contract import Tensors
    from mray._runtime.objects.unhandled_errors import UnhandledErrors


class Replies(Part):
    """Methods need the client's lock."""

    def __init__(self, owner: Owner, borrowing: Borrowing, tensors: Callable[[], Tensors], unhandled: UnhandledErrors) -> None:
        client = self._client = owner.client
        self._owner = owner
        self._borrowing = borrowing
        self._tensors = tensors
        self._unhandled = unhandled
        client.from_peers.on(
            {m.REPLY: self._on_reply, m.REPLIES: self._on_replies, m.ATTEMPT: self._on_attempt, m.GRAPHED: self._on_graphed},
            {m.CALL: fail_call, m.TASK: fail_call, m.GRAPH: self._fail_graph_request, m.GRAPHED: client.fail_answer},
        )

    def calls(self) -> Iterator[Unanswered]:
        for connection in self._client.peers.values():
            for call in connection.calls.values():
                yield call, SENT, connection.process

    def count_calls(self) -> int:
        return sum(len(connection.calls) for connection in self._client.peers.values())

    def _on_reply(self, connection: Connection, task_id: bytes, form: int, payload: Any, refs: Any) -> None:
        call = connection.calls.pop(task_id, None)
        if call is None:
            # No caller waits for it any more.
            self._let_go(task_id + FIRST, form, payload)
            return
        try:
            entry = call.entry
            assert entry is not None
            if form >= m.FAILED:
                if form == m.TENSORS:
                    self._tensors().own(entry, task_id + FIRST, payload, call.handle)
                else:
                    call.failed(payload, connection.process)
                    self._unhandled.come(entry, payload)
            # POINT reply come
            if form == m.PICKLED and not refs:
                entry.complete(form, payload)
            else:
                self.complete(connection, task_id, entry, form, payload, refs)
            if call.lease is not None:
                call.source.replied(call)
        except Exception as error:
            raise lost_call(call, "REPLY", error) from None
        call.release()

    def _on_replies(self, connection: Connection, task_id: bytes, values: list[Result]) -> None:
        call = connection.calls.pop(task_id, None)
        if call is None:
            for index, (form, payload, _refs) in enumerate(values):
                self._let_go(return_id(task_id, index + 1), form, payload)
            return
        failed = False
        try:
            for index, (entry, (form, payload, refs)) in enumerate(zip(call.entries, values, strict=True)):
                if form == m.TENSORS:
                    self._tensors().own(entry, return_id(task_id, index + 1), payload, call.handle)
                elif form == m.FAILED:
                    if not failed:
                        failed = True
                        call.failed(payload, connection.process)
                    self._unhandled.come(entry, payload)
                self.complete(connection, return_id(task_id, index), entry, form, payload, refs)
            if call.lease is not None:
                call.source.replied(call)
        except Exception as error:
            raise lost_call(call, "REPLIES", error) from None
        call.release()

    def _let_go(self, object_id: bytes, form: int, payload: Any) -> None:
        if form == m.TENSORS:
            self._tensors().own(self._client.entry(), object_id, payload, None)
        elif form == m.SEGMENT:
            self._owner.segments.guard(payload)

    def complete(self, connection: Connection, pin: bytes, entry: Entry, form: int, payload: Any, refs: Any) -> None:
        """The producer has pinned the refs inside under the name `pin`. Client's lock held."""
        if form == m.SEGMENT:
            entry.guard = self._owner.segments.guard(payload)
            connection.peer.freed.pop(payload[0], None)
        entry.complete(form, payload, self._borrowing.adopt_reply(connection, pin, refs) if refs else None)

    def _on_attempt(self, connection: Connection, task_id: bytes) -> None:
        call = connection.calls.pop(task_id, None)
        if call is not None:
            try:
                call.source.attempt_failed(call)
            except Exception as error:
                raise lost_call(call, "ATTEMPT", error) from None

    def connection_ended(self, connection: Connection, error: Exception | None, unread: bool) -> None:
        if error is not None and (unread or self._client.fatal is None):
            calls = list(connection.calls.values())
            connection.calls.clear()
            for call in calls:
                call.fail(error)

    # ------------------------------------------------------------------------------------ answers about graphs
    def _on_graphed(self, _peer: Connection, number: int, ok: bool, payload: bytes) -> None:
        self._client.requests.settle(number, payload if ok else None, None if ok else unpickle_error(payload))

    @staticmethod
    def _fail_graph_request(peer: Connection, _failure: Exception, payload: bytes, number: int, *_fields: Any) -> None:
        peer.send((m.GRAPHED, number, False, payload))
