"""`ObjectRefGenerator`: the refs of the items of a remote generator, one after the other while it runs.

It is the only holder of a stream that belongs to the backend: when it dies, the remote function stops at its next ``yield`` and unread
items are freed. So it cannot be copied or pickled.
"""

from __future__ import annotations

import types
from collections import deque
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, Generic, NoReturn, Protocol

from mray._api.current import current_backend
from mray._api.object_ref import ObjectRef
from mray._api.type_variables import T_co
from mray._common.bridge import called
from mray._common.places import undone
from mray._common.record import Record

_NOT_PICKLED = "You cannot return or pass a generator to other task. Serializing a ObjectRefGenerator is not allowed."


class StreamingGeneratorStats(Record):
    """The answer that a remote generator gets for each value that it yields."""

    object_creation_dur_s: float


class RefStream(Protocol):
    """The state of a remote generator in a backend."""

    @property
    def done(self) -> ObjectRef:
        """The ref that is ready when the generator is over: None, or the error if it could not be run to its end."""

    def take_nowait(self) -> ObjectRef | None:
        """The ref of the next item if it has arrived, else None."""

    def put_back(self, ref: ObjectRef) -> None:
        """Undo the last `take_nowait`."""

    def peek(self, count: int) -> list[ObjectRef]:
        """The refs of the next `count` items, which stay. Those after the end fail with ObjectRefStreamEndOfStreamError, or with the error
        that ended it.
        """

    def await_next(self, timeout: float | None) -> bool:
        """Wait until an item has arrived or the generator is over. Returns False when `timeout` seconds have passed."""

    def is_over(self) -> bool:
        """Whether everything has arrived and was taken."""

    def has_failed(self) -> bool:
        """Whether `done` is an error."""


class DynamicObjectRefGenerator:
    """The refs of all items of a generator with ``num_returns="dynamic"``. Each can be taken once."""

    def __init__(self, refs: Iterable[ObjectRef]) -> None:
        self._refs = deque(refs)

    def __iter__(self) -> Iterator[ObjectRef]:
        while self._refs:
            yield self._refs.popleft()

    def __len__(self) -> int:
        return len(self._refs)


def _limit(timeout_s: float | None) -> float | None:
    return None if timeout_s is None or timeout_s < 0 else timeout_s


def _give_back(local: dict[str, Any], ref: ObjectRef) -> None:
    if not ref.is_nil():
        local["self"].put_back(ref)


class ObjectRefGenerator(Generic[T_co]):
    """The result of a call of a remote generator: an iterator, and asynchronous iterator, of the refs of its items.

    An item can be taken as soon as it is yielded. The error of the generator is the last item; when its process dies, or it is
    cancelled, the last ref raises that. Then it is exhausted for good. One thread at a time.

    Dropping it ends the remote generator at its next ``yield``.
    """

    __slots__ = ("__weakref__", "_failure_taken", "_guard", "_stream")

    def __init__(self, stream: RefStream, guard: Any) -> None:
        self._stream = stream
        #: Ends the stream when it dies with this generator.
        self._guard = guard
        self._failure_taken = False

    __class_getitem__: Any = classmethod(types.GenericAlias)

    # ------------------------------------------------------------------------------------ iterating
    def __iter__(self) -> ObjectRefGenerator[T_co]:
        return self

    def put_back(self, ref: ObjectRef) -> None:
        """Undo ``next``, which has returned this ref last."""
        if ref is self._stream.done:
            self._failure_taken = False
        else:
            self._stream.put_back(ref)

    @undone(_give_back)
    def __next__(self) -> ObjectRef[T_co]:
        """The ref of the next item; waits without limit until it is yielded, or the process that runs the generator dies.

        A task that waits returns its CPUs meanwhile.
        """
        ref = self._stream.take_nowait()
        if ref is None:
            ref = self._next_sync(None)
        return ref

    def __aiter__(self) -> ObjectRefGenerator[T_co]:
        return self

    async def __anext__(self) -> ObjectRef[T_co]:
        """As ``next``, without blocking the event loop."""
        ref = self._stream.take_nowait()
        if ref is None:
            ref = await self._next_async(None)
        return ref

    # ------------------------------------------------------------------------------------ looking
    def completed(self) -> ObjectRef[None]:
        """A ref that is ready when the remote generator is over: of None, or an error when its process died or it was cancelled."""
        return self._stream.done

    def next_ready(self) -> bool:
        """Whether ``get(next(generator))`` would return, or raise, without waiting; False when it is exhausted."""
        if self.is_finished():
            return False
        self._stream.await_next(0)
        return not self.is_finished() and current_backend().wait(self._stream.peek(1), 1, 0)[0] != []

    def is_finished(self) -> bool:
        """Whether the remote generator is over and everything was taken. Does not wait."""
        stream = self._stream
        return stream.is_over() and (self._failure_taken or not stream.has_failed())

    def next_ref(self) -> ObjectRef[T_co]:
        """The ref of the next item, which stays; one that fails if there is none. For `wait`."""
        if self._stream.is_over() and not self._failure_taken and self._stream.has_failed():
            return self._stream.done
        return self._stream.peek(1)[0]

    # ------------------------------------------------------------------------------------ as Ray's libraries call it
    @property
    def _generator_ref(self) -> ObjectRef:
        return self._stream.done

    def _stream_exhausted(self) -> bool:
        """As `is_finished`, also when an error of the system is yet to be taken."""
        return self._stream.is_over()

    def _get_next_object_id_binary(self) -> bytes:
        return self._stream.peek(1)[0].binary()

    def _get_next_ref_n(self, num_refs: int) -> list[ObjectRef]:
        """The refs of the next items, which stay."""
        if num_refs <= 0:
            raise ValueError("num_refs must be positive")
        return self._stream.peek(num_refs)

    def _consume_next_ref_n(self, num_refs: int) -> None:
        """Skip the next items. Raises ValueError if the last one has neither arrived nor is after the end."""
        if num_refs <= 0:
            raise ValueError("num_refs must be positive")
        if not current_backend().wait(self._stream.peek(num_refs)[-1:], 1, 0)[0]:
            raise ValueError(f"the next {num_refs} items of the generator are not ready yet; wait for the last of them")
        for _ in range(num_refs):
            self._stream.take_nowait()

    @undone(_give_back)
    def _next_sync(self, timeout_s: float | None = None) -> ObjectRef:
        """As ``next``, for `timeout_s` seconds at most (None or -1: without limit), then ``ObjectRef.nil()``."""
        while (ref := self._take(StopIteration)) is None:
            if not self._stream.await_next(_limit(timeout_s)):
                return ObjectRef.nil()
        return ref

    def _take(self, end: type[Exception]) -> ObjectRef | None:
        """The next item, None if it has not arrived. After the last: once the ref that raises, if the generator has failed; then `end`."""
        stream = self._stream
        ref = stream.take_nowait()
        if ref is not None or not stream.is_over():
            return ref
        if self._failure_taken or not stream.has_failed():
            raise end
        self._failure_taken = True
        return stream.done

    async def _next_async(self, timeout_s: float | None = None) -> ObjectRef:
        """As `_next_sync` without blocking the event loop; the end is StopAsyncIteration."""
        while (ref := self._take(StopAsyncIteration)) is None:
            if not await called(partial(current_backend().then, self._stream.peek(1)[0]), _limit(timeout_s)):
                return ObjectRef.nil()
        return ref

    # ------------------------------------------------------------------------------------ what generators have and this has not
    def send(self, value: Any) -> NoReturn:
        raise NotImplementedError("`gen.send` is not supported.")

    def throw(self, value: Any) -> NoReturn:
        raise NotImplementedError("`gen.throw` is not supported.")

    def close(self) -> NoReturn:
        raise NotImplementedError("`gen.close` is not supported.")

    async def asend(self, value: Any) -> NoReturn:
        raise NotImplementedError("`gen.asend` is not supported.")

    async def athrow(self, value: Any) -> NoReturn:
        raise NotImplementedError("`gen.athrow` is not supported.")

    async def aclose(self) -> NoReturn:
        raise NotImplementedError("`gen.aclose` is not supported.")

    def __reduce__(self) -> NoReturn:
        raise TypeError(_NOT_PICKLED)

    def __repr__(self) -> str:
        return f"<ObjectRefGenerator of {self._stream.done.task_id()}>"
