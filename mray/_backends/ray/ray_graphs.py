"""Compiling on Ray.

Timeouts are mray's: `get` waits forever unless `DAGContext.get_timeout` or its setting says otherwise, since Ray, too, ends waiters
when an actor dies.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ray.dag import DAGContext as RayContext

from mray._api.communicator import Communicator
from mray._api.dag_context import DAGContext
from mray._api.dag_node import DAGNode
from mray._backends.ray.dag import Translation
from mray._backends.ray.errors import translating
from mray._backends.ray.ray_communicator import carried_by_ray
from mray._backends.ray.ray_compiled import RayGraph
from mray._backends.ray.values import rays_own

#: Ray's timeout for waiting forever.
_FOR_EVER = -1


def compile_graph(
    root: DAGNode,
    *,
    function: Callable[[Any, dict[str, Any]], Any],
    value: Callable[[Any], Any],
    submit_timeout: float | None = None,
    buffer_size_bytes: int | None = None,
    enable_asyncio: bool = False,
    max_inflight_executions: int | None = None,
    max_buffered_results: int | None = None,
    overlap_gpu_communication: bool | None = None,
    default_communicator: Any = "create",
    when_full: str = "raise",
) -> RayGraph:
    """Let Ray compile the graph that ends in `root`; the options are those of `DAGNode.experimental_compile`.

    `function` returns Ray's remote function, `value` the value of a ref. Waits until all actors are ready. NotImplementedError or
    ValueError for a feature that only mray has.
    """
    if when_full != "raise":
        raise NotImplementedError(
            f"_when_full={when_full!r} is mray's own: a full graph of Ray's raises RayCgraphCapacityExceeded. Get results before executing "
            "again, or allow more by _max_inflight_executions."
        )
    context = DAGContext.get_current()
    RayContext.get_current().teardown_timeout = context.teardown_timeout

    def communicator(carried: Communicator) -> Any:
        return carried_by_ray(carried, [rays_own(handle) for handle in carried.get_actor_handles()])

    if isinstance(default_communicator, Communicator):
        default_communicator = communicator(default_communicator)
    in_flight = context.max_inflight_executions if max_inflight_executions is None else max_inflight_executions
    submit = context.submit_timeout if submit_timeout is None else submit_timeout
    overlap = context.overlap_gpu_communication if overlap_gpu_communication is None else overlap_gpu_communication
    translation = Translation(function=function, value=value, communicator=communicator)
    rays = translation.of(root)
    with translating:
        compiled = rays.experimental_compile(
            _submit_timeout=_FOR_EVER if submit is None else submit,
            _buffer_size_bytes=context.buffer_size_bytes if buffer_size_bytes is None else buffer_size_bytes,
            enable_asyncio=enable_asyncio,
            _max_inflight_executions=in_flight,
            _max_buffered_results=context.max_buffered_results if max_buffered_results is None else max_buffered_results,
            _overlap_gpu_communication=overlap,
            _default_communicator=default_communicator,
        )
    handles = {actor: handle for handle, actor in translation.actors.items()}
    return RayGraph(compiled, context.get_timeout, in_flight, root, handles)
