"""A session of mray inside a worker of Ray: "Ray between machines, mray within".

In a worker of Ray, from ``mray.init(address="local")`` to ``mray.shutdown()``. Everything that the worker creates belongs to the
session within and ends with the worker. Refs and actors of the cluster remain usable.

::

    cluster ─── refs, handles, values ───▶ worker of Ray ═══ NativeWithin ═══▶ workers of the session within
                                             RayBackend (outer)

Refs and handles do not cross, since neither side knows the other's processes.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from mray._api.object_ref import ObjectRef
from mray._backends import native_start
from mray._backends.native import NativeBackend
from mray._backends.ray.runtime_info import pickles_in_band
from mray._backends.ray.values import rays_own
from mray._common.bridge import Cancel
from mray._common.clock import monotonic
from mray._objects.ownership import Entry
from mray.exceptions import RaySystemError

if TYPE_CHECKING:
    import asyncio
    import concurrent.futures

    from mray._api.actor_handle import ActorHandle
    from mray._api.backend import Backend
    from mray._api.blueprint import ActorMethodSpec
    from mray._common.options import SessionOptions

_NOT_IN = (
    "{} belongs to the Ray cluster, and the session within this worker cannot reach it: pass its value, mray.get(ref), or call the actor "
    "here."
)
_NOT_OUT = "{} belongs to the session within a worker of Ray, and the cluster cannot reach it: return its value, mray.get(ref)."


class NativeWithin(NativeBackend):
    """The native engine, which passes calls on objects of the cluster to `outer`."""

    outer: Backend

    @classmethod
    def begin(cls, outer: Backend, options: SessionOptions) -> NativeWithin:
        made = native_start.start(options, lambda: cls)
        assert isinstance(made, NativeWithin)
        made.outer = outer
        return made

    def after_reset(self) -> NoReturn:
        raise RaySystemError("a session within a worker of Ray cannot be reset: shutdown() ends it, init(address='local') starts another")

    # ------------------------------------------------------------------------------------ refs
    def get(self, refs: Sequence[ObjectRef], timeout: float | None, through_host: bool = False) -> list[Any]:
        own = [_is_own(ref) for ref in refs]
        if all(own):
            return self.client.objects.get(refs, timeout, through_host)
        if not any(own):
            return self.outer.get(refs, timeout, through_host)
        deadline = None if timeout is None else monotonic() + timeout
        values: list[Any] = []
        for ref, is_own in zip(refs, own, strict=True):
            left = None if deadline is None else max(deadline - monotonic(), 0)
            values += self.client.objects.get([ref], left, through_host) if is_own else self.outer.get([ref], left, through_host)
        return values

    def get_one(self, ref: ObjectRef, timeout: float | None) -> Any:
        return self.get((ref,), timeout)[0]

    def wait(self, refs: Sequence[ObjectRef], num_returns: int, timeout: float | None) -> tuple[list[ObjectRef], list[ObjectRef]]:
        own = [_is_own(ref) for ref in refs]
        if all(own):
            return self.client.objects.wait(refs, num_returns, timeout)
        if any(own):
            raise ValueError("wait() of refs of two sessions, the cluster's and the one within this worker: wait for each by itself.")
        return self.outer.wait(refs, num_returns, timeout)

    def then(self, ref: ObjectRef | ActorHandle, callback: Callable[..., None], *, soon: bool = True) -> Cancel:
        is_own = _is_own(ref) if isinstance(ref, ObjectRef) else _is_here(ref)
        return super().then(ref, callback, soon=soon) if is_own else self.outer.then(ref, callback, soon=soon)

    def future_of(self, ref: ObjectRef) -> asyncio.Future[Any]:
        return super().future_of(ref) if _is_own(ref) else self.outer.future_of(ref)

    def thread_future_of(self, ref: ObjectRef) -> concurrent.futures.Future[Any]:
        return super().thread_future_of(ref) if _is_own(ref) else self.outer.thread_future_of(ref)

    def wait_in_loop(self, ref: ObjectRef) -> Generator[Any, None, Any]:
        return super().wait_in_loop(ref) if _is_own(ref) else self.outer.wait_in_loop(ref)

    def cancel(self, ref: ObjectRef, force: bool, recursive: bool) -> None:
        if _is_own(ref):
            super().cancel(ref, force, recursive)
        else:
            self.outer.cancel(ref, force, recursive)

    def restore_ref(self, object_id: bytes, owner: Any) -> ObjectRef:
        return self.client.borrowing.restore(object_id, owner) if isinstance(owner, str) else self.outer.restore_ref(object_id, owner)

    def export_ref(self, ref: ObjectRef) -> Any:
        if _is_own(ref):
            if pickles_in_band():
                raise ValueError(_NOT_OUT.format(repr(ref)))
            return self.client.borrowing.note(ref)
        if not pickles_in_band():
            raise ValueError(_NOT_IN.format(repr(ref)))
        return self.outer.export_ref(ref)

    # ------------------------------------------------------------------------------------ actors
    def submit_task(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], options: dict[str, Any]) -> Any:
        _check_arguments(args, kwargs)
        return super().submit_task(function, args, kwargs, options)

    def create_actor(self, actor_class: Any, args: tuple[Any, ...], kwargs: dict[str, Any], options: dict[str, Any]) -> ActorHandle:
        _check_arguments(args, kwargs)
        return super().create_actor(actor_class, args, kwargs, options)

    def submit_method(
        self,
        handle: ActorHandle,
        method: ActorMethodSpec,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        num_returns: Any,
        options: dict[str, Any] | None,
    ) -> Any:
        if not _is_here(handle):
            return self.outer.submit_method(handle, method, args, kwargs, num_returns, options)
        _check_arguments(args, kwargs)
        return super().submit_method(handle, method, args, kwargs, num_returns, options)

    def has_made(self, actor_id: bytes) -> bool:
        return super().has_made(actor_id) or self.outer.has_made(actor_id)

    def kill_actor(self, handle: ActorHandle, no_restart: bool) -> None:
        if _is_here(handle):
            super().kill_actor(handle, no_restart)
        else:
            self.outer.kill_actor(handle, no_restart)

    def export_handle(self, handle: ActorHandle) -> None:
        if _is_here(handle):
            if pickles_in_band():
                raise ValueError(_NOT_OUT.format(repr(handle)))
            super().export_handle(handle)
        elif not pickles_in_band():
            raise ValueError(_NOT_IN.format(repr(handle)))


def _is_own(ref: ObjectRef) -> bool:
    """Whether a ref is of a session of mray, or unknown (the engine raises the error)."""
    entry = rays_own(ref)
    return entry is None or isinstance(entry, Entry)


def _is_here(handle: ActorHandle) -> bool:
    return rays_own(handle) is None


def _check_arguments(args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> None:
    """ValueError for top-level refs of the cluster; inner ones are checked when pickled."""
    for value in (*args, *kwargs.values()) if kwargs else args:
        if type(value) is ObjectRef and not _is_own(value):
            raise ValueError(_NOT_IN.format(repr(value)))
