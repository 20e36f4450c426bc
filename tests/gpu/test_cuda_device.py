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
from mray._objects.serializer import deserialize, serialize
from tests.conformance.device_kinds import Kind, Peer

torch = pytest.importorskip("torch")


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
    event = device.open_event(peer("create_event", 0, "ready"))
    own = device.allocate(4096)
    # Loads the kernel too, which waits for the device once.
    device.empty("float32", (16,)).add_(1)
    stream = device.current_stream()
    mark = device.create_event()
    # A wait for the device in here would last for ever.
    with kind.hold(device, stream):
        output = device.empty("float32", (16,))
        assert platform.is_tensor(output)
        _output, facts = platform.facts(output)
        device.export_memory(own)
        device.copy(own, facts.address, facts.size, stream)
        event.wait(stream)
        view = device.tensor(opened, 64, "float32", (16,), None, None)
        view.add_(1)
        mark.record(stream)
        assert not mark.done()
        assert device.memory()[0]
    assert platform.synchronizations == 0
    platform.synchronize(device, stream)
    assert mark.done()
    del view, output
    for each in (mark, event):
        each.close()
    device.close_memory(opened)
    device.free(own)


def test_calls_work_in_new_threads_and_leave_torchs_device_alone(device: CudaDevice) -> None:
    seen: list[Any] = []

    def use() -> None:
        event = device.create_event()
        event.record(0)
        event.close()
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
    assert platform.facts(tensor)[1] == (0, address, 6 * dtype.itemsize, name, (2, 3), (1, 2))
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
def test_what_mray_does_during_a_capture_does_not_lose_it(device: CudaDevice, start_peer: Callable[[], Peer]) -> None:
    peer = start_peer()
    theirs, handle = peer("export", 0, peer("allocate", 0, 4096)), peer("create_event", 0, "ready")
    given = torch.ones(1000, device="cuda")
    event = device.create_event()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = given + 1
        with pytest.raises(RuntimeError, match="CUDA graph is being captured"):
            event.record(device.current_stream())
        assert event.done()
        device.free(device.allocate(100))
        device.close_memory(device.open_memory(theirs))
        device.open_event(handle).close()
        device.create_event().close()
        result = result * 2
    graph.replay()
    assert result.unique().tolist() == [4]
    event.close()


# ---------------------------------------------------------------------------------------------------------- death
def test_memory_is_as_free_as_before_when_peers_were_killed(device: CudaDevice, start_peer: Callable[[], Peer]) -> None:
    before = 0
    for round_number in range(6):
        peer = start_peer()
        there = device.open_memory(peer("export", 0, peer("allocate", 0, 64 << 20)))
        event = device.open_event(peer("create_event", 0, "ready"))
        peer("record", "ready")
        view = device.tensor(there, 64 << 20, "uint8", (64 << 20,), None, None)
        peer.kill()
        event.wait(device.current_stream())
        assert view[:10].add(1).numel() == 10, "its memory is there while somebody has it open"
        torch.cuda.synchronize()
        del view
        event.close()
        device.close_memory(there)
        if round_number == 0:
            before = free_memory(device)
    assert free_memory(device) >= before - (2 << 20)


def test_a_stream_that_waits_for_the_dead_goes_on_once_its_own_process_marks_the_event(
    start_peer: Callable[[], Peer], eventually: Callable[..., None]
) -> None:
    writer, reader = start_peer(), start_peer()
    handle = writer("create_event", 0, "ready")
    reader("open_event", 0, "ready", handle)
    reader("create_event", 0, "mine")
    writer("hold", 0)
    writer("record", "ready")
    reader("wait", "ready")
    reader("record", "mine")
    assert not reader("is_done", "mine")
    writer.kill()
    reader("record_elsewhere", 0, "ready")
    eventually(lambda: reader("is_done", "mine"), what="the reader's stream goes on")


# ---------------------------------------------------------------------------------------------------------- others
def test_streams_and_memory_are_cupys_too(platform: Any, device: CudaDevice) -> None:
    cupy = pytest.importorskip("cupy")
    stream = cupy.cuda.Stream(non_blocking=True)
    source = cupy.full(16, 3, dtype=cupy.float32)
    cupy.cuda.Device(0).synchronize()
    address = device.allocate(64)
    device.copy(address, source.data.ptr, 64, stream.ptr)
    event = device.create_event()
    event.record(stream.ptr)
    platform.synchronize(device, stream.ptr)
    assert event.done()
    tensor = device.tensor(address, 64, "float32", (16,), None, None)
    assert cupy.asarray(tensor).sum() == 48
    del tensor
    event.close()
    device.free(address)
