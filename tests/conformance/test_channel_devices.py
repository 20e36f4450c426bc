"""Edges that carry the tensors of pretended devices: nothing waits, nothing is torn, nothing is kept. A row per mechanism and place."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import logging
import os
import pickle
import subprocess
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

from mray._channel.base import NOTHING, ChannelReader, ChannelWriter, Failed
from mray._device import death_watch
from mray._device.device import CaptureError, DeviceOutOfMemoryError
from mray._device.exports import LEAST_CHUNK, MOST_AHEAD
from mray._device.memory_pool import pool_of
from mray._device.pinned_memory import owner_of
from mray._device.platform import forget_platform, platform
from mray._device.timelines import mark
from mray._gpu.cuda_ipc import CudaIpcReader, CudaIpcWriter, trim_pools
from mray._ipc.process import start_of
from mray.testing import null
from mray.testing.null import NullArray, NullDevice, NullPlatform
from mray.testing.null_stream import StreamHold

LEASES = 8
#: Mechanism, whether the GPUs have peer access, and the reader's GPU (the writer's is 0).
ROWS = {"cuda_ipc, one GPU": ("cuda_ipc", 1, 0), "cuda_ipc, two GPUs": ("cuda_ipc", 1, 1), "pinned, two GPUs": ("pinned", 0, 1)}


class Edge:
    """Both ends of an edge in this process, which see different devices and use different streams."""

    def __init__(self, shm: Any, kind: str, reader_gpu: int, readers: int = 1, *, proven: bool = True, **reader_info: Any) -> None:
        own = platform()
        assert isinstance(own, NullPlatform)
        self.platform = own
        self.here = own.devices[0]
        self.view = NullPlatform(own.info_of_machine._replace(**reader_info), [reader_gpu])
        self.there: NullDevice = self.view.devices[0]
        self.stream = self.there.create_stream()
        self.is_pinned = kind == "pinned"
        self.writer: ChannelWriter
        self.readers: list[ChannelReader]
        self.writer, self.readers = shm.make(
            readers,
            partial(CudaIpcWriter, platform=own, proven=proven, pinned=self.is_pinned),
            partial(CudaIpcReader, platform=self.view, name="the edge from A.f to B.g"),
            leases=LEASES,
            name="the edge from A.f to B.g",
        )

    def send(self, value: Any) -> None:
        assert self.writer.try_write(value)

    def read(self, reader: int = 0) -> Any:
        with self.there.on_stream(self.stream):
            return self.readers[reader].try_read()

    @property
    def reading(self) -> Any:
        """The stream on which the reader lets go: where it copies, the one that does."""
        staging = self.readers[0]._imports._staging  # type: ignore[attr-defined]
        return self.there.streams.get(staging[self.there].stream if staging else self.stream)

    @property
    def writing(self) -> Any:
        """The stream that copies what is sent."""
        return self.here.streams.get(next(iter(self.writer._exports._streams.values()), 0))  # type: ignore[attr-defined]

    def settle_writer(self) -> None:
        """Wait for the streams of a writer whose process a test takes for dead, though it lives: its waits for copies end too early then,
        so its copies must be done before its death, or before what it has sent is dropped and its end closed.
        """
        for stream in (0, *self.writer._exports._streams.values()):
            self.here.streams.get(stream).synchronize()

    def host(self, array: NullArray) -> Any:
        """The content of an array as the reader's stream sees it."""
        with self.there.on_stream(self.stream):
            return array.numpy()

    @property
    def counts(self) -> dict[str, int]:
        return self.writer.statistics()

    def free(self) -> list[int]:
        """Free bytes of both devices, without what arrays that are gone have left for the next."""
        self.there.heap.trim()
        return [device.memory()[0] for device in self.platform.devices]

    @property
    def waits(self) -> int:
        return self.platform.synchronizations + self.view.synchronizations


@pytest.fixture
def make_edge(shm: Any, monkeypatch: pytest.MonkeyPatch, eventually: Any) -> Iterator[Callable[..., Edge]]:
    """Makes an edge of a mechanism, to a reader on that one of two pretended GPUs; all device memory is back at the end."""
    edges: list[Edge] = []

    def make(
        kind: str, gpu: int, *, peer: int = 1, readers: int = 1, late: float = 0.0, memory: int = 1 << 28, options: str = "", **reader: Any
    ) -> Edge:
        monkeypatch.setenv("MRAY_NULL_DEVICES", f"2,peer={peer},late={late},memory={memory},scope=edges{os.getpid()}{options}")
        forget_platform()
        edges.append(Edge(shm, kind, gpu, readers, **reader))
        return edges[-1]

    yield make
    null.set_late(None)
    shm.close_rings()
    eventually(trim_pools)
    for edge in edges:
        edge.view.close()
        vars(edge).clear()  # pytest keeps the arguments of tests
    forget_platform()
    gc.collect()


@pytest.fixture(params=ROWS)
def edge_of(request: pytest.FixtureRequest, make_edge: Callable[..., Edge]) -> Callable[..., Edge]:
    kind, peer, gpu = ROWS[request.param]
    return partial(make_edge, kind, gpu, peer=peer)


@pytest.fixture
def edge(edge_of: Callable[..., Edge]) -> Edge:
    return edge_of()


@pytest.fixture
def same_gpu(make_edge: Callable[..., Edge]) -> Edge:
    return make_edge("cuda_ipc", 0)


@pytest.fixture
def same_gpu_not_tried(make_edge: Callable[..., Edge]) -> Edge:
    return make_edge("cuda_ipc", 0, proven=False)


ARRAYS = {
    "0-d": lambda: null.full((), 7),
    "empty": lambda: null.empty((0, 3)),
    "bool": lambda: null.from_numpy(np.array([True, False])),
    "int8": lambda: null.arange(5, dtype="int8"),
    "complex": lambda: null.from_numpy(np.array([[1j, 2], [3, 4j]])),
    "transposed": lambda: null.from_numpy(np.arange(12.0).reshape(3, 4)).T,
    "strided": lambda: null.from_numpy(np.arange(24.0).reshape(4, 6))[::2, 1::2],
    "slice": lambda: null.arange(100, dtype="float64")[10:20],
    "large": lambda: null.arange(300_000, dtype="float32"),
}


# ---------------------------------------------------------------------------------------- values
@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_arrive_as_they_are(edge: Edge, name: str) -> None:
    array = ARRAYS[name]()
    expected = array.numpy()
    edge.send(array)
    back = edge.read()
    assert isinstance(back, NullArray)
    assert (back.shape, back.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_array_equal(edge.host(back), expected)
    assert edge.view.device_of(edge.there.uuid) is edge.there


def test_values_without_device_tensors_arrive_as_ever(edge: Edge) -> None:
    for value in ["text", b"bytes", 3, None, [1, {"a": 2.5}], b"x" * 100_000]:
        edge.send(value)
        assert edge.read() == value
    array = np.arange(50_000)
    edge.send(array)
    np.testing.assert_array_equal(edge.read(), array)
    assert edge.counts["device_copied"] == edge.counts["device_leases"] == 0


def test_tensors_inside_values_arrive_with_the_rest(edge: Edge) -> None:
    value = {"a": null.full(3, 1), "b": [np.arange(40_000), (null.full((2, 2), 2), "text")], "c": null.zeros(0)}
    edge.send(value)
    back = edge.read()
    assert edge.host(back["a"]).tolist() == [1, 1, 1]
    assert edge.host(back["b"][1][0]).tolist() == [[2, 2], [2, 2]]
    assert back["b"][1][1] == "text"
    np.testing.assert_array_equal(back["b"][0], np.arange(40_000))
    assert back["c"].shape == (0,)
    assert edge.counts["device_leases"] <= 1, "the tensors of one message share a lease"


class Foreign:
    """An array of another library: on a device, or not."""

    def __init__(self, *, is_there: bool) -> None:
        self.is_there = is_there

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if not self.is_there:
            raise AttributeError("on the host")
        return {"version": 3, "data": (4096, False), "shape": (1,), "typestr": "<f4"}


def test_arrays_of_other_libraries_arrive_with_one_warning(same_gpu: Edge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mray._device.foreign._known_kinds", set())
    same_gpu.send(Foreign(is_there=False))
    assert not same_gpu.read().is_there
    with pytest.warns(
        RuntimeWarning, match=r"the edge from A\.f to B\.g carries a .*Foreign of a GPU, which is pickled through host memory"
    ):
        same_gpu.send({"a": [1], "b": Foreign(is_there=True)})
    same_gpu.send(Foreign(is_there=True))  # where warnings are errors
    assert same_gpu.read()["b"].is_there and same_gpu.read().is_there
    assert same_gpu.counts["device_copied"] == 0


def test_a_failure_is_a_message(edge: Edge) -> None:
    edge.send(Failed(pickle.dumps(ValueError("no"))))
    assert edge.readers[0].failed()
    assert isinstance(edge.read(), Failed)


def test_what_cannot_be_pickled_is_not_sent_and_holds_nothing(edge: Edge) -> None:
    edge.send(1)
    with pytest.raises((TypeError, pickle.PicklingError)):
        edge.writer.try_write([null.full(3, 1), (x for x in ())])
    assert edge.counts["device_leases"] == 0
    edge.send(null.full(2, 5))
    assert edge.read() == 1
    assert edge.host(edge.read()).tolist() == [5, 5]
    assert edge.read() is NOTHING


# ---------------------------------------------------------------------------------------- order, without waiting
def test_nobody_on_the_host_waits_for_the_writers_device(edge: Edge) -> None:
    edge.send(null.full(4, 0))  # whatever is opened and made at first
    edge.read()
    before = edge.waits
    with null.hold(0) as held:
        array = null.full(4, 3)
        array += 1
        edge.send(array)
        edge.send(array * 2)
        first, second = edge.read(), edge.read()
        assert edge.waits == before
        held.release()
        assert edge.host(first).tolist() == [4] * 4
        assert edge.host(second).tolist() == [8] * 4


def test_a_reader_on_another_stream_sees_what_was_written_late(edge_of: Callable[..., Edge]) -> None:
    edge = edge_of(late=0.003)
    for number in range(5):
        edge.send(null.full(1000, number) * 10)
        assert set(edge.host(edge.read()).tolist()) == {number * 10}


def test_memory_is_not_written_again_before_the_reader_is_done_with_it(edge_of: Callable[..., Edge]) -> None:
    edge = edge_of(late=0.002)
    results = []
    for number in range(3 * MOST_AHEAD):
        edge.send(null.full(500, number))
        with edge.there.on_stream(edge.stream):
            array = edge.readers[0].try_read()
            results.append(array + 0.5)  # queued behind others, late
            del array
    for number, result in enumerate(results):
        assert set(edge.host(result).tolist()) == {number + 0.5}
    assert edge.counts["device_bytes"] <= 2 * MOST_AHEAD * 2048, "it is used again"


def test_a_reader_whose_device_is_late_holds_up_no_writer_while_there_are_blocks(edge_of: Callable[..., Edge]) -> None:
    edge, results = edge_of(), []

    def there_and_back(number: int) -> Callable[[], bool]:
        edge.send(null.full(500, number))
        with edge.there.on_stream(edge.stream):
            array = edge.readers[0].try_read()
            results.append(array + 0.5)
        del array
        return done(edge.here, edge.writing.number)

    there_and_back(0)
    edge.reading.synchronize()
    with StreamHold(edge.reading):
        for number in range(1, MOST_AHEAD + 1):
            there_and_back(number)
            edge.writing.synchronize()
        after = there_and_back(MOST_AHEAD + 1)
        edge.there.streams.get(0).synchronize()
        assert not after(), "its memory is that of a message which the reader's device has not looked at"
    assert [set(edge.host(result).tolist()) for result in results] == [{number + 0.5} for number in range(len(results))]


def test_of_large_tensors_two_are_ahead_of_a_late_reader(make_edge: Callable[..., Edge], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MRAY_DEVICE_POOL_BYTES", str(1 << 20))
    edge = make_edge("cuda_ipc", 0)
    with StreamHold(edge.reading):
        for number in range(6):
            edge.send(null.full(100_000, number))
            edge.read()
    assert edge.counts["device_bytes"] <= 3 * 400_384


def test_a_writer_whose_device_is_full_waits_for_a_late_reader(make_edge: Callable[..., Edge]) -> None:
    edge, results = make_edge("cuda_ipc", 0, memory=10 << 20), []
    array = null.full(500_000, 0)
    with StreamHold(edge.reading):
        for number in range(6):
            edge.send(array.fill_(number))
            with edge.there.on_stream(edge.stream):
                results.append(edge.readers[0].try_read()[:5] + 0.5)
    assert [set(edge.host(result).tolist()) for result in results] == [{number + 0.5} for number in range(6)]


def test_a_value_that_is_kept_is_never_overwritten_and_keeps_nobody_from_writing(edge: Edge) -> None:
    kept = []
    for number in range(4 * LEASES):
        edge.send(null.full(100, number))
        kept.append(edge.read())
    for number, array in enumerate(kept):
        assert set(edge.host(array).tolist()) == {number}
    assert edge.counts["device_refused"] == 0


def test_leases_that_both_ends_remember_leave_some_for_other_messages(same_gpu: Edge) -> None:
    edge, kept = same_gpu, []
    with StreamHold(edge.reading):  # the reader lets go, and its device is late
        for number in range(4 * LEASES):
            edge.send(null.full(100, number))
            array = edge.read()
            if number % 2:
                kept.append((number, array))
            del array
        assert edge.counts["device_refused"] == 0
    for number, array in kept:
        assert set(edge.host(array).tolist()) == {number}


def test_the_sender_may_change_what_it_has_sent(edge: Edge) -> None:
    array = null.full(10, 1)
    edge.send(array)
    array.fill_(2)
    assert edge.host(edge.read()).tolist() == [1] * 10


def test_each_of_several_readers_may_write_to_what_it_got(edge_of: Callable[..., Edge]) -> None:
    edge = edge_of(readers=2)
    edge.send(null.full(10, 1))
    first, second = edge.read(0), edge.read(1)
    with edge.there.on_stream(edge.stream):
        first.fill_(9)
    assert edge.host(second).tolist() == [1] * 10
    assert edge.host(first).tolist() == [9] * 10


# ---------------------------------------------------------------------------------------- copies


@pytest.mark.parametrize("keeper", ["name", "view", "container"])
def test_what_somebody_keeps_is_no_concern_of_its_reader(same_gpu: Edge, keeper: str) -> None:
    edge = same_gpu
    kept: list[Any] = []

    def result() -> Any:
        array = null.full(100, 3)
        value = {"x": array} if keeper == "container" else array
        kept.append(array[3:] if keeper == "view" else value)
        return value

    edge.send(result())
    assert edge.counts["device_copied"] == 1
    back = edge.read()
    with edge.here.on_stream(0):
        (kept[0]["x"] if keeper == "container" else kept[0]).fill_(4)
    assert edge.host(back["x"] if keeper == "container" else back).tolist() == [3] * 100


def test_memory_that_was_sent_is_used_again_only_after_its_reader(same_gpu: Edge) -> None:
    edge = same_gpu
    null.set_late(0.002)
    try:
        results = []
        for number in range(3 * MOST_AHEAD):
            edge.send(null.full(400, number))
            with edge.there.on_stream(edge.stream):
                results.append(edge.readers[0].try_read() + 0.5)
        for number, result in enumerate(results):
            assert set(edge.host(result).tolist()) == {number + 0.5}
        assert edge.counts["device_copied"] == 3 * MOST_AHEAD
    finally:
        null.set_late(None)


@pytest.mark.parametrize("idiom", ["wait back", "record_stream"])
def test_a_side_stream_that_reads_what_came_is_waited_for_and_record_stream_does_not_do_that(same_gpu: Edge, idiom: str) -> None:
    """The allocator, which heeds `record_stream`, does not own the memory of what came."""
    edge = same_gpu
    streams = edge.there.streams
    current, side = streams.get(edge.stream), streams.get(edge.there.create_stream())
    edge.send(null.full(100, 1))
    array = edge.read()
    side.follow(current)
    with StreamHold(side):
        with edge.there.on_stream(side.number):
            copy = array + 0.5
        if idiom == "wait back":
            current.follow(side)
        else:
            array.record_stream(side.number)
        del array
        if idiom == "record_stream":
            current.synchronize()  # so that its memory is the next to be used
        for number in range(2, 5):
            edge.send(null.full(100, number))
            edge.read()
        if idiom == "record_stream":
            edge.here.streams.get(0).synchronize()
    with edge.there.on_stream(side.number):
        assert (set(copy.tolist()) == {1.5}) == (idiom == "wait back")


def test_tensors_of_one_shape_come_to_the_same_address(same_gpu: Edge) -> None:
    edge = same_gpu
    addresses = set()
    for number in range(20):
        edge.send(null.full(123, number))
        array = edge.read()
        addresses.add(array.address)
        del array
        edge.reading.synchronize()
    assert len(addresses) == 1


def test_memory_is_not_used_again_when_its_reader_lives_and_cannot_be_waited_for(same_gpu: Edge, monkeypatch: pytest.MonkeyPatch) -> None:
    """For want of descriptors, perhaps. It is, once that is over."""
    edge = same_gpu

    def refuse_to_register(device: NullDevice, address: int, size: int, plain: Any = NullDevice.register_host) -> None:
        if device is edge.here:
            raise RuntimeError("no more host memory can be registered")
        plain(device, address, size)

    results = []
    edge.send(null.full(100, 1))
    with StreamHold(edge.there.streams.get(edge.stream)), monkeypatch.context() as patched:
        patched.setattr(NullDevice, "register_host", refuse_to_register)
        for number in range(2, 5):
            with edge.there.on_stream(edge.stream):
                results.append(edge.readers[0].try_read() + 0.5)
            edge.send(null.full(100, number))
        edge.platform.synchronize(edge.here, 0)
    assert [set(edge.host(result).tolist()) for result in results] == [{1.5}, {2.5}, {3.5}]
    edge.read()
    edge.send(null.full(100, 5))
    assert edge.counts["device_leases"] == 1


# ---------------------------------------------------------------------------------------- nothing is made for a message
@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The calls of devices that make, open, register or end something."""
    made: list[str] = []
    for name in (
        *("allocate", "free", "export_memory", "open_memory", "close_memory"),
        *("register_host", "unregister_host", "create_stream", "destroy_stream"),
    ):
        plain = getattr(NullDevice, name)

        def call(device: NullDevice, *arguments: Any, name: str = name, plain: Any = plain) -> Any:
            made.append(name)
            return plain(device, *arguments)

        monkeypatch.setattr(NullDevice, name, call)
    return made


def test_after_the_first_message_nothing_is_opened_registered_or_ended(edge_of: Callable[..., Edge], shm: Any, calls: list[str]) -> None:
    edge = edge_of()
    back, (reader,) = shm.make(
        1,
        partial(CudaIpcWriter, platform=edge.view, pinned=edge.is_pinned),
        partial(CudaIpcReader, platform=edge.platform),
        leases=LEASES,
    )

    def there_and_back(number: int) -> None:
        edge.send({"a": null.full(100, number), "b": null.full(50, 1)})
        with edge.there.on_stream(edge.stream):
            assert back.try_write(edge.readers[0].try_read()["a"])
        assert reader.try_read().tolist() == [number] * 100

    there_and_back(1)
    there_and_back(2)  # by which the writers learn to whom they have lent
    assert {"allocate", "register_host"} & set(calls)
    calls.clear()
    for number in range(3, 4 * LEASES):
        there_and_back(number)
    assert calls == []


def shared_files() -> list[str]:
    """Files of shared memory that this process has mapped or open."""
    with open("/proc/self/maps") as maps:
        found = {line.split(maxsplit=5)[-1].strip() for line in maps if "/dev/shm/" in line}
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found.add(os.readlink(f"/proc/self/fd/{fd}"))
    return sorted(name for name in found if name.startswith("/dev/shm/"))


def test_an_edge_has_no_file_but_its_ring_and_gives_its_descriptors_back(edge_of: Callable[..., Edge], shm: Any, eventually: Any) -> None:
    before = shared_files()
    edge = edge_of()
    for device in (edge.here, edge.there):
        mark(device, 0)  # timelines stay as long as the process
    edge.free()
    descriptors = len(os.listdir("/proc/self/fd"))
    for number in range(5):
        edge.send(null.full(100, number))
        assert edge.host(edge.read()).tolist() == [number] * 100
    new = [name for name in shared_files() if name not in before]
    assert new == [name for name in new if name.startswith(f"/dev/shm{shm.prefix}ring")]
    assert len(os.listdir("/proc/self/fd")) > descriptors
    shm.close_rings()
    eventually(trim_pools)
    for device in (edge.here, edge.there):
        device.heap.trim()
    eventually(lambda: len(os.listdir("/proc/self/fd")) <= descriptors)


# ---------------------------------------------------------------------------------------- edges that were not tried before
def test_an_edge_that_was_not_tried_sends_through_the_host_and_tries(edge_of: Callable[..., Edge]) -> None:
    edge = edge_of(readers=2, proven=False, late=0.002)
    for number in range(6):
        edge.send({"array": null.full(100, number), "rest": "text"})
        for reader in range(2):
            back = edge.read(reader)
            assert (edge.host(back["array"]).tolist(), back["rest"]) == ([number] * 100, "text")
            assert isinstance(back["array"], NullArray)
    assert (edge.counts["device_refused"], edge.counts["device_unopened"]) == (2, 0)
    assert edge.counts["device_copied"] == 1 + 4, "that of the trial, and those since"


def test_values_without_tensors_are_no_reason_to_try(edge_of: Callable[..., Edge]) -> None:
    edge = edge_of(proven=False)
    for value in (1, "text", [1, {"a": 2.5}], (None,)):
        edge.send(value)
        assert edge.read() == value
    assert edge.counts["device_copied"] == edge.counts["device_leases"] == 0


@pytest.mark.parametrize("cut_off", ["ipc", "words", "exports"])
def test_an_edge_whose_reader_opens_nothing_goes_on_through_the_host_and_says_so_once(
    make_edge: Callable[..., Edge], cut_off: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="mray")
    options, reader = (",exports=0", {}) if cut_off == "exports" else ("", {cut_off: False})
    edge = make_edge("cuda_ipc", 0, proven=False, options=options, **reader)
    for number in range(6):
        edge.send(null.full(100, number))
        assert edge.host(edge.read()).tolist() == [number] * 100
    assert (edge.counts["device_refused"], edge.counts["device_leases"], edge.counts["device_unopened"]) == (6, 0, 1)
    assert caplog.text.count("the edge from A.f to B.g carries tensors through host memory") == 1


def test_messages_on_their_way_do_not_try_twice(same_gpu_not_tried: Edge) -> None:
    edge = same_gpu_not_tried
    for number in range(4):
        edge.send(null.full(100, number))
    assert [edge.host(edge.read()).tolist()[0] for _ in range(4)] == [0, 1, 2, 3]
    edge.send(null.full(100, 5))
    assert edge.host(edge.read()).tolist()[0] == 5
    assert (edge.counts["device_refused"], edge.counts["device_copied"]) == (4, 2)


def test_tensors_in_a_list_are_none_of_another_library(same_gpu: Edge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mray._device.foreign._known_kinds", {list, int})
    monkeypatch.setattr(NullArray, "__cuda_array_interface__", {"version": 3}, raising=False)
    same_gpu.send([null.full(3, 1), 2])  # where warnings are errors
    assert same_gpu.host(same_gpu.read()[0]).tolist() == [1] * 3


# ---------------------------------------------------------------------------------------- memory
def test_changing_shapes_need_no_more_than_one_region(same_gpu: Edge) -> None:
    edge = same_gpu
    generator = np.random.default_rng(3)
    for size in generator.integers(1, 1 << 20, 300):
        edge.send(null.full(int(size), 1, dtype="int8"))
        assert edge.read().shape == (size,)
    assert pool_of(edge.here).held() == 64 << 20


def test_the_pool_grows_and_a_tensor_larger_than_it_fits(edge_of: Callable[..., Edge], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MRAY_DEVICE_POOL_BYTES", str(4 << 20))
    edge = edge_of()
    kept = []
    for number in range(5):
        edge.send(null.full(3 << 20, number, dtype="int8"))
        kept.append(edge.read())
    edge.send(null.full(9 << 20, 7, dtype="int8"))
    kept.append(edge.read())
    assert [int(edge.host(array)[-1]) for array in kept] == [0, 1, 2, 3, 4, 7]


def test_a_full_device_is_an_error_that_names_the_edge_and_the_next_message_is_fine(make_edge: Callable[..., Edge]) -> None:
    edge = make_edge("cuda_ipc", 0, memory=80 << 20)
    array = null.empty(30 << 20, dtype="int8")
    with pytest.raises(DeviceOutOfMemoryError, match=r"the edge from A.f to B.g: No memory is left on Null GPU \(GPU-null-0\)"):
        edge.writer.try_write([array, array + 0, 1])
    del array
    assert edge.counts["device_leases"] == 0
    edge.send(null.full(5, 1))
    assert edge.host(edge.read()).tolist() == [1] * 5


def test_closing_gives_all_device_memory_back(edge: Edge, shm: Any, eventually: Any) -> None:
    free = edge.free()
    for number in range(3):
        edge.send({"a": null.full(1000, number)})
    value = edge.read()
    assert edge.host(value["a"])[0] == 0
    del value
    shm.close_rings()  # two messages were never read
    eventually(trim_pools)
    eventually(lambda: edge.free() == free)


def test_a_value_stays_valid_after_both_ends_are_closed(edge: Edge, shm: Any, eventually: Any) -> None:
    free = edge.free()
    edge.send(null.full(1000, 8))
    value = edge.read()
    shm.close_rings()
    trim_pools()
    assert set(edge.host(value).tolist()) == {8}
    del value
    eventually(trim_pools)
    eventually(lambda: edge.free() == free)


def test_a_release_that_cannot_be_marked_yet_is_made_up_for(same_gpu: Edge, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a stream whose work is captured as a graph no point can be marked."""
    edge = same_gpu
    edge.send(null.full(10, 1))
    array = edge.read()
    with monkeypatch.context() as patched:
        patched.setattr(NullDevice, "set_word", refuse)
        del array
    assert edge.counts["device_leases"] == 1
    edge.send(null.full(10, 2))
    assert edge.host(edge.read()).tolist() == [2] * 10
    edge.send(null.full(10, 3))
    assert edge.counts["device_leases"] == 1, "the two before have come back"


def refuse(_device: NullDevice, _address: int, _number: int, _stream: int) -> None:
    raise CaptureError("a graph is being captured")


def refuse_to_open(_device: NullDevice, _handle: bytes) -> int:
    raise RuntimeError("the memory is gone")


@pytest.mark.parametrize("wrap", [lambda array: array, lambda array: {"a": array}], ids=["bare", "inside"])
def test_what_a_dead_writer_has_sent_and_nobody_opened_is_no_error_but_nothing(
    same_gpu: Edge, monkeypatch: pytest.MonkeyPatch, wrap: Callable[[Any], Any]
) -> None:
    """The news of the death comes by another way, and says who died and how."""
    edge = same_gpu
    edge.send(wrap(null.full(10, 1)))
    with monkeypatch.context() as patched:
        patched.setattr(NullDevice, "open_memory", refuse_to_open)
        assert isinstance(edge.read(), Failed), "the writer lives, so this is a fault"
        edge.send(wrap(null.full(10, 2)))
        patched.setattr("mray._gpu.channel_leases.has_died", lambda _words, _line: True)
        assert edge.read() is NOTHING
        edge.writer.try_write(3)
        assert not edge.readers[0].ready()


# ---------------------------------------------------------------------------------------- several devices, death, captures
@pytest.mark.parametrize(("kind", "peer"), [("cuda_ipc", 1), ("pinned", 0)])
def test_tensors_of_several_gpus_are_not_taken_for_each_other(make_edge: Callable[..., Edge], kind: str, peer: int) -> None:
    """Their reader sees one of the GPUs, and opens the memory of both there."""
    edge = make_edge(kind, 1, peer=peer)
    edge.send([null.full(10, 1, device=0), null.full(10, 2, device=1)])
    assert [edge.host(array).tolist() for array in edge.read()] == [[1] * 10, [2] * 10]


def test_both_pools_of_a_gpu_may_have_one_reader(make_edge: Callable[..., Edge], shm: Any) -> None:
    one = make_edge("pinned", 1)
    one.send(null.full(10, 1))
    writer, (reader,) = shm.make(1, partial(CudaIpcWriter, platform=one.platform), partial(CudaIpcReader, platform=one.view), leases=LEASES)
    assert writer.try_write(null.full(10, 2))
    assert [one.host(one.read()).tolist(), reader.try_read().tolist()] == [[1] * 10, [2] * 10]


class Owners:
    """Processes that stand in for the ends of an edge, where the kernel is asked whether those live: timelines are said to be theirs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._owners: dict[bytes, subprocess.Popen[bytes]] = {}
        monkeypatch.setattr("mray._device.mappings.owner_of", self._owner_of)

    def _owner_of(self, handle: bytes) -> tuple[int, int]:
        process = self._owners.get(handle)
        return owner_of(handle) if process is None else (process.pid, start_of(process.pid))

    def stand_in(self, device: NullDevice) -> None:
        """For the process whose view of the device this is."""
        self._owners[mark(device, 0).where.handle] = subprocess.Popen(["sleep", "1000"])

    def kill(self, device: NullDevice) -> None:
        """Gone when this returns."""
        process = self._owners[mark(device, 0).where.handle]
        process.kill()
        process.wait()

    def close(self) -> None:
        for process in self._owners.values():
            process.kill()
            process.wait()


@pytest.fixture
def owners(monkeypatch: pytest.MonkeyPatch, make_edge: Callable[..., Edge]) -> Iterator[Owners]:
    del make_edge  # it comes to its end later
    found = Owners(monkeypatch)
    yield found
    found.close()


def test_streams_that_wait_for_a_writer_go_on_when_it_dies_though_nothing_is_read(
    edge_of: Callable[..., Edge], owners: Owners, eventually: Any
) -> None:
    """The thread that reads may be within the driver, and wait there for just that."""
    edge = edge_of()
    owners.stand_in(edge.here)
    edge.send(null.full(10, 1))
    edge.read()
    edge.settle_writer()
    hold = null.hold(0)
    sent = null.full(10, 2)
    edge.send(sent)
    edge.read()
    after = done(edge.there, edge.stream)
    edge.there.streams.get(0).synchronize()
    assert not after()
    owners.kill(edge.here)
    eventually(after)
    hold.release()
    edge.settle_writer()
    del sent


def test_a_point_of_a_dead_writer_that_is_read_after_the_news_is_not_waited_for(
    edge_of: Callable[..., Edge], owners: Owners, eventually: Any
) -> None:
    edge = edge_of()
    owners.stand_in(edge.here)
    edge.send(null.full(10, 1))
    edge.read()
    edge.settle_writer()
    hold = null.hold(0)
    sent = [null.full(10, number) for number in range(3)]
    for array in sent:
        edge.send(array)
    edge.read()
    owners.kill(edge.here)
    for _ in range(2):
        eventually(done(edge.there, edge.stream))
        edge.read()
    eventually(done(edge.there, edge.stream))
    hold.release()
    edge.settle_writer()
    del sent


@pytest.mark.parametrize("is_closed", [False, True])
def test_streams_that_wait_for_a_reader_go_on_when_it_dies_though_nothing_is_written(
    edge_of: Callable[..., Edge], owners: Owners, shm: Any, eventually: Any, monkeypatch: pytest.MonkeyPatch, is_closed: bool
) -> None:
    monkeypatch.setattr("mray._device.exports.MOST_AHEAD", 1)
    edge = edge_of()
    owners.stand_in(edge.there)
    edge.send(null.full(10, 1))
    edge.read()
    reading = edge.reading
    hold = StreamHold(reading)
    edge.send(null.full(10, 2))
    edge.read()
    for number in (3, 4):
        edge.send(null.full(10, number))  # whose memory is that of one which was let go of
    after = done(edge.here, edge.writing.number)
    edge.there.streams.get(0).synchronize()
    assert not after()
    if is_closed:
        shm.close_rings()
        assert not trim_pools()
        assert not after()
    owners.kill(edge.there)
    eventually(after)
    hold.release()
    reading.synchronize()  # it lives: nothing may be closed before


def test_nobody_is_told_of_a_death_after_it_has_ended_its_watch() -> None:
    """It would write to words that are closed; and nobody after it would be told."""
    order: list[str] = []
    inside, go = threading.Event(), threading.Event()
    with subprocess.Popen(["sleep", "1000"]) as process:
        named = process.pid, start_of(process.pid)
        end_first = death_watch.then(named, lambda: (inside.set(), go.wait()))
        end_second = death_watch.then(named, lambda: order.append("told"))
        process.kill()
        inside.wait()
        ending = threading.Thread(target=lambda: (end_second(), order.append("ended")))
        ending.start()
        ending.join(0.1)
        go.set()
        ending.join()
        end_first()
    assert order == ["told", "ended"]


def test_a_process_that_is_dead_already_is_told_at_once(eventually: Any) -> None:
    told: list[int] = []
    with subprocess.Popen(["sleep", "1000"]) as process:
        named = process.pid, start_of(process.pid)
        death_watch.then((process.pid, named[1] - 1), lambda: told.append(1))()  # another one, long ago
        death_watch.then(named, lambda: told.append(2))()
        process.kill()
    assert told == [1]
    death_watch.then(named, lambda: told.append(3))()
    assert told == [1, 3]
    death_watch.then((os.getpid(), 0), lambda: told.append(4))()
    assert told == [1, 3]


def test_ends_whose_streams_cannot_be_marked_are_closed_later(
    same_gpu: Edge, shm: Any, monkeypatch: pytest.MonkeyPatch, eventually: Any
) -> None:
    edge = same_gpu
    free = edge.free()
    edge.send(null.full(1000, 8))
    edge.read()
    with monkeypatch.context() as patched:
        patched.setattr(NullDevice, "set_word", refuse)
        shm.close_rings()
        assert not trim_pools()
    eventually(trim_pools)
    eventually(lambda: edge.free() == free)


def test_a_region_is_not_given_back_while_a_stream_that_used_it_cannot_be_marked(
    same_gpu: Edge, monkeypatch: pytest.MonkeyPatch, eventually: Any
) -> None:
    pool, stream = pool_of(same_gpu.here), same_gpu.here.create_stream()
    pool.free(pool.claim(1000, stream), [stream])
    with monkeypatch.context() as patched:
        patched.setattr(NullDevice, "set_word", refuse)
        for _ in range(2):
            assert not pool.trim()
    eventually(pool.trim)


# ---------------------------------------------------------------------------------------- copies between devices
@pytest.fixture(params=[row for row in ROWS if ROWS[row][2]])
def two_gpus(request: pytest.FixtureRequest, make_edge: Callable[..., Edge]) -> Edge:
    kind, peer, gpu = ROWS[request.param]
    return make_edge(kind, gpu, peer=peer)


def contents(array: NullArray) -> set[float]:
    """The numbers in its memory now, whatever is queued."""
    return set(np.ctypeslib.as_array(ctypes.cast(array.address, ctypes.POINTER(ctypes.c_float)), array.shape).tolist())


def done(device: NullDevice, stream: int) -> Callable[[], bool]:
    """Whether the stream has come as far as it was queued until now."""
    return mark(device, stream).reached


def test_a_copy_waits_for_nothing_that_the_reader_computes(two_gpus: Edge, eventually: Any) -> None:
    edge = two_gpus
    with StreamHold(edge.there.streams.get(edge.stream)):
        for number in range(3):
            edge.send(null.full(100, number))
        arrays = [edge.read() for _ in range(3)]
        eventually(lambda: [contents(array) for array in arrays] == [{0}, {1}, {2}])
    assert edge.waits == 0


def test_memory_goes_back_to_its_writer_as_soon_as_it_is_copied(two_gpus: Edge, eventually: Any) -> None:
    edge = two_gpus
    kept = []
    edge.send(null.full(100, 1))
    with StreamHold(edge.there.streams.get(edge.stream)):
        kept.append(edge.read())
        eventually(lambda: contents(kept[0]) == {1})
        assert edge.counts["device_leases"] == 0


def test_copies_go_to_two_blocks_in_turn_and_wait_for_what_the_reader_does_with_them(two_gpus: Edge, eventually: Any) -> None:
    edge = two_gpus
    pool, results = pool_of(edge.there, staging=True), []
    with StreamHold(edge.there.streams.get(edge.stream)):
        for number in range(2):
            edge.send(null.full(100, number))
            with edge.there.on_stream(edge.stream):
                array = edge.readers[0].try_read()
                results.append(array + 0.5)
                eventually(lambda array=array, number=number: contents(array) == {number})
                del array
        edge.send(null.full(100, 2))
        third = edge.read()
        staging = edge.readers[0]._imports._staging[edge.there]
        assert not done(edge.there, staging.stream)()
        assert contents(third) == {0}, "what the reader has queued is not done with it"
        assert pool.used() == 2 * 512
    for number, result in enumerate([*results, third]):
        assert set(edge.host(result).tolist()) == {number + 0.5 if number < 2 else 2}
    assert edge.readers[0]._imports.copied == 3


def test_a_reader_that_is_ahead_waits_when_it_uses_the_value(two_gpus: Edge, eventually: Any) -> None:
    edge = two_gpus
    edge.readers[0].ahead()
    with null.hold(0):
        edge.send(null.full(100, 3))
        array = edge.read()
        eventually(done(edge.there, edge.stream))
        edge.readers[0].settle()
        assert not done(edge.there, edge.stream)()
    assert set(edge.host(array).tolist()) == {3}
    edge.send(null.full(100, 4))
    del array
    edge.read()  # never used: its block is not written to before it is staged
    edge.send(null.full(100, 5))
    array = edge.read()
    edge.readers[0].settle()
    assert set(edge.host(array).tolist()) == {5}


def test_the_next_message_is_copied_while_one_is_used(two_gpus: Edge, eventually: Any) -> None:
    edge, reader = two_gpus, two_gpus.readers[0]
    reader.ahead()
    edge.send(null.full(100, 1))
    edge.platform.synchronize(edge.here, 0)
    with null.hold(0):
        edge.send(null.full(100, 2))
        first = edge.read()
        assert reader._imports.copied == 2
        assert reader.ready()
        assert (reader.position(), reader.failed()) == (1, False)
        reader.settle()
        eventually(done(edge.there, edge.stream))  # what uses the first one does not wait for the second
        second = edge.read()
        assert reader._imports.copied == 2
        assert edge.read() is NOTHING
        reader.settle()
        assert not done(edge.there, edge.stream)()
    assert [set(edge.host(array).tolist()) for array in (first, second)] == [{1}, {2}]
    edge.send(null.full(100, 3))
    edge.send(Failed(b"why"))
    edge.read()
    assert reader.failed()
    assert edge.read().payload == b"why"


# ---------------------------------------------------------------------------------------- through the host, in chunks
#: Numbers of four bytes: six chunks.
BIG = 6 * LEAST_CHUNK // 4


@pytest.fixture
def pinned(make_edge: Callable[..., Edge]) -> Edge:
    return make_edge("pinned", 1, peer=0)


def test_chunks_come_down_from_the_host_while_others_go_up(pinned: Edge, monkeypatch: pytest.MonkeyPatch, eventually: Any) -> None:
    edge = pinned
    sizes: dict[int, list[int]] = {}
    held: list[StreamHold] = []

    def copy(device: NullDevice, target: int, source: int, size: int, stream: int, plain: Any = NullDevice.copy) -> None:
        sizes.setdefault(stream, []).append(size)
        plain(device, target, source, size, stream)
        if device is edge.here and len(sizes[stream]) == 2:
            held.append(StreamHold(device.streams.get(stream)))

    monkeypatch.setattr(NullDevice, "copy", copy)
    edge.send(null.arange(BIG, dtype="float32"))
    waits = edge.waits
    array = edge.read()
    (up, ups), (down, downs) = sizes.items()
    assert ups == downs == [LEAST_CHUNK] * 6
    assert len({up, down, 0, edge.stream}) == 4, "each direction has a stream of its own"
    memory = np.ctypeslib.as_array(ctypes.cast(array.address, ctypes.POINTER(ctypes.c_float)), array.shape)
    first, second = LEAST_CHUNK // 4 - 1, LEAST_CHUNK // 4
    eventually(lambda: memory[first] == first)
    assert memory[second] != second, "nothing has said that the second chunk is there"
    assert edge.waits == waits
    held[0].release()
    assert (edge.host(array) == np.arange(BIG, dtype="float32")).all()


@pytest.mark.parametrize("is_dense", [True, False])
def test_who_made_a_tensor_goes_on_once_it_is_copied(pinned: Edge, is_dense: bool) -> None:
    edge = pinned
    edge.send(null.full(4, 0))
    edge.read()
    (stream,) = edge.writer._exports._streams.values()
    with edge.here.on_stream(edge.here.create_stream()):
        with StreamHold(edge.here.streams.get(stream)):
            made = null.full(2000, 1)
            edge.send(made if is_dense else made[::2])
            made.fill_(2)
            after = done(edge.here, edge.here.current_stream())
            edge.here.streams.get(0).synchronize()
            assert not after()
        assert set(edge.host(edge.read()).tolist()) == {1}
        edge.here.streams.current.synchronize()
        assert after()


def test_the_memory_of_a_sent_tensor_is_used_again_only_when_it_was_copied(pinned: Edge) -> None:
    edge = pinned
    null.set_late(0.002)
    for number in range(12):
        edge.send(null.full(1000, number))
        assert set(edge.host(edge.read()).tolist()) == {number}
    assert edge.counts["device_copied"] == 12
