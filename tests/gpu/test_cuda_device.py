"""CUDA devices, on real ones: what neither the contract nor a pretended driver can show."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from mray._device.cuda import CudaDevice
from mray._device.pinned_memory import PinnedMemory
from mray._device.timelines import Peers, Where, mark
from mray._objects.serializer import deserialize, serialize
from tests.conformance.device_kinds import Kind, Peer

torch = pytest.importorskip("torch")


def begin(writer: Peer) -> Where:
    """Hold the writer's stream: a point that it comes to when that is released. Its timeline is made before, for which pinning may wait."""
    writer("mark", 0, "first")
    writer("hold", 0)
    return Where(*writer("mark", 0, "ready"))


def retire(peers: Peers) -> None:
    while not peers.retire():
        torch.cuda.synchronize()


def free_memory(device: CudaDevice) -> int:
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    return device.memory()[0]


#: torch warns, once in a process, when it makes a tensor of this type itself, as it does for one without elements.
COMPLEX32 = pytest.param("complex32", marks=pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental"))
FLOATS = ["bfloat16", "float8_e4m3fn", "float8_e5m2", "uint16", "uint32", COMPLEX32]


# --------------------------------------------------------------------------------------------------- nobody waits
def test_no_call_of_an_edge_waits_for_the_device(kind: Kind, platform: Any, device: CudaDevice, start_peer: Callable[[], Peer]) -> None:
    peer = start_peer()
    opened = device.open_memory(peer("export", 0, peer("allocate", 0, 4096)))
    own = device.allocate(4096)
    # Loads the kernel too, which waits for the device once.
    device.empty("float32", (16,)).add_(1)
    stream = device.current_stream()
    peers = Peers()
    theirs = begin(peer)
    # Opening, pinning and making a timeline may wait: an edge does it once.
    peers.open(device, *theirs[:2])
    mark(device, stream)
    # A wait for the device in here would last for ever.
    with kind.hold(device, stream):
        output = device.empty("float32", (16,))
        assert platform.is_tensor(output)
        _output, info = platform.info(output)
        device.export_memory(own)
        device.copy(own, info.address, info.size, stream)
        peers.wait(device, stream, *theirs)
        view = device.tensor(opened, 64, "float32", (16,), None, None)
        view.add_(1)
        end = mark(device, stream)
        end.wait(stream)
        assert not end.reached()
        assert device.memory()[0]
        assert not peers.retire()
        peer("release")
    assert platform.synchronizations == 0
    platform.synchronize(device, stream)
    assert end.reached()
    del view, output
    assert peers.retire()
    device.close_memory(opened)
    device.free(own)


def test_calls_work_in_new_threads_and_leave_torchs_device_alone(device: CudaDevice) -> None:
    seen: list[Any] = []

    def use() -> None:
        mark(device, 0)
        device.free(device.allocate(100))
        seen.append(torch.cuda.current_device())

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert seen == [0]


# -------------------------------------------------------------------------------------------------------- tensors
@pytest.mark.parametrize("name", FLOATS)
def test_types_without_a_name_in_the_array_interface_are_viewed(platform: Any, device: CudaDevice, name: str) -> None:
    dtype = getattr(torch, name)
    address = device.allocate(1000)
    tensor = device.tensor(address, 6 * dtype.itemsize, name, (2, 3), (1, 2), None)
    assert (tensor.dtype, tensor.stride(), tensor.data_ptr(), tensor.device) == (dtype, (1, 2), address, torch.device("cuda", 0))
    assert tensor.untyped_storage().nbytes() == 6 * dtype.itemsize
    assert platform.info(tensor)[1] == (0, address, 6 * dtype.itemsize, name, (2, 3), (1, 2))
    del tensor
    device.free(address)
    without_elements = device.tensor(0, 0, name, (0, 4), None, None)
    assert (without_elements.dtype, without_elements.device) == (dtype, torch.device("cuda", 0))


def test_a_tensor_on_a_gpu_travels_through_host_memory_without_an_edge(device: CudaDevice) -> None:
    tensor = torch.arange(6.0, device="cuda").view(2, 3).t()
    packed = serialize({"x": tensor})
    arrived = deserialize(packed.form, packed.to_bytes())["x"]
    assert arrived.device == tensor.device
    assert torch.equal(arrived, tensor)
    program = "import sys; from mray._objects.serializer import deserialize; deserialize(int(sys.argv[1]), sys.stdin.buffer.read())"
    command = [sys.executable, "-c", program, str(packed.form)]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    reader = subprocess.run(command, input=packed.to_bytes(), env=environment, capture_output=True, check=False)
    assert b"this process has no GPU to put it on" in reader.stderr


# ------------------------------------------------------------------------------------------------------- captures
def test_what_mray_does_during_a_capture_does_not_lose_it(platform: Any, device: CudaDevice, start_peer: Callable[[], Peer]) -> None:
    peer = start_peer()
    theirs = peer("export", 0, peer("allocate", 0, 4096))
    where, peers = Where(*peer("mark", 0, "ready")), Peers()
    never = where._replace(number=where.number + 1)
    given = torch.ones(1000, device="cuda")
    side = device.create_stream()
    ready = mark(device, side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = given + 1
        captured = device.current_stream()
        for refused in (lambda: mark(device, captured), lambda: peers.wait(device, captured, *never)):
            with pytest.raises(RuntimeError, match="CUDA graph is being captured"):
                refused()
        # On a stream that is not captured.
        mark(device, side).wait(side)
        peers.wait(device, side, *where)
        after = mark(device, side)
        device.free(device.allocate(100))
        device.close_memory(device.open_memory(theirs))
        memory = PinnedMemory(device)
        memory.free(memory.allocate(4096)[0])
        device.destroy_stream(device.create_stream())
        result = result * 2
    graph.replay()
    assert result.unique().tolist() == [4]
    platform.synchronize(device, side)
    assert ready.reached() and after.reached()
    retire(peers)
    device.destroy_stream(side)


# ---------------------------------------------------------------------------------------------------------- death
def test_memory_is_as_free_as_before_when_peers_were_killed(device: CudaDevice, start_peer: Callable[[], Peer]) -> None:
    before = 0
    for round_number in range(6):
        peer = start_peer()
        there = device.open_memory(peer("export", 0, peer("allocate", 0, 64 << 20)))
        where, peers = begin(peer), Peers()
        peers.open(device, *where[:2])
        view = device.tensor(there, 64 << 20, "uint8", (64 << 20,), None, None)
        peer.kill()
        peers.wait(device, device.current_stream(), *where)
        assert view[:10].add(1).numel() == 10, "its memory is there while somebody has it open"
        torch.cuda.synchronize()
        del view
        retire(peers)
        device.close_memory(there)
        if round_number == 0:
            before = free_memory(device)
    assert free_memory(device) >= before - (2 << 20)


def have_wait(reader: Peer, *writers: Peer) -> None:
    """Have the reader's stream wait for points of these, one after the other: it marks when it has come past each, by number."""
    # Regions are opened and made before anything waits: pinning may wait for the device.
    reader("mark", 0, "first")
    for writer in writers:
        reader("await_point", 0, writer("mark", 0, "first"))
    reader("synchronize", 0)
    for number, writer in enumerate(writers):
        writer("hold", 0)
        reader("await_point", 0, writer("mark", 0, "ready"))
        reader("mark", 0, f"past {number}")


def test_a_stream_that_waits_for_the_dead_goes_on_by_itself(start_peer: Callable[[], Peer], eventually: Callable[..., None]) -> None:
    writer, reader = start_peer(), start_peer()
    have_wait(reader, writer)
    assert not reader("is_reached", "past 0")
    writer.kill()
    eventually(lambda: reader("is_reached", "past 0"), what="the reader's stream goes on")
    reader("synchronize", 0)


def test_a_stream_that_waits_for_the_dead_and_the_living_waits_for_the_living(
    start_peer: Callable[[], Peer], eventually: Callable[..., None]
) -> None:
    dead, living, reader = start_peer(), start_peer(), start_peer()
    have_wait(reader, dead, living)
    dead.kill()
    eventually(lambda: reader("is_reached", "past 0"), what="the dead is waited for no more")
    assert not reader("is_reached", "past 1")
    living("release")
    eventually(lambda: reader("is_reached", "past 1"), what="the living one comes to its point")


def test_a_thread_that_is_within_the_driver_when_the_writer_dies_comes_back(device: CudaDevice, start_peer: Callable[[], Peer]) -> None:
    writer, peers, stream = start_peer(), Peers(), device.current_stream()
    value = torch.ones(1, device="cuda")
    # Loads the kernel too, which waits for the device once.
    assert value.add_(1).item() == 2
    mark(device, stream)
    theirs = begin(writer)
    peers.open(device, *theirs[:2])
    peers.wait(device, stream, *theirs)
    value.add_(1)
    waiting = threading.Event()
    found: list[float] = []

    def read() -> None:
        waiting.set()
        found.append(value.item())

    thread = threading.Thread(target=read)
    thread.start()
    waiting.wait()
    assert not found
    writer.kill()
    thread.join()
    assert found == [3]
    retire(peers)


# ---------------------------------------------------------------------------------------------------------- others
def test_streams_and_memory_are_cupys_too(platform: Any, device: CudaDevice) -> None:
    cupy = pytest.importorskip("cupy")
    stream = cupy.cuda.Stream(non_blocking=True)
    source = cupy.full(16, 3, dtype=cupy.float32)
    cupy.cuda.Device(0).synchronize()
    address = device.allocate(64)
    device.copy(address, source.data.ptr, 64, stream.ptr)
    point = mark(device, stream.ptr)
    platform.synchronize(device, stream.ptr)
    assert point.reached()
    tensor = device.tensor(address, 64, "float32", (16,), None, None)
    assert cupy.asarray(tensor).sum() == 48
    del tensor
    device.free(address)
