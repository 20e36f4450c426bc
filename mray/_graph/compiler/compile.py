"""Compiling a graph: the passes, in order."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from types import NoneType
from typing import Any

from mray._api.accelerator_transport import registered_accelerator
from mray._api.actor import ActorClass
from mray._api.communicator import Communicator
from mray._api.dag_context import DAGContext
from mray._api.dag_node import DAGNode
from mray._api.decorator import make_remote
from mray._channel.select import DEVICE
from mray._channel.site import Site
from mray._graph.caller.allocation import Allocation
from mray._graph.caller.compiled import CompiledGraph
from mray._graph.caller.graph_limits import Limits
from mray._graph.caller.liveness import Liveness, LivenessReader
from mray._graph.communicators import Carrier, NcclGroup, invitations, nccl_groups, with_streams
from mray._graph.compiler.deadlock import check_deadlock, find_circle
from mray._graph.compiler.resolve import device_pairs, resolve
from mray._graph.compiler.schedule import schedule
from mray._graph.compiler.shared_gpus import edges_between_parts, hint_at_turns, start_mps
from mray._graph.compiler.validate import Validated, validate
from mray._graph.depicted import draw_schedule_if_asked
from mray._graph.host import GraphHost
from mray._graph.plan import Graph, Plan
from mray._graph.sites import ask_sites, endpoints_to_ask, owners
from mray._graph.trials import try_pairs
from mray._ipc.table import usable_cores
from mray._objects.serializer import serialize

#: Options that apply to the worker of a plain function.
_OPTIONS_OF_WORKERS = ("num_cpus", "num_gpus", "memory", "resources", "accelerator_type", "runtime_env", "scheduling_strategy")


def plan_graph(
    graph: Graph, in_flight: int, sites: Mapping[str, Site] | None = None, communicators: Sequence[Carrier] = (), *, overlap: bool = False
) -> Plan:
    """`sites`: the devices of endpoints, where they matter."""
    known = nccl_groups(communicators, sites or {})
    channels, size, groups = resolve(graph, in_flight, sites, known, len(communicators))
    operations = schedule(graph, channels)
    if find_circle(operations, channels, graph.steps) is not None:
        # A relay may wait for its own reader.
        channels, size, groups = resolve(graph, in_flight, sites, known, len(communicators), relays=False)
        operations = schedule(graph, channels)
        check_deadlock(operations, channels, graph.steps)
    return Plan(uuid.uuid4().hex, graph, channels, operations, size, groups, overlap)


def compile_graph(
    host: GraphHost,
    root: DAGNode,
    *,
    submit_timeout: float | None = None,
    buffer_size_bytes: int | None = None,
    enable_asyncio: bool = False,
    max_inflight_executions: int | None = None,
    max_buffered_results: int | None = None,
    overlap_gpu_communication: bool | None = None,
    default_communicator: Any = "create",
    when_full: str = "raise",
) -> CompiledGraph:
    """Compile the graph that ends in `root`; the options are those of `DAGNode.experimental_compile`.

    Waits until all actors live and have allocated their part. ValueError or NotImplementedError for a graph that cannot be compiled,
    ActorDiedError for a dead actor; nothing is left behind.
    """
    context = DAGContext.get_current()
    if buffer_size_bytes is None:
        buffer_size_bytes = context.buffer_size_bytes
    given: object = buffer_size_bytes
    if not isinstance(given, int) or given <= 0:
        raise ValueError(f"`buffer_size_bytes` must be a positive integer, found {buffer_size_bytes}")
    if isinstance(default_communicator, str) and default_communicator != "create":
        raise ValueError(f"The only allowed string for default_communicator is 'create', got {default_communicator}")
    if not isinstance(default_communicator, (str, Communicator, NoneType)):
        raise ValueError(f"The default_communicator must be None, a string, or a Communicator, got {type(default_communicator)}")
    if when_full not in ("raise", "wait"):
        raise ValueError(f"`_when_full` must be 'raise' or 'wait', got {when_full!r}")
    limits = Limits(
        in_flight=context.max_inflight_executions if max_inflight_executions is None else max_inflight_executions,
        kept=context.max_buffered_results if max_buffered_results is None else max_buffered_results,
        submit_timeout=context.submit_timeout if submit_timeout is None else submit_timeout,
        get_timeout=context.get_timeout,
        teardown_timeout=context.teardown_timeout,
        wait=when_full == "wait",
        wait_timeout=submit_timeout,
        enable_asyncio=bool(enable_asyncio),
    )
    default = default_communicator if isinstance(default_communicator, Communicator) else None
    validated = validate(root, usable_cores(), default, registered_accelerator())
    constants = {actor: serialize(values) for actor, values in validated.constants.items()}
    workers: dict[str, Any] = {}
    overlap = context.overlap_gpu_communication if overlap_gpu_communication is None else overlap_gpu_communication
    try:
        sites = _sites(host, validated, workers)
        plan = plan_graph(validated.graph, limits.in_flight, sites, validated.communicators, overlap=overlap)
        draw_schedule_if_asked(plan, {actor: handle.__actor_outline__().class_name for actor, handle in validated.handles.items()})
        workers.update({each: lease_worker(options) for each, options in validated.workers.items() if each not in workers})
        groups = [NcclGroup(group, [workers.get(each) or validated.handles[each] for each in group]) for group in plan.groups]
        communicators = with_streams([*validated.communicators, *groups], overlap)
        ids = {endpoint: workers[endpoint].__actor_outline__().key if endpoint in workers else endpoint for endpoint in plan.graph.actors}
        processes = {endpoint: host.actor_process(actor) for endpoint, actor in ids.items()}
    except BaseException:
        workers.clear()  # the exception's traceback must not hold them
        raise
    made = Allocation(host, plan, ids, processes, workers, ([each.refs for each in constants.values()], communicators))
    made.make({actor: (each.form, each.to_bytes()) for actor, each in constants.items()}, invitations(communicators))
    with made.until_owned():
        if any(channel.transport in DEVICE for channel in plan.channels) or any(isinstance(each, NcclGroup) for each in communicators):
            liveness = Liveness(site.pid for site in sites.values() if not site.is_driver)
            made.ends.readers = {number: LivenessReader(reader, liveness) for number, reader in made.ends.readers.items()}
            made.ends.leave.append(liveness.close)
        compiled: CompiledGraph = host.graph_kind(host, plan, made, limits, validated.handles)
    return compiled


def _sites(host: GraphHost, validated: Validated, workers: dict[str, Any]) -> dict[str, Site]:
    """Sites of the endpoints that may need a device, with failures between pairs. Workers leased for this are added to `workers`."""
    own = owners(validated.handles, validated.workers)
    groups = [each.endpoints for each in validated.communicators if isinstance(each, NcclGroup)]
    asked = endpoints_to_ask(validated.graph, own, groups)
    if not asked:
        return {}
    workers.update({endpoint: lease_worker(options) for endpoint, options in validated.workers.items() if endpoint in asked})
    actors = {**validated.handles, **workers}
    options = {**{endpoint: handle.__actor_options__ for endpoint, handle in validated.handles.items()}, **validated.workers}
    parted = edges_between_parts(validated.graph, options)
    is_served = not parted or start_mps(host, parted, actors)
    sites = ask_sites(host, asked, own, actors)
    if parted and is_served:
        hint_at_turns(host, parted, sites)
    # Where a pair has failed, another may replace it.
    tried: set[tuple[str, str]] = set()
    while pairs := [pair for pair in device_pairs(validated.graph, sites) if (pair.writer, pair.reader) not in tried]:
        tried.update((pair.writer, pair.reader) for pair in pairs)
        sites = try_pairs(host, pairs, sites, actors)
    return sites


class GraphFunctions:
    """The actor class of workers for plain functions."""


def lease_worker(options: dict[str, Any]) -> Any:
    """The worker ends with its last handle, and holds a CPU only if the function asks for one."""
    given = {name: options[name] for name in _OPTIONS_OF_WORKERS if options.get(name) is not None}
    actor_class = make_remote(GraphFunctions, {"num_cpus": 0, **given})
    assert isinstance(actor_class, ActorClass)
    return actor_class.remote()
