"""`Gpus`: the GPUs of a process, as its graphs see them; implements `mray._graph.gpu_edges.GpuEdges`.

After its creation a fault of a device ends the process, with CUDA's name for it.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from mray._channel.site import Site, SiteGpu
from mray._common.clock import monotonic, sleep
from mray._common.process_local import kernel_pid
from mray._device.device import Platform
from mray._device.device_faults import listen
from mray._device.platform import platform
from mray._gpu.checked_writer import CheckedWriter
from mray._gpu.cuda_ipc import CudaIpcReader, CudaIpcWriter, trim_pools
from mray._gpu.device_spans import DeviceSpans
from mray._gpu.placed import PlacedReader
from mray._gpu.trial import offer, try_offer, withdraw
from mray._graph.gpu_edges import Carriage
from mray._graph.graph_messages import OFFER, WITHDRAW
from mray._inside.plans import plan as plans
from mray._inside.plans import select
from mray._inside.transports import ChannelReader, ChannelWriter, ReaderEnd, ShmReader, ShmWriter, WriterEnd, communicator_edge
from mray._runtime.connections.part import Part
from mray.exceptions import RaySystemError

if TYPE_CHECKING:
    from mray._api.communicator import Communicator
    from mray._inside.client import Client
    from mray._trace.span import Buffer

#: Cause of death; the fault follows.
BROKEN_DOWN = "Work of this process on a GPU has failed, and it can no longer use any GPU"


class Gpus(Part):
    def __init__(self, client: Client) -> None:
        self._stop_listening = listen(lambda fault: client.end_with(RaySystemError(f"{BROKEN_DOWN}: {fault}")))

    def close(self) -> None:
        self._stop_listening()

    # ------------------------------------------------------------------------------------ before a graph is allocated
    def site(self, known: Iterable[str] = ()) -> Site:
        devices = platform()
        if devices is None or not devices.devices:
            return Site(pid=kernel_pid())
        from mray._device.nccl_library import nccl_version, shares_gpus  # noqa: PLC0415  (actors without devices never need it)

        uuids = {*known, *(device.uuid for device in devices.devices)}
        gpus = tuple(
            SiteGpu(
                device.index, device.uuid, device.name, frozenset(uuid for uuid in uuids if uuid != device.uuid and device.can_access(uuid))
            )
            for device in devices.devices
        )
        is_client = devices.devices[0].is_mps_client()
        return Site(
            devices.name, gpus, nccl_version(), shares_gpus(), kernel_pid(), is_idle=not devices.is_in_use(), is_mps_client=is_client
        )

    def answer(self, verb: str, payload: bytes) -> bytes:
        if verb == WITHDRAW:
            withdraw(payload.decode())
            return b""
        asker, asked = pickle.loads(payload)
        found = platform()
        assert found is not None, "only a process that has reported its devices is asked"
        if verb == OFFER:
            return pickle.dumps([offer(found.devices[index], asker) for index in asked])
        return pickle.dumps([try_offer(found.devices[index], offered, with_memory=with_memory) for index, offered, with_memory in asked])

    def communicator(self, actors: Sequence[Any], overlap: bool, communicator_id: str) -> Communicator:
        from mray._gpu.nccl import NcclCommunicator  # noqa: PLC0415  (only members need it)

        return NcclCommunicator(actors, overlap, communicator_id)

    # ------------------------------------------------------------------------------------ edges
    def writer(
        self, route: plans.Route, end: WriterEnd, carriage: Carriage | None, failure: Callable[[BaseException], bytes]
    ) -> ChannelWriter:
        devices = _devices_for(route)
        rules = communicator_edge.EdgeRules(route.transfer.static_shape, route.transfer.direct_return)
        if route.transport == select.NCCL:
            from mray._gpu.nccl_edge import NcclWriter  # noqa: PLC0415  (only members need it)

            assert carriage is not None
            return NcclWriter(ShmWriter(end), *carriage, rules, failure, devices)
        writer = CudaIpcWriter(end, platform=devices, proven=route.proven, pinned=route.transport == select.PINNED)
        promised = route.transfer.static_shape or route.transfer.direct_return
        return CheckedWriter(writer, rules, devices.tensor_types(), failure) if promised else writer

    def reader(self, route: plans.Route, end: ReaderEnd, carriage: Carriage | None) -> ChannelReader:
        if route.transport == select.NCCL:
            from mray._gpu.nccl_edge import NcclReader  # noqa: PLC0415  (only members need it)

            assert carriage is not None
            return NcclReader(ShmReader(end), carriage.communicator, carriage.ranks[0], end.failure)
        return CudaIpcReader(end, platform=_devices_for(route), name=route.name)

    def placed(self, reader: ChannelReader, device: str, failure: Callable[[BaseException], bytes]) -> ChannelReader:
        return PlacedReader(reader, device, failure, platform())

    def marks(self, buffer: Buffer) -> DeviceSpans | None:
        devices = platform()
        return None if devices is None else DeviceSpans(devices, buffer)

    def settle(self, patience: float) -> None:
        deadline = monotonic() + patience
        while not trim_pools() and monotonic() < deadline:
            sleep(0.001)


def _devices_for(route: plans.Route) -> Platform:
    devices = platform()
    if devices is None:
        raise RuntimeError(f"{route.name} needs a GPU at both ends, but this process no longer sees one.")
    return devices
