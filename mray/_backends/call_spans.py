"""Spans of ordinary calls, in a driver or a worker, while a profile wants them.

    caller:  submit (pickling the arguments, sending) · get (waiting for values)
    worker:  call [ arguments · execute · reply ]                               on its main thread

Functions on the path of a call are wrapped, object by object, and unwrapped again, so that calls without a profile check nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from mray._api.current import backend_if_started
from mray._api.object_ref import ObjectRef
from mray._common.ids import FIRST
from mray._trace.kinds import ARGUMENTS, CALL, EXECUTE, GET, REPLY, SUBMIT
from mray._trace.span import Buffer, clock, span_buffers

if TYPE_CHECKING:
    from mray._runtime.worker.running import RunningCall
    from mray._runtime.worker.worker import Worker


class CallSpans:
    """The spans of one process. Any thread."""

    def __init__(self, worker: Worker | None) -> None:
        self._worker = worker
        self._lock = threading.Lock()
        self._buffer = Buffer()
        #: (object, name, its own attribute of that name or None) of each wrapped function.
        self._covered: list[tuple[Any, str, Any]] = []
        #: When the running call's arguments were unpacked; 0: no recorded call is running.
        self._ready = 0

    def look_on(self, who: str, on: bool) -> dict[str, Any] | None:
        """Turn spans on or off for the profile `who`; off returns those recorded."""
        with self._lock:
            if on:
                if not span_buffers.get().wanted:
                    self._buffer = span_buffers.get().calls = Buffer()
                    self._cover()
                span_buffers.get().wanted.add(who)
                return None
            if who not in span_buffers.get().wanted:
                return None
            span_buffers.get().wanted.discard(who)
            if not span_buffers.get().wanted:
                while self._covered:
                    thing, name, own = self._covered.pop()
                    del thing.__dict__[name]
                    if own is not None:
                        thing.__dict__[name] = own
            return self._buffer.sheet()

    def _cover(self) -> None:
        backend = backend_if_started()
        if backend is not None:
            self._put(backend, "submit_method", self._submitting(lambda arguments: f"{_class_of(arguments[0])}.{arguments[1].name}"))
            self._put(backend, "submit_task", self._submitting(lambda arguments: str(arguments[0].name).rpartition(".")[2]))
            self._put(backend, "get", self._getting)
            self._put(backend, "get_one", self._getting_one)
        if self._worker is not None:
            executor = self._worker.executor
            self._put(executor, "run", self._running)
            self._put(executor.unpacker, "arguments_on_main", self._unpacking)
            self._put(executor, "_reply", self._answering(False))
            self._put(executor, "_failed", self._answering(True))

    def _put(self, thing: Any, name: str, cover: Callable[[Any], Any]) -> None:
        own = thing.__dict__.get(name)
        thing.__dict__[name] = cover(getattr(thing, name))
        self._covered.append((thing, name, own))

    def _add(self, kind: str, begin: int, name: str, task: str = "", failed: bool = False) -> None:
        self._buffer.add((kind, begin, clock(), f"calls, {threading.current_thread().name}", name, task, -1, 0, failed))

    # ------------------------------------------------------------------------------------ the caller
    def _submitting(self, name_of: Callable[[Sequence[Any]], str]) -> Callable[[Any], Any]:
        def cover(submit: Any) -> Any:
            def covered(*args: Any) -> Any:
                begin = clock()
                returned = submit(*args)
                ref = returned[0] if isinstance(returned, list) else returned
                task = ref.binary()[: -len(FIRST)].hex() if isinstance(ref, ObjectRef) else ""
                self._add(SUBMIT, begin, name_of(args), task)
                return returned

            return covered

        return cover

    def _getting(self, get: Any) -> Any:
        def covered(refs: Sequence[ObjectRef], *args: Any) -> Any:
            begin = clock()
            failed = True
            try:
                values = get(refs, *args)
                failed = False
                return values
            finally:
                self._add(GET, begin, "get" if len(refs) == 1 else f"get of {len(refs)}", failed=failed)

        return covered

    def _getting_one(self, get_one: Any) -> Any:
        get = self._getting(lambda refs, *args: get_one(*refs, *args))
        return lambda ref, *args: get((ref,), *args)

    # ------------------------------------------------------------------------------------ the worker
    def _running(self, run: Any) -> Any:
        """Record a call that runs alone on its thread (not coroutines, which overlap)."""

        def covered(running: RunningCall) -> Any:
            begin = clock()
            try:
                return run(running)
            finally:
                self._ready = 0
                self._add(CALL, begin, running.name, running.task_id.hex())

        return covered

    def _unpacking(self, unpack: Any) -> Any:
        def covered(*args: Any) -> Any:
            begin = clock()
            unpacked = unpack(*args)
            self._add(ARGUMENTS, begin, ARGUMENTS)
            self._ready = clock()
            return unpacked

        return covered

    def _answering(self, failed: bool) -> Callable[[Any], Any]:
        def cover(answer: Any) -> Any:
            def covered(*args: Any) -> Any:
                if self._ready:
                    begin, self._ready = self._ready, 0
                    self._add(EXECUTE, begin, EXECUTE, failed=failed)
                begin = clock()
                try:
                    return answer(*args)
                finally:
                    self._add(REPLY, begin, REPLY, failed=failed)

            return covered

        return cover


def _class_of(handle: Any) -> str:
    return str(handle.__actor_outline__().class_name)
