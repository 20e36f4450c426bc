"""`GpuEdges`: what graphs ask of the GPUs of a process.

Implemented by `mray._gpu.gpus`, which a process loads when an actor of a graph has ``num_gpus`` or a hint demands a device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from mray._api.communicator import Communicator
    from mray._channel.base import ChannelReader, ChannelWriter
    from mray._channel.shm import ReaderEnd, WriterEnd
    from mray._channel.site import Site
    from mray._graph.plan import Route, Step
    from mray._trace.span import Buffer


#: Most seconds to wait, when a graph ends, for lent memory.
SETTLING = 0.05


Read = Callable[[], Any]
Write = Callable[[Any], bool]
Method = Callable[..., Any]


class Carriage(NamedTuple):
    """`ranks`: of the other ends."""

    communicator: Communicator
    ranks: Sequence[int]


class DeviceMarks(Protocol):
    """Marks streams around operations that queue work; see `mray._gpu.device_spans`."""

    def around_read(self, channel: Route, read: Read, position: Callable[[], int]) -> Read: ...

    def around_write(self, channel: Route, write: Write, position: Callable[[], int]) -> Write: ...

    def around_method(self, step: Step, name: str, method: Method) -> Method: ...

    def settle(self) -> None:
        """Wait until the streams have passed all marks, for a second at most."""


class GpuEdges(Protocol):
    """The GPUs of one process."""

    def site(self, known: Iterable[str] = ()) -> Site:
        """`known`: uuids of other processes' devices. Creates no context on a device."""

    def answer(self, verb: str, payload: bytes) -> bytes:
        """Answer OFFER, TRY or WITHDRAW (`mray._graph.trials`)."""

    def writer(self, route: Route, end: WriterEnd, carriage: Carriage | None, failure: Callable[[BaseException], bytes]) -> ChannelWriter:
        """For transports that leave tensors on devices. RuntimeError where this process no longer sees a GPU."""

    def reader(self, route: Route, end: ReaderEnd, carriage: Carriage | None) -> ChannelReader:
        """One reader's end of it."""

    def placed(self, reader: ChannelReader, device: str, failure: Callable[[BaseException], bytes]) -> ChannelReader:
        """`device`: ``"cpu"``, ``"gpu"`` or ``"cuda"``."""

    def communicator(self, actors: Sequence[Any], overlap: bool, communicator_id: str) -> Communicator:
        """NCCL's communicator of these actors by rank, in one of them."""

    def marks(self, buffer: Buffer) -> DeviceMarks | None:
        """None without devices."""

    def settle(self, patience: float) -> None:
        """Free device memory of closed edges that peers have released, within `patience` seconds. Memory still in use is freed when the
        next graph is created or ends here.
        """
