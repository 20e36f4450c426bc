"""Faults of devices are found while something is promised, and told once."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mray._device import device_faults
from mray._device.device import CaptureError, DeviceFaultError
from mray._device.device_faults import listen, promise, report
from mray._device.libcuda import CudaFaultError
from mray._device.timelines import mark
from tests.unit.fake_torch import Pair, late_pair

GONE = CudaFaultError("Asking", 700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered")


class Broken:
    """A device, or a point of a stream, that is as it is told."""

    def __init__(self, fault: BaseException | None = None, *, done: bool = False) -> None:
        self.fault = fault
        self.is_done = done
        self.looks = 0
        self.belongings: dict[str, Any] = {}

    def check(self) -> None:
        if self.fault is not None:
            raise self.fault

    def reached(self) -> bool:
        self.looks += 1
        return self.is_done


@pytest.fixture
def told() -> Iterator[list[DeviceFaultError]]:
    heard: list[DeviceFaultError] = []
    end = listen(heard.append)
    yield heard
    end()
    end()


@pytest.fixture
def pair() -> Iterator[Pair]:
    with late_pair() as made:
        yield made


def fine() -> Any:
    return Broken(done=True)


def test_nobody_looks_where_nobody_listens() -> None:
    thing = Broken(GONE)
    promise(fine(), thing)
    report(GONE)
    assert device_faults._watch is None and thing.looks == 0


def test_what_is_promised_is_looked_at_until_it_is_done(told: list[DeviceFaultError], eventually: Callable[..., None]) -> None:
    thing = Broken()
    promise(fine(), thing)
    eventually(lambda: thing.looks > 2)
    thing.is_done = True
    eventually(lambda: not device_faults._watch.promises and device_faults._watch._sleeps)
    looks = thing.looks
    promise(fine(), other := Broken(done=True))
    eventually(lambda: other.looks)
    assert thing.looks == looks
    assert told == []


def test_a_promise_without_a_thread_that_looks_is_made_anew(
    told: list[DeviceFaultError], monkeypatch: pytest.MonkeyPatch, eventually: Callable[..., None]
) -> None:
    def refuse(*_: Any) -> None:
        raise RuntimeError("can't start new thread")

    thing = Broken()
    with monkeypatch.context() as patch:
        patch.setattr(device_faults, "start_new_thread", refuse)
        promise(fine(), thing)
    assert thing.looks == 0
    promise(fine(), thing)
    eventually(lambda: thing.looks)
    thing.is_done = True
    assert told == []


@pytest.mark.parametrize("where", ["device", "report"])
def test_a_fault_is_told_once(told: list[DeviceFaultError], eventually: Callable[..., None], where: str) -> None:
    device, thing = fine(), Broken()
    promise(device, thing)
    if where == "report":
        report(GONE)
        report(GONE)
    else:
        device.fault = GONE
    eventually(lambda: told)
    report(GONE)
    promise(device, thing)
    assert told == [GONE]


def test_who_is_told_may_end_it() -> None:
    ended = threading.Event()

    def tell(_fault: DeviceFaultError) -> None:
        end()
        ended.set()

    end = listen(tell)
    report(GONE)
    assert ended.wait(60)
    end()


# -------------------------------------------------------------------------------------------------- CUDA
@pytest.mark.parametrize("status", [700, 719, 214])
def test_the_errors_of_kernels_are_faults_and_others_are_not(pair: Pair, status: int) -> None:
    mark(pair.device, 0)
    pair.device.check()
    pair.one.fault = status
    for call, action in (
        (lambda: mark(pair.device, 0), None),
        (pair.device.check, "Asking for faults failed"),
        (lambda: pair.platform.synchronize(pair.device, 0), "Waiting for a stream failed"),
        (pair.device.create_stream, None),
    ):
        with pytest.raises(DeviceFaultError, match=action) as caught:
            call()
        assert caught.value.name
    pair.one.fault = 400
    with pytest.raises(RuntimeError) as other:
        mark(pair.device, 0)
    assert not isinstance(other.value, DeviceFaultError)
    pair.one.fault = 0


def test_a_fault_is_no_capture_and_a_capture_no_fault(pair: Pair) -> None:
    mark(pair.device, 0)
    pair.one.begin_capture(0)
    with pytest.raises(CaptureError):
        mark(pair.device, 0)
    pair.device.check()
    assert pair.one.end_capture(0)
    pair.one.fault = 700
    with pytest.raises(DeviceFaultError):
        mark(pair.device, 0)
    pair.one.fault = 0


def test_what_a_broken_device_has_lent_is_let_go_of_without_a_word(pair: Pair) -> None:
    memory = ctypes.create_string_buffer(4096)
    address, stream = pair.device.allocate(100), pair.device.create_stream()
    theirs = pair.other_device.allocate(100)
    opened = pair.device.open_memory(pair.other_device.export_memory(theirs))
    pair.device.register_host(ctypes.addressof(memory), 4096)
    lets_go = [
        *(lambda: pair.device.free(address), lambda: pair.device.close_memory(opened), lambda: pair.device.destroy_stream(stream)),
        *(lambda: pair.device.unregister_host(ctypes.addressof(memory)),),
    ]
    for let_go in lets_go:
        pair.one.fault = 700
        let_go()
        pair.one.fault = 0
        let_go()
    pair.one.fault = 700
    pair.platform.close()
    pair.one.fault = 0
    pair.other_device.free(theirs)
    assert pair.one.left() == {}
