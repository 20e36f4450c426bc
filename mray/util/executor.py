"""`Executor`: a `concurrent.futures.Executor` whose workers are actors.

Compared with ProcessPoolExecutor, functions need no importable name, and large arrays go through shared memory.
"""

from __future__ import annotations

import concurrent.futures
import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool, _RemoteTraceback  # type: ignore[attr-defined, unused-ignore]
from typing import Any

from mray._api.futures import ReadingFuture
from mray._api.init import init
from mray._api.verbs import cluster_resources, is_initialized
from mray._common.clock import now
from mray.exceptions import RayActorError
from mray.util._worker_pool import MemberPool, PoolJob, SentFunction, call_of, pack, unpack

__all__ = ["Executor"]


class Executor(concurrent.futures.Executor):
    """Up to `max_workers` actors (by default as many as the session has CPUs), started when calls need them.

    `initializer(*initargs)` is called in each; `max_tasks_per_child`: an actor is replaced after this many calls. `actor_options` are
    those of `mray.remote`, for instance ``{"num_gpus": 1}``; without them actors request no CPU. Starts a session if none runs.

    When an actor dies, or an initializer raises, submitted calls and every later `submit` fail with BrokenProcessPool, whose cause
    describes the death. When the executor is no longer referenced, its actors end after the last call. Thread-safe.
    """

    def __init__(
        self,
        max_workers: int | None = None,
        initializer: Callable[..., object] | None = None,
        initargs: tuple[Any, ...] = (),
        *,
        max_tasks_per_child: int | None = None,
        actor_options: dict[str, Any] | None = None,
    ) -> None:
        if max_workers is not None and max_workers <= 0:
            raise ValueError("max_workers must be greater than 0")
        if initializer is not None and not callable(initializer):
            raise TypeError("initializer must be a callable")
        if max_tasks_per_child is not None:
            if not isinstance(max_tasks_per_child, int):
                raise TypeError("max_tasks_per_child must be an integer")
            if max_tasks_per_child <= 0:
                raise ValueError("max_tasks_per_child must be >= 1")
        if not is_initialized():
            init(num_cpus=max_workers)
        self._max_workers = max_workers or max(1, int(cluster_resources().get("CPU", 1)))
        self._worker_pool = MemberPool(
            self._max_workers,
            initializer=initializer,
            initargs=initargs,
            jobs_each=max_tasks_per_child,
            options=actor_options,
            mends=False,
            lazily=True,
            traceback_type=_RemoteTraceback,
        )
        self._shut = False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Return the future of ``fn(*args, **kwargs)``; it can be cancelled until an actor is free for it.

        RuntimeError after `shutdown`, BrokenProcessPool in a broken executor; an argument that cannot be pickled fails the future.
        """
        code = self._code_of(fn)
        future: Future[Any] = ReadingFuture(self._worker_pool.backend)
        self._worker_pool.submit(_Call(future, self._worker_pool, code, *call_of(code, args, kwargs)))
        return future

    def _code_of(self, fn: Callable[..., Any]) -> SentFunction:
        if self._shut:
            raise RuntimeError("cannot schedule new futures after shutdown")
        if self._worker_pool.broken is not None:
            raise _broken(self._worker_pool.broken)
        return self._worker_pool.code_of(fn)

    def map(
        self,
        fn: Callable[..., Any],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
        buffersize: int | None = None,
    ) -> Iterator[Any]:
        """Return an iterator of ``fn(*items)`` for items of each iterable, in their order; all calls are submitted immediately.

        They are sent `chunksize` at a time. With `buffersize` at most this many chunks are ahead of those whose values are taken. An
        exception of a call is raised when its turn comes; TimeoutError when a value has not arrived `timeout` seconds after this
        call. Calls that have not begun are cancelled when the iterator ends early.
        """
        if chunksize < 1:
            raise ValueError("chunksize must be >= 1.")
        if buffersize is not None:
            if not isinstance(buffersize, int):
                raise TypeError("buffersize must be an integer or None")
            if buffersize < 1:
                raise ValueError("buffersize must be None or > 0")
        end = None if timeout is None else now() + timeout
        code = self._code_of(fn)
        items = zip(*iterables, strict=False) if len(iterables) != 1 else ((item,) for item in iterables[0])

        def begin(most: int | None) -> list[Future[Any]]:
            jobs: list[_Chunk] = []
            while len(jobs) != most and (chunk := list(itertools.islice(items, chunksize))):
                future: Future[Any] = ReadingFuture(self._worker_pool.backend)
                if len(iterables) == 1:
                    jobs.append(_Chunk(future, self._worker_pool, code, "map", pack([item for (item,) in chunk])))
                else:
                    jobs.append(_Chunk(future, self._worker_pool, code, "starmap", chunk))
            self._worker_pool.submit(*jobs)
            return [job.future for job in jobs]

        return _results(deque(begin(buffersize)), None if buffersize is None else begin, end)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls; `cancel_futures` cancels those that have not begun, `wait` waits for the rest and the actors' ends."""
        self._shut = True
        if cancel_futures:
            for job in self._worker_pool.drop_queue():
                assert isinstance(job, _Call)
                job.future.cancel()
                job.starts()
        self._worker_pool.close()
        if wait:
            self._worker_pool.join()


def _results(futures: deque[Future[Any]], begin: Callable[[int], list[Future[Any]]] | None, end: float | None) -> Iterator[Any]:
    try:
        while futures:
            if begin is not None:
                futures += begin(1)
            values = futures.popleft().result(None if end is None else max(0.0, end - now()))
            values.reverse()
            # Keeps no reference to a value handed out.
            while values:
                yield values.pop()
    finally:
        for future in futures:
            future.cancel()


class _Call(PoolJob):
    __slots__ = ("_worker_pool", "future")

    def __init__(self, future: Future[Any], worker_pool: MemberPool, code: SentFunction, method: str, arguments: tuple[Any, ...]) -> None:
        super().__init__(code, method, *arguments)
        self.future = future
        self._worker_pool = worker_pool

    def starts(self) -> bool:
        return self.future.set_running_or_notify_cancel()

    def settle(self, success: bool, value: Any) -> None:
        if success:
            self.future.set_result(value)
        else:
            broken = isinstance(value, RayActorError) or value is self._worker_pool.broken
            self.future.set_exception(_broken(value) if broken else value)


class _Chunk(_Call):
    __slots__ = ()

    def __init__(self, future: Future[Any], worker_pool: MemberPool, code: SentFunction, method: str, items: Any) -> None:
        super().__init__(future, worker_pool, code, method, (items,))

    def settle(self, success: bool, value: Any) -> None:
        super().settle(success, unpack(value) if success else value)


def _broken(error: BaseException) -> BrokenProcessPool:
    """A new error for each future: a shared one would collect all tracebacks."""
    broken = BrokenProcessPool(f"A worker of the executor ended while calls were under way or pending: {error}")
    broken.__cause__ = error
    return broken
