"""Back-pressure: what happens when a graph is called faster than its results are read.

So many executions may be in flight. One more is an error, which is Ray's way, or it waits (`Limits.wait`):

    results of dropped refs      are read and thrown away
    the oldest result            is read and kept for a later `get`, as long as no more are kept than may be
    then                         another thread, coroutine or process has to take one

A thread that would wait for itself is told so. One that waits for others says so in the log after a while, and every limit of time is
kept.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from mray._common.clock import now
from mray._graph.watch.report import report
from mray.exceptions import RayCgraphCapacityExceeded, RayChannelTimeoutError

if TYPE_CHECKING:
    from mray._graph.caller.compiled import CompiledGraph

logger = logging.getLogger(__name__)

#: Seconds after which an `execute` that waits for room says so in the log.
PATIENCE = 10.0


def way_is_clear(graph: CompiledGraph) -> bool:
    """Whether one more may be in flight, once results that nobody wants, or that may be kept, are out of the way.

    Does not wait. Graph's lock held, here and below.
    """
    results = graph._results
    if results.dropped:
        results.note_dropped()
    while graph._submitted - results.finished >= graph._most:
        if not results.next_is_unwanted() and (not graph._limits.wait or graph._keeps_most()):
            return False
        if graph._is_teardown or not results.advance():
            return False
    return True


def make_way(graph: CompiledGraph) -> None:
    """Too many are in flight: refuse, or wait for the first of them, giving the lock away meanwhile."""
    timeout = graph._limits.wait_timeout
    deadline = deadline_of(timeout)
    complaint: float | None = now() + PATIENCE
    graph._want_room(1)
    try:
        while not way_is_clear(graph):
            if graph._stopped:
                graph._raise_stopped()
            stuck = graph._keeps_most() and not graph._results.next_is_unwanted()
            if not graph._results.next_is_unwanted():
                if not graph._limits.wait:
                    raise too_many(graph)
                if stuck and not _others_may_read(graph):
                    raise _alone(graph)
            moments = [moment for moment in (deadline, complaint) if moment is not None]
            if _wait(graph, stuck, min(moments, default=None)):
                continue
            if deadline is not None and now() >= deadline:
                raise graph._unlocked(lambda: submit_timed_out(graph, timeout))
            complaint = None
            graph._unlocked(lambda: complain_of_waiting(graph))
    finally:
        graph._want_room(-1)


def _wait(graph: CompiledGraph, stuck: bool, deadline: float | None) -> bool:
    results = graph._results

    def may_be_clear() -> bool:
        if results.dropped or graph._submitted - results.finished < graph._most or (stuck and not graph._keeps_most()):
            return True
        return not stuck and graph._worth_reading()

    return graph._wait_unlocked(may_be_clear, deadline)


def _others_may_read(graph: CompiledGraph) -> bool:
    """Whether there is a thread, or another process, that could take results."""
    own = threading.current_thread()
    return graph._is_exported or any(thread is not own and not thread.name.startswith("mray-") for thread in threading.enumerate())


def deadline_of(timeout: float | None) -> float | None:
    """When a timeout that begins now has passed; None and negative ones never do."""
    return None if timeout is None or timeout < 0 else now() + timeout


def too_many(graph: CompiledGraph) -> RayCgraphCapacityExceeded:
    """The error for one execution more than may be in flight."""
    return RayCgraphCapacityExceeded(too_many_text(graph._most, graph._submitted - graph._results.finished))


def too_many_text(most: int, in_flight: int) -> str:
    """Ray's words for it."""
    return (
        f"The compiled graph can't have more than {most} in-flight executions, and you currently have {in_flight} in-flight "
        "executions. Retrieve an output using ray.get before submitting more requests or increase `_max_inflight_executions`. "
        "`dag.experimental_compile(_max_inflight_executions=...)`"
    )


def too_many_kept(graph: CompiledGraph) -> RayCgraphCapacityExceeded:
    """The error for one result more than may be kept."""
    return RayCgraphCapacityExceeded(
        f"The compiled graph can't have more than {graph._limits.kept} buffered results, and you currently have "
        f"{len(graph._results.kept)} buffered results. Call `ray.get()` on CompiledDAGRef's (or await on CompiledDAGFuture's) to "
        "retrieve results, or increase `_max_buffered_results` if buffering is desired, note that this will increase driver "
        "memory usage."
    )


def _alone(graph: CompiledGraph) -> RayCgraphCapacityExceeded:
    return RayCgraphCapacityExceeded(
        f"The compiled graph has {graph._submitted - graph._results.finished} in-flight executions and {len(graph._results.kept)} "
        "buffered results, which is all that it may have, and there is no other thread that could retrieve any: this one would wait "
        "for ever. Call `ray.get()` on CompiledDAGRef's before submitting more, or increase `_max_buffered_results`."
    )


# ----------------------------------------------------------------------- with a report: without the lock
def submit_timed_out(graph: CompiledGraph, timeout: float | None) -> RayChannelTimeoutError:
    """The error of an execution that could not be submitted in time."""
    return RayChannelTimeoutError(
        f"The compiled graph took no input within {timeout} seconds. If the execution is expected to take a long time, increase "
        f"RAY_CGRAPH_submit_timeout. Otherwise, this may indicate that execution is hanging.\n{report(graph, timeout)}"
    )


def get_timed_out(graph: CompiledGraph, index: int, timeout: float | None) -> RayChannelTimeoutError:
    """The error of a result that did not come in time."""
    return RayChannelTimeoutError(
        f"Execution {index} of the compiled graph brought no result within {timeout} seconds. If it is expected to take longer, give "
        f"`get` a larger timeout; otherwise, this may indicate that the execution is hanging.\n{report(graph, timeout)}"
    )


def complain_of_waiting(graph: CompiledGraph) -> None:
    """Somebody has waited for room for long."""
    logger.warning("execute() has waited %g s for results of the compiled graph to be retrieved.\n%s", PATIENCE, report(graph))
