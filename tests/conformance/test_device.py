"""The contract of devices, on each platform that can be had here."""

from __future__ import annotations

import ctypes
import gc
import mmap
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mray._device.base import Device, DeviceFaultError, Platform
from mray._ipc.mapped import address_of
from tests.conformance.device_kinds import KINDS, Kind, Peer

DTYPES = ["float32", "float64", "float16", "int64", "int32", "int16", "int8", "uint8", "bool", "complex64"]


def rows() -> list[Any]:
    return [pytest.param(name, marks=[pytest.mark.gpu] if name == "cuda" else []) for name in KINDS]


@pytest.fixture(params=rows())
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kind]:
    found = KINDS[request.param]()
    why = found.why_not()
    if why:
        pytest.skip(why)
    for name, value in found.environment.items():
        monkeypatch.setenv(name, value)
    yield found
    gc.collect()
    found.close()
    gc.collect()


@pytest.fixture
def platform(kind: Kind) -> Platform:
    return kind.open()


@pytest.fixture
def device(platform: Platform) -> Device:
    return platform.devices[0]


@pytest.fixture
def peer(kind: Kind) -> Iterator[Peer]:
    if not kind.has_peers:
        pytest.skip("the driver is pretended within one process")
    there = Peer(kind)
    yield there
    there.close()


def floats(device: Device, address: int, count: int, keep: object = None) -> Any:
    return device.tensor(address, 4 * count, "float32", (count,), None, keep)


class Keep:
    """Something that can be seen to die."""


# ---------------------------------------------------------------------------------------------- identity
def test_devices_have_indices_names_and_unique_uuids(platform: Platform) -> None:
    assert [device.index for device in platform.devices] == list(range(len(platform.devices)))
    assert all(device.name and device.uuid.startswith("GPU-") for device in platform.devices)
    assert len({device.uuid for device in platform.devices}) == len(platform.devices)
    for device in platform.devices:
        assert platform.device_of(device.uuid) is device
        assert device.can_access(device.uuid)
    assert platform.device_of("GPU-of-nobody") is None


def test_a_peer_sees_devices_of_the_same_uuids(platform: Platform, peer: Peer) -> None:
    address = peer("allocate", 0, 4)
    assert platform.devices[0].open_memory(peer("export", 0, address))


def test_unknown_devices_are_out_of_reach(device: Device) -> None:
    assert not device.can_access("GPU-of-nobody")


# ----------------------------------------------------------------------------------------------- tensors
@pytest.mark.parametrize("dtype", DTYPES)
def test_tensors_of_every_dtype_tell_their_facts(platform: Platform, device: Device, dtype: str) -> None:
    tensor = device.empty(dtype, (2, 3))
    assert platform.is_tensor(tensor)
    same, facts = platform.facts(tensor)
    assert same is tensor
    assert (facts.device, facts.dtype, facts.shape, facts.strides) == (0, dtype, (2, 3), None)
    again = device.tensor(facts.address, facts.size, dtype, facts.shape, None, tensor)
    assert platform.facts(again)[1] == facts


def test_other_things_are_no_tensors(platform: Platform) -> None:
    assert not platform.is_tensor(None)
    assert not platform.is_tensor([1.0])


def test_dense_tensors_keep_their_order(kind: Kind, platform: Platform, device: Device) -> None:
    tensor = device.empty("float32", (2, 3), (1, 2))
    same, facts = platform.facts(tensor)
    assert same is tensor
    assert (facts.size, facts.strides) == (24, (1, 2))
    kind.fill(tensor[:, 1:2], 5)
    kind.fill(tensor[:, ::2], 4)
    again = device.tensor(facts.address, facts.size, facts.dtype, facts.shape, facts.strides, None)
    assert kind.read(again) == [[4, 5, 4], [4, 5, 4]]
    assert kind.read(floats(device, facts.address, 6)) == [4, 4, 5, 5, 4, 4]


def test_tensors_with_gaps_are_copied_to_be_dense(kind: Kind, platform: Platform, device: Device) -> None:
    tensor = device.empty("float32", (6,))
    kind.fill(tensor, 1)
    kind.fill(tensor[::2], 2)
    dense, facts = platform.facts(tensor[::2])
    assert (facts.size, facts.shape, facts.strides) == (12, (3,), None)
    assert kind.read(dense) == [2, 2, 2]
    own = platform.facts(tensor)[1]
    assert not own.address <= facts.address < own.address + own.size


def test_a_slice_lies_within_its_tensor(platform: Platform, device: Device) -> None:
    tensor = device.empty("int32", (10,))
    whole, part = platform.facts(tensor)[1], platform.facts(tensor[3:7])[1]
    assert (part.address, part.size) == (whole.address + 12, 16)


def test_views_of_given_memory_keep_what_keeps_it(platform: Platform, device: Device) -> None:
    address = device.allocate(64)
    keep = Keep()
    is_kept = weakref.ref(keep)
    tensor = floats(device, address, 16, keep)
    view = tensor[4:][:2]
    del keep, tensor
    gc.collect()
    assert is_kept() is not None
    del view
    gc.collect()
    assert is_kept() is None
    device.free(address)


# ------------------------------------------------------------------------------------------------ memory


def test_memory_is_free_again(device: Device) -> None:
    size = 8 << 20
    before, total = device.memory()
    assert 0 < before <= total
    address = device.allocate(size)
    assert device.memory()[0] <= before - size
    device.free(address)
    assert device.memory() == (before, total)


def test_a_full_device_says_so(device: Device) -> None:
    free, total = device.memory()
    with pytest.raises(MemoryError):
        device.allocate(2 * total)
    with pytest.raises(MemoryError):
        device.empty("uint8", (2 * total,))
    assert device.memory()[0] == free


def test_large_memory_of_another_process_is_read_and_written_and_outlives_it(kind: Kind, device: Device, peer: Peer) -> None:
    count = 3_000_000
    theirs = peer("allocate", 0, 4 * count)
    peer("fill", 0, theirs, count, 5)
    peer("synchronize", 0)
    handle = peer("export", 0, theirs)
    address = device.open_memory(handle)
    tensor = floats(device, address, count)
    assert set(kind.read(tensor)) == {5}
    peer.kill()
    kind.fill(tensor[1:], 6)
    assert kind.read(tensor)[:2] == [5, 6]
    assert kind.read(tensor)[-1] == 6
    del tensor
    device.close_memory(address)
    with pytest.raises(RuntimeError):
        device.open_memory(handle)


# ------------------------------------------------------------------------------------------------- order
def test_each_thread_has_its_own_current_stream(device: Device) -> None:
    first = device.current_stream()
    stream = device.create_stream()
    seen = []
    with device.on_stream(stream):
        assert device.current_stream() == stream
        thread = threading.Thread(target=lambda: seen.append(device.current_stream()))
        thread.start()
        thread.join()
        with device.on_stream(first):
            assert device.current_stream() == first
        assert device.current_stream() == stream
    assert device.current_stream() == first
    assert seen == [first]
    device.destroy_stream(stream)


def test_stream_0_is_the_default_stream_and_no_new_one(kind: Kind, platform: Platform, device: Device) -> None:
    other = device.create_stream()
    tensor = device.empty("float32", (4,))
    kind.fill(tensor, 1)
    platform.synchronize(device, device.current_stream())
    event = device.create_event()
    with device.on_stream(other), device.on_stream(0):
        assert device.current_stream() == 0
        with kind.hold(device, 0):
            kind.fill(tensor, 2)
            event.record(0)
            with device.on_stream(other):
                assert kind.read(tensor) == [1] * 4
            assert not event.done()
        assert kind.read(tensor) == [2] * 4
    event.close()
    device.destroy_stream(other)


def test_calls_return_while_the_stream_has_not_come_to_them(kind: Kind, platform: Platform, device: Device) -> None:
    tensor = device.empty("float32", (4,))
    kind.fill(tensor, 1)
    event = device.create_event()
    with kind.hold(device, device.current_stream()):
        kind.fill(tensor, 2)
        event.record(device.current_stream())
        assert not event.done()
    assert kind.read(tensor) == [2] * 4
    assert event.done()
    event.close()


def test_streams_do_not_wait_for_each_other_by_themselves(kind: Kind, platform: Platform, device: Device) -> None:
    one, other = device.create_stream(), device.create_stream()
    tensor = device.empty("float32", (4,))
    kind.fill(tensor, 1)
    platform.synchronize(device, device.current_stream())
    with kind.hold(device, one):
        with device.on_stream(one):
            kind.fill(tensor, 2)
        with device.on_stream(other):
            assert kind.read(tensor) == [1] * 4
    platform.synchronize(device, one)
    with device.on_stream(other):
        assert kind.read(tensor) == [2] * 4
    device.destroy_stream(one)
    device.destroy_stream(other)


def test_a_stream_waits_for_an_event_and_the_caller_does_not(kind: Kind, platform: Platform, device: Device) -> None:
    one, other = device.create_stream(), device.create_stream()
    tensor, copy = device.empty("float32", (4,)), device.empty("float32", (4,))
    kind.fill(tensor, 1)
    kind.fill(copy, 0)
    platform.synchronize(device, device.current_stream())
    counted = platform.synchronizations
    source, target = platform.facts(tensor)[1].address, platform.facts(copy)[1].address
    event, after = device.create_event(), device.create_event()
    with kind.hold(device, one):
        with device.on_stream(one):
            kind.fill(tensor, 2)
        event.record(one)
        event.wait(other)
        device.copy(target, source, 16, other)
        after.record(other)
        assert not after.done()
        assert platform.synchronizations == counted
    with device.on_stream(other):
        assert kind.read(copy) == [2] * 4
    assert after.done()
    event.close()
    after.close()
    device.destroy_stream(one)
    device.destroy_stream(other)


def test_an_event_that_was_never_recorded_is_done_and_nothing_waits_for_it(kind: Kind, platform: Platform, device: Device) -> None:
    event = device.create_event()
    assert event.done()
    event.wait(device.current_stream())
    platform.synchronize(device, device.current_stream())
    event.close()
    event.close()


def test_what_waits_for_an_event_waits_for_the_mark_of_then(kind: Kind, platform: Platform, device: Device) -> None:
    one, other = device.create_stream(), device.create_stream()
    event = device.create_event()
    event.record(one)
    event.wait(other)
    with kind.hold(device, one):
        event.record(one)
        platform.synchronize(device, other)
        assert not event.done()
    platform.synchronize(device, one)
    assert event.done()
    event.close()
    device.destroy_stream(one)
    device.destroy_stream(other)


def test_an_event_may_be_closed_while_a_stream_waits_for_it(kind: Kind, platform: Platform, device: Device) -> None:
    stream = device.create_stream()
    tensor, copy = device.empty("float32", (4,)), device.empty("float32", (4,))
    event = device.create_event()
    with kind.hold(device, device.current_stream()):
        kind.fill(tensor, 2)
        event.record(device.current_stream())
        event.wait(stream)
        event.close()
        device.copy(platform.facts(copy)[1].address, platform.facts(tensor)[1].address, 16, stream)
    with device.on_stream(stream):
        assert kind.read(copy) == [2] * 4
    device.destroy_stream(stream)


def test_what_is_queued_on_a_destroyed_stream_is_done(
    kind: Kind, platform: Platform, device: Device, eventually: Callable[..., None]
) -> None:
    stream = device.create_stream()
    tensor = device.empty("float32", (4,))
    kind.fill(tensor, 0)
    event = device.create_event()
    platform.synchronize(device, device.current_stream())
    with device.on_stream(stream):
        for value in range(20):
            kind.fill(tensor, value)
    event.record(stream)
    device.destroy_stream(stream)
    eventually(event.done)
    assert kind.read(tensor) == [19] * 4
    event.close()


def test_waiting_for_a_device_is_counted(platform: Platform, device: Device) -> None:
    before = platform.synchronizations
    platform.synchronize(device, device.current_stream())
    platform.synchronize(device, device.current_stream())
    assert platform.synchronizations == before + 2


def test_registered_host_memory_is_copied_from_and_to(kind: Kind, platform: Platform, device: Device) -> None:
    memory = mmap.mmap(-1, 2 * mmap.PAGESIZE)
    address = address_of(memory)
    device.register_host(address, 2 * mmap.PAGESIZE)
    tensor = device.empty("float32", (4,))
    there = platform.facts(tensor)[1].address
    kind.fill(tensor, 2.5)
    device.copy(address + 16, there, 16, device.current_stream())
    platform.synchronize(device, device.current_stream())
    assert memoryview(memory)[16:32].cast("f").tolist() == [2.5] * 4
    ctypes.memmove(address, (ctypes.c_float * 4)(1, 2, 3, 4), 16)
    device.copy(there, address, 16, device.current_stream())
    assert kind.read(tensor) == [1, 2, 3, 4]
    device.unregister_host(address)
    memory.close()


# ----------------------------------------------------------------------------------------- two processes
def test_memory_of_another_process_is_the_same_memory(kind: Kind, platform: Platform, device: Device, peer: Peer) -> None:
    theirs = peer("allocate", 0, 4000)
    peer("fill", 0, theirs, 1000, 7)
    peer("synchronize", 0)
    address = device.open_memory(peer("export", 0, theirs))
    tensor = floats(device, address, 1000)
    assert kind.read(tensor) == [7] * 1000
    kind.fill(tensor[10:], 8)
    platform.synchronize(device, device.current_stream())
    assert peer("read", 0, theirs, 12) == [7] * 10 + [8, 8]
    device.close_memory(address)
    peer("free", 0, theirs)


def test_opened_memory_is_not_exported_once_more(device: Device, peer: Peer) -> None:
    address = device.open_memory(peer("export", 0, peer("allocate", 0, 4000)))
    with pytest.raises(RuntimeError):
        device.export_memory(address)
    device.close_memory(address)


def test_memory_of_a_dead_process_cannot_be_opened(device: Device, peer: Peer) -> None:
    handle = peer("export", 0, peer("allocate", 0, 4000))
    peer.kill()
    with pytest.raises(RuntimeError):
        device.open_memory(handle)


def test_a_stream_waits_for_an_event_of_another_process(kind: Kind, platform: Platform, device: Device, peer: Peer) -> None:
    theirs = peer("allocate", 0, 16)
    peer("fill", 0, theirs, 4, 1)
    peer("synchronize", 0)
    address = device.open_memory(peer("export", 0, theirs))
    event = device.open_event(peer("create_event", 0, "ready"))
    assert event.done()
    peer("hold", 0)
    peer("fill", 0, theirs, 4, 2)
    peer("record", "ready")
    # Their stream stands still: nobody has waited for it so far, and nobody does now.
    copy = device.empty("float32", (4,))
    event.wait(device.current_stream())
    device.copy(platform.facts(copy)[1].address, address, 16, device.current_stream())
    mine = device.create_event()
    mine.record(device.current_stream())
    assert not event.done()
    assert not mine.done()
    peer("release")
    assert kind.read(copy) == [2] * 4
    assert event.done()
    assert mine.done()
    for each in (event, mine):
        each.close()
    device.close_memory(address)


def test_the_dead_are_not_waited_for(platform: Platform, device: Device, peer: Peer) -> None:
    event = device.open_event(peer("create_event", 0, "ready"))
    peer("hold", 0)
    peer("record", "ready")
    event.wait(device.current_stream())
    assert not event.done()
    peer.kill()
    event.forsake()
    platform.synchronize(device, device.current_stream())
    assert event.done()
    event.wait(device.current_stream())
    platform.synchronize(device, device.current_stream())
    event.close()


def test_an_event_of_a_dead_process_cannot_be_opened(device: Device, peer: Peer) -> None:
    handle = peer("create_event", 0, "ready")
    peer.kill()
    with pytest.raises(RuntimeError):
        device.open_event(handle)


def test_after_a_fault_each_call_of_the_process_says_so(device: Device, peer: Peer) -> None:
    peer("create_event", 0, "mine")
    kept = peer("allocate", 0, 4000)
    peer("free", 0, gone := peer("allocate", 0, 4000))
    peer("fill", 0, gone, 1000, 1)
    calls: list[tuple[Any, ...]] = [
        *(("synchronize", 0), ("check", 0), ("is_done", "mine"), ("record", "mine"), ("wait", "mine"), ("allocate", 0, 16)),
        *(("export", 0, kept), ("fill", 0, kept, 4, 1.0), ("copy", 0, kept, kept + 16, 16), ("create_event", 0, "another")),
    ]
    for call in calls:
        with pytest.raises(RuntimeError, match=r"(?i)illegal") as caught:
            peer(*call)
        # torch's own calls raise what torch has for it.
        assert isinstance(caught.value, DeviceFaultError) or call[0] == "fill"
        assert getattr(caught.value, "name", "CUDA_ERROR_ILLEGAL_ADDRESS") == "CUDA_ERROR_ILLEGAL_ADDRESS"
    assert device.memory()


def test_an_event_behind_a_fault_is_never_done_as_long_as_the_process_lives(
    kind: Kind, platform: Platform, device: Device, peer: Peer
) -> None:
    event = device.open_event(peer("create_event", 0, "ready"))
    peer("free", 0, gone := peer("allocate", 0, 4000))
    peer("hold", 0)
    peer("fill", 0, gone, 1000, 1)
    peer("record", "ready")
    event.wait(device.current_stream())
    mine = device.create_event()
    mine.record(device.current_stream())
    with pytest.raises(RuntimeError, match=r"(?i)illegal"):
        peer("release")
        peer("synchronize", 0)
    assert not event.done()
    assert not mine.done()
    peer.kill()
    event.forsake()
    platform.synchronize(device, device.current_stream())
    assert mine.done()
    for each in (event, mine):
        each.close()


def test_memory_of_the_dead_is_free_again(device: Device, peer: Peer) -> None:
    before, _total = device.memory()
    peer("allocate", 0, 8 << 20)
    assert device.memory()[0] <= before - (8 << 20)
    peer.kill()
    assert device.memory()[0] == before
