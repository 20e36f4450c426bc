"""Pass: which values leave their producer, by which transport, and where their rings lie.

A channel per source that somebody else reads: one writer, all its readers. What only its producer reads stays in the
producer's program. Nothing is made here.
"""

from __future__ import annotations

from mray._channel.select import COMMUNICATOR, SHM, remote_readers
from mray._graph.plan import DRIVER, Channel, Graph, Source, Transfer
from mray._ipc.layout import RingLayout, entries_for

#: Bytes of an entry: payloads up to almost this travel inside the ring, such as 4 KiB and what describes them.
ENTRY_BYTES = 4096 + 256
#: The same for rings of very many entries.
SMALL_ENTRY_BYTES = 1024
MANY_ENTRIES = 64
#: Payload slots that a ring holds on to before it gives them away.
LEAST_SLOTS = 16
MOST_SLOTS = 64


def layout_for(in_flight: int, readers: int) -> RingLayout:
    """The ring of a channel in a graph of so many executions in flight: one of them never has to wait for room."""
    entries = entries_for(in_flight)
    entry_bytes = ENTRY_BYTES if entries <= MANY_ENTRIES else SMALL_ENTRY_BYTES
    return RingLayout(entries, entry_bytes, readers, min(max(2 * entries, LEAST_SLOTS), MOST_SLOTS))


def consumers(graph: Graph) -> dict[Source, tuple[str, ...]]:
    """Who uses each source, in order of first use."""
    users: dict[Source, list[str]] = {}
    for step in graph.steps:
        for source in step.sources:
            users.setdefault(source, []).append(step.actor)
    for source in graph.results:
        users.setdefault(source, []).append(DRIVER)
    return {source: tuple(dict.fromkeys(endpoints)) for source, endpoints in users.items()}


def resolve(graph: Graph, in_flight: int) -> tuple[tuple[Channel, ...], int]:
    """The channels of a graph and the bytes of the segment that holds their rings."""
    channels: list[Channel] = []
    offset = 0
    for source, endpoints in consumers(graph).items():
        writer = graph.endpoint_of(source)
        # The driver runs no program that could hold the input for an output of its own.
        readers = endpoints if writer == DRIVER else remote_readers(writer, endpoints)
        if not readers:
            continue
        layout = layout_for(in_flight, len(readers))
        transfer = graph.transfers.get(source, Transfer())
        transport = COMMUNICATOR if transfer.communicator >= 0 else SHM
        channels.append(
            Channel(len(channels), source, writer, readers, transport, layout, offset, bare=source in graph.leaves, transfer=transfer)
        )
        offset += layout.size
    return tuple(channels), offset
