"""Every transport keeps the contract of `mray._channel.base`. One row per mechanism."""

from __future__ import annotations

import gc
import os
import pickle
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

from mray._channel.base import NOTHING, ChannelReader, ChannelWriter, Failed
from mray._device.platform import forget_platform, platform
from mray._gpu.cuda_ipc import CudaIpcReader, CudaIpcWriter, trim_pools
from mray._ipc import mapped
from mray._ipc.table import PARKED, ROW_WORDS
from tests.inproc import InprocWriter

ENTRIES = 4
Ends = tuple[ChannelWriter, list[ChannelReader]]
Make = Callable[[int], Ends]


@pytest.fixture(params=["inproc", "shm", "cuda_ipc", "pinned"])
def make(request: pytest.FixtureRequest, shm: Any, monkeypatch: pytest.MonkeyPatch, eventually: Any) -> Iterator[Make]:
    """Makes a channel with room for `ENTRIES` messages. Those of devices carry here what is on none; see `test_channel_devices`."""
    kind = request.param

    def build(readers: int = 1) -> Ends:
        if kind == "shm":
            return shm.make(readers)
        if kind == "inproc":
            writer = InprocWriter(readers, ENTRIES)
            return writer, [writer.reader(number) for number in range(readers)]
        devices = platform()
        make_writer = partial(CudaIpcWriter, platform=devices, pinned=kind == "pinned")
        return shm.make(readers, make_writer, partial(CudaIpcReader, platform=devices), leases=4)

    if kind in ("cuda_ipc", "pinned"):
        monkeypatch.setenv("MRAY_NULL_DEVICES", "1")
        forget_platform()
    yield build
    if kind in ("cuda_ipc", "pinned"):
        shm.close_rings()
        eventually(trim_pools)
        forget_platform()


VALUES = ["", "text", "ä" * 3000, "\ud800", b"", b"x" * 5000, 0, -1, 1 << 80, 2.5, 1j, None, True, [1, [2, {"a": (3,)}]], {"k": "v" * 2000}]


# ------------------------------------------------------------------------------------- every mechanism
@pytest.mark.parametrize("value", VALUES, ids=lambda value: repr(value)[:12])
def test_values_arrive(make: Make, value: Any) -> None:
    writer, (reader,) = make(1)
    assert writer.try_write(value)
    back = reader.try_read()
    assert back == value
    assert type(back) is type(value)


def test_messages_arrive_in_order_and_once(make: Make) -> None:
    writer, (reader,) = make(1)
    for number in range(20):
        assert writer.try_write(number)
        assert writer.try_write(str(number))
        assert reader.try_read() == number
        assert reader.try_read() == str(number)
        assert reader.try_read() is NOTHING


def test_each_reader_gets_every_message(make: Make) -> None:
    writer, readers = make(3)
    for number in range(3):
        assert writer.try_write([number])
    for reader in readers:
        assert [reader.try_read() for _ in range(4)] == [[0], [1], [2], NOTHING]


def test_reading_nothing_says_so(make: Make) -> None:
    writer, (reader,) = make(1)
    assert not reader.ready()
    assert reader.try_read() is NOTHING
    writer.try_write(1)
    assert reader.ready()
    assert reader.ready()


def test_a_full_channel_takes_no_more_until_the_slowest_reader_has_read(make: Make) -> None:
    writer, (quick, slow) = make(2)
    for number in range(ENTRIES):
        assert writer.has_room()
        assert writer.try_write(number)
    assert not writer.has_room()
    assert not writer.try_write("more")
    assert quick.try_read() == 0
    assert not writer.try_write("more")
    assert slow.try_read() == 0
    assert writer.has_room()
    assert writer.try_write("more")
    assert [quick.try_read() for _ in range(ENTRIES)] == [1, 2, 3, "more"]


@pytest.mark.parametrize("length", [10, 100_000])
def test_failures_are_messages(make: Make, length: int) -> None:
    writer, (reader,) = make(1)
    assert writer.try_write(Failed(b"f" * length))
    assert writer.try_write("fine")
    failed = reader.try_read()
    assert type(failed) is Failed
    assert failed.payload == b"f" * length
    assert reader.try_read() == "fine"


def test_closing_twice_is_safe_and_values_stay(make: Make) -> None:
    writer, (reader,) = make(1)
    writer.try_write(np.arange(100_000))
    value = reader.try_read()
    for _ in range(2):
        writer.close()
        reader.close()
    assert value.sum() == sum(range(100_000))


def test_writing_is_counted(make: Make) -> None:
    writer, (reader,) = make(1)
    writer.try_write(1)
    writer.try_write(2)
    reader.try_read()
    statistics = writer.statistics()
    assert statistics["written"] == 2
    assert statistics["waiting"] == 1


# -------------------------------------------------------------------------------------- shared memory
@pytest.mark.parametrize("size", [10, 1000, 3000, 70_000, 5_000_000])
def test_arrays_are_read_only_and_whole(shm: Any, size: int) -> None:
    writer, (reader,) = shm.make(1)
    array = np.arange(size)
    for _ in range(10):
        assert writer.try_write({"a": array, "n": size})
        back = reader.try_read()
        np.testing.assert_array_equal(back["a"], array)
        assert not back["a"].flags.writeable


def test_a_value_that_cannot_be_pickled_is_not_sent(shm: Any) -> None:
    writer, (reader,) = shm.make(1)
    with pytest.raises(TypeError, match="cannot pickle"):
        writer.try_write([1, threading.Lock()])
    assert reader.try_read() is NOTHING
    assert writer.try_write("next")
    assert reader.try_read() == "next"


class Explosive:
    def __init__(self, padding: int) -> None:
        self.padding = "x" * padding

    def __setstate__(self, state: Any) -> None:
        raise RuntimeError("not here")


@pytest.mark.parametrize("padding", [0, 100_000])
def test_a_value_that_cannot_be_unpickled_is_a_failure(shm: Any, padding: int) -> None:
    writer, (reader,) = shm.make(1)
    assert writer.try_write(Explosive(padding))
    assert writer.try_write("next")
    failed = reader.try_read()
    assert type(failed) is Failed
    assert "not here" in str(pickle.loads(failed.payload))
    assert reader.try_read() == "next"


def test_slots_are_reused_when_the_last_view_is_gone(shm: Any) -> None:
    writer, (reader,) = shm.make(1)
    for _ in range(20):
        writer.try_write(np.zeros(200_000))
        value = reader.try_read()
        part = value[10:]
        del value
        assert part.sum() == 0
        del part
    statistics = writer.statistics()
    assert statistics["slots"] == 1
    assert statistics["in_use"] == 0


@pytest.mark.parametrize(
    "value", ["ä" * 50_000, b"x" * 50_000, {"k": ["v" * 50_000]}, Explosive(50_000)], ids=lambda value: type(value).__name__
)
def test_a_value_that_keeps_nothing_of_its_slot_releases_it_at_once_and_asks_for_no_faults(
    shm: Any, value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, (reader,) = shm.make(1)
    for _ in range(3):
        assert writer.try_write(value)
        kept = reader.try_read()
        monkeypatch.setattr(mapped, "fault_count", lambda: pytest.fail("it is mapped, and nobody has a view of it"))
        assert writer.statistics()["in_use"] == 0
        assert type(kept) is Failed or kept == value
    assert writer.statistics()["slots"] == 1


def test_a_slot_waits_for_every_reader(shm: Any) -> None:
    writer, (one, two) = shm.make(2)
    writer.try_write(np.full(200_000, 1))
    first = one.try_read()
    held = two.try_read()
    del first
    writer.try_write(np.full(200_000, 2))
    assert held.sum() == 200_000
    assert writer.statistics()["slots"] == 2


def test_values_that_are_held_never_change_and_never_block(shm: Any) -> None:
    writer, (reader,) = shm.make(1)
    held = []
    for number in range(30):
        assert writer.try_write(np.full(20_000, number))
        held.append(reader.try_read())
    for number, array in enumerate(held):
        assert (array == number).all()
    statistics = writer.statistics()
    assert statistics["slots"] == 6
    assert statistics["given_away"] == 24
    del array
    held.clear()
    assert writer.statistics()["in_use"] == 0
    writer.try_write(np.full(20_000, 99))
    assert reader.try_read()[0] == 99


def test_a_larger_value_replaces_a_slot_and_frees_the_old_one(shm: Any) -> None:
    writer, (reader,) = shm.make(1)
    for size in (100_000, 1_000_000, 10_000_000, 100_000):
        writer.try_write(np.zeros(size, np.uint8))
        assert reader.try_read().nbytes == size
    statistics = writer.statistics()
    assert statistics["slots"] == 1
    assert 10_000_000 <= statistics["bytes"] < 11_000_000


def test_names_live_as_briefly_as_they_can(shm: Any) -> None:
    def names() -> set[str]:
        return {name for name in os.listdir("/dev/shm") if name.startswith(shm.prefix[1:] + "s")}

    writer, (reader,) = shm.make(1)
    writer.try_write(np.zeros(100_000))
    assert len(names()) == 1
    value = reader.try_read()
    writer.try_write(np.zeros(100_000))
    assert len(names()) == 1
    reader.try_read()
    writer.try_write(np.zeros(100_000))
    assert len(names()) == 0
    del value
    writer.close()
    assert not names()


def test_a_reader_that_sleeps_is_rung_and_one_that_is_awake_is_not(shm: Any) -> None:
    writer, _readers = shm.make(2)
    shm.table.words[ROW_WORDS * 2] = PARKED  # reader 1
    writer.try_write(1)
    assert os.eventfd_read(shm.doorbells[2].fd) == 1
    with pytest.raises(BlockingIOError):
        os.eventfd_read(shm.doorbells[1].fd)


def test_a_writer_that_waits_for_room_is_rung_before_its_reader_sleeps(shm: Any) -> None:
    writer, (reader,) = shm.make(1)
    while writer.try_write(1):
        pass
    shm.table.words[0] = PARKED
    reader.try_read()
    while reader.ready():
        reader.try_read()
    assert os.eventfd_read(shm.doorbells[0].fd) >= 1
    assert writer.has_room()


def test_a_forked_child_releases_nothing(shm: Any) -> None:
    writer, (reader,) = shm.make(1)
    writer.try_write(np.zeros(200_000))
    value = reader.try_read()
    pid = os.fork()
    if pid == 0:
        del value
        gc.collect()
        os._exit(0)
    os.waitpid(pid, 0)
    assert writer.statistics()["in_use"] == 1
    del value
    assert writer.statistics()["in_use"] == 0


# ------------------------------------------------------------------------------ for those who look on
def test_both_ends_count_messages_alike(make: Make) -> None:
    writer, readers = make(2)
    for number in range(6):
        assert writer.position() == number
        assert writer.try_write("x" * 3000 if number % 2 else number)
        for reader in readers:
            assert reader.position() == number
            reader.try_read()
            assert reader.position() == number + 1
    assert writer.position() == 6


@pytest.mark.parametrize(
    ("value", "least", "most"),
    [("text", 4, 4), (b"b" * 5000, 5000, 5000), (7, 1, 20), (np.zeros(10), 80, 300), (np.zeros(50_000), 400_000, 400_300)],
    ids=["text", "large bytes", "number", "small array", "large array"],
)
def test_a_writer_knows_the_size_of_the_last_message(shm: Any, value: Any, least: int, most: int) -> None:
    writer, (reader,) = shm.make(1)
    assert writer.last_size() == 0
    writer.try_write(1)
    reader.try_read()
    writer.try_write(value)
    assert least <= writer.last_size() <= most
    reader.try_read()


def test_what_is_passed_on_without_a_copy_counts_as_what_it_is(shm: Any) -> None:
    writer, (reader,) = shm.make(1)
    onward, (last,) = shm.make(1)
    writer.try_write({"array": np.zeros(100_000), "more": "text"})
    value = reader.try_read()
    onward.try_write(value["array"])
    assert onward.statistics()["passed_on"] == 1
    assert 800_000 <= onward.last_size() <= 800_300
    onward.try_write(value)
    assert onward.statistics()["passed_on"] == 2
    assert 800_000 <= onward.last_size() <= 800_500
    assert last.try_read().nbytes == 800_000
