"""Starting MPS for edges between actors that have parts of one GPU, and the warning where it does not run.

A process becomes a client of MPS in cuInit or never, so the daemon must run before any process opens a device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mray._channel.site import Site
from mray._common.log import logger
from mray._graph.compiler.resolve import consumers
from mray._graph.host import GraphHost
from mray._graph.plan import DRIVER, Graph


def edges_between_parts(graph: Graph, options: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Pairs of endpoints on an edge that each hold a fraction of a GPU. `options`: by endpoint."""
    parts = {endpoint for endpoint, each in options.items() if 0 < (each.get("num_gpus") or 0) < 1}
    found: dict[tuple[str, str], None] = {}
    for source, readers in consumers(graph).items():
        writer = graph.endpoint_of(source)
        if writer in parts and writer != DRIVER:
            found.update({(writer, reader): None for reader in readers if reader in parts and reader != writer})
    return list(found)


def start_mps(host: GraphHost, pairs: Sequence[tuple[str, str]], actors: Mapping[str, Any]) -> bool:
    """Start MPS on the GPUs that both ends of a pair have, if the session uses it for graphs. Waits until the actors live; warns and
    returns False on failure.
    """
    ends = dict.fromkeys(endpoint for pair in pairs for endpoint in pair)
    processes = {endpoint: host.actor_process(actors[endpoint].__actor_outline__().key) for endpoint in ends}
    failures = host.ask_node("mps_edges", *((processes[one], processes[other]) for one, other in pairs))
    for failure in failures:
        logger.warning("%s", failure)
    return not failures


def hint_at_turns(host: GraphHost, pairs: Sequence[tuple[str, str]], sites: Mapping[str, Site]) -> None:
    """Warn of pairs that work on their GPU in turns."""
    apart = [
        pair
        for pair in pairs
        if {gpu.uuid for gpu in sites[pair[0]].gpus} & {gpu.uuid for gpu in sites[pair[1]].gpus}
        and any(sites[end].is_mps_client is False for end in pair)
    ]
    if not apart:
        return
    late = dict.fromkeys(sites[end].name for pair in apart for end in pair if sites[end].is_mps_client is False)
    joined = ", ".join(f"{sites[one].name} and {sites[other].name}" for one, other in apart)
    hint = host.ask_node("mps_hint", joined, " and ".join(late))
    if hint:
        logger.warning("%s", hint)
