"""A worker pool: actors that take jobs from one queue; the base of `multiprocessing.Pool`, `executor.Executor` and the joblib backend.

    any thread                     reading thread (see `mray._ipc.reactor`)            members, one actor each
    submit ──▶ queue ──▶ send ────────────────────────────────────────────────────────▶ run the function
                 ▲                 answered ◀───────────────────────────────────────────┘
                 └── next job ◀────┘  └─▶ job.settle

Jobs are begun in the order of the queue by the member that is free first. While jobs are short, members are sent some ahead, which saves
the wait for the next one; when a member is free, the queue is empty and another's job turns out to be long, the jobs that this one has
ahead are taken back. So no job waits behind a long one while a member idles, and jobs that wait for each other meet. (Taking back is
cancelling: a call that has not begun comes back, one that has goes on.)

A function is pickled when it is given, once for all jobs of a `map`, and its pickle goes with each job; a large one lies in shared memory.
No process keeps one for later: what it uses (a global, a default, the attribute of a class) may be another by the next time, and a program
may make new ones without end. A member unpickles it for each job, as Ray's do; one that can be imported is looked up.

Rejected: the state machine of leased workers (`mray._decide.caller.lease_pool`), which sends tasks ahead and takes them back as well. A
lease is asked for, shared with other processes and given back, a member stays. A task without retries is pushed to idle workers only; jobs
have no retries. Tasks come back in one message that the worker answers as a whole, jobs one by one, over an actor's public interface, on
any backend. A job's start is its user's code (`PoolJob.starts`), and jobs are sent by any thread without the lock. No rule would be the
same.
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

#: Pickles of functions above this many bytes are put once, for all jobs.
_LARGE = 100 * 1024
#: Jobs that a member is sent ahead, at most, and how long such jobs take: below the first they are sent further ahead, above the second
#: none is. In seconds.
_MOST_AHEAD = 16
_SHORT, _LONG = 0.5e-3, 2e-3


class EscapeError(Exception):
    """Carries a SystemExit of a job, which is a failure of the job and not the end of its process."""


class PoolMember:
    """The class of a worker pool's actors."""

    def begin(self, initializer: bytes | None, initargs: Sequence[Any]) -> int:
        """Run the initializer; returns the pid."""
        if initializer is not None:
            pickle.loads(initializer)(*initargs)
        return os.getpid()

    def ping(self) -> None:
        """Answer; for programs that wait for a process, as they do on Ray."""

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
        """The function of a job that is about to run. Answers of earlier jobs are sent first: the first job without one is the one that ran
        when this process dies, and those behind it may be given to others.
        """
        current_backend().flush()
        function: Callable[..., Any] = pickle.loads(code)
        return function

    def leave(self) -> None:
        exit_actor()


def pack(values: list[Any]) -> bytes | list[Any]:
    """Pack values for the way: numbers, texts and the like as one pickle, which no process looks into."""
    return pickle.dumps(values, 5) if PLAIN_TYPES.issuperset(map(type, values)) else values


def unpack(packed: bytes | list[Any]) -> list[Any]:
    """The values that `pack` was given."""
    return pickle.loads(packed) if isinstance(packed, bytes) else packed


class SentFunction:
    """A function on its way, for as long as jobs want it."""

    __slots__ = ("_function", "pickled")

    def __init__(self, function: Callable[..., Any], pickled: bytes | ObjectRef) -> None:
        #: It keeps the objects that it has refs of.
        self._function = function
        self.pickled = pickled


class PoolJob:
    """One call of a `PoolMember`'s method. Its user subclasses it; what it overrides is called from any thread and must not block."""

    __slots__ = ("arguments", "code", "death", "method", "recalled", "ref", "started")

    def __init__(self, code: SentFunction, method: str, *arguments: Any) -> None:
        self.code = code
        self.method = method
        self.arguments: tuple[Any, ...] = arguments
        #: Its call, once it was sent, and whether it was asked back since.
        self.ref: ObjectRef | None = None
        self.recalled = False
        #: The death of the member that it was sent to, as long as that is not judged.
        self.death: BaseException | None = None
        #: `starts` has said yes.
        self.started = False

    def starts(self) -> bool:
        """It leaves for a member now; False: it is wanted no more."""
        return True

    def settle(self, success: bool, value: Any) -> None:
        """It is over: with a value, or with the exception that it failed with."""
        raise NotImplementedError


def call_of(code: SentFunction, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[str, tuple[Any, ...]]:
    """The method and arguments of a job that is one call: values that the C pickler takes as they are go without a list around them."""
    if not kwargs and all(type(arg) in PLAIN_TYPES for arg in args):
        return "call", tuple(args)
    return "call_with", (list(args), dict(kwargs))


class PoolWorker:
    """A member as the driver sees it."""

    def __init__(self, handle: Any) -> None:
        self.handle = handle
        #: Jobs that it was sent and has not answered, in order.
        self.jobs: deque[PoolJob] = deque()
        #: When it was last sent a job while it had none, or answered one.
        self.since = 0.0
        #: Jobs it has been given.
        self.taken = 0
        #: Its process, once it is ready.
        self.pid: int | None = None
        #: A job has failed with the death of its process; the process has died.
        self.lost = False
        self.dead = False

    def is_alive(self) -> bool:
        """Whether its process has not ended, as far as this one knows."""
        return not self.dead


class MemberPool:
    """`size` actors and a queue.

    `jobs_each`: an actor is replaced by a new one after so many jobs. With `mends` so is one that died, and the job it had fails; otherwise
    the first death fails everything (`broken`). With `lazily`, actors start when there are jobs for them. A failing `initializer` breaks
    the worker pool either way. A job's exception has a `traceback_type` of its process as the cause. Thread-safe.

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
        #: It, for the objects that it has refs of, and its pickle.
        self._initializer = initializer, None if initializer is None else dumps(initializer)
        self._initargs = list(initargs)
        self._jobs_each = jobs_each
        #: Jobs that a member may have.
        self._depth = 1
        #: `_look` is going to be called.
        self._watched = False
        self._class = remote(num_cpus=0)(PoolMember).options(**(options or {}))
        self._mends = mends
        self._traceback_type = traceback_type
        self._lock = threading.RLock()
        self._queue: deque[PoolJob] = deque()
        self.workers: list[PoolWorker] = []
        #: Those that have been told to leave and have not died.
        self._left: list[PoolWorker] = []
        self._closed = False
        #: Why no job can succeed any more.
        self.broken: BaseException | None = None
        if not lazily:
            for _ in range(size):
                self._hire()

    # ------------------------------------------------------------------------------------ functions
    def code_of(self, function: Callable[..., Any]) -> SentFunction:
        """The function as it is now, for jobs; raises what pickling it raises."""
        pickled = dumps(function)
        return SentFunction(function, pickled if len(pickled) <= _LARGE else self.backend.put(pickled))

    def frozen(self, value: Any) -> Any:
        """An argument of a job as it is now, whatever the program does to it before the job is sent."""
        if is_plain(value):
            return value
        try:
            return self.backend.put(value)
        except Exception:  # as it is: the job fails with that when it is sent
            return value

    # ----------------------------------------------------------------------------------------- jobs
    def submit(self, *jobs: PoolJob) -> None:
        """Queue jobs, which are settled one day. RuntimeError after `close`."""
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
        """Have every member call the function, after what it has been sent; nobody learns what comes of it."""
        with self._lock:
            for worker in self.workers:
                worker.handle.call.options(num_returns=0).remote(code.pickled)

    def _fail(self, job: PoolJob) -> None:
        assert self.broken is not None
        if job.started or job.starts():
            job.settle(False, self.broken)

    def _go_on(self) -> None:
        """Send what can go, hire who is missing, dismiss who is not needed."""
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
        """The next job, and whom it goes to. Lock held."""
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
        """With jobs that nobody is there for, start another member. Lock held."""
        starting = sum(worker.pid is None for worker in self.workers)
        while self.broken is None and len(self.workers) < self._size and len(self._queue) > starting:
            self._hire()
            starting += 1

    def _has_uneven_load(self) -> bool:
        """Whether a member is free while another has jobs that it has not come to. Lock held."""
        return any(not worker.jobs and worker.pid is not None for worker in self.workers) and any(
            len(worker.jobs) > 1 for worker in self.workers
        )

    def _look(self) -> None:
        """Members were uneven a moment ago: take back what waits behind a job that turns out to be long."""
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
        except BaseException as error:  # most of all: something that cannot be pickled
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
        here = [get_ident()]  # answered inside `then`: the loop that sends goes on by itself
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
        """Once the death of a member is heard by all of its jobs, take them off; returns those that fail with it. Lock held.

        Jobs are answered in order, each before the next one begins: a death takes the first without an answer, which ran, and those behind
        it had not begun. They hear of it in any order: a job that is sent to the dead fails at once, on the thread that sends.
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
        """A job was answered: learn from how long it took. Lock held."""
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
        # While it had to do with something, that fails and tells more.
        if not worker.jobs and worker.pid is not None:
            self._lost(worker, error)
            self._go_on()

    def _lost(self, worker: PoolWorker, error: RayActorError) -> None:
        """A member has died that nobody dismissed."""
        if self._forget(worker):
            if not self._mends:
                self.break_with(error)
            with self._lock:
                self._replace()

    def _forget(self, worker: PoolWorker) -> bool:
        """Strike it off; False: it was dismissed, or this has been done."""
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
                # The session is over: so is everything that was submitted, and nobody is left to dismiss.
                self.broken = error
                self.workers.clear()
                self._left.clear()
                jobs, self._queue = self._queue, deque()
                for job in jobs:
                    self.backend.call_later(0.0, partial(self._fail, job))

    def _strike_off(self, worker: PoolWorker) -> None:
        """It takes no more jobs, and is waited for until it has ended. Lock held."""
        self.workers.remove(worker)
        if not worker.dead:
            self._left.append(worker)

    def _dismiss(self, workers: list[PoolWorker]) -> None:
        """They leave when they are idle. Lock held."""
        for worker in workers:
            self._strike_off(worker)
            worker.handle.leave.options(num_returns=0).remote()

    def break_with(self, error: BaseException) -> None:
        """Nothing can be done any more: every job fails with this error."""
        with self._lock:
            if self.broken is not None:
                return
            self.broken = error
            jobs = [*self._queue]
            self._queue.clear()
            members = list(self.workers)
            for worker in members:
                self._strike_off(worker)
        # Without the lock: `kill` waits for the node's answer, and the thread that reads it may be about to tell of an end, which takes it.
        for worker in members:
            with suppress(ActorHandleNotFoundError):  # its session has ended, and the member with it
                kill(worker.handle)
        for job in jobs:
            self._fail(job)

    # --------------------------------------------------------------------------------------- ending
    def close(self) -> None:
        """No more jobs; members leave when the queue is empty."""
        with self._lock:
            self._closed = True
        self._go_on()

    def terminate(self, error: BaseException) -> None:
        """End the members now; jobs that have not been answered fail, those that wait with `error`."""
        with self._lock:
            self._closed = True
        self.break_with(error)

    def is_open(self) -> bool:
        """Whether it takes jobs that can succeed."""
        return not self._closed and self.broken is None

    def drop_queue(self) -> list[PoolJob]:
        """Take the jobs that no member has been given out of the queue."""
        with self._lock:
            jobs = [job for job in self._queue if not job.started]
            self._queue = deque(job for job in self._queue if job.started)
        return jobs

    def join(self) -> None:
        """Wait until a closed worker pool's jobs are over and its processes have ended."""
        self.backend.wait_until(lambda: not (self.workers or self._queue or self._left), None)

    def _outcome(self, answer: ObjectRef) -> tuple[BaseException | None, Any, RayActorError | None]:
        """(what a call raised, what it returned, how its member died) of a ref that is ready."""
        try:
            return None, self.backend.get([answer], 0)[0], None
        except RayTaskError as error:
            return as_raised(error, self._traceback_type), None, None
        except RayActorError as error:
            return error, None, error
        except Exception as error:  # the session is over, or the value cannot be unpickled
            return error, None, None


def _teller(died: Callable[[PoolWorker, RayActorError], None], worker: PoolWorker) -> Callable[[RayActorError], None]:
    """The callback for a member's death; it keeps neither the pool nor the member alive, and so not the actor."""
    method, the_worker = WeakMethod(died), ref(worker)

    def tell(error: RayActorError) -> None:
        died, worker = method(), the_worker()
        if died is not None and worker is not None:
            died(worker, error)

    return tell


def as_raised(error: RayTaskError, traceback_type: type[Exception]) -> BaseException:
    """The exception that the job raised, with the traceback of its process as the cause."""
    cause = error.cause
    if isinstance(cause, EscapeError):
        cause = SystemExit(*cause.args)
    cause.__cause__ = traceback_type(f'\n"""\n{error.traceback_str}"""')
    return cause
