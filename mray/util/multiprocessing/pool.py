"""`Pool`: the interface of `multiprocessing.Pool`, with actors instead of processes.

Differences: functions need no importable name and scripts no ``__main__`` guard; large arrays go through shared memory; a job whose
process dies fails with ActorDiedError instead of never ending, and a job that calls ``sys.exit`` with SystemExit; `imap` reads a few
chunks ahead, not its whole input.
"""

from __future__ import annotations

import itertools
import sys
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from multiprocessing import TimeoutError
from multiprocessing.pool import CLOSE, RUN, TERMINATE, RemoteTraceback  # type: ignore[attr-defined]
from typing import Any, TypeVar

from mray._api.init import init
from mray._api.verbs import cluster_resources, is_initialized
from mray._common.clock import now
from mray._common.log import logger
from mray._common.places import undone
from mray.exceptions import ActorDiedError
from mray.util._worker_pool import MemberPool, PoolJob, PoolWorker, SentFunction, call_of, pack, unpack
from mray.util.debug import log_once

__all__ = ["AsyncResult", "IMapIterator", "OrderedIMapIterator", "Pool", "UnorderedIMapIterator"]

#: Chunks of `imap` in flight per process.
_AHEAD = 8

Callback = Callable[[Any], object]
#: Takes whether a call has succeeded, and its value or exception.
Settle = Callable[[bool, Any], None]
#: Prepares an argument for sending: unchanged where the caller waits, else `MemberPool.frozen`.
Prepare = Callable[[Any], Any]
T = TypeVar("T", bound="IMapIterator")


def _as_it_is(argument: Any) -> Any:
    return argument


class Pool:
    """`processes` actors that call functions: by default as many as the session has CPUs.

    `initializer(*initargs)` is called in each; `maxtasksperchild`: a process is replaced after this many calls or chunks. `context`
    is ignored. Without a session, one is started with `processes` CPUs, or at `ray_address`. `ray_remote_args` are options of the
    actors, which request no CPU by default. ValueError for more processes than the session has CPUs.
    """

    def __init__(
        self,
        processes: int | None = None,
        initializer: Callable[..., object] | None = None,
        initargs: Iterable[Any] | None = None,
        maxtasksperchild: int | None = None,
        context: Any = None,
        ray_address: str | None = None,
        ray_remote_args: dict[str, Any] | None = None,
    ) -> None:
        self._state: str = CLOSE
        if context is not None and log_once("mray.util.multiprocessing.context"):
            logger.warning("The 'context' argument is not supported: the pool's processes are actors.")
        if processes is not None and processes < 1:
            raise ValueError("Processes in the pool must be >0.")
        tasks: Any = maxtasksperchild
        if tasks is not None and (not isinstance(tasks, int) or tasks < 1):
            raise ValueError("maxtasksperchild must be a positive int or None")
        if initializer is not None and not callable(initializer):
            raise TypeError("initializer must be a callable")
        if not is_initialized():
            if ray_address is None:
                init(num_cpus=processes)
            elif ray_address == "local":
                init(address="local", num_cpus=processes)
            else:
                init(address=ray_address)
        cpus = int(cluster_resources().get("CPU", 0))
        if processes is None:
            processes = max(1, cpus)
        if processes > cpus:
            raise ValueError(
                f"Tried to start a pool with {processes} processes on an existing ray cluster, but there are only {cpus} CPUs in the ray "
                "cluster."
            )
        self._processes = processes
        # Read by programs, under Ray's names.
        self._initializer = initializer
        self._initargs = initargs
        self._maxtasksperchild = maxtasksperchild or -1
        self._ray_remote_args = ray_remote_args or {}
        self._worker_pool = MemberPool(
            processes,
            initializer=initializer,
            initargs=tuple(initargs or ()),
            jobs_each=maxtasksperchild,
            options=ray_remote_args,
            traceback_type=RemoteTraceback,
        )
        #: Unexhausted inputs of `imap`.
        self._feeders: list[IMapIterator] = []
        self._state = RUN

    # ----------------------------------------------------------------------------------------- one call
    def apply(self, func: Callable[..., Any], args: Iterable[Any] = (), kwds: dict[str, Any] | None = None, *, kwargs: Any = None) -> Any:
        """``func(*args, **kwds)`` in one of the processes; raises what it raised. (`kwargs` is Ray's name of `kwds`.)"""
        return self._apply(func, args, kwds or kwargs, _as_it_is).get()

    def apply_async(
        self,
        func: Callable[..., Any],
        args: Iterable[Any] = (),
        kwds: dict[str, Any] | None = None,
        callback: Callback | None = None,
        error_callback: Callback | None = None,
        *,
        kwargs: dict[str, Any] | None = None,
    ) -> AsyncResult:
        """As `apply`, without waiting. A thread of mray calls one of the callbacks with the value or exception; it must return quickly.
        `threading.excepthook` reports its exception.
        """
        return self._apply(func, args, kwds or kwargs, self._worker_pool.frozen, callback, error_callback)

    def _apply(
        self,
        func: Callable[..., Any],
        args: Iterable[Any],
        kwargs: dict[str, Any] | None,
        prepare: Prepare,
        callback: Callback | None = None,
        error_callback: Callback | None = None,
    ) -> AsyncResult:
        self._check_running()
        code = self._worker_pool.code_of(func)
        method, arguments = call_of(code, tuple(args or ()), kwargs or {})

        def begin(settle: Settle) -> None:
            self._worker_pool.submit(_Job(settle, code, method, *map(prepare, arguments)))

        return AsyncResult(self._worker_pool, callback, error_callback, begin)

    # -------------------------------------------------------------------------------------- many calls
    def map(self, func: Callable[..., Any], iterable: Iterable[Any], chunksize: int | None = None) -> list[Any]:
        """Return ``[func(item) for item in iterable]``; raises the first exception, once all calls are over.

        Items are sent `chunksize` at a time, by default in four chunks per process.
        """
        values: list[Any] = self._map(func, "map", iterable, chunksize, _as_it_is).get()
        return values

    def map_async(
        self,
        func: Callable[..., Any],
        iterable: Iterable[Any],
        chunksize: int | None = None,
        callback: Callback | None = None,
        error_callback: Callback | None = None,
    ) -> AsyncResult:
        """As `map`, without waiting; callbacks as of `apply_async`, with the list."""
        return self._map(func, "map", iterable, chunksize, self._worker_pool.frozen, callback, error_callback)

    def starmap(self, func: Callable[..., Any], iterable: Iterable[Iterable[Any]], chunksize: int | None = None) -> list[Any]:
        """Return ``[func(*item) for item in iterable]``, otherwise as `map`."""
        values: list[Any] = self._map(func, "starmap", iterable, chunksize, _as_it_is).get()
        return values

    def starmap_async(
        self,
        func: Callable[..., Any],
        iterable: Iterable[Iterable[Any]],
        chunksize: int | None = None,
        callback: Callback | None = None,
        error_callback: Callback | None = None,
    ) -> AsyncResult:
        """As `starmap`, without waiting."""
        return self._map(func, "starmap", iterable, chunksize, self._worker_pool.frozen, callback, error_callback)

    def _map(
        self,
        func: Callable[..., Any],
        method: str,
        iterable: Iterable[Any],
        chunksize: int | None,
        prepare: Prepare,
        callback: Callback | None = None,
        error_callback: Callback | None = None,
    ) -> AsyncResult:
        self._check_running()
        items = iterable if isinstance(iterable, (list, tuple, range)) else list(iterable)
        if chunksize is None:
            chunksize = -(-len(items) // (self._processes * 4))
        chunksize = max(1, chunksize)
        code = self._worker_pool.code_of(func)
        return MapResult(self._worker_pool, callback, error_callback, code, method, items, chunksize, prepare)

    def imap(self, func: Callable[..., Any], iterable: Iterable[Any], chunksize: int | None = 1) -> OrderedIMapIterator:
        """An iterator of ``func(item)``, in the order of the items, which are read as results are taken; raises an item's exception.

        Its ``next(timeout)`` raises TimeoutError when the next value has not arrived within `timeout` seconds.
        """
        self._check_running()
        return self._begin(OrderedIMapIterator, func, iterable, chunksize)

    def imap_unordered(self, func: Callable[..., Any], iterable: Iterable[Any], chunksize: int | None = 1) -> UnorderedIMapIterator:
        """As `imap`, in the order in which chunks finish."""
        self._check_running()
        return self._begin(UnorderedIMapIterator, func, iterable, chunksize)

    def _begin(self, kind: type[T], func: Callable[..., Any], iterable: Iterable[Any], chunksize: int | None) -> T:
        made = kind(self._worker_pool, func, iterable, chunksize, _AHEAD * self._processes, self._fed)
        self._feeders.append(made)
        made.feed()
        return made

    # ------------------------------------------------------------------------------------------ ending
    def close(self) -> None:
        """Take no more calls; the processes end after the submitted calls."""
        if self._state == RUN:
            self._state = CLOSE
            self._end_if_fed()

    def terminate(self) -> None:
        """End the processes now; unfinished calls fail with ActorDiedError."""
        self._state = TERMINATE
        self._feeders.clear()
        self._worker_pool.terminate(ActorDiedError(error_msg="The pool was terminated before the call."))

    def join(self) -> None:
        """Wait for the processes' ends, after `close` or `terminate`. ValueError before."""
        if self._state == RUN:
            raise ValueError("Pool is still running")
        for feeder in tuple(self._feeders):
            feeder.feed(everything=True)
        self._worker_pool.join()

    def _fed(self, feeder: IMapIterator) -> None:
        if feeder in self._feeders:
            self._feeders.remove(feeder)
            self._end_if_fed()

    def _end_if_fed(self) -> None:
        if self._state == CLOSE and not self._feeders:
            self._worker_pool.close()

    def _check_running(self) -> None:
        if self._state != RUN:
            raise ValueError("Pool not running")

    def __enter__(self) -> Pool:
        self._check_running()
        return self

    def __exit__(self, *_exc: object) -> None:
        self.terminate()

    def __del__(self, _warn: Any = warnings.warn, _run: str = RUN) -> None:
        if self._state == _run:
            _warn(f"unclosed running multiprocessing pool {self!r}", ResourceWarning, source=self, stacklevel=2)

    def __reduce__(self) -> Any:
        raise NotImplementedError("pool objects cannot be passed between processes or pickled")

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.{type(self).__qualname__} state={self._state} pool_size={self._processes}>"

    # --------------------------------------------------------------------------- Ray's, and the standard library's
    @property
    def _actor_pool(self) -> list[tuple[Any, int]]:
        """Each process's handle, and the number of calls or chunks that it was given."""
        return [(worker.handle, worker.taken) for worker in tuple(self._worker_pool.workers)]

    @property
    def _closed(self) -> bool:
        return self._state != RUN

    @property
    def _pool(self) -> list[PoolWorker]:
        """With ``pid`` and ``is_alive()``, once ready."""
        worker_pool = self._worker_pool
        worker_pool.backend.wait_until(
            lambda: worker_pool.broken is not None or all(worker.pid is not None for worker in tuple(worker_pool.workers)), None
        )
        return list(worker_pool.workers)

    def _repopulate_pool(self) -> None:
        """Do nothing: processes that left were replaced."""


# ------------------------------------------------------------------------------------------------ results
class AsyncResult:
    """A result. Thread-safe; may be awaited many times."""

    def __init__(
        self,
        worker_pool: MemberPool,
        callback: Callback | None,
        error_callback: Callback | None,
        begin: Callable[[Settle], None] | None = None,
    ) -> None:
        self._worker_pool = worker_pool
        if callback is not None or error_callback is not None:
            worker_pool.backend.read_along()
        self._callback = callback
        self._error_callback = error_callback
        self._done = False
        self._success = True
        self._value: Any = None
        if begin is not None:
            begin(self._settle)

    def ready(self) -> bool:
        return self._done

    def successful(self) -> bool:
        """Whether it raised nothing; ValueError before it is over."""
        if not self._done:
            raise ValueError(f"{self!r} not ready")
        return self._success

    def wait(self, timeout: float | None = None) -> None:
        if not self._done:
            self._worker_pool.backend.wait_until(lambda: self._done, timeout)

    def get(self, timeout: float | None = None) -> Any:
        """Return the value; raises the call's exception, TimeoutError after `timeout` seconds, ActorDiedError when its process died."""
        self.wait(timeout)
        if not self._done:
            raise TimeoutError
        if self._success:
            return self._value
        raise self._value

    def _settle(self, success: bool, value: Any) -> None:
        self._success, self._value = success, value
        callback = self._callback if success else self._error_callback
        self._callback = self._error_callback = None
        try:
            if callback is not None:
                callback(value)
        except Exception:  # reported as a thread's: the pool and the session continue
            threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))
        finally:
            self._done = True


class MapResult(AsyncResult):
    """Assembled from the chunks that it submits."""

    def __init__(
        self,
        worker_pool: MemberPool,
        callback: Callback | None,
        error_callback: Callback | None,
        code: SentFunction,
        method: str,
        items: Sequence[Any],
        chunksize: int,
        prepare: Prepare,
    ) -> None:
        super().__init__(worker_pool, callback, error_callback)
        self._value = [None] * len(items)
        self._chunksize = chunksize
        starts = range(0, len(items), chunksize)
        self._left = len(starts)
        if not starts:
            # As with chunks: callbacks may come early.
            self._settle(True, self._value)
        chunks = (prepare(pack(list(items[at : at + chunksize]))) for at in starts)
        worker_pool.submit(*(_Job(partial(self._set, index), code, method, chunk) for index, chunk in enumerate(chunks)))

    def _set(self, index: int, success: bool, value: Any) -> None:
        # One thread at a time delivers chunks.
        if success and self._success:
            self._value[index * self._chunksize : (index + 1) * self._chunksize] = unpack(value)
        elif not success and self._success:
            self._success, self._value = False, value
        self._left -= 1
        if not self._left:
            self._settle(self._success, self._value)


class _Job(PoolJob):
    """Passes its outcome to a function: one call, or a chunk of items."""

    __slots__ = ("_settle",)

    def __init__(self, settle: Settle, code: SentFunction, method: str, *arguments: Any) -> None:
        super().__init__(code, method, *arguments)
        self._settle = settle

    def settle(self, success: bool, value: Any) -> None:
        self._settle(success, value)


# ---------------------------------------------------------------------------------------------- iterators
def _give_back(local: dict[str, Any], value: Any) -> None:
    local["self"].put_back(value)


class IMapIterator:
    """For one thread. `fed` is called when the input is exhausted."""

    def __init__(
        self,
        worker_pool: MemberPool,
        func: Callable[..., Any],
        iterable: Iterable[Any],
        chunksize: int | None,
        ahead: int,
        fed: Callable[[IMapIterator], None],
    ) -> None:
        if chunksize is None:
            chunksize = 1
        if chunksize < 1:
            raise ValueError(f"Chunksize must be 1+, not {chunksize:n}")
        self._worker_pool = worker_pool
        self._ahead = ahead
        self._fed = fed
        self._code = self._worker_pool.code_of(func)
        self._items: Iterator[Any] | None = iter(iterable)
        self._chunksize = chunksize
        #: Chunks submitted, and chunks whose values were all taken.
        self._submitted = 0
        self._taken = 0
        self._values: deque[Any] = deque()
        #: Finished chunk -> (success, values or exception).
        self._done: dict[int, tuple[bool, Any]] = {}

    def _set(self, index: int, success: bool, value: Any) -> None:
        self._done[index] = success, unpack(value) if success else value

    def feed(self, everything: bool = False) -> None:
        """Submit chunks, up to the limit in flight. For the pool."""
        ahead = None if everything else self._ahead
        jobs: list[PoolJob] = []
        # Wait until many can be submitted together.
        if ahead is not None and self._submitted - self._taken > ahead // 2:
            return
        while self._items is not None and (ahead is None or self._submitted - self._taken < ahead):
            failure = None
            try:
                items = list(itertools.islice(self._items, self._chunksize))
            except Exception as error:
                items, failure = [], error
            if failure is not None:
                self._done[self._submitted] = False, failure
                self._submitted += 1
            elif items:
                jobs.append(_Job(partial(self._set, self._submitted), self._code, "map", self._worker_pool.frozen(pack(items))))
                self._submitted += 1
            if not items:
                self._items = None
        if jobs:
            self._worker_pool.submit(*jobs)
        if self._items is None:
            self._fed(self)

    def _next_chunk(self) -> int | None:
        raise NotImplementedError

    def put_back(self, value: Any) -> None:
        self._values.appendleft(value)

    @undone(_give_back)
    def next(self, timeout: float | None = None) -> Any:
        """TimeoutError after `timeout` seconds, StopIteration at the end."""
        deadline = None if timeout is None else now() + timeout
        while not self._values:
            if self._taken == self._submitted:
                raise StopIteration
            index = self._next_chunk()
            if index is None:
                left = None if deadline is None else max(0.0, deadline - now())
                self._worker_pool.backend.wait_until(lambda: self._next_chunk() is not None, left)
                index = self._next_chunk()
                if index is None:
                    raise TimeoutError
            success, values = self._done.pop(index)
            self._taken += 1
            self.feed()
            if not success:
                raise values
            self._values.extend(values)
        return self._values.popleft()

    def __iter__(self) -> IMapIterator:
        return self

    @undone(_give_back)
    def __next__(self) -> Any:
        return self.next()


class OrderedIMapIterator(IMapIterator):
    """The result of `Pool.imap`."""

    def _next_chunk(self) -> int | None:
        return self._taken if self._taken in self._done else None


class UnorderedIMapIterator(IMapIterator):
    """The result of `Pool.imap_unordered`."""

    def _next_chunk(self) -> int | None:
        return next(iter(tuple(self._done)), None)
