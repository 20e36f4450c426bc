"""`ObjectRef`: the promise of a value, and the handle that keeps it alive.

A ref holds an `_entry` that belongs to the backend; while any ref in any process lives, the object does. Pickling asks this process's
backend for the object's owner, unpickling notifies the other process's backend that it holds the object.
"""

from __future__ import annotations

import importlib
import types
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic

from mray._api.type_variables import T
from mray._common.bridge import Cancel, call_in, called, own_loop, settle
from mray._common.ids import OBJECT_SIZE, TASK_SIZE, BaseID, JobID, TaskID
from mray._common.log import logger

if TYPE_CHECKING:
    import asyncio
    import concurrent.futures
else:

    class _Unimported:
        """A module of annotations, imported on first use."""

        def __init__(self, name):
            self._name = name

        def __getattr__(self, name):
            return getattr(importlib.import_module(self._name), name)

    asyncio = _Unimported("asyncio")
    concurrent = types.SimpleNamespace(futures=_Unimported("concurrent.futures"))


class RefBackend(ABC):
    """The part of an engine that refs use; `mray._api.backend` has the rest of the contract."""

    @abstractmethod
    def get(self, refs: Sequence[ObjectRef], timeout: float | None, through_host: bool = False) -> list[Any]:
        """Values of the refs, in order. Raises the first error, even if other refs are pending.

        `through_host`: tensors that stayed with their holder come through host memory.
        """

    def get_one(self, ref: ObjectRef, timeout: float | None) -> Any:
        return self.get((ref,), timeout)[0]

    @abstractmethod
    def then(self, ref: ObjectRef, callback: Callable[..., None], *, soon: bool = True) -> Cancel:
        """Call `callback` once, in any thread, when the value (or error) is ready, immediately if it is.

        Not `soon`: some milliseconds late, unless a thread of this process waits; that saves waking one.
        """

    def future_of(self, ref: ObjectRef) -> asyncio.Future[Any]:
        """A future of the value, of the event loop that runs in this thread. Cancelling it does not cancel the task."""
        loop = own_loop()
        future: asyncio.Future[Any] = loop.create_future()

        def ready() -> None:
            call_in(loop, settle, future, lambda: self.get([ref], 0)[0])

        self.then(ref, ready)
        return future

    def thread_future_of(self, ref: ObjectRef) -> concurrent.futures.Future[Any]:
        """A future for threads, resolved when the value is ready."""
        import concurrent.futures  # noqa: PLC0415  (`import mray` is to stay cheap)

        future: concurrent.futures.Future[Any] = concurrent.futures.Future()
        self.then(ref, lambda: self.settle(future, ref))
        return future

    def settle(self, future: concurrent.futures.Future[Any], ref: ObjectRef) -> None:
        """Resolve a future for threads: the value of the ref is ready."""
        if not future.set_running_or_notify_cancel():
            return
        try:
            value = self.get([ref], 0)[0]
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(value)

    def wait_in_loop(self, ref: ObjectRef) -> Generator[Any, None, Any]:
        """Await the ref: suspends the coroutine until the value is ready; returns it or raises the error."""
        return self.future_of(ref).__await__()

    @abstractmethod
    def restore_ref(self, object_id: bytes, owner: str) -> ObjectRef:
        """The ref that was pickled as (id, owner): this process borrows it."""

    @abstractmethod
    def export_ref(self, ref: ObjectRef) -> str:
        """Called when a ref is pickled: returns the owner's process; keeps the object alive with the pickle."""

    def tensor_transport_of(self, ref: ObjectRef) -> str | None:
        """The transport of a ref whose tensors stay with their holder, else None."""
        return None


#: Why a ref cannot be used that no session of this process knows.
NO_SESSION = "it belongs to a session that has ended, or no session created it"

_current_backend: Callable[[], RefBackend]
_backend_of: Callable[[ObjectRef], RefBackend]


def ask_through(current_backend: Callable[[], RefBackend], backend_of: Callable[[ObjectRef], RefBackend]) -> None:
    """Set how refs find the engine of this process, whose contract depends on refs."""
    global _current_backend, _backend_of
    _current_backend, _backend_of = current_backend, backend_of


# Not covariant, as on Ray: the values of refs of different types are Any then, and not their common base.
class ObjectRef(BaseID, Generic[T]):
    """A reference to a value that `get` returns once it is ready.

    Awaitable. Equal to every other ref of the same object. Copies are the ref itself.
    """

    __slots__ = ("__weakref__", "_entry")

    def __init__(self, object_id: bytes, entry: Any = None) -> None:
        if len(object_id) != OBJECT_SIZE:
            if not isinstance(object_id, bytes):
                raise TypeError(f"Unsupported type: {type(object_id)}, expected bytes")
            raise ValueError(f"ID string needs to have length {OBJECT_SIZE}, got {len(object_id)}")
        self._id = object_id
        #: The backend's entry; None for ids that no backend created.
        self._entry = entry

    __class_getitem__: Any = classmethod(types.GenericAlias)

    def task_id(self) -> TaskID:
        return TaskID(self._id[:TASK_SIZE])

    def job_id(self) -> JobID:
        return JobID(self._id[TASK_SIZE - 4 : TASK_SIZE])

    def call_site(self) -> str:
        """Where the ref was created; not recorded, hence empty."""
        return ""

    def tensor_transport(self) -> str | None:
        """The name of the transport of a value whose tensors stay with the actor that returned them, else None."""
        return _backend_of(self).tensor_transport_of(self)

    def future(self) -> concurrent.futures.Future[T]:
        """A future of the value. Cancelling it does not cancel the task."""
        return _backend_of(self).thread_future_of(self)

    def as_future(self, _internal: bool = False) -> asyncio.Future[T]:
        """An asyncio future of the value, of the running loop. Cancelling it does not cancel the task."""
        return _backend_of(self).future_of(self)

    def __await__(self) -> Generator[Any, None, T]:
        return _backend_of(self).wait_in_loop(self)

    def _on_completed(self, callback: Callable[[Any], None]) -> None:
        """Call back with the value, or the error, once it is ready; in any thread. An error of the callback is logged."""
        backend = _backend_of(self)

        def settle() -> None:
            try:
                value = backend.get([self], 0)[0]
            except BaseException as error:
                value = error
            try:
                callback(value)
            except Exception:  # the program's mistake: nothing of the session waits for it
                logger.exception("a callback for %r raised an exception", self)

        backend.then(self, settle)

    def _on_ready(self, callback: Callable[[BaseException | None], None]) -> Callable[[], None]:
        """Call back with None once the value is ready, without reading it; in any thread. Returns a function that cancels."""
        waits = True

        def settle() -> None:
            if waits:
                callback(None)

        def forget() -> None:
            nonlocal waits
            waits = False
            take_back()

        take_back = _backend_of(self).then(self, settle)
        return forget

    async def _ready(self) -> ObjectRef[T]:
        """Wait until the value, or its error, is ready, without reading it. Returns the ref."""
        await called(partial(_backend_of(self).then, self))
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ObjectRef) and self._id == other._id

    def __hash__(self) -> int:
        return hash(self._id)

    def __repr__(self) -> str:
        return f"ObjectRef({self._id.hex()})"

    def __copy__(self) -> ObjectRef[T]:
        return self

    def __deepcopy__(self, _memo: Any) -> ObjectRef[T]:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        if self._entry is None:
            return ObjectRef, (self._id,)
        return _restore, (self._id, _backend_of(self).export_ref(self))


def _restore(object_id: bytes, owner: str) -> ObjectRef:
    return _current_backend().restore_ref(object_id, owner)
