"""A compiled graph in the hands of the process that compiled it.

    execute: value -> input channel -> actors ... -> output channels -> get

`execute` does not wait for results: so many executions may be in flight, and one more is refused, or waits. Results arrive in the order
of execution; `get` out of order keeps earlier results until they are taken. Finalizers record dropped refs, and their results are thrown
away when they come.

Any thread may call, and coroutines of any event loop (`mray._graph.caller.future`). One lock guards the counters and the ends; no thread
sleeps while holding it.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Mapping
from types import FrameType
from typing import Any, NamedTuple, NoReturn, TypeVar

from mray._channel.base import NOTHING, ChannelWriter, Failed
from mray._channel.fan_out import FanOutWriter
from mray._common.clock import now
from mray._common.places import is_amidst
from mray._graph.caller.allocation import Allocation
from mray._graph.caller.executions import Completions
from mray._graph.caller.future import CompiledDAGFuture, all_of, each_of, submit_when_there_is_room
from mray._graph.caller.handle import GraphHandle, restore_graph
from mray._graph.caller.limits import Limits, deadline_of, too_many_text
from mray._graph.caller.ref import CompiledDAGRef
from mray._graph.caller.results import AMIDST, TAKEN, Results
from mray._graph.caller.waiting import wait_until
from mray._graph.channel_ends import SETTLING
from mray._graph.depicted import Depicted
from mray._graph.host import GraphHost, weakly
from mray._graph.inputs import check_inputs, packer, picker
from mray._graph.participants import Participants
from mray._graph.plan import DIRECT, DRIVER, INPUT, MIXED, Argument, Channel, Operation, Plan, Source
from mray._graph.watch.measures import measured
from mray._graph.watch.probes import Probe, probed_writers
from mray._graph.watch.profile import Attachment, Profile
from mray._graph.watch.report import LEAST, counters, describe_caller, labelled, report_of
from mray._graph.watch.report import PATIENCE as PATIENCE_OF_REPORT
from mray._ipc.spin import CALLER_WINDOW, AdaptiveSpinner
from mray._ipc.table import usable_cores
from mray._trace.digest import Digest
from mray._trace.span import MOST_SPANS, clock
from mray.exceptions import RayCgraphCapacityExceeded, RayChannelError, RayChannelTimeoutError

logger = logging.getLogger(__name__)


#: Seconds after which an `execute` that waits for room logs that.
PATIENCE = 10.0


class Snapshot(NamedTuple):
    """A compiled graph for an observer, at one moment."""

    plan: Plan
    limits: Limits
    #: "ALIVE", "BROKEN" (with the `error`) or "TORN_DOWN".
    state: str
    error: str
    participants: Participants
    submitted: int
    finished: int
    kept: int
    #: The results that the first unfinished execution still lacks.
    missing: list[int]
    writers: dict[int, ChannelWriter]


class CompiledGraph(Depicted):
    """A graph whose actors run in loops over channels."""

    def __init__(
        self,
        host: GraphHost,
        plan: Plan,
        made: Allocation,
        limits: Limits,
        handles: Mapping[str, Any] | None = None,
        keep: Any = None,
        names: Mapping[str, str] | None = None,
    ) -> None:
        graph = plan.graph
        self.host = host
        self._plan = plan
        self._made = made
        self.limits = limits
        self._most = limits.in_flight
        #: actor id -> its handle.
        self._handles = handles or {}
        #: Objects that must live as long as the graph: refs among its constants.
        self._keep = keep
        #: endpoint -> the name of its actor's class.
        self._names = names or {actor: str(handle.__actor_outline__().class_name) for actor, handle in self._handles.items()}
        self._participants = Participants(host, plan, self._names, made.processes)
        #: Reentrant for finalizers, which the collector may run in the middle of it: they are refused (`_mend`).
        self._lock = threading.RLock()
        self._is_teardown = False
        #: The error for which the graph can go on no more: an actor died.
        self._broken: Exception | None = None
        #: Invariant: true when torn down or broken. One check on the hot path.
        self._stopped = False

        writers = [made.ends.writers[channel.index] for channel in plan.channels_of(INPUT)]
        self._writer: ChannelWriter = writers[0]
        if len(writers) > 1:
            self._writer = FanOutWriter(writers, lambda error: host.failure(error, "execute"))
        self._try_write = self._writer.try_write
        #: How many positional arguments need no further check.
        self._arity = -1 if graph.keywords or graph.form == MIXED or limits.enable_asyncio else graph.positional
        self._direct = graph.form == DIRECT
        self._pack = packer(graph)
        self._outputs = range(len(graph.outputs)) if graph.returns_list else None

        sources = graph.results
        self._readers = tuple(made.ends.readers[_channel_index(plan, source)] for source in sources)
        picks = [_picker(sources.index(output.source), output) for output in graph.outputs if output.source is not None]
        lost = lambda: Failed(host.failure(RayChannelError(_LOST), "get"))  # noqa: E731
        positions = [reader.position for reader in self._readers]
        self._results = Results([reader.try_read for reader in self._readers], picks, positions, lost, CompiledGraph.fetch.__code__)
        #: The only reader, for the fast path of a graph with one whole output; else None.
        self._fast_read = self._readers[0].try_read if len(sources) == len(graph.outputs) == 1 and graph.outputs[0].key is None else None
        #: The same; None while a caller waits for room, and every result that is taken must wake it.
        self._only_read = self._fast_read
        self.note_drop: Callable[[tuple[int, int | None]], None] = self._results.dropped.append
        self._room_wanted = 0
        self.completions = Completions(self, self._lock)
        #: Whether `get` refuses to keep more results of other refs than may be kept. Not for futures, as in Ray, nor where
        #: callers wait.
        self._strict = not (limits.wait or limits.enable_asyncio)
        #: The number of submitted executions whose refs were made: as many as the input channel has messages, unless `_is_cut`.
        self._submitted = 0
        #: An exception from outside may have come between a message of the input and its ref (see `_mend`).
        self._is_cut = False

        #: Whether an actor of the graph lives in this very process, whose main thread must then run its program while it waits.
        cores = usable_cores()
        self.spinner: AdaptiveSpinner = (
            AdaptiveSpinner(CALLER_WINDOW, oversubscribed=True) if 1 < cores < made.process_count else host.spinner
        )
        self.runs_here = any(made.processes[actor] == host.process for actor in graph.actors)
        tell = weakly(self._break)
        #: The running profile, and the measures of the latest one that has ended.
        self._profile: Profile | None = None
        self._measured: Digest | None = None
        self._watches = [host.watch_actor(actor, tell, plan.part_of(endpoint)) for endpoint, actor in made.actors.items()]
        host.graphs.add(self)

    # ------------------------------------------------------------------------------------ executing
    def execute(self, *args: Any, **kwargs: Any) -> CompiledDAGRef | list[CompiledDAGRef]:
        """Send one input through the graph; a ref, or a list of refs when the graph ends in a `MultiOutputNode`.

        Raises RayCgraphCapacityExceeded when too many executions are in flight, RayChannelError after `teardown`, ActorDiedError when an
        actor of the graph is dead, and the errors of serializing the arguments.
        """
        if kwargs or len(args) != self._arity:
            if self.limits.enable_asyncio:
                raise ValueError("Use execute_async if enable_asyncio=True")
            check_inputs(self._plan.graph, args, kwargs)
        value = args[0] if self._direct else self._pack(args, kwargs)
        with self._lock:
            if self._stopped:
                self._raise_stopped()
            if self._is_cut:
                self._mend()
            results = self._results
            if results.dropped:
                results.note_dropped()
            if self._submitted - results.finished >= self._most:
                self._make_way()
            self._is_cut = True
            if not self._try_write(value):
                self._write_later(value)
            # Not before: waiting releases the lock.
            index = self._submitted
            if self._outputs is None:
                made: CompiledDAGRef | list[CompiledDAGRef] = CompiledDAGRef(self, index)
            else:
                made = [CompiledDAGRef(self, index, output) for output in self._outputs]
            self._submitted = index + 1
            self._is_cut = False
        return made

    def _mend(self) -> None:
        """Give up executions that nobody has a ref of: their input was sent, and an exception from outside came. Lock held.

        A handler of a signal never raises in there (`mray._ipc.interrupts`); what another thread has raised in this one may come between
        any two byte codes. The ring says which execution a message is.
        """
        if is_amidst((CompiledGraph.execute.__code__, CompiledGraph.submit_nowait.__code__), self):
            raise RuntimeError(AMIDST)
        sent = self._writer.position()
        self._results.dropped.extend((index, None) for index in range(self._submitted, sent))
        self._submitted = sent
        self._is_cut = False

    async def execute_async(self, *args: Any, **kwargs: Any) -> CompiledDAGFuture | list[CompiledDAGFuture]:
        """As `execute`, for graphs compiled with ``enable_asyncio=True``: a future, or a list of them, to be awaited in any event loop."""
        return await self._execute_async(args, kwargs)

    async def _execute_async(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CompiledDAGFuture | list[CompiledDAGFuture]:
        if not self.limits.enable_asyncio:
            raise ValueError("Use execute if enable_asyncio=False")
        value = self.checked(args, kwargs)
        index = self.submit_nowait(value, self.limits.wait)
        if index < 0:
            index = await submit_when_there_is_room(self, value)
        return self._futures(index)

    def stream(self, inputs: Iterable[Any] | AsyncIterable[Any]) -> AsyncIterator[Any]:
        """``async for value in graph.stream(inputs)``: execute the graph with each input, and give the results in the order of the inputs.

        `inputs` may be asynchronous. As many executions are in flight as the graph allows; the next input is asked for when there is room.
        A method's exception is raised in its turn and ends the stream; executions that are in flight then are dropped.
        """
        if not self.limits.enable_asyncio:
            raise ValueError("Use execute if enable_asyncio=False")
        return self._stream(inputs)

    async def _stream(self, inputs: Iterable[Any] | AsyncIterable[Any]) -> AsyncIterator[Any]:
        flying: deque[CompiledDAGFuture | list[CompiledDAGFuture]] = deque()
        async for item in each_of(inputs):
            value = self.checked((item,), {})
            # Results of executions in flight are read first: others may need that to make room.
            while (index := -1 if len(flying) >= self.limits.in_flight else self.submit_nowait(value, True)) < 0 and flying:
                yield await all_of(flying.popleft())
            flying.append(self._futures(index if index >= 0 else await submit_when_there_is_room(self, value)))
        while flying:
            yield await all_of(flying.popleft())

    def checked(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The input's value, of the arguments of `execute`. Raises ValueError when the graph does not take them."""
        check_inputs(self._plan.graph, args, kwargs)
        return args[0] if self._direct else self._pack(args, kwargs)

    def _futures(self, index: int) -> CompiledDAGFuture | list[CompiledDAGFuture]:
        if self._outputs is None:
            return CompiledDAGFuture(self, index)
        return [CompiledDAGFuture(self, index, output) for output in self._outputs]

    def submit_nowait(self, value: Any, wait: bool) -> int:
        """Submit; the execution's index, or -1 when there is no room now. Without `wait` too many in flight are an error."""
        with self._lock:
            if self._stopped:
                self._raise_stopped()
            if self._is_cut:
                self._mend()
            if not self._way_is_clear():
                if not wait and not self._results.next_is_unwanted():
                    raise self._too_many()
                return -1
            self._is_cut = True
            index = self._submitted if self._try_write(value) else -1
            if index >= 0:
                self._submitted = index + 1
            self._is_cut = False
        return index

    def _write_later(self, value: Any) -> None:
        """Write once the input channel has room: an actor is behind by a whole ring."""
        timeout = self.limits.submit_timeout
        deadline = deadline_of(timeout)
        while not self._try_write(value):
            if not self._wait_unlocked(self._writer.has_room, deadline):
                raise self._unlocked(lambda: self.submit_timed_out(timeout))
            if self._stopped:
                self._raise_stopped()

    # ------------------------------------------------------------------------------------ backpressure
    # So many executions may be in flight. One more is an error, as in Ray, or it waits (`Limits.wait`):
    #
    #     results of dropped refs      are read and thrown away
    #     the oldest result            is read and kept for a later `get`, as long as no more are kept than may be
    #     then                         another thread, coroutine or process has to take one
    #
    # A thread that would wait for itself gets an error. A thread that waits for others logs that after a while, and keeps every timeout.
    def _way_is_clear(self) -> bool:
        """Whether one more may be in flight, once results that are unwanted, or may be kept, are out of the way.

        Does not wait. Lock held, here and below.
        """
        results = self._results
        if results.dropped:
            results.note_dropped()
        while self._submitted - results.finished >= self._most:
            if not results.next_is_unwanted() and (not self.limits.wait or self._keeps_most()):
                return False
            if self._is_teardown or not results.advance():
                return False
        return True

    def _make_way(self) -> None:
        """Refuse, or wait for the first of too many executions in flight, without the lock meanwhile."""
        results = self._results
        timeout = self.limits.wait_timeout
        deadline = deadline_of(timeout)
        complaint: float | None = now() + PATIENCE
        self.want_room(1)
        try:
            while not self._way_is_clear():
                if self._stopped:
                    self._raise_stopped()
                stuck = self._keeps_most() and not results.next_is_unwanted()
                if not results.next_is_unwanted():
                    if not self.limits.wait:
                        raise self._too_many()
                    if stuck and not self._others_may_read():
                        raise self._alone()
                moments = [moment for moment in (deadline, complaint) if moment is not None]
                if self._wait_for_room(stuck, min(moments, default=None)):
                    continue
                if deadline is not None and now() >= deadline:
                    raise self._unlocked(lambda: self.submit_timed_out(timeout))
                complaint = None
                self._unlocked(self.complain_of_waiting)
        finally:
            self.want_room(-1)

    def _wait_for_room(self, stuck: bool, deadline: float | None) -> bool:
        results = self._results

        def may_be_clear() -> bool:
            if results.dropped or self._submitted - results.finished < self._most or (stuck and not self._keeps_most()):
                return True
            return not stuck and self.may_finish()

        return self._wait_unlocked(may_be_clear, deadline)

    def _others_may_read(self) -> bool:
        """Whether there is another thread that could take results."""
        own = threading.current_thread()
        return any(thread is not own and not thread.name.startswith("mray-") for thread in threading.enumerate())

    def _keeps_most(self) -> bool:
        return len(self._results.kept) >= self.limits.kept

    def _drop_and_wake(self, dropped: tuple[int, int | None]) -> None:
        self._results.dropped.append(dropped)
        self.host.defer(_nothing)

    def may_submit(self) -> bool:
        """Whether `submit_nowait` would find room, or raise. Lock held."""
        return self._stopped or (self._way_is_clear() and self.has_room())

    def has_room(self) -> bool:
        """Whether the input channel has room."""
        try:
            return self._writer.has_room()
        except ValueError:  # another thread has just torn the graph down and let go of the memory
            return True

    def want_room(self, change: int) -> None:
        """Count callers that wait for room, by `change`: while there are any, taking or dropping a result wakes them."""
        self._room_wanted += change
        if self._room_wanted:
            self._only_read = None
            self.note_drop = self._drop_and_wake
        else:
            self._only_read = self._fast_read
            self.note_drop = self._results.dropped.append

    # ------------------------------------------------------------------------------------ fetching
    def fetch(self, index: int, output: int | None, timeout: float | None, deadline: float | None = None) -> Any:
        """Wait for a result and take it: its value or a `Failed`. RayChannelTimeoutError, or the error that has stopped the graph."""
        read = self._only_read
        results = self._results
        value: Any = NOTHING
        if read is not None and index == results.finished and not self._stopped and not results.unwanted:
            with self._lock:
                # Another thread may have read first.
                if index == results.finished and self._only_read is read and not results.is_cut:
                    results.is_cut = True
                    value = read()
                    if value is NOTHING and timeout is None and not self.runs_here:
                        value = self.spinner.spin(read, NOTHING)
                    if value is not NOTHING:
                        results.skip_one()
                    results.is_cut = False
        return value if value is not NOTHING else self._await(index, output, timeout, deadline)

    def error(self, failed: Failed) -> BaseException:
        """The exception of a result that is a failure."""
        error = self.host.exception(failed.payload)
        if failed.fatal:
            self._break(RayChannelError("Channel closed: an operation that several actors share has failed."))
        return error

    def _await(self, index: int, output: int | None, timeout: float | None, deadline: float | None) -> Any:
        if timeout is None:
            timeout = self.limits.get_timeout
        if deadline is None:
            deadline = deadline_of(timeout)
        results = self._results
        with self._lock:
            while (value := self._take(index, output)) is NOTHING:
                if not self._wait_unlocked(lambda: index < results.finished or self.may_finish(), deadline):
                    raise self._unlocked(lambda: self._get_timed_out(index, timeout))
        if self._room_wanted:
            self.host.wake()
        return value

    def take_nowait(self, index: int, output: int | None) -> Any:
        """As `fetch`, or `NOTHING` when it has not come."""
        with self._lock:
            return self._take(index, output)

    def _take(self, index: int, output: int | None) -> Any:
        """A result, or `NOTHING`. Lock held."""
        results = self._results
        while index >= results.finished:
            if self._is_teardown:
                self._raise_stopped()
            if results.dropped:
                results.note_dropped()
            if self._strict and self._keeps_most():
                raise self._too_many_kept()
            if not results.advance():
                if self._broken is not None:
                    self._raise_stopped()
                return NOTHING
        if index not in results.kept:
            self._raise_stopped()
        return results.take(index, output)

    def read_ahead(self, index: int) -> None:
        """Read results that have come, up to those of execution `index`, and keep them."""
        results = self._results
        with self._lock:
            if results.dropped:
                results.note_dropped()
            while index >= results.finished and not self._is_teardown:
                if self._strict and self._keeps_most():
                    raise self._too_many_kept()
                if not results.advance():
                    break

    def read_up_to(self, index: int) -> None:
        """As `read_ahead`, without a limit of kept results. Lock held."""
        results = self._results
        if not self._is_teardown:
            if results.dropped:
                results.note_dropped()
            while results.finished <= index and results.advance():
                pass

    def put_back(self, index: int, output: int | None, value: Any) -> None:
        """Undo `fetch`."""
        with self._lock:
            self._results.put_back(index, output, value)

    @property
    def finished(self) -> int:
        """The number of finished executions: all their results have come, or they have failed."""
        return self._results.finished

    @property
    def is_stopped(self) -> bool:
        """Whether the graph was torn down, or can go on no more."""
        return self._stopped

    # ------------------------------------------------------------------------------------ waiting
    def any_ready(self) -> bool:
        """Whether any message of a result has come."""
        try:
            # Every reader is asked: asking also frees room for a waiting writer.
            return True in [reader.ready() for reader in self._readers]
        except ValueError:  # another thread has just torn the graph down and let go of the memory
            return True

    def may_finish(self) -> bool:
        """Whether the first unfinished execution can finish: all its missing results have come, or a failure has.

        Every output wakes the thread, which goes back to sleep at once for all but the last.
        """
        try:
            waiting = [reader.ready() for reader in self._readers]
            missing = self._results.missing()
            if all(waiting[number] for number in missing):
                return True
            return any(waiting[number] and self._readers[number].failed() for number in missing)
        except ValueError:  # another thread has just torn the graph down and let go of the memory
            return True

    def _wait_unlocked(self, predicate: Callable[[], bool], deadline: float | None) -> bool:
        """Wait without the lock; returns also when the graph stops. False when the deadline has passed."""
        try:
            self._lock.release()
            return self.wait_until(lambda: self._stopped or predicate(), deadline)
        finally:
            self._lock.acquire()

    def _unlocked(self, function: Callable[[], T]) -> T:
        """Call a slow function without the lock."""
        try:
            self._lock.release()
            return function()
        finally:
            self._lock.acquire()

    def wait_until(self, predicate: Callable[[], bool], deadline: float | None) -> bool:
        """Wait as `fetch` does; the predicate's last value."""
        if (
            len(self._readers) > 1  # (`fetch` has spun for a single one)
            and not self.runs_here
            # Oversubscribed, actors compute at the same time, and one of them waits for the core that this thread would hold.
            and self.spinner.spin(predicate, stop=self.host.spinner.is_oversubscribed, deadline=deadline)
        ):
            return True
        return wait_until(self.host, self.runs_here, predicate, deadline)

    def _raise_stopped(self) -> NoReturn:
        if self._broken is not None:
            raise self._broken
        steps = [f"{self._names.get(step.actor, '')}.{step.method}" for step in self._plan.graph.steps]
        more = f" and {len(steps) - 3} more" if len(steps) > 3 else ""
        raise RayChannelError(f"Channel closed: the compiled graph of {', '.join(steps[:3])}{more} was torn down; compile another.")

    # ------------------------------------------------------------------------------------ explaining
    def _too_many(self) -> RayCgraphCapacityExceeded:
        """The error for one execution more than may be in flight."""
        return RayCgraphCapacityExceeded(too_many_text(self._most, self._submitted - self._results.finished))

    def _too_many_kept(self) -> RayCgraphCapacityExceeded:
        """The error for one result more than may be kept."""
        return RayCgraphCapacityExceeded(
            f"The compiled graph can't have more than {self.limits.kept} buffered results, and you currently have "
            f"{len(self._results.kept)} buffered results. Call `ray.get()` on CompiledDAGRef's (or await on CompiledDAGFuture's) to "
            "retrieve results, or increase `_max_buffered_results` if buffering is desired, note that this will increase driver "
            "memory usage."
        )

    def _alone(self) -> RayCgraphCapacityExceeded:
        return RayCgraphCapacityExceeded(
            f"The compiled graph has {self._submitted - self._results.finished} in-flight executions and {len(self._results.kept)} "
            "buffered results, which is all that it may have, and there is no other thread that could retrieve any: this one would wait "
            "for ever. Call `ray.get()` on CompiledDAGRef's before submitting more, or increase `_max_buffered_results`."
        )

    # With a report, which waits for actors: without the lock.
    def submit_timed_out(self, timeout: float | None) -> RayChannelTimeoutError:
        """The error of an execution that could not be submitted in time."""
        return RayChannelTimeoutError(
            f"The compiled graph took no input within {timeout} seconds. If the execution is expected to take a long time, increase "
            f"RAY_CGRAPH_submit_timeout. Otherwise, this may indicate that execution is hanging.\n{self._report(timeout)}"
        )

    def _get_timed_out(self, index: int, timeout: float | None) -> RayChannelTimeoutError:
        """The error of a result that did not come in time."""
        return RayChannelTimeoutError(
            f"Execution {index} of the compiled graph brought no result within {timeout} seconds. If it is expected to take longer, give "
            f"`get` a larger timeout; otherwise, this may indicate that the execution is hanging.\n{self._report(timeout)}"
        )

    def complain_of_waiting(self) -> None:
        """Log that a caller has waited for room for long."""
        logger.warning("execute() has waited %g s for results of the compiled graph to be retrieved.\n%s", PATIENCE, self._report())

    def _report(self, timeout: float | None = None) -> str:
        """The report for an error after `timeout` seconds of waiting, which it does not keep waiting for much longer."""
        if self._is_teardown:
            return f"The compiled graph {self.get_id()} was torn down."
        results = self._results
        missing = results.missing() if self._submitted > results.finished else None
        own = describe_caller(self._participants, self._submitted, results.finished, len(results.kept), missing)
        if timeout is not None and 0 <= timeout < LEAST:
            return own
        patience = PATIENCE_OF_REPORT if timeout is None or timeout < 0 else min(timeout, PATIENCE_OF_REPORT)
        return own + report_of(self._participants, patience)

    # ------------------------------------------------------------------------------------ ending
    def teardown(self, kill_actors: bool = False) -> None:
        """End the graph; its actors are free for other work, or killed. Idempotent.

        Waits for methods that are running; after `DAGContext.teardown_timeout` seconds it logs a warning and goes on without them.
        """
        self._end(self.limits.teardown_timeout, kill_actors)

    def abandon(self) -> None:
        """End the graph with its session: `teardown` without waiting, unless traces are yet to be written."""
        with self._lock:
            if not self._stopped:
                self._broken = RayChannelError("Channel closed: the session was shut down.")
        self._end(self.limits.teardown_timeout if self._made.profilers.torch else 0.0, False)

    def disown(self, error: Exception) -> None:
        """In a forked child, which shares the graph's memory with its parent: whoever uses the graph here gets the error."""
        self._lock._at_fork_reinit()  # type: ignore[attr-defined]  # noqa: SLF001  (Python's; another thread of the parent may hold it)
        self._broken = error
        self._is_teardown = self._stopped = True

    def end_with(self, error: Exception) -> None:
        """End the graph without waiting; who waits for results, and who executes it later, gets the error."""
        with self._lock:
            if not self._stopped:
                self._broken = error
        self._end(0.0, False)

    def _end(self, patience: float, kill_actors: bool) -> None:
        with self._lock:
            if self._is_teardown:
                return
            self._is_teardown = self._stopped = True
        self.host.graphs.discard(self)
        for cancel in self._watches:
            cancel()
        self.completions.look()
        pendings = self._made.stop()
        if patience and not self.host.wait_until(lambda: all(pending.done() for pending in pendings), patience):
            logger.warning("Compiled graph %s: an actor still computes %s s after teardown().", self.get_id(), patience)
        if kill_actors:
            self.host.kill_actors(list(self._made.actors.values()))
        else:
            self._made.end_workers()
        self._made.release(min(patience, SETTLING))

    def _break(self, error: Exception) -> None:
        """Stop the graph for good: waiting callers get the error, the actors leave the graph."""
        if not self._stopped:
            self._broken = error
            self._stopped = True
            self._made.stop(error)
            self.completions.look()

    def __del__(self) -> None:
        made = getattr(self, "_made", None)
        if made is None or self._is_teardown:
            return
        self._is_teardown = self._stopped = True
        watches = self._watches

        def end() -> None:
            for cancel in watches:
                cancel()
            made.stop()
            made.end_workers()
            made.release()

        with contextlib.suppress(Exception):  # the session may be gone by now
            self.host.defer(end)

    # ------------------------------------------------------------------------------------ copies
    def note_copier(self, process: str) -> None:
        """Tell a process of the graph's end, which is about to make a copy of it."""
        with self._lock:
            if self._stopped:
                self._raise_stopped()
            self._made.note_copier(process)

    # ------------------------------------------------------------------------------------ looking
    def report(self) -> str:
        """A line for each actor: its place in its program, the peers it waits for, its stack if it computes. Takes a second at most."""
        return self._report()

    def snapshot(self) -> Snapshot:
        """The graph as it is. Takes no lock: counters may be of different moments."""
        results = self._results
        state = "TORN_DOWN" if self._is_teardown else "BROKEN" if self._broken is not None else "ALIVE"
        error = str(self._broken or "")
        counts = self._submitted, results.finished, len(results.kept)
        return Snapshot(self._plan, self.limits, state, error, self._participants, *counts, results.missing(), self._made.ends.writers)

    @classmethod
    def awaited(cls) -> set[int]:
        """The `id` of each graph that a thread of this process waits for."""
        found = set()
        for innermost in sys._current_frames().values():
            frame: FrameType | None = innermost
            while frame is not None:
                if frame.f_code is cls._await.__code__:
                    found.add(id(frame.f_locals.get("self")))
                    break
                frame = frame.f_back
        return found

    @property
    def is_teardown(self) -> bool:
        """Whether `teardown` was called."""
        return self._is_teardown

    def get_id(self) -> str:
        """The graph's id."""
        return self._plan.graph_id

    @property
    def actor_to_execution_schedule(self) -> dict[Any, list[Operation]]:
        """The handle of each actor (of a function's worker: its name) -> its operations in each execution, in order."""
        return {self._handles.get(endpoint, endpoint): list(operations) for endpoint, operations in self._plan.schedule.items()}

    def statistics(self) -> dict[str, Any]:
        """Counters: executions ``submitted`` and ``finished``, results ``kept``, and under ``channels`` those of each channel.

        By the source that a channel carries: messages ``written`` and ``waiting``; for values too large for a ring's entry the number of
        ``slots``, those ``in_use`` by values that are still held, their ``bytes``, slots ``given_away`` to values that were held for long,
        values ``passed_on`` without a copy and those ``on_loan``. Asks the actors; one that computes for more than a second is left out.

        ``steps`` by their number in pictures and ``edges`` by the index of their channel: of an edge the messages ``written`` and
        ``occupancy``, the share of its ring that is taken by messages that wait. The latest `profile` (of so many ``seconds``) has
        measured besides: ``compute_p50`` and ``compute_p99`` of steps, ``wait_...`` of steps and edges for values yet to come, of edges
        the ``bytes`` of the profile's messages, ``room_...`` (the writer's wait), ``serialize_...``, ``transfer_...`` and
        ``deserialize_...``, in seconds; under ``endpoints`` the share of the time in which each was ``busy``; ``bottleneck``, the step that
        holds the others up, as the schedule calls it (``"[2] slow"``), ``"the caller"`` or None, and ``why`` it is that one; ``count`` is
        the number of executions and messages in the profile.
        """
        results = self._results
        by_channel = counters(self._participants, self._made.ends.writers)
        said = {"submitted": self._submitted, "finished": results.finished, "kept": len(results.kept)}
        return {**said, "channels": labelled(self._participants, by_channel), **measured(self._participants, self._measured, by_channel)}

    def profile(self, filename: str | None = None, *, calls: bool = True, torch: bool = False, limit: int = MOST_SPANS) -> Profile:
        """``with graph.profile("trace.json") as profile``: record the graph's operations, in all its processes, while it runs.

        At the end `filename` is written, a trace for https://ui.perfetto.dev; ``profile.spans`` has its spans. `calls`: spans of the
        actors' ordinary calls, and of this process's, too. `torch`: run the torch profiler in every actor meanwhile, and merge its
        events. Each process keeps `limit` spans at most and counts the rest. Begins and ends at any time (``start``, ``stop``), also while
        executions are in flight. One at a time: ValueError.
        """
        attachment = Attachment(self._begin_profile, self._put_probes, self._end_profile, self._keep_measured)
        return Profile(self._participants, attachment, filename, calls=calls, torch=torch, limit=limit)

    def _begin_profile(self, profile: Profile) -> None:
        with self._lock:
            if self._stopped:
                self._raise_stopped()
            if self._profile is not None:
                raise ValueError(f"The compiled graph {self.get_id()} is being profiled already.")
            if profile.begun:
                raise ValueError("This profile has ended; make another one.")
            self._profile = profile
            profile.begun = clock()

    def _put_probes(self, execute: Probe, results: Probe) -> None:
        """Put probes on the own ends, unless the graph has stopped."""
        with self._lock:
            if self._stopped:
                return
            plan, writers = self._plan, self._made.ends.writers
            channels: dict[int, Channel] = {channel.index: channel for channel in plan.channels}
            inputs = plan.channels_of(INPUT)
            probed = list(probed_writers(execute, channels, {each.index: writers[each.index] for each in inputs}).values())
            found = [plan.channel_to(source, DRIVER) for source in plan.graph.results]
            reads = [results.read(channel, reader) for channel, reader in zip(found, self._readers, strict=True) if channel is not None]
            self._use_ends(self._one_writer(probed), reads)

    def _end_profile(self) -> None:
        with self._lock:
            self._profile = None
            if not self._is_teardown:
                self._use_ends(self._writer, [reader.try_read for reader in self._readers])

    def _keep_measured(self, digest: Digest) -> None:
        self._measured = digest

    def _one_writer(self, writers: list[ChannelWriter]) -> ChannelWriter:
        """One writer for all channels of the input."""
        return writers[0] if len(writers) == 1 else FanOutWriter(writers, lambda error: self.host.failure(error, "execute"))

    def _use_ends(self, writer: ChannelWriter, reads: list[Callable[[], Any]]) -> None:
        """Write and read through these from now on. Lock held."""
        self._try_write = writer.try_write
        self._results.read_by(reads)
        if self._fast_read is not None:
            self._fast_read = reads[0]
            self._only_read = None if self._room_wanted else self._fast_read

    @property
    def _result_buffer(self) -> dict[int, dict[int, Any]]:
        self._settle()
        return {
            index: {position: value for position, value in enumerate(outputs) if value is not TAKEN}
            for index, outputs in self._results.kept.items()
        }

    @property
    def _destructed_ref_idxs(self) -> dict[int, set[int | None]]:
        self._settle()
        return dict(self._results.unwanted)

    @property
    def _got_ref_idxs(self) -> dict[int, set[int]]:
        self._settle()
        got = {
            index: {position for position, value in enumerate(outputs) if value is TAKEN} for index, outputs in self._results.kept.items()
        }
        return {index: positions for index, positions in got.items() if positions}

    def _settle(self) -> None:
        """Wait for unwanted results and throw them away."""
        with self._lock:
            self._results.note_dropped()
            while self._results.next_is_unwanted() and not self._stopped:
                if not self._results.advance():
                    self._wait_unlocked(self.any_ready, None)

    def __str__(self) -> str:
        return f"CompiledDAG({self.get_id()})"

    def __reduce__(self) -> tuple[Any, ...]:
        made = self._made
        return restore_graph, (GraphHandle(self.host.process, self._plan, self.limits, self._names, made.actors, made.processes),)


#: Ray's name.
CompiledDAG = CompiledGraph

_LOST = "The result was lost: an exception came from outside (another thread raised it in this one) while it was being read."

T = TypeVar("T")


def _nothing() -> None:
    pass


def _channel_index(plan: Plan, source: Source) -> int:
    channel = plan.channel_to(source, DRIVER)
    assert channel is not None, f"no channel brings {source}"
    return channel.index


def _picker(number: int, output: Argument) -> Callable[[list[Any]], Any]:
    if output.key is None:
        return lambda values: values[number]
    pick = picker(output.key, output.by)
    return lambda values: pick(values[number])
