"""The backend that joblib calls.

Batches of calls go to a worker pool that is retained for the next ``Parallel`` with the same number of jobs and options::

    Parallel ──submit(batch)──▶ worker pool ──▶ actor: unwrap, call the batch
       ▲                                      │
       └── callbacks, in a thread of mray ◀───┘

A large array among the arguments is put once per ``Parallel``, and workers read it in shared memory, read-only. joblib's callbacks
take its locks and read the user's input; in the reading thread they could deadlock.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from multiprocessing.pool import RemoteTraceback  # type: ignore[attr-defined]
from typing import Any

from joblib.parallel import AutoBatchingMixin, FallbackToBackend, ParallelBackendBase, SequentialBackend

from mray._api.current import backend_if_started
from mray._api.init import init
from mray._api.object_ref import ObjectRef
from mray._api.verbs import cluster_resources, is_initialized, put
from mray.util._worker_pool import MemberPool, PoolJob, SentFunction

_LARGE = 100 * 1024

Callback = Callable[[Any], object]


class _Place:
    """A large argument's index."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def __reduce__(self) -> tuple[Any, ...]:
        return _Place, (self.number,)


def call_batch(batch: Any, *large: Any) -> Any:
    """In an actor: call a batch of joblib with its large arguments."""
    global _held
    _held = large
    if large:
        batch.items = [
            (function, [_placed(arg, large) for arg in args], {key: _placed(arg, large) for key, arg in kwargs.items()})
            for function, args, kwargs in batch.items
        ]
    return batch()


#: In an actor: the large arguments of the last batch; the next batch usually has the same ones.
_held: tuple[Any, ...] = ()


def let_go() -> None:
    """In an actor: release the arguments at the end of a ``Parallel``."""
    global _held
    _held = ()


def _placed(arg: Any, large: tuple[Any, ...]) -> Any:
    return large[arg.number] if type(arg) is _Place else arg


class _Batch(PoolJob):
    __slots__ = ("_callback", "_deliver", "_success", "_value", "done")

    def __init__(
        self, code: SentFunction, batch: Any, large: list[ObjectRef], callback: Callback | None, deliver: Callable[[Any], None]
    ) -> None:
        super().__init__(code, "call", batch, *large)
        self._callback = callback
        self._deliver = deliver
        self._success = False
        self._value: Any = None
        self.done = False

    def settle(self, success: bool, value: Any) -> None:
        self._success, self._value = success, value
        self.done = True
        callback, self._callback = self._callback, None
        if callback is not None:
            self._deliver((callback, self))

    def result(self) -> Any:
        if not self._success:
            raise self._value
        return self._value


class MrayBackend(AutoBatchingMixin, ParallelBackendBase):  # type: ignore[misc, unused-ignore]
    """joblib's parallel backend ``"mray"``. `ray_remote_args` are options of the actors, which request no CPU by default."""

    supports_retrieve_callback = True
    supports_inner_max_num_threads = True

    def __init__(self, nesting_level: int | None = None, ray_remote_args: dict[str, Any] | None = None, **options: Any) -> None:
        super().__init__(nesting_level=nesting_level, **options)
        self._remote_args = ray_remote_args
        self._worker_pool: MemberPool | None = None
        self._settled: queue.SimpleQueue[tuple[Callback, Any] | None] = queue.SimpleQueue()
        #: id -> a large argument, and its ref; during a ``Parallel``.
        self._large: dict[int, tuple[Any, ObjectRef]] = {}

    # ------------------------------------------------------------------------------------- what joblib calls
    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """Negative numbers count down from the session's CPUs."""
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        if n_jobs is None:
            return 1
        if n_jobs < 0:
            if not is_initialized():
                init()
            n_jobs = max(int(cluster_resources().get("CPU", 1)) + 1 + n_jobs, 1)
        return n_jobs

    def configure(
        self,
        n_jobs: int = 1,
        parallel: Any = None,
        prefer: str | None = None,
        require: str | None = None,
        ray_remote_args: dict[str, Any] | None = None,
        **_options: Any,
    ) -> int:
        count = self.effective_n_jobs(n_jobs)
        if count == 1:
            raise FallbackToBackend(SequentialBackend(nesting_level=self.nesting_level))
        options = dict(ray_remote_args or self._remote_args or {})
        environment = dict(options.get("runtime_env") or {})
        # Libraries with threads would start one per core in every actor.
        environment["env_vars"] = {**self._prepare_worker_env(count), **environment.get("env_vars", {})}
        self._worker_pool = _worker_pool_of(count, {**options, "runtime_env": environment})
        self.parallel = parallel
        threading.Thread(target=_call_back, args=(self._settled,), name="mray-joblib", daemon=True).start()
        return count

    def submit(self, func: Any, callback: Callback | None = None) -> _Batch:
        worker_pool = self._worker_pool
        assert worker_pool is not None
        large: list[ObjectRef] = []
        if hasattr(func, "items"):
            places: dict[int, _Place] = {}

            def place(arg: Any) -> Any:
                return self._place(arg, places, large)

            func.items = [
                (function, [place(arg) for arg in args], {key: place(arg) for key, arg in kwargs.items()})
                for function, args, kwargs in func.items
            ]
        job = _Batch(worker_pool.code_of(call_batch), func, large, callback, self._settled.put)
        worker_pool.backend.read_along()
        worker_pool.submit(job)
        return job

    apply_async = submit

    def _place(self, arg: Any, places: dict[int, _Place], large: list[ObjectRef]) -> Any:
        size = getattr(arg, "nbytes", None)
        if not isinstance(size, int) or size < _LARGE:
            return arg
        known = self._large.get(id(arg))
        if known is None:
            known = self._large[id(arg)] = (arg, put(arg))
        if id(arg) not in places:
            places[id(arg)] = _Place(len(large))
            large.append(known[1])
        return places[id(arg)]

    def retrieve_result_callback(self, out: _Batch) -> Any:
        return out.result()

    def terminate(self) -> None:
        worker_pool, self._worker_pool = self._worker_pool, None
        if worker_pool is not None and self._large and worker_pool.is_open():
            worker_pool.tell_all(worker_pool.code_of(let_go))
        self._large.clear()
        self._settled.put(None)
        self._settled = queue.SimpleQueue()
        self.reset_batch_stats()

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """End the actors: a batch has failed, or the user has interrupted."""
        worker_pool, parallel = self._worker_pool, self.parallel
        if worker_pool is not None:
            worker_pool.terminate(RuntimeError("Parallel was aborted before this batch."))
        self.terminate()
        if ensure_ready:
            self.configure(n_jobs=parallel.n_jobs, parallel=parallel)


def _call_back(settled: queue.SimpleQueue[tuple[Callback, Any] | None]) -> None:
    """Run joblib's callbacks, one at a time, in a thread."""
    while (item := settled.get()) is not None:
        callback, job = item
        callback(job)
        del item, callback, job


#: The pool of the last ``Parallel``, with its options.
_kept: tuple[MemberPool, tuple[int, str]] | None = None
_lock = threading.Lock()


def _worker_pool_of(count: int, options: dict[str, Any]) -> MemberPool:
    global _kept
    wanted = count, repr(sorted(options.items()))
    with _lock:
        old = None
        if _kept is not None:
            worker_pool, had = _kept
            if worker_pool.backend is backend_if_started():
                if had == wanted and worker_pool.is_open():
                    return worker_pool
                old = worker_pool
        if not is_initialized():
            init(num_cpus=count)
        worker_pool = MemberPool(count, options=options, traceback_type=RemoteTraceback)
        _kept = worker_pool, wanted
    if old is not None:
        old.close()
    return worker_pool
