"""A compiled graph in the hands of the process that compiled it.

    execute: value -> input channel -> actors ... -> output channels -> get

`execute` does not wait for results: so many executions may be in flight, and one more is refused, or waits. Results arrive in the order
of execution; `get` out of order keeps what comes earlier until it is asked for. Dropped refs are noted by their finalizers, and their
results are thrown away when they come.

Any thread may call, and coroutines of any event loop (`mray._graph.caller.future`). One lock guards the counters and the ends; no thread
sleeps while holding it.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import weakref
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass
from os import sched_yield
from time import monotonic
from typing import Any, NoReturn, TypeVar

from mray._channel.base import NOTHING, ChannelWriter, Failed
from mray._channel.fan_out import FanOutWriter
from mray._graph.caller.completions import Completions
from mray._graph.caller.future import CompiledDAGFuture, stream, submit_when_there_is_room
from mray._graph.caller.pressure import deadline_of, get_timed_out, make_way, submit_timed_out, too_many, too_many_kept, way_is_clear
from mray._graph.caller.ref import CompiledDAGRef
from mray._graph.caller.remote import Deed, restore_graph
from mray._graph.caller.results import TAKEN, Results
from mray._graph.caller.waiting import wait_until
from mray._graph.compiler.allocate import Allocation
from mray._graph.depicted import Depicted
from mray._graph.ends import SETTLING
from mray._graph.host import GraphHost
from mray._graph.inputs import check_inputs, packer, picker
from mray._graph.measures import measured
from mray._graph.plan import DIRECT, DRIVER, INPUT, MIXED, Argument, Operation, Plan, Source
from mray._graph.watch.profile import Profile
from mray._graph.watch.report import counters, labelled, report
from mray._ipc.spin import CALLER_WINDOW, SELFISH, Patience
from mray._ipc.table import usable_cores
from mray._trace.digest import Digest
from mray._trace.span import MOST_SPANS
from mray.exceptions import RayChannelError

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Limits:
    """What a graph allows itself, and how it is called. Timeouts in seconds; ``None`` and -1 wait for ever."""

    in_flight: int = 10
    kept: int = 1000
    submit_timeout: float | None = None
    get_timeout: float | None = None
    teardown_timeout: float = 30.0
    #: With too many executions in flight, the next one waits instead of raising: so many seconds. Slow is not dead: not `submit_timeout`,
    #: which has a default.
    wait: bool = False
    wait_timeout: float | None = None
    enable_asyncio: bool = False


class CompiledGraph(Depicted):
    """A graph whose actors run in loops over channels."""

    def __init__(
        self, host: GraphHost, plan: Plan, made: Allocation, limits: Limits, handles: Mapping[str, Any] | None = None, keep: Any = None
    ) -> None:
        graph = plan.graph
        self._host = host
        self._plan = plan
        self._made = made
        self._limits = limits
        self._most = limits.in_flight
        #: actor id -> its handle.
        self._handles = handles or {}
        #: What else must live as long as the graph: refs among its constants.
        self._keep = keep
        #: endpoint -> the name of its actor's class.
        self._names = {actor: str(handle._blueprint.class_name) for actor, handle in self._handles.items()}
        self._lock = threading.Lock()
        self._is_teardown = False
        #: Why the graph can go on no more: an actor died.
        self._broken: Exception | None = None
        #: Invariant: true when torn down or broken. One look on the hot path.
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
        self._several = range(len(graph.outputs)) if graph.returns_list else None

        sources = graph.results
        self._readers = tuple(made.ends.readers[_channel_index(plan, source)] for source in sources)
        picks = [_picker(sources.index(output.source), output) for output in graph.outputs if output.source is not None]
        self._results = Results([reader.try_read for reader in self._readers], picks)
        #: The fast way of a graph with one output that needs no picking apart.
        self._fast_read = self._readers[0].try_read if len(sources) == len(graph.outputs) == 1 and graph.outputs[0].key is None else None
        #: The same; None while somebody waits for room, and must be told of every result that is taken.
        self._only_read = self._fast_read
        self._note_drop: Callable[[tuple[int, int | None]], None] = self._results.dropped.append
        self._room_wanted = 0
        #: Other processes hold it.
        self._is_exported = False
        self._completions = Completions(self)
        #: Whether `get` refuses to keep more results of others than may be kept. Ray's futures do not, and nobody who waits does.
        self._strict = not (limits.wait or limits.enable_asyncio)
        #: How many executions were submitted.
        self._submitted = 0

        #: Whether an actor of the graph lives in this very process, whose main thread must then run its program while it waits.
        cores = usable_cores()
        self._spinner: Patience = Patience(CALLER_WINDOW) if 1 < cores < made.crowd else host.spinner
        self._runs_here = any(made.processes[actor] == host.process for actor in graph.actors)
        tell = _teller(weakref.ref(self))
        #: The profile that goes on, and what the latest one that has ended has measured.
        self._profile: Profile | None = None
        self._measured: Digest | None = None
        self._watches = [host.watch_actor(actor, tell, plan.part_of(endpoint)) for endpoint, actor in made.actors.items()]
        host.graphs.add(self)

    # ------------------------------------------------------------------------------------ executing
    def execute(self, *args: Any, **kwargs: Any) -> CompiledDAGRef | list[CompiledDAGRef]:
        """Send one input through the graph; a ref, or a list of refs when the graph ends in a `MultiOutputNode`.

        Raises RayCgraphCapacityExceeded when too many executions are in flight, RayChannelError after `teardown`, ActorDiedError when an
        actor of the graph is dead, and whatever the serialization of the arguments raises.
        """
        if kwargs or len(args) != self._arity:
            if self._limits.enable_asyncio:
                raise ValueError("Use execute_async if enable_asyncio=True")
            check_inputs(self._plan.graph, args, kwargs)
        value = args[0] if self._direct else self._pack(args, kwargs)
        with self._lock:
            if self._stopped:
                self._raise_stopped()
            results = self._results
            if results.dropped:
                results.note_dropped()
            if self._submitted - results.finished >= self._most:
                make_way(self)
            if not self._try_write(value):
                self._write_later(value)
            # Not before: waiting gives the lock away.
            index = self._submitted
            self._submitted = index + 1
        if self._several is None:
            return CompiledDAGRef(self, index)
        return [CompiledDAGRef(self, index, output) for output in self._several]

    async def execute_async(self, *args: Any, **kwargs: Any) -> CompiledDAGFuture | list[CompiledDAGFuture]:
        """As `execute`, for graphs compiled with ``enable_asyncio=True``: a future, or a list of them, to be awaited in any event loop."""
        return await self._execute_async(args, kwargs)

    async def _execute_async(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CompiledDAGFuture | list[CompiledDAGFuture]:
        if not self._limits.enable_asyncio:
            raise ValueError("Use execute if enable_asyncio=False")
        value = self._checked(args, kwargs)
        index = self._submit_nowait(value, self._limits.wait)
        if index < 0:
            index = await submit_when_there_is_room(self, value)
        return self._futures(index)

    def stream(self, inputs: Iterable[Any] | AsyncIterable[Any]) -> AsyncIterator[Any]:
        """``async for value in graph.stream(inputs)``: execute the graph with each input, and give the results in the order of the inputs.

        `inputs` may be asynchronous. As many executions are in flight as the graph allows; the next input is asked for when there is room.
        A method's exception is raised in its turn and ends the stream; executions that are in flight then are dropped.
        """
        if not self._limits.enable_asyncio:
            raise ValueError("Use execute if enable_asyncio=False")
        return stream(self, inputs)

    def _checked(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        check_inputs(self._plan.graph, args, kwargs)
        return args[0] if self._direct else self._pack(args, kwargs)

    def _futures(self, index: int) -> CompiledDAGFuture | list[CompiledDAGFuture]:
        if self._several is None:
            return CompiledDAGFuture(self, index)
        return [CompiledDAGFuture(self, index, output) for output in self._several]

    def _submit_nowait(self, value: Any, wait: bool) -> int:
        """Submit; the execution's index, or -1 when there is no room now. Without `wait` too many in flight are an error."""
        with self._lock:
            if self._stopped:
                self._raise_stopped()
            if not way_is_clear(self):
                if not wait and not self._results.next_is_unwanted():
                    raise too_many(self)
                return -1
            if not self._try_write(value):
                return -1
            index = self._submitted
            self._submitted = index + 1
        return index

    def _write_later(self, value: Any) -> None:
        """The input channel is full: an actor is behind by a whole ring."""
        timeout = self._limits.submit_timeout
        deadline = deadline_of(timeout)
        while not self._try_write(value):
            if not self._wait_unlocked(self._writer.has_room, deadline):
                raise self._unlocked(lambda: submit_timed_out(self, timeout))
            if self._stopped:
                self._raise_stopped()

    def _keeps_most(self) -> bool:
        return len(self._results.kept) >= self._limits.kept

    def _note_drop_and_wake(self, dropped: tuple[int, int | None]) -> None:
        self._results.dropped.append(dropped)
        self._host.defer(_nothing)

    def _takes_input(self) -> bool:
        try:
            return self._writer.has_room()
        except ValueError:  # another thread has just torn the graph down and let go of the memory
            return True

    def _want_room(self, change: int) -> None:
        """So many more wait for room: until they have it, taking or dropping a result wakes them."""
        self._room_wanted += change
        if self._room_wanted:
            self._only_read = None
            self._note_drop = self._note_drop_and_wake
        else:
            self._only_read = self._fast_read
            self._note_drop = self._results.dropped.append

    # ------------------------------------------------------------------------------------ fetching
    def _fetch(self, ref: CompiledDAGRef, index: int, output: int | None, timeout: float | None, deadline: float | None = None) -> Any:
        """The value behind a ref, which is done once it has it."""
        read = self._only_read
        results = self._results
        value: Any = NOTHING
        if read is not None and index == results.finished and not self._stopped and not results.unwanted and self._lock.acquire(False):
            try:
                # Other threads may have come first.
                if index == results.finished and self._only_read is read:
                    value = read()
                    if value is NOTHING and timeout is None:
                        value = self._spin(read)
                    if value is not NOTHING:
                        results.skip_one()
                        ref._done = True
            finally:
                self._lock.release()
        if value is NOTHING:
            value = self._await(ref, index, output, timeout, deadline)
        return value if value.__class__ is not Failed else self._open(value)

    def _open(self, value: Any) -> Any:
        """The value of a result, or its exception."""
        if value.__class__ is Failed:
            raise self._error(value)
        return value

    def _error(self, failed: Failed) -> BaseException:
        error = self._host.exception(failed.payload)
        if failed.fatal:
            self._break(RayChannelError("Channel closed: an operation that several actors share has failed."))
        return error

    def _spin(self, read: Callable[[], Any]) -> Any:
        spinner = self._spinner
        if self._runs_here or not spinner.may_spin():
            return NOTHING
        begun = monotonic()
        until = begun + spinner.window
        politely = begun + SELFISH
        while True:
            for _ in _SOME:
                value = read()
                if value is not NOTHING:
                    spinner.succeeded()
                    return value
            now = monotonic()
            if self._stopped or now > until:
                spinner.failed()
                return NOTHING
            if now > politely:
                sched_yield()

    def _await(self, ref: CompiledDAGRef, index: int, output: int | None, timeout: float | None, deadline: float | None) -> Any:
        if timeout is None:
            timeout = self._limits.get_timeout
        if deadline is None:
            deadline = deadline_of(timeout)
        results = self._results
        with self._lock:
            while (value := self._claim(ref, index, output)) is NOTHING:
                if not self._wait_unlocked(lambda: index < results.finished or self._worth_reading(), deadline):
                    raise self._unlocked(lambda: get_timed_out(self, index, timeout))
        if self._room_wanted:
            self._host.wake()
        return value

    def _claim(self, ref: CompiledDAGRef | CompiledDAGFuture | None, index: int, output: int | None) -> Any:
        """The value behind a ref (or that another process has asked for), or NOTHING when it has not come. Lock held."""
        results = self._results
        while index >= results.finished:
            if self._is_teardown:
                self._raise_stopped()
            if results.dropped:
                results.note_dropped()
            if self._strict and self._keeps_most():
                raise too_many_kept(self)
            if not results.advance():
                if self._broken is not None:
                    self._raise_stopped()
                return NOTHING
        if index not in results.kept:
            self._raise_stopped()
        value = results.take(index, output)
        if ref is not None:
            ref._done = True
        return value

    def _read_ahead(self, index: int) -> None:
        """Read what has come, up to the results of execution `index`, and keep it."""
        results = self._results
        with self._lock:
            if results.dropped:
                results.note_dropped()
            while index >= results.finished and not self._is_teardown:
                if self._strict and self._keeps_most():
                    raise too_many_kept(self)
                if not results.advance():
                    break

    def _put_back(self, ref: CompiledDAGRef, index: int, output: int | None, value: Any) -> None:
        with self._lock:
            self._results.put_back(index, output, value)
            ref._done = False

    # ------------------------------------------------------------------------------------ waiting
    def _any_ready(self) -> bool:
        try:
            # Every reader is asked: asking also tells a writer that waits for room.
            return True in [reader.ready() for reader in self._readers]
        except ValueError:  # another thread has just torn the graph down and let go of the memory
            return True

    def _worth_reading(self) -> bool:
        """Whether what has come decides the first unfinished execution: all that was missing, or a failure.

        Woken by every output, the thread goes back to sleep at once for all but the one that decides.
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
        """Give the lock away while waiting; returns also when the graph stops. False when the deadline has passed."""
        self._lock.release()
        try:
            return self._wait(lambda: self._stopped or predicate(), deadline)
        finally:
            self._lock.acquire()

    def _unlocked(self, function: Callable[[], T]) -> T:
        """Call a function that takes its time, without the lock."""
        self._lock.release()
        try:
            return function()
        finally:
            self._lock.acquire()

    def _wait(self, predicate: Callable[[], bool], deadline: float | None) -> bool:
        if len(self._readers) > 1 and not self._runs_here and self._spin_until(predicate, deadline):
            return True
        return wait_until(self._host, self._runs_here, predicate, deadline)

    def _spin_until(self, predicate: Callable[[], bool], deadline: float | None) -> bool:
        """Wait a few microseconds for several outputs (`_spin` has waited for a single one)."""
        spinner = self._spinner
        if not spinner.may_spin():
            return False
        until = monotonic() + spinner.window
        if deadline is not None and deadline < until:
            until = deadline
        is_crowded = self._host.spinner.is_crowded
        while monotonic() < until:
            if predicate():
                spinner.succeeded()
                return True
            if is_crowded():
                # Actors compute at the same time, and one of them waits for the core that this loop would hold.
                return False
            sched_yield()
        spinner.failed()
        return False

    def _raise_stopped(self) -> NoReturn:
        if self._broken is not None:
            raise self._broken
        raise RayChannelError("Channel closed.")

    # ------------------------------------------------------------------------------------ ending
    def teardown(self, kill_actors: bool = False) -> None:
        """End the graph; its actors are free for other work, or killed. Idempotent.

        Waits for methods that are running; after `DAGContext.teardown_timeout` seconds it says so in the log and goes on without them.
        """
        self._end(self._limits.teardown_timeout, kill_actors)

    def abandon(self) -> None:
        """The session ends: `teardown` without waiting for anybody, unless traces are yet to be written."""
        self._end(self._limits.teardown_timeout if self._made.profilers.torch else 0.0, False)

    def _end(self, patience: float, kill_actors: bool) -> None:
        with self._lock:
            if self._is_teardown:
                return
            self._is_teardown = self._stopped = True
        self._host.graphs.discard(self)
        for cancel in self._watches:
            cancel()
        self._completions.look()
        pendings = self._made.stop()
        if patience and not self._host.wait_until(lambda: all(pending.done() for pending in pendings), patience):
            logger.warning("Compiled graph %s: an actor still computes %s s after teardown().", self.get_id(), patience)
        if kill_actors:
            self._host.kill_actors(list(self._made.actors.values()))
        else:
            self._made.end_workers()
        self._made.release(min(patience, SETTLING))

    def _on_death(self, error: Exception) -> None:
        """Reading thread: an actor of the graph is dead."""
        self._break(error)

    def _break(self, error: Exception) -> None:
        """The graph can go on no more: those who wait learn it, the actors leave the graph."""
        if not self._stopped:
            self._broken = error
            self._stopped = True
            self._made.stop()
            self._completions.look()

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
            self._host.defer(end)

    # ------------------------------------------------------------------------------------ looking
    def report(self) -> str:
        """Who waits for whom: where each actor is in its program, with the Python stack of those that compute. Takes a second at most."""
        return report(self)

    @property
    def is_teardown(self) -> bool:
        """Whether `teardown` was called."""
        return self._is_teardown

    def get_id(self) -> str:
        """The graph's id."""
        return self._plan.graph_id

    @property
    def actor_to_execution_schedule(self) -> dict[Any, list[Operation]]:
        """The handle of each actor (of a function's worker: its name) -> what it does in each execution, in order."""
        return {self._handles.get(endpoint, endpoint): list(operations) for endpoint, operations in self._plan.schedule.items()}

    def statistics(self) -> dict[str, Any]:
        """Counters: executions ``submitted`` and ``finished``, results ``kept``, and under ``channels`` those of each channel.

        By what the channel carries: messages ``written`` and ``waiting``; for values too large for a ring's entry the ``slots`` that there
        are, those ``in_use`` by values that somebody still holds, their ``bytes``, slots ``given_away`` to values that were held for
        long, values ``passed_on`` without a copy and those ``on_loan``. Asks the actors; one that computes for more than a second is
        left out.

        ``steps`` by their number in pictures and ``edges`` by the index of their channel: of an edge the messages ``written`` and
        ``occupancy``, the share of its ring that is taken by messages that wait. What the latest `profile` (of so many ``seconds``) has
        measured besides: ``compute_p50`` and ``compute_p99`` of steps, ``wait_...`` of steps and edges for what is yet to come, of edges
        the ``bytes`` of the profile's messages, ``room_...`` (the writer's wait), ``serialize_...``, ``transfer_...`` and
        ``deserialize_...``, in seconds; under ``endpoints`` for which share of the time each was ``busy``; ``bottleneck``, the step that
        holds the others up, as the schedule calls it (``"[2] slow"``), ``"the caller"`` or None, and ``why`` it is that one; ``count`` is
        how many executions and messages the profile has seen.
        """
        results = self._results
        by_channel = counters(self)
        said = {"submitted": self._submitted, "finished": results.finished, "kept": len(results.kept)}
        return {**said, "channels": labelled(self, by_channel), **measured(self, self._measured, by_channel)}

    def profile(self, filename: str | None = None, *, calls: bool = True, torch: bool = False, limit: int = MOST_SPANS) -> Profile:
        """``with graph.profile("trace.json") as profile``: note down what the graph does, in all its processes, while it runs.

        At the end `filename` is written, a trace for https://ui.perfetto.dev; ``profile.spans`` has what is in it. `calls`: spans of the
        actors' ordinary calls, and of this process's, too. `torch`: run the torch profiler in every actor meanwhile, and merge what it
        says. Each process keeps `limit` spans at most and counts the rest. Begins and ends at any time (``start``, ``stop``), also while
        executions are in flight. One at a time: ValueError.
        """
        return Profile(self, filename, calls=calls, torch=torch, limit=limit)

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
        """Throw away what nobody wants, waiting for it."""
        with self._lock:
            self._results.note_dropped()
            while self._results.next_is_unwanted() and not self._stopped:
                if not self._results.advance():
                    self._wait_unlocked(self._any_ready, None)

    def __str__(self) -> str:
        return f"CompiledDAG({self.get_id()})"

    def __reduce__(self) -> tuple[Any, ...]:
        self._is_exported = True
        return restore_graph, (Deed(self._host.process, self._plan, self._limits, self._names, self._made.processes),)


#: Ray's name.
CompiledDAG = CompiledGraph

_SOME = range(8)

T = TypeVar("T")


def _nothing() -> None:
    pass


def _channel_index(plan: Plan, source: Source) -> int:
    channel = plan.channel_to(source, DRIVER)
    assert channel is not None, f"nobody brings {source}"
    return channel.index


def _picker(number: int, output: Argument) -> Callable[[list[Any]], Any]:
    if output.key is None:
        return lambda values: values[number]
    pick = picker(output.key, output.by)
    return lambda values: pick(values[number])


def _teller(graph: weakref.ref[CompiledGraph]) -> Callable[[Exception], None]:
    def tell(error: Exception) -> None:
        alive = graph()
        if alive is not None:
            alive._on_death(error)

    return tell
