"""Pretended devices are as hard as CUDA's: each thing that a driver may do to who uses it, they do.

Rows of the null platform alone: a driver may, and these always do.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator

import pytest

from mray.testing import null
from mray.testing.null import NullDevice
from mray.testing.null_stream import CAPACITY
from tests.conformance.device_kinds import Null


@pytest.fixture
def kind(monkeypatch: pytest.MonkeyPatch) -> Iterator[Null]:
    found = Null()
    for name, value in found.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("CUDA_DEVICE_MAX_CONNECTIONS", raising=False)
    yield found
    gc.collect()
    found.close()
    gc.collect()


@pytest.fixture
def device(kind: Null) -> NullDevice:
    return first(kind)


def first(kind: Null) -> NullDevice:
    found = kind.open().devices[0]
    assert isinstance(found, NullDevice)
    return found


# ---------------------------------------------------------------------------------------- hardware queues
@pytest.mark.parametrize(("connections", "queues"), [(None, 8), ("1", 1), ("2", 2), ("99", 32)])
def test_streams_share_a_few_hardware_queues(kind: Null, monkeypatch: pytest.MonkeyPatch, connections: str | None, queues: int) -> None:
    if connections is not None:
        monkeypatch.setenv("CUDA_DEVICE_MAX_CONNECTIONS", connections)
    device = first(kind)
    streams = [0, *[device.create_stream() for _ in range(queues)]]
    events = [device.create_event() for _ in streams]
    with null.hold(0):
        for stream, event in zip(streams, events, strict=True):
            event.record(stream)
        for stream in streams[1:-1]:
            device.streams.get(stream).synchronize()
        assert [event.done() for event in events] == [False, *[True] * (queues - 1), False]
    device.streams.get(streams[-1]).synchronize()
    assert all(event.done() for event in events)
    for event in events:
        event.close()


def test_work_of_streams_that_share_a_queue_runs_at_the_same_time(kind: Null, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1")
    device = first(kind)
    other = device.create_stream()
    both = threading.Barrier(2)
    for _ in range(20):
        device.launch(0, both.wait)
        device.launch(other, both.wait)
    device.streams.get(0).synchronize()
    device.streams.get(other).synchronize()


def test_work_waits_behind_later_work_of_another_stream_of_its_queue(kind: Null, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1")
    device = first(kind)
    other, done, go = device.create_stream(), device.create_event(), threading.Event()
    device.launch(0, go.wait)
    device.launch(0, lambda: None)  # cannot begin before the first ends
    done.record(other)
    assert not done.done()
    go.set()
    device.streams.get(other).synchronize()
    assert done.done()


def test_a_call_waits_when_the_queue_is_full_and_so_do_those_of_other_threads(device: NullDevice, eventually: Callable[..., None]) -> None:
    other = device.create_stream()
    reached: list[str] = []
    event = device.create_event()

    def fill() -> None:
        for _ in range(CAPACITY + 1):
            device.launch(0, lambda: None)
        reached.append("full")

    def ask() -> None:
        event.record(other)
        reached.append("other")

    hold = null.hold(0)
    device.streams.get(other).synchronize()
    filling = threading.Thread(target=fill)
    filling.start()
    eventually(lambda: device.streams.is_clogged())
    asking = threading.Thread(target=ask)
    asking.start()
    asking.join(0.1)
    assert reached == []
    hold.release()
    filling.join()
    asking.join()
    assert sorted(reached) == ["full", "other"]


def test_finalizers_that_run_on_a_thread_of_the_device_wait_for_no_room(device: NullDevice) -> None:
    event = device.create_event()
    device.launch(0, lambda: [event.record(0) for _ in range(2 * CAPACITY)])
    device.streams.get(0).synchronize()
    device.streams.get(0).synchronize()
    assert event.done()
