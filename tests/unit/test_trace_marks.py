"""Marks on streams: when a device came to a place in its work, by the clock of the host."""

from __future__ import annotations

import os
from collections.abc import Iterator
from time import monotonic_ns

import pytest

from mray._device import cuda_marks, libcuda
from mray._device.cuda import CudaDevice
from mray.testing import null
from mray.testing.null_stream import StreamHold
from tests.unit.fake_cuda import FakeCuda, FakeMachine


@pytest.fixture
def machine() -> FakeMachine:
    return FakeMachine()


@pytest.fixture
def cuda(machine: FakeMachine) -> Iterator[FakeCuda]:
    process = FakeCuda(machine)
    yield process
    assert not machine.undefined


@pytest.fixture
def device(cuda: FakeCuda) -> CudaDevice:
    return cuda.platform().devices[0]  # type: ignore[return-value]


def test_a_mark_has_the_time_at_which_the_stream_came_there(device: CudaDevice) -> None:
    before = monotonic_ns()
    first, second = device.mark(0), device.mark(0)
    after = monotonic_ns()
    begin, end = first.time(), second.time()
    assert begin is not None
    assert end is not None
    # The driver tells times as floats of milliseconds.
    assert before - 10_000 <= begin <= end + 1_000
    assert end <= after + 10_000


def test_a_mark_has_no_time_before_the_stream_comes_there(cuda: FakeCuda, device: CudaDevice) -> None:
    device.mark(0)  # sets the clock
    stream = device.create_stream()
    with cuda.hold(0, stream):
        mark = device.mark(stream)
        assert mark.time() is None
    device.synchronize(stream)
    assert mark.time() is not None
    device.destroy_stream(stream)


def test_events_of_marks_are_lent_again_and_destroyed_in_the_end(cuda: FakeCuda, device: CudaDevice) -> None:
    for _ in range(50):
        assert device.mark(0).time() is not None
    assert len(cuda.events) <= cuda_marks.READINGS + 1
    device.mark(0)  # nobody asks for its time
    device.close()
    assert not cuda.events
    assert device.mark(0).time() is not None
    device.close()


def test_clocks_that_no_mark_goes_by_any_more_cost_no_event(cuda: FakeCuda, device: CudaDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_marks, "LASTS", -1)
    kept = device.mark(0)
    for _ in range(50):
        assert device.mark(0).time() is not None
    assert len(cuda.events) <= cuda_marks.READINGS + 3
    assert kept.time() is not None
    del kept
    device.close()
    assert not cuda.events


def test_a_clock_is_set_anew_after_a_while(cuda: FakeCuda, device: CudaDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    early = device.mark(0)
    monkeypatch.setattr(cuda_marks, "LASTS", -1)
    late = device.mark(0)
    begin, end = early.time(), late.time()
    assert begin is not None
    assert end is not None
    assert begin <= end + 100_000
    device.close()
    assert libcuda.NOT_READY


def test_a_stream_that_is_captured_is_refused(cuda: FakeCuda, device: CudaDevice) -> None:
    device.mark(0)
    stream = device.create_stream()
    cuda.begin_capture(stream)
    with pytest.raises(RuntimeError, match="A CUDA graph is being captured"):
        device.mark(stream)
    assert cuda.end_capture(stream)
    assert device.mark(stream).time() is not None
    device.destroy_stream(stream)


def test_marks_of_pretended_devices_wait_for_their_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MRAY_NULL_DEVICES", f"1,scope=marks{os.getpid()}")
    from mray._device.platform import forget_platform, platform
    from mray.testing.null import NullPlatform

    forget_platform()
    try:
        devices = platform()
        assert isinstance(devices, NullPlatform)
        (device,) = devices.devices
        assert isinstance(device, null.NullDevice)
        with StreamHold(device.streams.get(0)):
            mark = device.mark(0)
            assert mark.time() is None
            held = monotonic_ns()
        devices.synchronize(device, 0)
        reached = mark.time()
        assert reached is not None
        assert reached >= held
    finally:
        forget_platform()
