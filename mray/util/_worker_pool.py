"""A worker pool: actors that take jobs from one queue; the base of `multiprocessing.Pool`, `executor.Executor` and the joblib backend.

    any thread                     reading thread (see `mray._ipc.reactor`)            members, one actor each
    submit ──▶ queue ──▶ send ────────────────────────────────────────────────────────▶ run the function
                 ▲                 answered ◀───────────────────────────────────────────┘
                 └── next job ◀────┘  └─▶ job.settle

While jobs are short, members are sent several ahead. When a member is idle, the queue is empty and another member's job turns out to
be long, the jobs behind that one are taken back by cancelling them, so jobs that wait for each other run concurrently.

A function is pickled when it is submitted, once for all jobs of a `map`, and its pickle is sent with each job; a large one lies in
shared memory. No process caches it: a global, default or class attribute that it uses may change before the next call.

Rejected: the state machine of leased workers (`mray._decide.caller.lease_pool`), which also sends tasks ahead and takes them back.
Leases are shared and tasks retried; members stay, and any thread sends jobs, on any backend.
"""

from __future__ import annotations

import itertools
import pickle
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from threading import get_ident
from typing import Any
from weakref import WeakMethod, ref

from mray._api.actor import exit_actor
from mray._api.backend import Backend
from mray._api.current import current_backend
from mray._api.decorator import remote
from mray._api.object_ref import ObjectRef
from mray._api.verbs import kill
from mray._common.clock import perf_counter
from mray._common.kept import os
from mray._common.places import runs_users
from mray._inside.values import PLAIN_TYPES, dumps, is_plain
from mray.exceptions import ActorHandleNotFoundError, RayActorError, RayError, RayTaskError, TaskCancelledError

#: Bytes above which pickled functions are put.
_LARGE = 100 * 1024
#: The most jobs that a member holds. It holds more while a job takes less than the first of these numbers of seconds, and one after a job
#: that took more than the second.
_MOST_AHEAD = 16
_SHORT, _LONG = 0.5e-3, 2e-3


class EscapeError(Exception):
    """Carries a job's SystemExit, which fails the job and does not end its process."""


class PoolMember:
    def begin(self, initializer: bytes | None, initargs: Sequence[Any]) -> int:
        if initializer is not None:
            pickle.loads(initializer)(*initargs)
        return os.getpid()

    def ping(self) -> None:
        """Do nothing; programs written for Ray call it."""

    def call(self, code: bytes, *args: Any) -> Any:
        return self.call_with(code, args, {})

    @runs_users
    def call_with(self, code: bytes, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        function = self._begin(code)
        try:
            return function(*args, **kwargs)
        except SystemExit as error:
            raise EscapeError(*error.args) from error

    @runs_users
    def map(self, code: bytes, items: bytes | list[Any]) -> bytes | list[Any]:
        function = self._begin(code)
        try:
            return pack([*map(function, unpack(items))])
        except SystemExit as error:
            raise EscapeError(*error.args) from error

    @runs_users
    def starmap(self, code: bytes, items: bytes | list[Any]) -> bytes | list[Any]:
        function = self._begin(code)
        try:
            return pack([*itertools.starmap(function, unpack(items))])
        except SystemExit as error:
            raise EscapeError(*error.args) from error

    def _begin(self, code: bytes) -> Callable[..., Any]:
        """Answers of earlier jobs are sent first, so that when this process dies the first job without an answer is the one that ran."""
        current_backend().flush()
        function: Callable[..., Any] = pickle.loads(code)
        return function

    def leave(self) -> None:
        exit_actor()


def pack(values: list[Any]) -> bytes | list[Any]:
    """Only plain values (numbers, strings and the like) become one pickle, which no process in between reads."""
    return pickle.dumps(values, 5) if PLAIN_TYPES.issuperset(map(type, values)) else values


def unpack(packed: bytes | list[Any]) -> list[Any]:
    return pickle.loads(packed) if isinstance(packed, bytes) else packed


class SentFunction:
    __slots__ = ("_function", "pickled")

    def __init__(self, function: Callable[..., Any], pickled: bytes | ObjectRef) -> None:
        #: Keeps the objects alive that it holds refs to.
        self._function = function
        self.pickled = pickled


class PoolJob:
    """One call of a `PoolMember` method. Methods that subclasses override are called from any thread and must not block."""

    __slots__ = ("arguments", "code", "death", "method", "recalled", "ref", "started")

    def __init__(self, code: SentFunction, method: str, *arguments: Any) -> None:
        self.code = code
        self.method = method
        self.arguments: tuple[Any, ...] = arguments
        #: Its call, once sent; whether that was cancelled to be taken back.
        self.ref: ObjectRef | None = None
        self.recalled = False
        #: Its member's death, until `_judge_deaths` has handled it.
        self.death: BaseException | None = None
        self.started = False

    def starts(self) -> bool:
        """Called before the job is sent; False drops it."""
        return True

    def settle(self, success: bool, value: Any) -> None:
        """Called with the value, or the exception that the job failed with."""
        raise NotImplementedError


def call_of(code: SentFunction, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[str, tuple[Any, ...]]:
    """The method and arguments of a job. Plain values are sent without a list around them, which the C pickler takes directly."""
    if not kwargs and all(type(arg) in PLAIN_TYPES for arg in args):
        return "call", tuple(args)
    return "call_with", (list(args), dict(kwargs))


class PoolWorker:
    def __init__(self, handle: Any) -> None:
        self.handle = handle
        #: Sent and not answered, in order.
        self.jobs: deque[PoolJob] = deque()
        #: When it was last sent a job while idle, or answered one.
        self.since = 0.0
        self.taken = 0
        #: None until it is ready.
        self.pid: int | None = None
        #: Whether a job has failed with the death of its process; whether the process has died.
        self.lost = False
        self.dead = False

    def is_alive(self) -> bool:
        return not self.dead


class MemberPool:
    """`size` actors and a queue.

    `jobs_each`: an actor is replaced after this many jobs. With `mends` a dead actor is replaced too, and the job it ran fails;
    otherwise the first death fails everything (`broken`). With `lazily`, actors start when there are jobs. A failing `initializer`
    breaks the worker pool. A job's exception has a `traceback_type` of its process as the cause. Thread-safe.

    Invariant: a job is in `_queue`, or among some worker's `jobs`, or settled.
    """

    def __init__(
        self,
        size: int,
        *,
        initializer: Callable[..., object] | None = None,
        initargs: Sequence[Any] = (),
        jobs_each: int | None = None,
        options: dict[str, Any] | None = None,
        mends: bool = True,
        lazily: bool = False,
        traceback_type: type[Exception],
    ) -> None:
        self.backend: Backend = current_backend()
        self._size = size
        #: The function, which keeps objects that it has refs to, and its pickle.
        self._initializer = initializer, None if initializer is None else dumps(initializer)
        self._initargs = list(initargs)
        self._jobs_each = jobs_each
        self._depth = 1
        #: Whether a call of `_look` is scheduled.
        self._watched = False
        self._class = remote(num_cpus=0)(PoolMember).options(**(options or {}))
        self._mends = mends
        self._traceback_type = traceback_type
        self._lock = threading.RLock()
        self._queue: deque[PoolJob] = deque()
        self.workers: list[PoolWorker] = []
        #: Dismissed members that have not died.
        self._left: list[PoolWorker] = []
        self._closed = False
        #: Why no job can succeed any more.
        self.broken: BaseException | None = None
        if not lazily:
            for _ in range(size):
                self._hire()

    # ------------------------------------------------------------------------------------ functions
    def code_of(self, function: Callable[..., Any]) -> SentFunction:
        pickled = dumps(function)
        return SentFunction(function, pickled if len(pickled) <= _LARGE else self.backend.put(pickled))

    def frozen(self, value: Any) -> Any:
        """An argument that does not change when the program changes the value before the job is sent."""
        if is_plain(value):
            return value
        try:
            return self.backend.put(value)
        except Exception:  # the job fails with that when sent
            return value

    # ----------------------------------------------------------------------------------------- jobs
    def submit(self, *jobs: PoolJob) -> None:
        """Queue jobs. RuntimeError after `close`."""
        with self._lock:
            if self._closed:
                raise RuntimeError("the pool takes no more jobs")
            if self.broken is None:
                self._queue.extend(jobs)
                jobs = ()
        for job in jobs:
            self._fail(job)
        self._go_on()

    def tell_all(self, code: SentFunction) -> None:
        """Call the function in every member after the jobs it has been sent; the outcome is dropped."""
        with self._lock:
            for worker in self.workers:
                worker.handle.call.options(num_returns=0).remote(code.pickled)

    def _fail(self, job: PoolJob) -> None:
        assert self.broken is not None
        if job.started or job.starts():
            job.settle(False, self.broken)

    def _go_on(self) -> None:
        while True:
            with self._lock:
                pair = self._next_pair() if self._queue else None
                if pair is None:
                    self._fill_up()
                    if self._closed and not self._queue:
                        self._dismiss([worker for worker in self.workers if not worker.jobs])
                    watch = not self._queue and not self._watched and self._has_uneven_load()
                    self._watched = self._watched or watch
                    break
            self._send(*pair)
        if watch:
            self.backend.call_later(_LONG, self._look)

    def _next_pair(self) -> tuple[PoolWorker, PoolJob] | None:
        """Lock held."""
        least, chosen = self._depth, None
        for worker in self.workers:
            if len(worker.jobs) < least and worker.pid is not None:
                least, chosen = len(worker.jobs), worker
                if not least:
                    break
        if chosen is None:
            return None
        while self._queue:
            job = self._queue.popleft()
            if job.started or job.starts():
                job.started = True
                if not chosen.jobs:
                    chosen.since = perf_counter()
                chosen.jobs.append(job)
                chosen.taken += 1
                return chosen, job
        return None

    def _fill_up(self) -> None:
        starting = sum(worker.pid is None for worker in self.workers)
        while self.broken is None and len(self.workers) < self._size and len(self._queue) > starting:
            self._hire()
            starting += 1

    def _has_uneven_load(self) -> bool:
        """Whether a member is idle while another has jobs that it has not begun. Lock held."""
        return any(not worker.jobs and worker.pid is not None for worker in self.workers) and any(
            len(worker.jobs) > 1 for worker in self.workers
        )

    def _look(self) -> None:
        """Take back jobs that wait behind a long one, if the load is still uneven."""
        refs: list[ObjectRef] = []
        with self._lock:
            uneven = not self._queue and self._has_uneven_load()
            self._watched = uneven
            before = perf_counter() - _LONG
            for worker in self.workers if uneven else ():
                if worker.since < before:
                    for job in list(worker.jobs)[1:]:
                        if not job.recalled and job.ref is not None:
                            job.recalled = True
                            refs.append(job.ref)
        for each in refs:
            self.backend.cancel(each, False, False)
        if uneven:
            self.backend.call_later(_LONG, self._look)

    def _send(self, worker: PoolWorker, job: PoolJob) -> None:
        try:
            answer = getattr(worker.handle, job.method).remote(job.code.pickled, *job.arguments)
        except BaseException as error:  # such as arguments that cannot be pickled
            with self._lock:
                worker.jobs.remove(job)
                lost = self._judge_deaths(worker)
            job.settle(False, error)
            for each, why in lost:
                each.settle(False, why)
            if not isinstance(error, Exception):
                raise
            return
        job.ref = answer
        here = [get_ident()]  # answered inside `then`: the sending loop continues
        self.backend.then(answer, lambda: self._answered(worker, job, answer, get_ident() not in here), soon=False)
        here.clear()

    def _answered(self, worker: PoolWorker, job: PoolJob, answer: ObjectRef, go_on: bool) -> None:
        error, value, died = self._outcome(answer)
        back = job.recalled and type(error) is TaskCancelledError
        with self._lock:
            if died is not None:
                job.death = died
            else:
                worker.jobs.remove(job)
                job.ref, job.recalled = None, False
                if back and self.broken is None:
                    self._queue.appendleft(job)
                elif back:
                    error, back = self.broken, False
                else:
                    self._measure(worker)
                    if self._jobs_each is not None and worker.taken >= self._jobs_each and worker in self.workers:
                        self._dismiss([worker])
                        self._replace()
            lost = self._judge_deaths(worker)
        if died is not None:
            self._lost(worker, died)
        if go_on:
            self._go_on()
        if died is None and not back:
            job.arguments = ()
            job.settle(error is None, value if error is None else error)
        for each, why in lost:
            each.settle(False, why)

    def _judge_deaths(self, worker: PoolWorker) -> list[tuple[PoolJob, BaseException]]:
        """Once all jobs of a member have failed with its death, take them off; returns those that fail with it. Lock held.

        The first job without an answer was running. Errors arrive in any order: a job that is sent to a dead member fails
        immediately, on the sending thread.
        """
        jobs = worker.jobs
        if not jobs or any(job.death is None for job in jobs):
            return []
        failed: list[tuple[PoolJob, BaseException]] = []
        again = []
        for job in jobs:
            assert job.death is not None
            if worker.lost and self._mends and self.broken is None:
                again.append(job)
            else:
                failed.append((job, (worker.lost and self._mends and self.broken) or job.death))
                job.arguments = ()
            job.ref, job.recalled, job.death = None, False, None
            worker.lost = True
        jobs.clear()
        self._queue.extendleft(reversed(again))
        return failed

    def _measure(self, worker: PoolWorker) -> None:
        """Lock held."""
        now = perf_counter()
        took, worker.since = now - worker.since, now
        if took > _LONG or self._jobs_each is not None:
            self._depth = 1
        elif took < _SHORT and self._depth < _MOST_AHEAD:
            self._depth += 1

    # -------------------------------------------------------------------------------------- members
    def _hire(self) -> None:
        worker = PoolWorker(self._class.remote())
        self.workers.append(worker)
        self.backend.then(worker.handle, _teller(self._died, worker))
        ready = worker.handle.begin.remote(self._initializer[1], self._initargs)
        self.backend.then(ready, lambda: self._ready(worker, ready), soon=False)

    def _ready(self, worker: PoolWorker, answer: ObjectRef) -> None:
        error, pid, _died = self._outcome(answer)
        if error is None:
            worker.pid = pid
            self._go_on()
        elif self._forget(worker):
            self.break_with(error)

    def _died(self, worker: PoolWorker, error: RayActorError) -> None:
        worker.dead = True
        with self._lock:
            if worker in self._left:
                self._left.remove(worker)
        # Otherwise a job or `begin` fails, with an error that says more.
        if not worker.jobs and worker.pid is not None:
            self._lost(worker, error)
            self._go_on()

    def _lost(self, worker: PoolWorker, error: RayActorError) -> None:
        if self._forget(worker):
            if not self._mends:
                self.break_with(error)
            with self._lock:
                self._replace()

    def _forget(self, worker: PoolWorker) -> bool:
        """Returns False if it was dismissed or removed before."""
        with self._lock:
            there = worker in self.workers
            if there:
                self.workers.remove(worker)
            return there

    def _replace(self) -> None:
        """Lock held."""
        if self.broken is None and (not self._closed or self._queue):
            try:
                self._hire()
            except RayError as error:
                # The session has ended.
                self.broken = error
                self.workers.clear()
                self._left.clear()
                jobs, self._queue = self._queue, deque()
                for job in jobs:
                    self.backend.call_later(0.0, partial(self._fail, job))

    def _strike_off(self, worker: PoolWorker) -> None:
        """Give the member no more jobs; `join` waits for its end. Lock held."""
        self.workers.remove(worker)
        if not worker.dead:
            self._left.append(worker)

    def _dismiss(self, workers: list[PoolWorker]) -> None:
        for worker in workers:
            self._strike_off(worker)
            worker.handle.leave.options(num_returns=0).remote()

    def break_with(self, error: BaseException) -> None:
        with self._lock:
            if self.broken is not None:
                return
            self.broken = error
            jobs = [*self._queue]
            self._queue.clear()
            members = list(self.workers)
            for worker in members:
                self._strike_off(worker)
        # Without the lock: `kill` waits for the node's answer, and its reading thread may need the lock to report a member's end.
        for worker in members:
            with suppress(ActorHandleNotFoundError):  # its session has ended
                kill(worker.handle)
        for job in jobs:
            self._fail(job)

    # --------------------------------------------------------------------------------------- ending
    def close(self) -> None:
        """Take no more jobs; members leave when the queue is empty."""
        with self._lock:
            self._closed = True
        self._go_on()

    def terminate(self, error: BaseException) -> None:
        """Kill the members; jobs that were sent fail with their death, queued ones with `error`."""
        with self._lock:
            self._closed = True
        self.break_with(error)

    def is_open(self) -> bool:
        return not self._closed and self.broken is None

    def drop_queue(self) -> list[PoolJob]:
        with self._lock:
            jobs = [job for job in self._queue if not job.started]
            self._queue = deque(job for job in self._queue if job.started)
        return jobs

    def join(self) -> None:
        self.backend.wait_until(lambda: not (self.workers or self._queue or self._left), None)

    def _outcome(self, answer: ObjectRef) -> tuple[BaseException | None, Any, RayActorError | None]:
        """(error of the call, its value, death of its member)."""
        try:
            return None, self.backend.get([answer], 0)[0], None
        except RayTaskError as error:
            return as_raised(error, self._traceback_type), None, None
        except RayActorError as error:
            return error, None, error
        except Exception as error:  # the session has ended, or the value cannot be unpickled
            return error, None, None


def _teller(died: Callable[[PoolWorker, RayActorError], None], worker: PoolWorker) -> Callable[[RayActorError], None]:
    """The callback for a member's death. It keeps neither the pool nor the member alive."""
    method, the_worker = WeakMethod(died), ref(worker)

    def tell(error: RayActorError) -> None:
        died, worker = method(), the_worker()
        if died is not None and worker is not None:
            died(worker, error)

    return tell


def as_raised(error: RayTaskError, traceback_type: type[Exception]) -> BaseException:
    """The job's exception, with its process's traceback as the cause."""
    cause = error.cause
    if isinstance(cause, EscapeError):
        cause = SystemExit(*cause.args)
    cause.__cause__ = traceback_type(f'\n"""\n{error.traceback_str}"""')
    return cause
