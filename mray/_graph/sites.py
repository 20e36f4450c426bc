"""The `Site` of each process of a graph: the devices that its edges could use.

   driver                                       each actor that may need a device
   lists its own devices
   request SITE (uuids it knows) ---------> lists its own: their uuids, which of these they reach, NCCL
   combines the answers <---------------------- Site

Listing creates no context on a device.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from mray._channel.select import DEMANDS_DEVICE
from mray._channel.site import Site, SiteGpu
from mray._graph.graph_messages import SITE
from mray._graph.host import GraphHost, raise_death
from mray._graph.plan import DRIVER, Graph


def owners(handles: Mapping[str, Any], workers: Mapping[str, Mapping[str, Any]]) -> frozenset[str]:
    """Endpoints with GPUs of their own."""
    return frozenset(
        [actor for actor, handle in handles.items() if handle.__actor_options__.get("num_gpus")]
        + [endpoint for endpoint, options in workers.items() if options.get("num_gpus")]
    )


def endpoints_to_ask(graph: Graph, owners: frozenset[str], groups: Iterable[Iterable[str]]) -> frozenset[str]:
    """Endpoints that may need a device. If there are none, every edge uses host memory, and no process loads a library of devices."""
    demanding = {
        source for source, transfer in graph.transfers.items() if transfer.communicator < 0 and transfer.transport in DEMANDS_DEVICE
    }
    ends = {graph.endpoint_of(source) for source in demanding}
    ends.update(step.actor for step in graph.steps if demanding.intersection(step.sources))
    ends.update(*groups)
    if demanding.intersection(graph.results):
        ends.add(DRIVER)
    return frozenset(ends | owners | {DRIVER}) if ends or owners else frozenset()


def ask_sites(host: GraphHost, asked: Iterable[str], owners: frozenset[str], actors: Mapping[str, Any]) -> dict[str, Site]:
    """Asks concurrently and waits until the endpoints live. Raises ActorDiedError."""
    own = host.gpus().site()
    others = [endpoint for endpoint in asked if endpoint != DRIVER]
    found = {DRIVER: own, **_ask_for_sites(host, actors, others, own)}
    known = {gpu.uuid for gpu in own.gpus}
    everybodys = {gpu.uuid for site in found.values() for gpu in site.gpus}
    if not everybodys <= known:
        # The driver does not see all devices, so their owners must be asked whether they reach each other.
        everything = replace(own, gpus=tuple(SiteGpu(0, uuid, "") for uuid in everybodys))
        found = {DRIVER: host.gpus().site(everybodys), **_ask_for_sites(host, actors, others, everything)}
    reach: dict[str, frozenset[str]] = {}
    for site in found.values():
        for gpu in site.gpus:
            reach[gpu.uuid] = reach.get(gpu.uuid, frozenset()) | gpu.reaches
    return {
        endpoint: replace(
            site,
            # The answer of a process that sees a device holds for all.
            gpus=tuple(replace(gpu, reaches=reach[gpu.uuid]) for gpu in site.gpus),
            name="the driver" if endpoint == DRIVER else _name(endpoint, actors[endpoint]),
            is_driver=endpoint == DRIVER,
            owns=endpoint in owners,
        )
        for endpoint, site in found.items()
    }


def _ask_for_sites(host: GraphHost, actors: Mapping[str, Any], endpoints: Iterable[str], own: Site) -> dict[str, Site]:
    payload = pickle.dumps([gpu.uuid for gpu in own.gpus])
    answers = ask(host, SITE, dict.fromkeys(endpoints, payload), actors)
    return {endpoint: pickle.loads(answer) for endpoint, answer in answers.items()}


def ask(host: GraphHost, verb: str, payloads: Mapping[str, bytes], actors: Mapping[str, Any]) -> dict[str, bytes]:
    """Asks concurrently and waits until the actors live. Raises ActorDiedError."""
    keys = {endpoint: actors[endpoint].__actor_outline__().key for endpoint in payloads}
    processes = {endpoint: host.actor_process(key) for endpoint, key in keys.items()}
    try:
        pendings = {endpoint: host.request(process, verb, payloads[endpoint]) for endpoint, process in processes.items()}
        host.wait_for_answers({keys[endpoint]: pending for endpoint, pending in pendings.items()})
        return {endpoint: pending.result() for endpoint, pending in pendings.items()}
    except Exception as error:
        raise_death(host, {keys[endpoint]: process for endpoint, process in processes.items()}, error)
        raise


def _name(endpoint: str, actor: Any) -> str:
    return endpoint if endpoint.startswith("function-") else f"{actor.__actor_outline__().class_name}({endpoint[:8]})"
