"""Channels between processes, outside of graphs: `Channel`, `BufferedSharedMemoryChannel` and `CompositeChannel`.

Made by the process that writes, and read wherever a handle was passed to::

    channel = Channel(None, [(reader, node_id)])          # the driver writes
    done = reader.consume.remote(channel)                 # in the actor: channel.read()
    channel.write(value)

Each is a ring of `mray.experimental.channel._shared_ring`. A value larger than any before takes a larger slot; nothing is to be declared
for that. A value that was read stays valid for as long as it is held, and never blocks the writer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mray._api.actor_handle import ActorHandle
from mray._api.context import get_runtime_context
from mray._api.dag_context import DAGContext
from mray._api.type_hint import ChannelOutputType
from mray._objects.remote_error import serialization_error
from mray.exceptions import RayChannelError
from mray.experimental.channel._shared_ring import SharedRing, own_actor, rings
from mray.experimental.channel.common import ChannelInterface, seconds
from mray.experimental.channel.intra_process_channel import IntraProcessChannel

__all__ = ["BufferedSharedMemoryChannel", "Channel", "CompositeChannel", "SharedMemoryType"]

#: The least size of a buffer that may be asked for, in bytes.
MIN_BUFFER_SIZE = 1000

#: Readers as the constructors take them: pairs of an actor (None: the driver) and a node id, which is of no account on one host.
Readers = Sequence[Any]


class SharedMemoryType(ChannelOutputType):
    """Values that travel through shared memory. `buffer_size_bytes` is accepted for programs for Ray: buffers grow by themselves."""

    def __init__(self, *, buffer_size_bytes: int | None = None, num_shm_buffers: int | None = None) -> None:
        self.buffer_size_bytes = DAGContext.get_current().buffer_size_bytes if buffer_size_bytes is None else buffer_size_bytes
        self._num_shm_buffers = 1 if num_shm_buffers is None else num_shm_buffers

    def create_channel(self, writer: Any, reader_and_node_list: Readers, driver_actor_id: str | None = None) -> CompositeChannel:
        """A channel for such values, with room for `num_shm_buffers` of them."""
        return CompositeChannel(writer, reader_and_node_list, self._num_shm_buffers, driver_actor_id)


class _RingChannel(ChannelInterface):
    """A ring with room for `capacity` values."""

    def __init__(
        self, writer: ActorHandle | None, reader_and_node_list: Readers, capacity: int, typ: int | SharedMemoryType | None
    ) -> None:
        self._writer = writer
        self._reader_and_node_list = list(reader_and_node_list)
        self._typ = _checked_type(typ)
        readers = _actors_of(self._reader_and_node_list)
        if actor_id(writer) != own_actor():
            raise ValueError(f"A channel is made by the process that writes it; its writer is {writer}, and this is not.")
        if capacity < 1:
            raise ValueError(f"A channel has room for at least one value, not for {capacity}.")
        self._ring: SharedRing | None = rings().create(readers, capacity)
        self._facts = self._ring.facts

    def _open(self) -> SharedRing:
        if self._ring is None:
            self._ring = rings().find(self._facts)
        return self._ring

    def ensure_registered_as_writer(self) -> None:
        self._open().check_writer()

    def ensure_registered_as_reader(self) -> None:
        self._open().join_as_reader()

    def write(self, value: Any, timeout: float | None = None) -> None:
        limit = seconds(timeout)
        try:
            self._open().write(value, limit)
        except TypeError as error:
            raise serialization_error(error, value, "the put value {}") from error

    def read(self, timeout: float | None = None) -> Any:
        return self._open().read(seconds(timeout))

    def close(self) -> None:
        try:
            ring = self._open()
        except RayChannelError:
            return
        ring.close()

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        """Become a handle of a channel that another process (or this one) has made."""
        self._writer, self._reader_and_node_list, self._typ, self._facts = state
        self._ring = None

    def __getstate__(self) -> tuple[Any, ...]:
        if self._ring is not None:
            # A process that gets the handle finds the ring, also if this one drops its own.
            rings().keep(self._ring)
        return self._writer, list(self._reader_and_node_list), self._typ, self._facts

    def __str__(self) -> str:
        names = ", ".join(reader or "driver" for reader in self._facts.readers)
        return f"{type(self).__name__}(writer={self._facts.writer or 'driver'}, readers=[{names}])"


class Channel(_RingChannel):
    """One value at a time: `write` waits until all readers have read the one before."""

    def __init__(self, writer: ActorHandle | None, reader_and_node_list: Readers, typ: int | SharedMemoryType | None = None) -> None:
        """`writer`: the actor this is called in, None in a driver. Raises ValueError in any other process.

        As many processes may read as there are distinct actors in `reader_and_node_list`; each of these has its place, and a place whose
        actor has not come may be taken by another process, so that a driver reads in the place of any actor, or of None.
        """
        super().__init__(writer, reader_and_node_list, 1, typ)


class BufferedSharedMemoryChannel(_RingChannel):
    """So many values at a time: `write` waits while the slowest reader has `num_shm_buffers` of them to read."""

    def __init__(
        self,
        writer: ActorHandle | None,
        reader_and_node_list: Readers,
        num_shm_buffers: int,
        typ: int | SharedMemoryType | None = None,
    ) -> None:
        self._written = 0
        self._read = 0
        super().__init__(writer, reader_and_node_list, num_shm_buffers, typ)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self._written = 0
        self._read = 0
        super().__setstate__(state)

    def write(self, value: Any, timeout: float | None = None) -> None:
        super().write(value, timeout)
        self._written += 1

    def read(self, timeout: float | None = None) -> Any:
        value = super().read(timeout)
        self._read += 1
        return value

    @property
    def next_write_index(self) -> int:
        """The buffer that the next value goes to, counted by this handle."""
        return self._written % self._facts.capacity

    @property
    def next_read_index(self) -> int:
        """The buffer that the next value comes from, counted by this handle."""
        return self._read % self._facts.capacity


class CompositeChannel(ChannelInterface):
    """To each reader by the shortest way: by reference inside the writer's process, through a ring to all others."""

    def __init__(
        self,
        writer: ActorHandle | None,
        reader_and_node_list: Readers,
        num_shm_buffers: int,
        driver_actor_id: str | None = None,
        _local: IntraProcessChannel | None = None,
        _remote: BufferedSharedMemoryChannel | None = None,
    ) -> None:
        """`driver_actor_id`: the actor that reads in the place of the first reader, as a driver does."""
        self._writer = writer
        self._reader_and_node_list = list(reader_and_node_list)
        self._num_shm_buffers = num_shm_buffers
        self._driver_actor_id = driver_actor_id
        self._local = _local
        self._remote = _remote
        if _local is not None or _remote is not None:
            return
        _actors_of(self._reader_and_node_list)
        own = actor_id(writer)
        others = [(reader, node) for reader, node in self._reader_and_node_list if not own or actor_id(reader) != own]
        if len(others) < len(self._reader_and_node_list):
            self._local = IntraProcessChannel(num_readers=1)
        if others:
            self._remote = BufferedSharedMemoryChannel(writer, others, num_shm_buffers)

    def _channels(self) -> list[ChannelInterface]:
        return [channel for channel in (self._local, self._remote) if channel is not None]

    def _own_channel(self) -> ChannelInterface:
        """The one that this process reads."""
        actor = get_runtime_context().get_actor_id()
        if actor is None or actor == self._driver_actor_id:
            actor = actor_id(self._reader_and_node_list[0][0])
        channel = self._local if actor and actor == actor_id(self._writer) else self._remote
        if channel is None:
            raise RayChannelError(f"{self} has no reader in this process.")
        return channel

    def ensure_registered_as_writer(self) -> None:
        for channel in self._channels():
            channel.ensure_registered_as_writer()

    def ensure_registered_as_reader(self) -> None:
        self._own_channel().ensure_registered_as_reader()

    def write(self, value: Any, timeout: float | None = None) -> None:
        """Raises RayChannelError at once, and writes to nobody, while this process itself has not read the value before."""
        if self._local is None:
            assert self._remote is not None
            self._remote.write(value, timeout)
            return
        # Steps that can fail come first, so that either all readers get the value or none.
        if self._remote is not None and not self._local.holds_value():
            self._remote.write(value, timeout)
        self._local.write(value)

    def read(self, timeout: float | None = None) -> Any:
        return self._own_channel().read(timeout)

    def close(self) -> None:
        for channel in self._channels():
            channel.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return CompositeChannel, (
            self._writer,
            self._reader_and_node_list,
            self._num_shm_buffers,
            self._driver_actor_id,
            self._local,
            self._remote,
        )

    def __str__(self) -> str:
        return f"CompositeChannel(_channels={[str(channel) for channel in self._channels()]})"


def actor_id(actor: ActorHandle | None) -> str:
    """The id of an actor; "" for the driver."""
    return "" if actor is None else actor.__actor_outline__().key


def _actors_of(readers: Readers) -> tuple[str, ...]:
    """The ids of the readers, each once. Raises ValueError when there are none, and TypeError when they are no actors."""
    if not readers:
        raise ValueError("A channel has at least one reader.")
    for entry in readers:
        if not isinstance(entry, (tuple, list)) or len(entry) != 2 or not (entry[0] is None or isinstance(entry[0], ActorHandle)):
            raise TypeError(f"Readers are given as pairs of an actor's handle (None: the driver) and the id of its node, not as {entry!r}.")
    return tuple(dict.fromkeys(actor_id(reader) for reader, _node in readers))


def _checked_type(typ: int | SharedMemoryType | None) -> SharedMemoryType:
    if not isinstance(typ, SharedMemoryType):
        typ = SharedMemoryType(buffer_size_bytes=typ)
    if typ.buffer_size_bytes < MIN_BUFFER_SIZE:
        raise ValueError(f"typ.buffer_size_bytes must be at least MIN_BUFFER_SIZE ({MIN_BUFFER_SIZE} bytes)")
    return typ
