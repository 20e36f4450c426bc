"""A compiled graph in the hands of the process that compiled it.

    execute: value -> input channel -> actors ... -> output channels -> get

`execute` does not wait for results: so many executions may be in flight, and one more is refused. Results arrive in the order of
execution; `get` out of order keeps what comes earlier until it is asked for. Dropped refs are noted by their finalizers, and their
results are thrown away when they come.

Any thread may call. One lock guards the counters and the ends; nobody sleeps while holding it.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from os import sched_yield
from time import monotonic
from typing import Any, NoReturn

from mray._channel.base import NOTHING, Failed
from mray._graph.allocate import Allocation
from mray._graph.host import GraphHost
from mray._graph.inputs import check_inputs, packer, picker
from mray._graph.plan import DIRECT, INPUT, MIXED, Argument, Operation, Plan, Source
from mray._graph.ref import CompiledDAGRef
from mray._graph.results import TAKEN, Results
from mray._ipc.spin import CALLER_WINDOW, SELFISH, Patience
from mray._ipc.table import usable_cores
from mray.exceptions import RayCgraphCapacityExceeded, RayChannelError, RayChannelTimeoutError

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Limits:
    """What a graph allows itself. Timeouts in seconds; ``None`` and -1 wait for ever."""

    in_flight: int = 10
    kept: int = 1000
    submit_timeout: float | None = None
    get_timeout: float | None = None
    teardown_timeout: float = 30.0


class CompiledGraph:
    """A graph whose actors run in loops over channels."""

    def __init__(self, host: GraphHost, plan: Plan, made: Allocation, limits: Limits, keep: object = None) -> None:
        graph = plan.graph
        self._host = host
        self._plan = plan
        self._made = made
        self._limits = limits
        self._most = limits.in_flight
        #: What must live as long as the graph: handles of its actors, refs among its constants.
        self._keep = keep
        self._lock = threading.Lock()
        self._is_teardown = False
        #: Why the graph can go on no more: an actor died.
        self._broken: Exception | None = None
        #: Invariant: true when torn down or broken. One look on the hot path.
        self._stopped = False

        self._writer = made.ends.writers[_channel_index(plan, INPUT)]
        self._try_write = self._writer.try_write
        #: How many positional arguments need no further check.
        self._arity = -1 if graph.keywords or graph.form == MIXED else graph.positional
        self._direct = graph.form == DIRECT
        self._pack = packer(graph)
        self._several = range(len(graph.outputs)) if graph.returns_list else None

        sources = graph.results
        self._readers = tuple(made.ends.readers[_channel_index(plan, source)] for source in sources)
        picks = [_picker(sources.index(output.source), output) for output in graph.outputs if output.source is not None]
        self._results = Results([reader.try_read for reader in self._readers], picks)
        #: The fast way of a graph with one output that needs no picking apart.
        self._only_read = self._readers[0].try_read if len(sources) == len(graph.outputs) == 1 and graph.outputs[0].key is None else None
        self._note_drop = self._results.dropped.append
        #: How many executions were submitted.
        self._submitted = 0

        #: Whether an actor of the graph lives in this very process, whose main thread must then run its program while it waits.
        cores = usable_cores()
        self._spinner: Patience = Patience(CALLER_WINDOW) if 1 < cores < made.crowd else host.spinner
        self._runs_here = any(made.processes[actor] == host.process for actor in graph.actors)
        tell = _teller(weakref.ref(self))
        self._watches = [host.watch_actor(actor, tell) for actor in made.actors.values()]
        host.graphs.add(self)

    # ------------------------------------------------------------------------------------ executing
    def execute(self, *args: Any, **kwargs: Any) -> CompiledDAGRef | list[CompiledDAGRef]:
        """Send one input through the graph; a ref, or a list of refs when the graph ends in a `MultiOutputNode`.

        Raises RayCgraphCapacityExceeded when too many executions are in flight, RayChannelError after `teardown`, ActorDiedError when an
        actor of the graph is dead, and whatever the serialization of the arguments raises.
        """
        if kwargs or len(args) != self._arity:
            check_inputs(self._plan.graph, args, kwargs)
        value = args[0] if self._direct else self._pack(args, kwargs)
        with self._lock:
            if self._stopped:
                self._raise_stopped()
            results = self._results
            if results.dropped:
                results.note_dropped()
            if self._submitted - results.finished >= self._most:
                self._make_way()
            if not self._try_write(value):
                self._write_later(value)
            # Not before: waiting gives the lock away.
            index = self._submitted
            self._submitted = index + 1
        if self._several is None:
            return CompiledDAGRef(self, index)
        return [CompiledDAGRef(self, index, output) for output in self._several]

    def _write_later(self, value: Any) -> None:
        """The input channel is full: an actor is behind by a whole ring."""
        timeout = self._limits.submit_timeout
        deadline = _deadline(timeout)
        while not self._try_write(value):
            if not self._wait_unlocked(self._writer.has_room, deadline):
                raise RayChannelTimeoutError(
                    f"The compiled graph took no input within {timeout} seconds. If the execution is expected to take a long "
                    "time, increase RAY_CGRAPH_submit_timeout. Otherwise, this may indicate that execution is hanging."
                )
            if self._stopped:
                self._raise_stopped()

    def _make_way(self) -> None:
        """Too many are in flight: wait for those that nobody will read and throw them away, or refuse."""
        results = self._results
        while results.next_is_unwanted():
            if not results.advance():
                self._wait_unlocked(self._any_ready, None)
        in_flight = self._submitted - results.finished
        if in_flight >= self._most:
            raise RayCgraphCapacityExceeded(
                f"The compiled graph can't have more than {self._most} in-flight executions, and you currently have {in_flight} in-flight "
                "executions. Retrieve an output using ray.get before submitting more requests or increase `_max_inflight_executions`. "
                "`dag.experimental_compile(_max_inflight_executions=...)`"
            )

    # ------------------------------------------------------------------------------------ fetching
    def _fetch(self, ref: CompiledDAGRef, index: int, output: int | None, timeout: float | None) -> Any:
        """The value behind a ref, which is done once it has it."""
        read = self._only_read
        results = self._results
        if read is not None and index == results.finished and not self._stopped and not results.unwanted and self._lock.acquire(False):
            try:
                value = read() if index == results.finished else NOTHING
                if value is NOTHING and timeout is None:
                    value = self._spin(read)
                if value is not NOTHING:
                    results.skip_one()
                    ref._done = True
            finally:
                self._lock.release()
        else:
            value = NOTHING
        if value is NOTHING:
            value = self._await(ref, index, output, timeout)
        if value.__class__ is Failed:
            error = self._host.exception(value.payload)
            if value.fatal:
                self._break(RayChannelError("Channel closed: an operation that several actors share has failed."))
            raise error
        return value

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

    def _await(self, ref: CompiledDAGRef, index: int, output: int | None, timeout: float | None) -> Any:
        if timeout is None:
            timeout = self._limits.get_timeout
        deadline = _deadline(timeout)
        results = self._results
        with self._lock:
            while index >= results.finished:
                if self._is_teardown:
                    self._raise_stopped()
                if results.dropped:
                    results.note_dropped()
                if len(results.kept) >= self._limits.kept:
                    self._raise_kept()
                if results.advance():
                    continue
                if self._broken is not None:
                    self._raise_stopped()
                if not self._wait_unlocked(lambda: index < results.finished or self._worth_reading(), deadline):
                    raise RayChannelTimeoutError(
                        f"Execution {index} of the compiled graph brought no result within {timeout} seconds. If it is expected to take "
                        "longer, give `get` a larger timeout; otherwise, this may indicate that the execution is hanging."
                    )
            if index not in results.kept:
                self._raise_stopped()
            value = results.take(index, output)
            ref._done = True
        return value

    def _raise_kept(self) -> NoReturn:
        raise RayCgraphCapacityExceeded(
            f"The compiled graph can't have more than {self._limits.kept} buffered results, and you currently have "
            f"{len(self._results.kept)} buffered results. Call `ray.get()` on CompiledDAGRef's (or await on CompiledDAGFuture's) to "
            "retrieve results, or increase `_max_buffered_results` if buffering is desired, note that this will increase driver "
            "memory usage."
        )

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

    def _wait(self, predicate: Callable[[], bool], deadline: float | None) -> bool:
        service = self._host.service
        while True:
            remaining = None if deadline is None else max(deadline - monotonic(), 0.0)
            if not self._runs_here or service is None or threading.current_thread() is not threading.main_thread():
                if len(self._readers) > 1 and self._spin_until(predicate, remaining):
                    return True
                return self._host.wait_until(predicate, remaining)
            # This thread is also the one that runs the program of an actor that this graph waits for.
            service.run(predicate)
            if predicate():
                return True
            if not self._host.wait_until(lambda: predicate() or service.ready(), remaining):
                return False

    def _spin_until(self, predicate: Callable[[], bool], timeout: float | None) -> bool:
        """Wait a few microseconds for several outputs (`_spin` has waited for a single one)."""
        spinner = self._spinner
        if not spinner.may_spin():
            return False
        until = monotonic() + (spinner.window if timeout is None else min(timeout, spinner.window))
        while monotonic() < until:
            if predicate():
                spinner.succeeded()
                return True
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
        """The session ends: `teardown` without waiting for anybody."""
        self._end(0.0, False)

    def _end(self, patience: float, kill_actors: bool) -> None:
        with self._lock:
            if self._is_teardown:
                return
            self._is_teardown = self._stopped = True
        self._host.graphs.discard(self)
        for cancel in self._watches:
            cancel()
        pendings = self._made.stop()
        if patience and not self._host.wait_until(lambda: all(pending.done() for pending in pendings), patience):
            logger.warning("Compiled graph %s: an actor still computes %s s after teardown().", self.get_id(), patience)
        if kill_actors:
            self._host.kill_actors(list(self._made.actors.values()))
        else:
            self._made.end_workers()
        self._made.release()

    def _on_death(self, error: Exception) -> None:
        """Reading thread: an actor of the graph is dead."""
        self._break(error)

    def _break(self, error: Exception) -> None:
        """The graph can go on no more: those who wait learn it, the actors leave the graph."""
        if not self._stopped:
            self._broken = error
            self._stopped = True
            self._made.stop()

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
    @property
    def is_teardown(self) -> bool:
        """Whether `teardown` was called."""
        return self._is_teardown

    def get_id(self) -> str:
        """The graph's id."""
        return self._plan.graph_id

    @property
    def actor_to_execution_schedule(self) -> dict[str, tuple[Operation, ...]]:
        """actor id -> what it does in each execution, in order."""
        return dict(self._plan.schedule)

    def statistics(self) -> dict[str, int]:
        """Executions submitted and finished, results kept, and the counters of the input channel."""
        results = self._results
        return {"submitted": self._submitted, "finished": results.finished, "kept": len(results.kept), **self._writer.statistics()}

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

    def __reduce__(self) -> NoReturn:
        raise ValueError("CompiledDAG cannot be pickled.")


#: Ray's name.
CompiledDAG = CompiledGraph

_SOME = range(8)


def _deadline(timeout: float | None) -> float | None:
    return None if timeout is None or timeout < 0 else monotonic() + timeout


def _channel_index(plan: Plan, source: Source) -> int:
    channel = plan.channel_of(source)
    assert channel is not None, f"nobody carries {source}"
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
