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

from mray._device.device import Device, DeviceFaultError, NotOpenedError, Platform
from mray._device.timelines import Peers, mark
from mray._ipc.mapped import address_of
from tests.conformance.device_kinds import KINDS, Kind, Peer

DTYPES = ["float32", "float64", "float16", "int64", "int32", "int16", "int8", "uint8", "bool", "complex64"]


def rows() -> list[Any]:
    return [pytest.param(name, marks=[pytest.mark.gpu] if name == "cuda" else []) for name in KINDS]


@pytest.fixture(params=rows())
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, eventually: Callable[..., None]) -> Iterator[Kind]:
    found = KINDS[request.param]()
    why = found.why_not()
    if why:
        pytest.skip(why)
    for name, value in found.environment.items():
        monkeypatch.setenv(name, value)
    yield found
    found.close_when_done(eventually)


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
def test_tensors_of_every_dtype_tell_their_info(platform: Platform, device: Device, dtype: str) -> None:
    tensor = device.empty(dtype, (2, 3))
    assert platform.is_tensor(tensor)
    same, info = platform.info(tensor)
    assert same is tensor
    assert (info.device, info.dtype, info.shape, info.strides) == (0, dtype, (2, 3), None)
    again = device.tensor(info.address, info.size, dtype, info.shape, None, tensor)
    assert platform.info(again)[1] == info


def test_other_things_are_no_tensors(platform: Platform) -> None:
    assert not platform.is_tensor(None)
    assert not platform.is_tensor([1.0])


def test_dense_tensors_keep_their_order(kind: Kind, platform: Platform, device: Device) -> None:
    tensor = device.empty("float32", (2, 3), (1, 2))
    same, info = platform.info(tensor)
    assert same is tensor
    assert (info.size, info.strides) == (24, (1, 2))
    kind.fill(tensor[:, 1:2], 5)
    kind.fill(tensor[:, ::2], 4)
    again = device.tensor(info.address, info.size, info.dtype, info.shape, info.strides, None)
    assert kind.read(again) == [[4, 5, 4], [4, 5, 4]]
    assert kind.read(floats(device, info.address, 6)) == [4, 4, 5, 5, 4, 4]


def test_tensors_with_gaps_are_copied_to_be_dense(kind: Kind, platform: Platform, device: Device) -> None:
    tensor = device.empty("float32", (6,))
    kind.fill(tensor, 1)
    kind.fill(tensor[::2], 2)
    dense, info = platform.info(tensor[::2])
    assert (info.size, info.shape, info.strides) == (12, (3,), None)
    assert kind.read(dense) == [2, 2, 2]
    own = platform.info(tensor)[1]
    assert not own.address <= info.address < own.address + own.size


def test_a_slice_lies_within_its_tensor(platform: Platform, device: Device) -> None:
    tensor = device.empty("int32", (10,))
    whole, part = platform.info(tensor)[1], platform.info(tensor[3:7])[1]
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
    mark(device, 0)  # the first may wait for the device
    with device.on_stream(other), device.on_stream(0):
        assert device.current_stream() == 0
        with kind.hold(device, 0):
            kind.fill(tensor, 2)
            point = mark(device, 0)
            with device.on_stream(other):
                assert kind.read(tensor) == [1] * 4
            assert not point.reached()
        assert kind.read(tensor) == [2] * 4
    device.destroy_stream(other)


def test_calls_return_while_the_stream_has_not_come_to_them(kind: Kind, platform: Platform, device: Device) -> None:
    tensor = device.empty("float32", (4,))
    kind.fill(tensor, 1)
    assert mark(device, device.current_stream())  # the first may wait for the device
    with kind.hold(device, device.current_stream()):
        kind.fill(tensor, 2)
        point = mark(device, device.current_stream())
        assert not point.reached()
    assert kind.read(tensor) == [2] * 4
    platform.synchronize(device, device.current_stream())
    assert point.reached()


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


def test_a_stream_waits_for_a_point_and_the_caller_does_not(kind: Kind, platform: Platform, device: Device) -> None:
    one, other = device.create_stream(), device.create_stream()
    tensor, copy = device.empty("float32", (4,)), device.empty("float32", (4,))
    kind.fill(tensor, 1)
    kind.fill(copy, 0)
    mark(device, one)  # the first may wait for the device
    platform.synchronize(device, device.current_stream())
    counted = platform.synchronizations
    source, target = platform.info(tensor)[1].address, platform.info(copy)[1].address
    with kind.hold(device, one):
        with device.on_stream(one):
            kind.fill(tensor, 2)
        mark(device, one).wait(other)
        device.copy(target, source, 16, other)
        after = mark(device, other)
        assert not after.reached()
        assert platform.synchronizations == counted
    with device.on_stream(other):
        assert kind.read(copy) == [2] * 4
    platform.synchronize(device, other)
    assert after.reached()
    device.destroy_stream(one)  # (the other one is asked once more, before timelines are given back)


def test_a_point_that_is_reached_holds_nothing_up(kind: Kind, platform: Platform, device: Device) -> None:
    one, other = device.create_stream(), device.create_stream()
    point = mark(device, one)
    platform.synchronize(device, one)
    with kind.hold(device, one):
        mark(device, one)
        assert point.reached()
        point.wait(other)
        platform.synchronize(device, other)
    device.destroy_stream(one)
    device.destroy_stream(other)


def test_a_stream_that_waits_for_a_point_waits_for_no_later_one(kind: Kind, platform: Platform, device: Device) -> None:
    one, other = device.create_stream(), device.create_stream()
    mark(device, one).wait(other)
    with kind.hold(device, one):
        later = mark(device, one)
        platform.synchronize(device, other)
        assert not later.reached()
    platform.synchronize(device, one)
    assert later.reached()
    device.destroy_stream(one)  # (the other one is asked once more, before timelines are given back)


# ------------------------------------------------------------------------------------------------- words
@pytest.fixture
def words(device: Device) -> Iterator[tuple[int, memoryview]]:
    """The address of registered words of the host, and the words."""
    memory = mmap.mmap(-1, mmap.PAGESIZE)
    address = address_of(memory)
    device.register_host(address, mmap.PAGESIZE)
    with memoryview(memory).cast("Q") as view:
        yield address, view
    device.unregister_host(address)
    memory.close()


def test_a_word_is_set_once_all_that_is_queued_before_is_done(
    kind: Kind, platform: Platform, device: Device, words: tuple[int, memoryview]
) -> None:
    address, values = words
    stream = device.create_stream()
    with kind.hold(device, stream):
        device.set_word(address, 7, stream)
        device.set_word(address + 8, 1 << 60, stream)
        assert values[:2].tolist() == [0, 0]
    platform.synchronize(device, stream)
    assert values[:3].tolist() == [7, 1 << 60, 0]
    device.destroy_stream(stream)


def test_what_a_processor_stores_releases_a_stream(platform: Platform, device: Device, words: tuple[int, memoryview]) -> None:
    address, values = words
    stream = device.create_stream()
    device.await_word(address, 5, stream)
    device.set_word(address + 8, 1, stream)
    for value in (1, 4):
        values[0] = value
        device.set_word(address + 16, value, device.current_stream())
        platform.synchronize(device, device.current_stream())
        assert values[1:3].tolist() == [0, value]
    values[0] = 6
    platform.synchronize(device, stream)
    assert values[1] == 1
    device.destroy_stream(stream)


@pytest.mark.parametrize("number", [1, 1 << 31, (1 << 63) - 1, 1 << 63, (1 << 64) - 5])
def test_a_word_is_compared_by_the_sign_of_the_difference(
    platform: Platform, device: Device, words: tuple[int, memoryview], number: int
) -> None:
    address, values = words
    stream = device.create_stream()
    for turn, more in enumerate((0, 10, (1 << 63) - 1), 1):
        for less in (1, 1 << 63):
            values[0] = (number - less) % (1 << 64)
            device.await_word(address, number, stream)
            device.set_word(address + 8, 2 * turn - (less == 1), stream)
            platform.synchronize(device, device.current_stream())
            assert values[1] == 2 * (turn - 1) + (less != 1)
            values[0] = (number + more) % (1 << 64)
            platform.synchronize(device, stream)
            assert values[1] == 2 * turn - (less == 1)
    device.destroy_stream(stream)


def test_what_is_queued_on_a_destroyed_stream_is_done(
    kind: Kind, platform: Platform, device: Device, eventually: Callable[..., None]
) -> None:
    stream = device.create_stream()
    tensor = device.empty("float32", (4,))
    kind.fill(tensor, 0)
    platform.synchronize(device, device.current_stream())
    with device.on_stream(stream):
        for value in range(20):
            kind.fill(tensor, value)
    point = mark(device, stream)
    device.destroy_stream(stream)
    eventually(point.reached)
    assert kind.read(tensor) == [19] * 4


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
    there = platform.info(tensor)[1].address
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


@pytest.fixture
def peers(eventually: Callable[..., None]) -> Iterator[Peers]:
    """The timelines of the peer that this process has open."""
    found = Peers()
    yield found
    eventually(found.retire)


def test_a_stream_waits_for_a_point_of_another_process(kind: Kind, platform: Platform, device: Device, peer: Peer, peers: Peers) -> None:
    stream = device.current_stream()
    theirs = peer("allocate", 0, 16)
    peer("fill", 0, theirs, 4, 1)
    peer("synchronize", 0)
    address = device.open_memory(peer("export", 0, theirs))
    peers.wait(device, stream, *peer("mark", 0, "before"))
    mark(device, stream)
    peer("hold", 0)
    peer("fill", 0, theirs, 4, 2)
    ready = peer("mark", 0, "ready")
    # Their stream stands still: nobody has waited for it so far, and nobody does now.
    copy = device.empty("float32", (4,))
    peers.wait(device, stream, *ready)
    device.copy(platform.info(copy)[1].address, address, 16, stream)
    mine = mark(device, stream)
    assert not peer("is_reached", "ready")
    assert not mine.reached()
    peer("release")
    assert kind.read(copy) == [2] * 4
    assert peer("is_reached", "ready")
    platform.synchronize(device, stream)
    assert mine.reached()
    device.close_memory(address)


def test_streams_of_another_process_wait_for_a_point_of_this_one(kind: Kind, device: Device, peer: Peer) -> None:
    peer("await_point", 0, mark(device, 0).where)
    peer("mark", 0, "before")
    with kind.hold(device, 0):
        peer("await_point", 0, mark(device, 0).where)
        peer("mark", 0, "after")
        assert not peer("is_reached", "after")
    peer("synchronize", 0)
    assert peer("is_reached", "after")


def test_the_dead_are_not_waited_for(platform: Platform, device: Device, peer: Peer, peers: Peers) -> None:
    stream = device.current_stream()
    peers.wait(device, stream, *peer("mark", 0, "before"))
    mark(device, stream)
    peer("hold", 0)
    ready = peer("mark", 0, "ready")
    peers.wait(device, stream, *ready)
    mine = mark(device, stream)
    assert not mine.reached()
    peer.kill()
    platform.synchronize(device, stream)
    assert mine.reached()
    peers.wait(device, stream, *ready._replace(number=ready.number + 1000))
    platform.synchronize(device, stream)


def test_a_point_of_a_dead_process_cannot_be_opened(device: Device, peer: Peer, peers: Peers) -> None:
    where = peer("mark", 0, "ready")
    peer.kill()
    with pytest.raises(NotOpenedError):
        peers.wait(device, device.current_stream(), *where)


def test_after_a_fault_each_call_of_the_process_says_so(kind: Kind, device: Device, peer: Peer) -> None:
    where = peer("mark", 0, "mine")
    peer("await_point", 0, where)
    kept = peer("allocate", 0, 4000)
    peer("break_down", 0)
    calls: list[tuple[Any, ...]] = [
        *(("synchronize", 0), ("check", 0), ("mark", 0, "mine"), ("mark_elsewhere", 0, "another"), ("allocate", 0, 16)),
        *(("export", 0, kept), ("fill", 0, kept, 4, 1.0), ("copy", 0, kept, kept + 16, 16)),
        ("await_point", 0, where._replace(number=where.number + 1)),
    ]
    for call in calls:
        with pytest.raises(RuntimeError, match=r"(?i)illegal|assert") as caught:
            peer(*call)
        # torch's own calls raise what torch has for it.
        assert isinstance(caught.value, DeviceFaultError) or call[0] == "fill"
        assert getattr(caught.value, "name", kind.fault) == kind.fault
    assert device.memory()


def test_a_point_behind_a_fault_is_never_reached_as_long_as_the_process_lives(
    platform: Platform, device: Device, peer: Peer, peers: Peers
) -> None:
    stream = device.current_stream()
    peers.wait(device, stream, *peer("mark", 0, "before"))
    mark(device, stream)
    peer("hold", 0)
    peer("break_down", 0)
    peers.wait(device, stream, *peer("mark", 0, "ready"))
    mine = mark(device, stream)
    with pytest.raises(RuntimeError, match=r"(?i)illegal|assert"):
        peer("release")
        peer("synchronize", 0)
    assert not peer("is_reached", "ready")
    assert not mine.reached()
    peer.kill()
    platform.synchronize(device, stream)
    assert mine.reached()


def test_memory_of_the_dead_is_free_again(device: Device, peer: Peer) -> None:
    before, _total = device.memory()
    peer("allocate", 0, 8 << 20)
    assert device.memory()[0] <= before - (8 << 20)
    peer.kill()
    assert device.memory()[0] == before
