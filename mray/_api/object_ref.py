"""`ObjectRef`: the promise of a value, and the handle that keeps it alive.

In every process. A ref holds an `_entry` that belongs to the backend; while any ref in any process lives, the object does. It crosses
processes inside arguments and values: pickling asks the backend of this process who owns the object, unpickling tells the backend
of the other that it holds it now.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Generic

from mray._api.current import current_backend
from mray._common.ids import OBJECT_SIZE, TASK_SIZE, BaseID, JobID, TaskID
from mray._common.log import logger

if TYPE_CHECKING:
    import asyncio
    import concurrent.futures

    from typing_extensions import TypeVar  # type checkers have it, programs need not

    # Not covariant, as Ray has it: the values of refs of different types are Any then, and not their common base.
    T = TypeVar("T", default=Any)
else:
    from typing import TypeVar

    T = TypeVar("T")


class ObjectRef(BaseID, Generic[T]):
    """A reference to a value that `get` returns once it is there.

    Awaitable. Equal to every other ref of the same object. Copies are the ref itself.
    """

    __slots__ = ("__weakref__", "_entry")

    def __init__(self, object_id: bytes, entry: Any = None) -> None:
        if len(object_id) != OBJECT_SIZE:
            if not isinstance(object_id, bytes):
                raise TypeError(f"Unsupported type: {type(object_id)}, expected bytes")
            raise ValueError(f"ID string needs to have length {OBJECT_SIZE}, got {len(object_id)}")
        self._id = object_id
        #: The backend's entry for the ref; ``None`` for ids that no backend made.
        self._entry = entry

    __class_getitem__: Any = classmethod(types.GenericAlias)

    def task_id(self) -> TaskID:
        """The task that returns the value."""
        return TaskID(self._id[:TASK_SIZE])

    def job_id(self) -> JobID:
        return JobID(self._id[TASK_SIZE - 4 : TASK_SIZE])

    def call_site(self) -> str:
        """Where the ref was made; not recorded, hence empty."""
        return ""

    def tensor_transport(self) -> str | None:
        """The name of the transport of a value whose tensors stay with the actor that made them; None for any other."""
        return current_backend().tensor_transport_of(self)

    def future(self) -> concurrent.futures.Future[T]:
        """A future of the value. Cancelling it leaves the task alone."""
        import concurrent.futures  # noqa: PLC0415  (`import mray` is to stay cheap)

        backend = current_backend()
        future: concurrent.futures.Future[T] = concurrent.futures.Future()

        def settle() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                value = backend.get([self], 0)[0]
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(value)

        backend.on_ready(self, settle)
        return future

    def as_future(self, _internal: bool = False) -> asyncio.Future[T]:
        """An asyncio future of the value, of the running loop. Cancelling it leaves the task alone."""
        return current_backend().future_of(self)

    def __await__(self) -> Generator[Any, None, T]:
        return current_backend().wait_in_loop(self)

    def _on_completed(self, callback: Callable[[Any], None]) -> None:
        """Call back with the value, or the error, once it is there; in any thread. An error of the callback is logged."""
        backend = current_backend()

        def settle() -> None:
            try:
                value = backend.get([self], 0)[0]
            except BaseException as error:
                value = error
            try:
                callback(value)
            except Exception:  # the program's mistake: nothing of the session waits for it
                logger.exception("a callback for %r raised an exception", self)

        backend.on_ready(self, settle)

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
        return _restore, (self._id, current_backend().export_ref(self))


def _restore(object_id: bytes, owner: str) -> ObjectRef:
    return current_backend().restore_ref(object_id, owner)
