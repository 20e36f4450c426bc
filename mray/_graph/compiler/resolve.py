"""Pass: the channels of a graph, their transports, and the locations of their rings.

A channel per source that another endpoint reads and per transport that its readers need: one writer, all its readers by that transport.
A source read by its producer alone has none.

*Relays.* GPUs that read one's memory would share its link, so from three remote readers on, two read it and each passes it on to two
others over other links; actors that share a GPU get it from the first of them. A relay is a channel of the same source that a reader
writes right after reading. An actor of the tree waits only for those above it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from mray._channel.select import AUTO, COMMUNICATOR, CUDA_IPC, DEVICE, NCCL, SHM, remote_readers, select, why_no_nccl
from mray._channel.site import Site
from mray._graph.plan import DRIVER, DevicePair, Graph, Route, Source, Transfer
from mray._ipc.layout import RingLayout, entries_for

#: Bytes of an entry: payloads of 4 KiB, with their description, travel inside the ring.
ENTRY_BYTES = 4096 + 256
#: Entry bytes for rings of more than `MANY_ENTRIES`.
SMALL_ENTRY_BYTES = 1024
MANY_ENTRIES = 64
#: Payload slots before values are given away.
LEAST_SLOTS = 16
MOST_SLOTS = 64
#: Device messages that readers may hold without a copy.
LEAST_LEASES = 64
MOST_LEASES = 256
#: Remote readers of one GPU's memory from which on they relay it; readers of each relay.
LEAST_RELAYED = 3
FAN_OUT = 2


def layout_for(in_flight: int, readers: int, *, lends: bool = False) -> RingLayout:
    """`lends`: messages lend memory outside of the slots."""
    entries = entries_for(in_flight)
    entry_bytes = ENTRY_BYTES if entries <= MANY_ENTRIES else SMALL_ENTRY_BYTES
    slots = min(max(2 * entries, LEAST_SLOTS), MOST_SLOTS)
    leases = min(max(4 * entries, LEAST_LEASES), MOST_LEASES) if lends else 0
    return RingLayout(entries, entry_bytes, readers, slots, leases)


def consumers(graph: Graph) -> dict[Source, tuple[str, ...]]:
    """Endpoints that use each source, in order of first use."""
    users: dict[Source, list[str]] = {}
    for step in graph.steps:
        for source in step.sources:
            users.setdefault(source, []).append(step.actor)
    for source in graph.results:
        users.setdefault(source, []).append(DRIVER)
    return {source: tuple(dict.fromkeys(endpoints)) for source, endpoints in users.items()}


class Resolved(NamedTuple):
    """`size`: bytes of the segment; `groups`: members of new communicators."""

    channels: tuple[Route, ...]
    size: int
    groups: tuple[tuple[str, ...], ...] = ()


def resolve(
    graph: Graph,
    in_flight: int,
    sites: Mapping[str, Site] | None = None,
    groups: Mapping[frozenset[str], int] | None = None,
    made: int = 0,
    *,
    relays: bool = True,
) -> Resolved:
    """`made`: the number of existing communicators; `groups`: members of the NCCL ones -> number. ValueError when a demanded transport
    cannot work.
    """
    sites = sites or {}
    routes = list(_routes(graph, sites, relays))
    numbers, new = _communicators(routes, sites, groups or {}, made)
    channels: list[Route] = []
    offset = 0
    for source, writer, transport, readers in routes:
        layout = layout_for(in_flight, len(readers), lends=transport in DEVICE)
        transfer = graph.transfers.get(source, Transfer())
        number = numbers[frozenset((writer, *readers))] if transport == NCCL else transfer.communicator
        bare = source in graph.leaves
        proven = not _is_late(graph, sites, source, transport, (writer, *readers))
        name = _name(graph, source, readers, sites)
        channels.append(Route(len(channels), source, writer, readers, transport, layout, offset, bare, transfer, number, proven, name))
        offset += layout.size
    return Resolved(tuple(channels), offset, new)


def device_pairs(graph: Graph, sites: Mapping[str, Site]) -> list[DevicePair]:
    """Distinct pairs that edges would join by device memory or events; those with a hint first."""
    asked = {source: transfer.transport for source, transfer in graph.transfers.items()}
    found = [
        DevicePair(writer, reader, transport, asked.get(source, ""), _is_late(graph, sites, source, transport, (writer, reader)))
        for relays in (True, False)
        for source, writer, transport, readers in _routes(graph, sites, relays)
        if transport in DEVICE
        for reader in readers
    ]
    pairs: dict[tuple[str, str], DevicePair] = {}
    for pair in sorted(found, key=lambda each: not each.asked):
        pairs.setdefault((pair.writer, pair.reader), pair)
    return list(pairs.values())


def _is_late(graph: Graph, sites: Mapping[str, Site], source: Source, transport: str, ends: Sequence[str]) -> bool:
    return transport in DEVICE and source not in graph.transfers and DRIVER in ends and sites[DRIVER].is_idle


def _routes(graph: Graph, sites: Mapping[str, Site], relays: bool) -> Iterator[tuple[Source, str, str, tuple[str, ...]]]:
    """The channels. With `relays`, readers may pass values on."""
    for source, endpoints in consumers(graph).items():
        writer = graph.endpoint_of(source)
        # The driver has no program to hold the input for its own output.
        readers = endpoints if writer == DRIVER else remote_readers(writer, endpoints)
        for transport, those in _by_transport(graph, source, writer, readers, sites):
            tree = _tree(writer, those, sites) if transport == CUDA_IPC and relays else {writer: those}
            for parent, children in tree.items():
                yield source, parent, transport, children


def _by_transport(
    graph: Graph, source: Source, writer: str, readers: Sequence[str], sites: Mapping[str, Site]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    transfer = graph.transfers.get(source)
    if transfer is not None and transfer.communicator >= 0:
        if readers:
            yield COMMUNICATOR, tuple(readers)
        return
    found: dict[str, list[list[str]]] = {}
    for reader in readers:
        transport = SHM
        # Leaves bring no value.
        if source not in graph.leaves and writer != reader:
            asked = AUTO if transfer is None else transfer.transport
            transport = select(_site(sites, writer), _site(sites, reader), asked, hinted=transfer is not None)
        parties = found.setdefault(transport, [[]])
        if transport == NCCL and parties[-1] and why_no_nccl([_site(sites, each) for each in (writer, *parties[-1], reader)]) is not None:
            parties.append([])
        parties[-1].append(reader)
    for transport, parties in found.items():
        for party in parties:
            yield transport, tuple(party)


def _tree(writer: str, readers: tuple[str, ...], sites: Mapping[str, Site]) -> dict[str, tuple[str, ...]]:
    """Parent -> children, parents first."""
    gpus = {each: _site(sites, each).gpus for each in (writer, *readers)}
    here = {gpu.uuid for gpu in gpus[writer]}
    away = [reader for reader in readers if reader != DRIVER and len(gpus[reader]) == 1 and gpus[reader][0].uuid not in here]
    if len(away) < LEAST_RELAYED or len(here) != 1:
        return {writer: readers}
    first: dict[str, str] = {}
    for reader in away:
        first.setdefault(gpus[reader][0].uuid, reader)
    heads = list(first.values())
    above = {head: writer if place < FAN_OUT else heads[place // FAN_OUT - 1] for place, head in enumerate(heads)}
    above.update({reader: first[gpus[reader][0].uuid] for reader in away if reader not in above})
    tree: dict[str, list[str]] = {writer: []}
    for reader in readers:
        parent = above.get(reader, writer)
        if not _site(sites, reader).reaches_all(_site(sites, parent)):
            parent = writer
        tree.setdefault(parent, []).append(reader)
    return {parent: tuple(children) for parent, children in tree.items()}


def _communicators(
    routes: Sequence[tuple[Source, str, str, tuple[str, ...]]], sites: Mapping[str, Site], known: Mapping[frozenset[str], int], made: int
) -> tuple[dict[frozenset[str], int], tuple[tuple[str, ...], ...]]:
    """Participants of NCCL edges -> communicator number, and the members of new ones. One for all where possible, since a communicator
    costs memory.
    """
    parties = [(writer, *readers) for _source, writer, transport, readers in routes if transport == NCCL]
    everybody = tuple(dict.fromkeys(endpoint for party in parties for endpoint in party))
    together = bool(parties) and why_no_nccl([_site(sites, endpoint) for endpoint in everybody]) is None
    numbers: dict[frozenset[str], int] = {}
    new: list[tuple[str, ...]] = []
    for party in parties:
        members = everybody if together else party
        number = known.get(frozenset(members), -1)
        if number < 0:
            number = next((made + place for place, group in enumerate(new) if set(group) == set(members)), made + len(new))
            if number == made + len(new):
                new.append(members)
        numbers[frozenset(party)] = number
    return numbers, tuple(new)


def _name(graph: Graph, source: Source, readers: Sequence[str], sites: Mapping[str, Site]) -> str:
    def end(endpoint: str, method: str) -> str:
        return f"{_site(sites, endpoint).name}.{method}"

    start = "the driver" if source.step < 0 else end(graph.steps[source.step].actor, graph.steps[source.step].method)
    users = [next((step.method for step in graph.steps if step.actor == reader and source in step.sources), "") for reader in readers]
    ends = ["the driver" if reader == DRIVER else end(reader, user) for reader, user in zip(readers, users, strict=True)]
    return f"the edge from {start} to {' and '.join(ends)}"


def _site(sites: Mapping[str, Site], endpoint: str) -> Site:
    return sites.get(endpoint) or Site(name="the driver" if endpoint == DRIVER else f"actor {endpoint[:8]}", is_driver=endpoint == DRIVER)
