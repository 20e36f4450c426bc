"""The packer: results and errors of calls. In the thread that runs the call."""

from __future__ import annotations

import contextlib
import pickle
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from mray._api.blueprint import METHOD_ATTRIBUTE
from mray._common import messages as m
from mray._common.history import History
from mray._common.ids import return_id
from mray._common.invocations import Result
from mray._common.kept import os
from mray._ipc.copying import LEAST, call_all
from mray._objects.arrays import plain_arrays
from mray._objects.remote_error import UNPICKLABLE, DependencyError, pickle_error, serialization_error, task_error
from mray._objects.serializer import Serialized, serialize
from mray._runtime.client import failed_calls
from mray.exceptions import AsyncioActorExit, RayTaskError, TaskCancelledError, UserCodeException

if TYPE_CHECKING:
    from mray._ipc.connection import Connection
    from mray._runtime.client.call_context import CallContext
    from mray._runtime.client.client import Client
    from mray._runtime.worker.live_actor import LiveActor
    from mray._runtime.worker.running import RunningCall

#: The most remembered failed calls, and their most bytes.
FAILURES, FAILURE_BYTES = 200, 1 << 18
#: The most failed calls, and attempts, that are marked so.
FAILED_MARKS = 1000


class Collected(list[Result]):
    """The yielded values of a generator with a fixed number of return values, and why others are missing."""

    failure = b""


class Packer:
    def __init__(self, client: Client, context: CallContext, actor: LiveActor) -> None:
        self._client = client
        self._context = context
        self._actor = actor
        #: (task id, type, text) of the last failed calls, for observers.
        self.failures = History(FAILURES, FAILURE_BYTES)
        #: (task id, type) of more of them; and the task ids of calls that the caller was asked to repeat, once for each attempt.
        self._failed: deque[tuple[bytes, str]] = deque(maxlen=FAILED_MARKS)
        self.attempts: deque[bytes] = deque(maxlen=FAILED_MARKS)
        self._noting = threading.Lock()

    # ------------------------------------------------------------------------------------ values
    def freeze(self, running: RunningCall, pin: bytes, object_id: bytes, value: Any, options: dict[str, Any] | None) -> Result:
        """The result of a call; refs inside the value are pinned under the name `pin`.

        Raises the error of a dead holder whose tensors, among the call's arguments, never arrived.
        """
        client, connection = self._client, running.connection
        transport = None if options is None else options.get("tensor_transport")
        if transport is None:
            try:
                form, payload, refs = client.owner.freeze(value, connection.process)
            except UNPICKLABLE as error:
                raise serialization_error(error, value, f"the return value of {running.name}") from None
        else:
            context = self._context
            actor = (context.actor_id or b"", context.class_name or "")
            form, payload, refs = client.tensors.freeze(value, transport, object_id, connection.process, connection, actor)
        lost = client.tensors.why_lost(running.awaited) if running.awaited else None
        if lost is not None:
            self._free(object_id, form, payload)
            raise DependencyError(lost)
        if not refs:
            return form, payload, None
        with client.lock:
            client.borrowing.pin(connection, pin, refs)
            return form, payload, client.borrowing.names_of(refs)

    def split(self, running: RunningCall, result: Any) -> list[Result]:
        """The results of a call with several return values: all, or an error."""
        connection, call, task_id = running.connection, running.call, running.task_id
        num_returns = call.num_returns
        if num_returns == 0:
            return []
        if type(result) is Collected:
            return [*result, *[(m.FAILED, result.failure, None)] * (num_returns - len(result))]
        try:
            results = list(result)
        except TypeError:
            raise TypeError(f"num_returns={num_returns} asks for an iterable of that many values, not {type(result)}.") from None
        if len(results) != num_returns:
            raise ValueError(f"Task returned {len(results)} objects, but num_returns={num_returns}.")
        values: list[Result] = []
        with self._all_or_none(connection, task_id, values) as stored:
            if not running.awaited and (call.options is None or "tensor_transport" not in call.options):
                self._store_arrays(results, connection.process, stored)
            for index, value in enumerate(results):
                frozen = stored.pop(index, None)
                if frozen is None:
                    frozen = self.freeze(running, return_id(task_id, index), return_id(task_id, index + 1), value, call.options)
                values.append(frozen)
        return values

    def _store_arrays(self, results: Sequence[Any], owner: str, stored: dict[int, Result]) -> None:
        """Store large plain arrays among these results concurrently, by their index."""

        def store(index: int, packed: Serialized) -> None:
            stored[index] = m.SEGMENT, self._client.owner.store_value(packed, owner), None

        large = plain_arrays(results, LEAST)
        if len(large) > 1:
            call_all([partial(store, index, serialize(results[index])) for index in large])

    @contextlib.contextmanager
    def _all_or_none(self, connection: Connection, task_id: bytes, values: Sequence[Result]) -> Iterator[dict[int, Result]]:
        """Free the stored values of a call when storing another one fails: the caller never asks for them.

        Yields the dict for values that are stored ahead, by index.
        """
        stored: dict[int, Result] = {}
        try:
            yield stored
        except BaseException:
            with self._client.lock:
                for index in range(len(values)):
                    self._client.borrowing.pins.returned(connection, return_id(task_id, index))
            for index, (form, payload, _refs) in [*enumerate(values), *stored.items()]:
                self._free(return_id(task_id, index + 1), form, payload)
            raise

    def _free(self, object_id: bytes, form: int, payload: Any) -> None:
        if form == m.TENSORS:
            with self._client.lock:
                self._client.tensors.drop(object_id)
            form, payload = payload[-2:]
        if form == m.SEGMENT:
            self._client.owner.store.free(payload[0])

    def settle(self) -> None:
        """Wait until owners have counted this process's borrows; the reply lets the caller release its refs."""
        borrower = self._client.borrowing.borrower
        while borrower.unacknowledged:
            with contextlib.suppress(KeyboardInterrupt):  # too late to cancel the task
                self._client.reactor.wait_until(lambda: not borrower.unacknowledged)

    # ------------------------------------------------------------------------------------ errors
    def wrapped(self, error: BaseException, name: str) -> RayTaskError:
        context = self._context
        return task_error(
            name,
            error,
            pid=os.getpid(),
            ip=self._client.info["node_ip_address"],
            actor_id=context.actor_id,
            actor_repr=self._actor.repr_now() if context.actor_id else None,
        )

    def note_failure(self, task_id: bytes, error: BaseException) -> bytes:
        """Remember a failed call for observers; returns its pickled error."""
        info = failed_calls.info(error)
        with self._noting:  # groups fail concurrently
            self.failures.append((task_id, *info))
            self._failed.append((task_id, info[0]))
        return pickle_error(error)

    def failed_calls(self) -> dict[bytes, str]:
        """Task id -> type of error. Any thread."""
        with self._noting:
            return dict(self._failed)

    def item_failure(self, running: RunningCall, error: BaseException) -> bytes | None:
        """The pickled error as a generator's last item; None if it ends more than the call (see `_failed`)."""
        if not isinstance(error, Exception) or isinstance(error, (TaskCancelledError, AsyncioActorExit)):
            return None
        if self.is_retried(running, error):
            return None
        return self.note_failure(running.task_id, self.wrapped(error, running.name))

    def is_retried(self, running: RunningCall, error: BaseException) -> bool:
        """Whether the caller asked for retries after errors like this one."""
        wanted = (running.call.options or {}).get("retry", False)
        if isinstance(wanted, bool):
            return wanted and isinstance(error, Exception)
        raised = error.__cause__ if isinstance(error, UserCodeException) else error
        if isinstance(wanted, str):  # declared at the method, whose class is known here
            method = getattr(self._actor.cls, (running.function_name or "").rpartition(".")[2], None)
            wanted = getattr(method, METHOD_ATTRIBUTE, {}).get("retry_exceptions", ())
            return isinstance(raised, tuple(wanted))
        return isinstance(raised, tuple(pickle.loads(wanted)))
