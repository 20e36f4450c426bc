"""Which mechanism carries an edge: the only file that names them all.

An *endpoint* is the driver of a graph or one of its actors. Values that stay inside an endpoint need no channel: they are cells of
the program that the actor runs, and no copy is made.
"""

from __future__ import annotations

from collections.abc import Iterable

#: By reference, inside the program of one actor.
LOCAL = "local"
#: A ring in shared memory.
SHM = "shm"
#: Tensors through a communicator of the user, everything else through a ring in shared memory.
COMMUNICATOR = "communicator"
#: Transports whose writer blocks until its readers read.
BLOCKING = frozenset({COMMUNICATOR})


def select(writer: str, reader: str) -> str:
    """The transport from one endpoint to another."""
    return LOCAL if writer == reader else SHM


def remote_readers(writer: str, readers: Iterable[str]) -> tuple[str, ...]:
    """Those readers that a channel must reach, in order of appearance, each once."""
    return tuple(dict.fromkeys(reader for reader in readers if select(writer, reader) != LOCAL))
