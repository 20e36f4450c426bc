"""`Executions`: the executions of one compiled graph, from `execute` to getting their results; `Completions`, its callbacks.

    execute: value -> input channel -> actors ... -> output channels -> fetch

Any thread may call, and coroutines of any event loop. One lock guards the counters and the state; no thread sleeps while holding it.
Finalizers only record dropped refs.
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from enum import IntEnum
from functools import partial
from typing import Any, NamedTuple, NoReturn, TypeVar

from mray._channel.base import NOTHING, ChannelWriter, Failed
from mray._channel.fan_out import FanOutWriter
from mray._common.bridge import Cancel
from mray._common.clock import now
from mray._common.places import is_amidst
from mray._graph.caller.allocation import Allocation
from mray._graph.caller.graph_limits import Limits, deadline_of
from mray._graph.caller.results import AMIDST, Results
from mray._graph.gpu_edges import SETTLING
from mray._graph.host import GraphHost, Service, weakly
from mray._graph.inputs import check_inputs, packer, picker
from mray._graph.participants import Participants
from mray._graph.plan import DIRECT, DRIVER, INPUT, MIXED, Argument, Plan, Route, Source
from mray._graph.watch.probes import Probe, probed_writers
from mray._graph.watch.report import LEAST, describe_caller, report_of
from mray._graph.watch.report import PATIENCE as PATIENCE_OF_REPORT
from mray._ipc.spin import CALLER_WINDOW, AdaptiveSpinner
from mray._ipc.table import usable_cores
from mray._objects.remote_error import unpickle_error
from mray.exceptions import RayCgraphCapacityExceeded, RayChannelError, RayChannelTimeoutError

logger = logging.getLogger(__name__)

PATIENCE = 10.0

T = TypeVar("T")
Callback = Callable[[], None]
Failure = Callable[[BaseException, str], bytes]
#: An execution, and one of its outputs (None: the only one).
Claim = tuple[int, int | None]
#: Returns the claims that are got together with one.
Beside = Callable[[], list[Claim]]

_LOST = "The result was lost: another thread raised an exception in this one while it was being read."


class State(IntEnum):
    """The states of a graph, which only increase.

    ==========  =============================================  ==========  ============================  ================================
    state       entered by                                     execute     get                           the actors
    ==========  =============================================  ==========  ============================  ================================
    ALIVE       compiling                                      sends       waits                         run their programs
    BROKEN      an actor's death; a failure of an operation    raises the  results that have arrived,    were asked to leave
                that several actors share                      cause       else raises the cause
    TORN_DOWN   `teardown`; the end of the session, or of the  raises the  results that are kept, else   were asked to leave; this
                graph that this is a copy of; a fork           cause       raises the cause              process's endpoints are closed
    ==========  =============================================  ==========  ============================  ================================

    The cause is that of the first state other than ALIVE; of `teardown`, that the channel is closed.
    """

    ALIVE = 0
    BROKEN = 1
    TORN_DOWN = 2


ALIVE, BROKEN, TORN_DOWN = State


class Input:
    __slots__ = ("arity", "graph", "is_direct", "pack", "try_write", "writer")

    def __init__(self, plan: Plan, writers: Mapping[int, ChannelWriter], failure: Failure, limits: Limits) -> None:
        self.graph = graph = plan.graph
        self.writer = _one_writer([writers[channel.index] for channel in plan.channels_of(INPUT)], failure)
        self.try_write = self.writer.try_write
        #: The number of positional arguments that need no check.
        self.arity = -1 if graph.keywords or graph.form == MIXED or limits.enable_asyncio else graph.positional
        self.is_direct = graph.form == DIRECT
        self.pack = packer(graph)

    def value(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """ValueError if the graph does not take these arguments."""
        check_inputs(self.graph, args, kwargs)
        return self.pack(args, kwargs)


class ExecutionCounts(NamedTuple):
    submitted: int
    finished: int
    kept: int
    #: Readers whose value the first unfinished execution lacks.
    missing: list[int]


class Executions:
    """The executions of one graph. Methods are called without the lock unless they say "Lock held"."""

    #: (executions, index, output) -> a ref.
    claim: type[Any]

    def __init__(self, host: GraphHost, plan: Plan, made: Allocation, limits: Limits, names: Mapping[str, str]) -> None:
        graph = plan.graph
        self.host = host
        self.limits = limits
        self.participants = Participants(host, plan, names, made.processes)
        self.writers = made.ends.writers
        self._plan = plan
        self._made = made
        #: Reentrant, since finalizers may run while it is held: they are refused (`_mend`).
        self._lock = threading.RLock()
        self.state = ALIVE
        #: The error raised when not ALIVE; None: channel closed.
        self.cause: Exception | None = None

        self._input = Input(plan, made.ends.writers, host.failure, limits)
        #: Submitted executions: the messages of the input channel, unless `_is_cut`.
        self._submitted = 0
        #: Whether an asynchronous exception may have come between sending an input and creating its ref.
        self._is_cut = False
        self.room_wanted = 0

        self._outputs = range(len(graph.outputs)) if graph.returns_list else None
        readers = [made.ends.readers[_channel_to_caller(plan, source).index] for source in graph.results]
        outputs = [(graph.results.index(output.source), _pick_of(output)) for output in graph.outputs if output.source is not None]
        lost = lambda: Failed(host.failure(RayChannelError(_LOST), "get"))  # noqa: E731
        self.results = Results(readers, outputs, lost, Executions.fetch.__code__)
        is_lone = len(readers) == len(graph.outputs) == 1 and graph.outputs[0].key is None
        #: The fast path of a graph with one whole output, else None.
        self._lone_read = readers[0].try_read if is_lone else None
        self.completions = Completions(self, self._lock)

        cores = usable_cores()
        is_oversubscribed = 1 < cores < made.process_count
        self.spinner: AdaptiveSpinner = host.spinner.in_turns(CALLER_WINDOW) if is_oversubscribed else host.spinner
        #: Whether an actor lives here; its main thread runs the program while it waits.
        self.runs_here = any(made.processes[actor] == host.process for actor in graph.actors)
        made.watch(weakly(self._break))
        host.graphs.add(self)

    # ------------------------------------------------------------------------------------ submitting
    def execute(self, /, *args: Any, **kwargs: Any) -> Any:
        """Send one input through the graph; returns a ref, or a list of refs if the graph ends in a `MultiOutputNode`.

        Raises RayCgraphCapacityExceeded if too many executions are in flight, RayChannelError after `teardown`, ActorDiedError if an
        actor of the graph is dead, and the errors of serializing the arguments.
        """
        entry = self._input
        if kwargs or len(args) != entry.arity:
            if self.limits.enable_asyncio:
                raise ValueError("Use execute_async if enable_asyncio=True")
            value = entry.value(args, kwargs)
        else:
            value = args[0] if entry.is_direct else entry.pack(args, kwargs)
        with self._lock:
            if self.state:
                self._raise_cause()
            if self._is_cut:
                self._mend()
            results = self.results
            if results.dropped:
                results.note_dropped()
            if self._submitted - results.finished >= self.limits.in_flight:
                self._make_way()
            self._is_cut = True
            if not entry.try_write(value):
                self._write_later(value)
            # Waiting released the lock.
            index = self._submitted
            made = self.claim(self, index) if self._outputs is None else [self.claim(self, index, output) for output in self._outputs]
            self._submitted = index + 1
            self._is_cut = False
        return made

    def _mend(self) -> None:
        """Drop executions whose input was sent (the ring counts them) but whose ref an exception from another thread prevented. Lock
        held.
        """
        if is_amidst((Executions.execute.__code__, Executions.submit_nowait.__code__), self):
            raise RuntimeError(AMIDST)
        sent = self._input.writer.position()
        self.results.dropped.extend((index, None) for index in range(self._submitted, sent))
        self._submitted = sent
        self._is_cut = False

    def submit_nowait(self, value: Any, wait: bool) -> int:
        """Returns the execution's index, or -1 if there is no room; without `wait`, raises for too many in flight."""
        with self._lock:
            if self.state:
                self._raise_cause()
            if self._is_cut:
                self._mend()
            if not self._way_is_clear():
                if not wait and not self.results.next_is_unwanted():
                    raise self._too_many()
                return -1
            self._is_cut = True
            index = self._submitted if self._input.try_write(value) else -1
            if index >= 0:
                self._submitted = index + 1
            self._is_cut = False
        return index

    def _write_later(self, value: Any) -> None:
        timeout = self.limits.submit_timeout
        deadline = deadline_of(timeout)
        while not self._input.try_write(value):
            if not self._wait_unlocked(lambda: self.state or self._input.writer.has_room(), deadline):
                raise self._unlocked(lambda: self.submit_timed_out(timeout))
            if self.state:
                self._raise_cause()

    # ------------------------------------------------------------------------------------ backpressure
    # The number of executions in flight is limited. One more is an error, as in Ray, or it waits (`Limits.wait`):
    #
    #     results of dropped refs      are read and thrown away
    #     the oldest result            is read and kept for a later `get`, as long as no more are kept than may be
    #     then                         another thread or coroutine has to take one
    #
    # A thread that would wait for itself gets an error. A thread that waits for others logs that after a while, and keeps every timeout.
    def _way_is_clear(self) -> bool:
        """Whether one more may be in flight, after reading results that are unwanted or may be kept.

        Does not wait. Lock held, here and below.
        """
        results = self.results
        if results.dropped:
            results.note_dropped()
        while self._submitted - results.finished >= self.limits.in_flight:
            if not results.next_is_unwanted() and (not self.limits.wait or self._keeps_most()):
                return False
            if self.state is TORN_DOWN or not results.advance():
                return False
        return True

    def _make_way(self) -> None:
        results = self.results
        timeout = self.limits.wait_timeout
        deadline = deadline_of(timeout)
        complaint: float | None = now() + PATIENCE
        self.room_wanted += 1
        try:
            while not self._way_is_clear():
                if self.state:
                    self._raise_cause()
                stuck = self._keeps_most() and not results.next_is_unwanted()
                if not results.next_is_unwanted():
                    if not self.limits.wait:
                        raise self._too_many()
                    if stuck and not _others_may_read():
                        raise self._alone()
                moments = [moment for moment in (deadline, complaint) if moment is not None]
                if self._wait_for_room(stuck, min(moments, default=None)):
                    continue
                if deadline is not None and now() >= deadline:
                    raise self._unlocked(lambda: self.submit_timed_out(timeout))
                complaint = None
                self._unlocked(self.complain_of_waiting)
        finally:
            self.room_wanted -= 1

    def _wait_for_room(self, stuck: bool, deadline: float | None) -> bool:
        results = self.results

        def may_be_clear() -> bool:
            if self.state or results.dropped or self._submitted - results.finished < self.limits.in_flight:
                return True
            return not self._keeps_most() if stuck else results.may_finish()

        return self._wait_unlocked(may_be_clear, deadline)

    def _keeps_most(self) -> bool:
        return len(self.results.kept) >= self.limits.kept

    def note_drop(self, dropped: tuple[int, int | None]) -> None:
        """Record an unread ref's drop. Takes no lock, for finalizers."""
        self.results.dropped.append(dropped)
        if self.room_wanted:
            self.host.reactor.defer(lambda: None)  # wakes waiting threads

    def may_submit(self) -> bool:
        """Whether `submit_nowait` would not wait. Lock held."""
        return bool(self.state) or (self._way_is_clear() and self.has_room())

    def has_room(self) -> bool:
        try:
            return self._input.writer.has_room()
        except ValueError:  # torn down meanwhile
            return True

    # ------------------------------------------------------------------------------------ fetching
    def fetch(
        self, index: int, output: int | None, timeout: float | None, deadline: float | None = None, beside: Beside | None = None
    ) -> Any:
        """Return the value or a `Failed`; raises RayChannelTimeoutError, or the error that stopped the graph.

        The `Failed` of a result `beside` this one is raised as soon as it has come, and stays.
        """
        read = self._lone_read
        results = self.results
        value: Any = NOTHING
        if read is not None and index == results.finished and not self.state and not results.unwanted:
            with self._lock:
                if index == results.finished and self._lone_read is read and not results.is_cut:
                    results.is_cut = True
                    value = read()
                    if value is NOTHING and timeout is None and not self.runs_here:
                        value = self.spinner.spin(read, NOTHING)
                    if value is not NOTHING:
                        results.skip_one()
                    results.is_cut = False
        if value is NOTHING:
            value = self._await(index, output, timeout, deadline, beside)
        if self.room_wanted:
            self.host.wake()
        return value

    def error(self, failed: Failed) -> BaseException:
        error = unpickle_error(failed.payload)
        if failed.fatal:
            self._break(RayChannelError("Channel closed: an operation that several actors share has failed."))
        return error

    def _await(self, index: int, output: int | None, timeout: float | None, deadline: float | None, beside: Beside | None) -> Any:
        with self._lock:
            if (value := self._take(index, output)) is not NOTHING:
                return value
            if timeout is None:
                timeout = self.limits.get_timeout
            if deadline is None:
                deadline = deadline_of(timeout)
            results = self.results
            claims = [] if beside is None else beside()

            def may_take() -> bool:
                if claims:
                    return bool(self.state) or results.are_due([(index, output), *claims])
                return bool(self.state) or results.is_due(index, output)

            while value is NOTHING:
                for claim in claims:
                    if self.read_ahead(*claim) and (failed := results.peek(*claim)).__class__ is Failed:
                        raise self.error(failed)
                claims = [claim for claim in claims if not results.has(*claim)]
                if not self._wait_unlocked(may_take, deadline):
                    raise self._unlocked(lambda: self._get_timed_out(index, timeout))
                value = self._take(index, output)
        return value

    def take_nowait(self, index: int, output: int | None) -> Any:
        with self._lock:
            return self._take(index, output)

    def _take(self, index: int, output: int | None) -> Any:
        """Take a result, or `NOTHING`. Lock held."""
        if self.read_ahead(index, output):
            return self.results.take(index, output)
        if self.state:
            self._raise_cause()
        return NOTHING

    def read_ahead(self, index: int, output: int | None) -> bool:
        """Read what has come through the reader of this output, up to this execution. Returns whether that has come."""
        results, limits = self.results, self.limits
        with self._lock:
            if results.dropped:
                results.note_dropped()
            if self.state is TORN_DOWN:
                return results.has(index, output)
            # Not for futures, nor where callers wait.
            found = results.bring(index, output, math.inf if limits.wait or limits.enable_asyncio else limits.kept)
            if found is None:
                raise self._too_many_kept()
            return found

    def counts(self) -> ExecutionCounts:
        """Takes no lock."""
        results = self.results
        return ExecutionCounts(self._submitted, results.finished, len(results.kept), results.missing())

    def put_back(self, index: int, output: int | None, value: Any) -> None:
        with self._lock:
            self.results.put_back(index, output, value)

    @property
    def is_teardown(self) -> bool:
        return self.state is TORN_DOWN

    def put_probes(self, execute: Probe, results: Probe) -> None:
        plan = self._plan
        inputs = {channel.index: channel for channel in plan.channels_of(INPUT)}
        outputs = [_channel_to_caller(plan, source) for source in plan.graph.results]
        with self._lock:
            if not self.state:
                probed = probed_writers(execute, inputs, {index: self.writers[index] for index in inputs})
                self._input.try_write = _one_writer(list(probed.values()), self.host.failure).try_write
                self._read_by([results.read(channel, reader) for channel, reader in zip(outputs, self.results.readers, strict=True)])

    def remove_probes(self) -> None:
        with self._lock:
            self._input.try_write = self._input.writer.try_write
            self._read_by([reader.try_read for reader in self.results.readers])

    def _read_by(self, reads: list[Callable[[], Any]]) -> None:
        self.results.read_by(reads)
        if self._lone_read is not None:
            self._lone_read = reads[0]

    # ------------------------------------------------------------------------------------ waiting
    def _wait_unlocked(self, predicate: Callable[[], Any], deadline: float | None) -> bool:
        """`predicate` also holds when the graph stops. False if the deadline has passed."""
        try:
            self._lock.release()
            return self.wait_until(predicate, deadline)
        finally:
            self._lock.acquire()

    def _unlocked(self, function: Callable[[], T]) -> T:
        try:
            self._lock.release()
            return function()
        finally:
            self._lock.acquire()

    def wait_until(self, predicate: Callable[[], Any], deadline: float | None) -> bool:
        if (
            self._lone_read is None
            and not self.runs_here
            # An actor may wait for this core.
            and self.spinner.spin(predicate, stop=self.host.spinner.is_oversubscribed, deadline=deadline)
        ):
            return True
        return wait_until(self.host, self.runs_here, predicate, deadline)

    def _raise_cause(self) -> NoReturn:
        if self.cause is not None:
            raise self.cause.with_traceback(None)  # else each raise would extend the traceback
        steps = [f"{self.participants.classes.get(step.actor, '')}.{step.method}" for step in self._plan.graph.steps]
        more = f" and {len(steps) - 3} more" if len(steps) > 3 else ""
        raise RayChannelError(f"Channel closed: the compiled graph of {', '.join(steps[:3])}{more} was torn down; compile another.")

    # ------------------------------------------------------------------------------------ explaining
    def _too_many(self) -> RayCgraphCapacityExceeded:
        most, flying = self.limits.in_flight, self._submitted - self.results.finished
        return RayCgraphCapacityExceeded(
            f"The compiled graph can't have more than {most} in-flight executions, and you currently have {flying} in-flight "
            "executions. Retrieve an output using ray.get before submitting more requests or increase `_max_inflight_executions`. "
            "`dag.experimental_compile(_max_inflight_executions=...)`"
        )

    def _too_many_kept(self) -> RayCgraphCapacityExceeded:
        return RayCgraphCapacityExceeded(
            f"The compiled graph can't have more than {self.limits.kept} buffered results, and you currently have "
            f"{len(self.results.kept)} buffered results. Call `ray.get()` on CompiledDAGRef's (or await on CompiledDAGFuture's) to "
            "retrieve results, or increase `_max_buffered_results` if buffering is desired, note that this will increase driver "
            "memory usage."
        )

    def _alone(self) -> RayCgraphCapacityExceeded:
        return RayCgraphCapacityExceeded(
            f"The compiled graph has {self._submitted - self.results.finished} in-flight executions and {len(self.results.kept)} "
            "buffered results, which is all that it may have, and there is no other thread that could retrieve any: this one would wait "
            "forever. Call `ray.get()` on CompiledDAGRef's before submitting more, or increase `_max_buffered_results`."
        )

    # Without the lock, since a report waits for actors.
    def submit_timed_out(self, timeout: float | None) -> RayChannelTimeoutError:
        return RayChannelTimeoutError(
            f"The compiled graph took no input within {timeout} seconds. If the execution is expected to take a long time, increase "
            f"RAY_CGRAPH_submit_timeout. Otherwise, this may indicate that execution is hanging.\n{self.report(timeout)}"
        )

    def _get_timed_out(self, index: int, timeout: float | None) -> RayChannelTimeoutError:
        return RayChannelTimeoutError(
            f"Execution {index} of the compiled graph produced no result within {timeout} seconds. If it is expected to take longer, give "
            f"`get` a larger timeout; otherwise, this may indicate that the execution is hanging.\n{self.report(timeout)}"
        )

    def complain_of_waiting(self) -> None:
        logger.warning("execute() has waited %g s for results of the compiled graph to be retrieved.\n%s", PATIENCE, self.report())

    def report(self, timeout: float | None = None) -> str:
        """A line for each actor: its position in its program, the peers it waits for, its stack if it computes. Takes a second at most, or
        `timeout` seconds if less.
        """
        if self.is_teardown:
            return f"The compiled graph {self.get_id()} was torn down."
        counts = self.counts()
        missing = counts.missing if counts.submitted > counts.finished else None
        own = describe_caller(self.participants, *counts[:3], missing)
        if timeout is not None and 0 <= timeout < LEAST:
            return own
        patience = PATIENCE_OF_REPORT if timeout is None or timeout < 0 else min(timeout, PATIENCE_OF_REPORT)
        return own + report_of(self.participants, patience)

    # ------------------------------------------------------------------------------------ ending
    def teardown(self, kill_actors: bool = False) -> None:
        """End the graph. Its actors become free for other work, or are killed. Idempotent.

        Waits for running methods; after `DAGContext.teardown_timeout` seconds it logs a warning and continues.
        """
        self._end(self.limits.teardown_timeout, kill_actors=kill_actors)

    def end_with(self, cause: Exception) -> None:
        """End the graph, without waiting unless traces are to be written; waiting and later callers get the error."""
        self._end(self.limits.teardown_timeout if self._made.profilers.torch else 0.0, cause)

    def _end(self, patience: float, cause: Exception | None = None, *, kill_actors: bool = False) -> None:
        with self._lock:
            if self.state is TORN_DOWN:
                return
            if not self.state:
                self.cause = cause
            self.state = TORN_DOWN
        made, host = self._made, self.host
        host.graphs.discard(self)
        self.completions.look()
        pendings = made.stop()
        if patience and not host.wait_until(lambda: all(pending.ready() for pending in pendings), patience):
            logger.warning("Compiled graph %s: an actor still computes %s s after teardown().", self.get_id(), patience)
        if kill_actors:
            host.kill_actors(list(made.actors.values()))
        else:
            made.end_workers()
        made.release(min(patience, SETTLING))

    def _break(self, cause: Exception) -> None:
        with self._lock:
            if self.state:
                return
            self.cause = cause
            self.state = BROKEN
        self._made.stop(cause)
        self.completions.look()

    def abandon(self) -> None:
        """Release memory and names without notifications, since the simulated process has ended."""
        if self.state is not TORN_DOWN:
            self.state = TORN_DOWN
            self._made.release()

    def disown(self, cause: Exception) -> None:
        """In a forked child: every use raises `cause`, since the parent uses the memory."""
        self._lock._at_fork_reinit()  # type: ignore[attr-defined]  # noqa: SLF001  (Python's; another thread of the parent may hold it)
        self.cause = cause
        self.state = TORN_DOWN

    def __del__(self) -> None:
        made = getattr(self, "_made", None)
        if made is not None and self.state is not TORN_DOWN:
            self.state = TORN_DOWN
            with contextlib.suppress(Exception):
                self.host.reactor.defer(made.end)

    def get_id(self) -> str:
        return self._plan.graph_id


class Completions:
    """Guarded by the graph's lock; callbacks run without it, in any thread."""

    def __init__(self, graph: Executions, lock: AbstractContextManager[bool]) -> None:
        #: Weak: callbacks must not keep it alive.
        self._of = weakref.ref(graph)
        self._lock = lock
        #: By reader and execution; the last such execution; callbacks of earlier ones than this have been called.
        self._wanted: list[dict[int, list[Callback]]] = [{} for _ in graph.results.readers]
        self._furthest = [-1] * len(self._wanted)
        self._seen = [0] * len(self._wanted)
        #: Callbacks of callers that want to submit.
        self._room: list[Callback] = []
        #: An attribute, so that an interrupt in one thread loses no callback of another.
        self._due: deque[Callback] = deque()

    @property
    def awaited(self) -> bool:
        return bool(self._room or self._due or any(self._wanted))

    def then(self, claim: Claim | None, callback: Callback) -> Cancel:
        """Call back once when this output of an execution may be read (None: when one more may be submitted), immediately if it may."""
        graph = self._of()
        assert graph is not None
        with self._lock:
            if claim is None:
                if waits := not graph.may_submit():
                    self._room.append(callback)
                    graph.room_wanted += 1
            elif waits := not graph.results.has(*claim) and not graph.state:
                index, reader = claim[0], graph.results.reader_of(claim[1])
                wanted = self._wanted[reader]
                if not wanted:
                    self._seen[reader] = graph.results.came(reader)
                wanted.setdefault(index, []).append(callback)
                self._furthest[reader] = max(self._furthest[reader], index)
        if not waits:
            callback()
        return partial(self._forget, claim, callback)

    def _forget(self, claim: Claim | None, callback: Callback) -> None:
        with self._lock:
            graph = self._of()
            if graph is None:
                return
            if claim is None:
                if callback in self._room:
                    self._room.remove(callback)
                    graph.room_wanted -= 1
                return
            wanted = self._wanted[graph.results.reader_of(claim[1])]
            callbacks = wanted.get(claim[0], [])
            if callback in callbacks:
                callbacks.remove(callback)
                if not callbacks:
                    del wanted[claim[0]]

    def run_here(self, service: Service) -> None:
        graph = self._of()
        if graph is not None and graph.runs_here and service.is_its_thread():
            service.run(graph.results.any_ready)

    def look(self) -> None:
        graph = self._of()
        if graph is None or not self.awaited:
            return
        with self._lock:
            self._find_due(graph)
        while self._due:
            with contextlib.suppress(IndexError):
                self._due.popleft()()

    def ready(self) -> bool:
        """Whether `look` may call back. Takes no lock."""
        graph = self._of()
        if graph is None or not self.awaited:
            return False
        results = graph.results
        if self._due or graph.state:
            return True
        for reader, wanted in enumerate(self._wanted):
            if wanted and (self._seen[reader] < results.came(reader) or results.is_due(self._furthest[reader], results.output_of(reader))):
                return True
        return bool(self._room and (results.any_ready() or graph.has_room()))

    def _find_due(self, graph: Executions) -> None:
        results, due = graph.results, self._due
        for reader, wanted in enumerate(self._wanted):
            if not wanted:
                continue
            graph.read_ahead(self._furthest[reader], results.output_of(reader))
            if graph.state:
                due.extend(callback for callbacks in wanted.values() for callback in callbacks)
                wanted.clear()
            else:
                for index in range(self._seen[reader], results.came(reader)):
                    due.extend(wanted.pop(index, ()))
            self._seen[reader] = results.came(reader)
        if self._room and graph.may_submit():
            due.extend(self._room)
            graph.room_wanted -= len(self._room)
            self._room.clear()


def wait_until(host: GraphHost, runs_here: bool, predicate: Callable[[], Any], deadline: float | None) -> bool:
    """`runs_here`: an actor of the graph lives in this process; its own thread runs the program while it waits."""
    service = host.service
    while True:
        remaining = None if deadline is None else max(deadline - now(), 0.0)
        if not runs_here or service is None or not service.is_its_thread():
            return host.wait_until(predicate, remaining)
        service.run(predicate)
        if predicate():
            return True
        if not host.wait_until(lambda: predicate() or service.ready(), remaining):
            return False


def _others_may_read() -> bool:
    own = threading.current_thread()
    return any(thread is not own and not thread.name.startswith("mray-") for thread in threading.enumerate())


def _one_writer(writers: list[ChannelWriter], failure: Failure) -> ChannelWriter:
    return writers[0] if len(writers) == 1 else FanOutWriter(writers, lambda error: failure(error, "execute"))


def _channel_to_caller(plan: Plan, source: Source) -> Route:
    channel = plan.channel_to(source, DRIVER)
    assert channel is not None, f"no channel carries {source}"
    return channel


def _pick_of(output: Argument) -> Callable[[Any], Any] | None:
    return None if output.key is None else picker(output.key, output.by)
