"""Pretended devices are as hard as CUDA's: each thing that a driver may do to who uses it, they do.

Rows of the null platform alone: a driver may, and these always do.
"""

from __future__ import annotations

import mmap
import threading
import weakref
from collections.abc import Callable, Iterator

import pytest

from mray._device.device import DeviceFaultError
from mray._device.timelines import Point, mark
from mray._ipc.mapped import address_of
from mray.testing import null
from mray.testing.null import NullDevice
from mray.testing.null_stream import CAPACITY
from tests.conformance.device_kinds import Null, Peer


@pytest.fixture
def kind(monkeypatch: pytest.MonkeyPatch, eventually: Callable[..., None]) -> Iterator[Null]:
    found = Null()
    for name, value in found.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("CUDA_DEVICE_MAX_CONNECTIONS", raising=False)
    yield found
    found.close_when_done(eventually)


@pytest.fixture
def device(kind: Null) -> NullDevice:
    return first(kind)


def first(kind: Null) -> NullDevice:
    found = kind.open().devices[0]
    assert isinstance(found, NullDevice)
    return found


@pytest.fixture
def peer(kind: Null) -> Iterator[Peer]:
    there = Peer(kind)
    yield there
    there.close()


# ---------------------------------------------------------------------------------------- hardware queues
@pytest.mark.parametrize(("connections", "queues"), [(None, 8), ("1", 1), ("2", 2), ("99", 32)])
def test_streams_share_a_few_hardware_queues(kind: Null, monkeypatch: pytest.MonkeyPatch, connections: str | None, queues: int) -> None:
    if connections is not None:
        monkeypatch.setenv("CUDA_DEVICE_MAX_CONNECTIONS", connections)
    device = first(kind)
    streams = [0, *[device.create_stream() for _ in range(queues)]]
    with null.hold(0):
        points = [mark(device, stream) for stream in streams]
        for stream in streams[1:-1]:
            device.streams.get(stream).synchronize()
        assert [point.reached() for point in points] == [False, *[True] * (queues - 1), False]
    device.streams.get(streams[-1]).synchronize()
    assert all(point.reached() for point in points)


def test_work_of_streams_that_share_a_queue_runs_at_the_same_time(kind: Null, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1")
    device = first(kind)
    other = device.create_stream()
    both = threading.Barrier(2)
    met: list[int] = []
    for _ in range(20):
        device.launch(0, lambda: met.append(both.wait()))
        device.launch(other, lambda: met.append(both.wait()))
    device.streams.get(0).synchronize()
    device.streams.get(other).synchronize()
    assert sorted(met) == [0] * 20 + [1] * 20


def test_work_waits_behind_later_work_of_another_stream_of_its_queue(kind: Null, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1")
    device = first(kind)
    other, go = device.create_stream(), threading.Event()
    device.launch(0, go.wait)
    device.launch(0, lambda: None)  # cannot begin before the first ends
    point = mark(device, other)
    assert not point.reached()
    go.set()
    device.streams.get(other).synchronize()
    assert point.reached()


def test_a_call_waits_when_the_queue_is_full_and_so_do_those_of_other_threads(device: NullDevice, eventually: Callable[..., None]) -> None:
    other = device.create_stream()
    reached: list[str] = []
    mark(device, other)  # the first registers memory

    def fill() -> None:
        for _ in range(CAPACITY + 1):
            device.launch(0, lambda: None)
        reached.append("full")

    def ask() -> None:
        mark(device, other)
        reached.append("other")

    filling, asking = threading.Thread(target=fill), threading.Thread(target=ask)
    with null.hold(0):
        eventually(lambda: not device.streams.get(0)._queue._waiting, what="what holds the queue leaves its place to others")
        filling.start()
        eventually(device.streams.is_clogged)
        asking.start()
        asking.join(0.1)
        assert reached == []
    filling.join()
    asking.join()
    assert sorted(reached) == ["full", "other"]


def test_finalizers_that_run_on_a_thread_of_the_device_wait_for_no_room(device: NullDevice) -> None:
    points: list[Point] = []
    device.launch(0, lambda: points.extend([mark(device, 0) for _ in range(2 * CAPACITY)]))
    device.streams.get(0).synchronize()
    device.streams.get(0).synchronize()
    assert len(points) == 2 * CAPACITY and points[-1].reached()


# ------------------------------------------------------------------------------------------------- words
def test_words_outside_registered_memory_are_refused_and_those_of_memory_that_is_gone_are_a_fault(device: NullDevice) -> None:
    memory = mmap.mmap(-1, mmap.PAGESIZE)
    address = address_of(memory)
    for call in (device.set_word, device.await_word):
        with pytest.raises(RuntimeError, match="no word of registered memory"):
            call(address, 1, 0)
    device.register_host(address, mmap.PAGESIZE)
    for call in (device.set_word, device.await_word):
        for place in (address - 8, address + 4, address + mmap.PAGESIZE):
            with pytest.raises(RuntimeError, match="no word of registered memory"):
                call(place, 1, 0)
    device.streams.get(0).synchronize()
    with null.hold(0):
        device.set_word(address, 1, 0)
        device.unregister_host(address)
    with pytest.raises(DeviceFaultError, match="illegal address"):
        device.streams.get(0).synchronize()
    assert memory[:8] == bytes(8)
    memory.close()


def test_a_stream_that_waits_for_a_word_keeps_no_thread_after_a_fault(device: NullDevice) -> None:
    memory = mmap.mmap(-1, mmap.PAGESIZE)
    address = address_of(memory)
    device.register_host(address, mmap.PAGESIZE)
    other, done = device.create_stream(), threading.Event()
    device.await_word(address, 1, other)
    device.streams.get(other).submit(done.set)
    device.launch(0, lambda: 1 // 0)
    assert done.wait(60)
    with pytest.raises(DeviceFaultError, match="division"):
        device.set_word(address, 1, 0)


# ----------------------------------------------------------------------------------- calls that may wait
@pytest.fixture
def waiting(kind: Null, monkeypatch: pytest.MonkeyPatch) -> NullDevice:
    """A device that waits wherever a driver may."""
    monkeypatch.setenv("MRAY_NULL_DEVICES", kind.environment["MRAY_NULL_DEVICES"] + ",waits=1")
    return first(kind)


def assert_waits(device: NullDevice, call: Callable[[], object]) -> None:
    """The call waits for what is queued on any stream."""
    done = threading.Event()
    thread = threading.Thread(target=lambda: (call(), done.set()))
    with null.hold(device.create_stream()):
        thread.start()
        assert not done.wait(0.1)
    thread.join()
    assert done.is_set()


def test_opening_and_closing_wait_for_the_device(waiting: NullDevice, peer: Peer) -> None:
    device, opened = waiting, []
    theirs = peer("allocate", 0, 4000)
    handle = peer("export", 0, theirs)
    assert_waits(device, lambda: opened.append(device.open_memory(handle)))
    assert_waits(device, lambda: device.close_memory(opened[0]))
    memory = mmap.mmap(-1, mmap.PAGESIZE)
    device.register_host(address_of(memory), mmap.PAGESIZE)
    assert_waits(device, lambda: device.unregister_host(address_of(memory)))
    own = device.allocate(4000)
    assert_waits(device, lambda: device.free(own))


def test_the_first_launch_of_a_kernel_waits_for_the_device_and_others_do_not(waiting: NullDevice) -> None:
    array = null.ones(4)
    assert_waits(waiting, lambda: array.astype("int32"))
    with null.hold(waiting.create_stream()):
        assert array.astype("int32").tolist() == [1] * 4


def test_nothing_waits_where_it_need_not(device: NullDevice, peer: Peer) -> None:
    theirs = peer("allocate", 0, 4000)
    handle = peer("export", 0, theirs)
    with null.hold(device.create_stream()):
        device.close_memory(device.open_memory(handle))
        device.free(device.allocate(4000))
        assert null.ones(4).astype("int32").tolist() == [1] * 4


# ---------------------------------------------------------------------------------------------- allocator
def test_a_block_goes_back_to_the_stream_that_allocated_it_whatever_other_stream_reads_it(device: NullDevice) -> None:
    """Spoiled as by the next array there: a reader on another stream is too late, unless its stream was recorded, or waited for."""
    other = device.create_stream()
    for protects in ("record_stream", "wait"):
        with null.hold(other), device.on_stream(other):
            array = null.ones(100)  # of the other stream, and read on this one
        copy = null.zeros(100)
        device.streams.get(0).follow(device.streams.get(other))
        hold = null.hold(0)
        copy.copy_(array)
        if protects == "record_stream":
            array.record_stream(0)
        else:
            device.streams.get(other).follow(device.streams.get(0))
        del array
        hold.release()
        assert copy.tolist() == [1] * 100
    with device.on_stream(other):
        array = null.ones(100)
    device.streams.get(0).follow(device.streams.get(other))
    hold = null.hold(0)
    copy.copy_(array)
    del array
    device.streams.get(other).synchronize()
    hold.release()
    with pytest.raises(RuntimeError, match="illegal address"):
        copy.tolist()


def test_memory_that_the_allocator_does_not_own_is_not_kept_by_record_stream(device: NullDevice) -> None:
    class Keep:
        pass

    keep = Keep()
    is_kept = weakref.ref(keep)
    address = device.allocate(4000)
    other = device.create_stream()
    tensor = device.tensor(address, 4000, "float32", (1000,), None, keep)
    del keep
    with null.hold(other):
        tensor.record_stream(other)
        del tensor
        assert is_kept() is None
    device.free(address)
