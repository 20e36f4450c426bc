"""CUDA devices, on a pretended driver that minds its arguments."""

from __future__ import annotations

import ctypes
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from mray._device import libcuda, nvml
from mray._device.cuda import CudaPlatform, find_platform
from mray._device.libcuda import CudaError, LibCuda
from mray._device.pinned_memory import PinnedMemory
from mray._device.timelines import Peers, mark
from mray.testing import null_memory
from tests.unit.cuda_header import SIGNATURES
from tests.unit.fake_cuda import FakeCuda, FakeMachine
from tests.unit.fake_torch import Pair, late_pair

pytest.importorskip("torch")


@pytest.fixture
def pair() -> Iterator[Pair]:
    with late_pair() as made:
        yield made


# ---------------------------------------------------------------------------------------------- the library
def test_every_function_is_declared_as_in_the_header() -> None:
    assert {**libcuda.GIVES_LOCK_AWAY, **libcuda.KEEPS_LOCK} == SIGNATURES
    assert not set(libcuda.GIVES_LOCK_AWAY) & set(libcuda.KEEPS_LOCK)


def test_what_may_wait_gives_the_interpreters_lock_away() -> None:
    assert set(libcuda.KEEPS_LOCK) == {
        *("cuGetErrorName", "cuGetErrorString", "cuCtxGetCurrent", "cuCtxSetCurrent", "cuThreadExchangeStreamCaptureMode")
    }


def test_functions_nobody_declared_are_not_there() -> None:
    with pytest.raises(AttributeError, match="cuLaunchKernel"):
        _ = FakeCuda(FakeMachine()).lib.cuLaunchKernel


def test_a_library_too_old_for_a_function_is_refused() -> None:
    class Old:
        pass

    with pytest.raises(AttributeError):
        LibCuda(Old(), Old())


def test_errors_have_cudas_name_and_text_and_can_be_pickled(pair: Pair) -> None:
    with pytest.raises(CudaError, match=r"Freeing memory failed: CUDA_ERROR_INVALID_VALUE \(invalid argument\)\.") as caught:
        pair.device.free(0x1000)
    error = caught.value
    assert (error.status, error.name, error.text) == (1, "CUDA_ERROR_INVALID_VALUE", "invalid argument")
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.status) == (str(error), 1)


def test_an_error_that_the_driver_has_no_name_for_is_told_by_its_number(pair: Pair) -> None:
    assert str(pair.one.lib.error("This", 4711)) == "This failed: CUDA error 4711 (no description)."


# ------------------------------------------------------------------------------------------------- identity
def test_without_a_driver_there_is_no_platform(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libcuda, "LIBRARY", "libcuda-that-is-not-there.so.1")
    assert find_platform() is None
    assert libcuda.installed_driver() is None


def test_a_driver_without_a_function_says_which_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    class Old:
        def __getattr__(self, name: str) -> Any:
            if name == "cuDeviceGetUuid_v2":
                raise AttributeError(name)
            return ctypes.CFUNCTYPE(ctypes.c_int)(lambda: 0)

    monkeypatch.setattr(libcuda.ctypes, "CDLL", lambda _name: Old())
    with pytest.warns(RuntimeWarning, match=r"mray uses no GPU: libcuda\.so\.1 has no cuDeviceGetUuid_v2\. .* CUDA 12\.0"):
        assert libcuda.load() is None
    assert libcuda.installed_driver() == ("0.0", ["cuDeviceGetUuid_v2"])


@pytest.mark.parametrize("cuda", [FakeCuda(FakeMachine(), visible=[]), FakeCuda(FakeMachine(), forked=True)], ids=["no device", "forked"])
def test_without_devices_or_after_a_fork_there_is_no_platform(cuda: FakeCuda) -> None:
    assert find_platform(cuda.lib) is None


def test_identity_is_had_without_a_context() -> None:
    cuda = FakeCuda(FakeMachine(2))
    platform = cuda.platform()
    assert [device.uuid for device in platform.devices] == [f"GPU-{n}{n}-{n}-{n}-{n}-{n}{n}{n}" for n in ("0000", "0101")]
    assert [device.name for device in platform.devices] == ["Fake GPU"] * 2
    assert platform.devices[0].can_access(platform.devices[1].uuid)
    assert platform.device_of(platform.devices[1].uuid) is platform.devices[1]
    assert "cuDevicePrimaryCtxRetain" not in cuda.calls


def test_part_of_a_gpu_has_a_name_of_its_own() -> None:
    machine = FakeMachine()
    machine.devices[0].uuid = bytes(range(16))
    assert FakeCuda(machine).platform().devices[0].uuid == "MIG-00010203-0405-0607-0809-0a0b0c0d0e0f"


def test_peers_that_cannot_reach_each_other_say_so() -> None:
    one, other = FakeCuda(FakeMachine(2, peers=False)).platform().devices
    assert not one.can_access(other.uuid)
    assert one.can_access(one.uuid)


class FakeNvml:
    """libnvidia-ml, which knows two GPUs of the machine, whatever CUDA shows."""

    def __init__(self, uuids: list[str], statuses: dict[int, int], *, starts: bool = True) -> None:
        self.uuids = [uuid.encode() for uuid in uuids]
        self.statuses = statuses
        self.starts = starts
        self.started = 0

    def nvmlInit_v2(self) -> int:
        self.started += self.starts
        return 0 if self.starts else 9

    def nvmlShutdown(self) -> int:
        self.started -= 1
        return 0

    def nvmlDeviceGetHandleByUUID(self, uuid: bytes, device: Any) -> int:
        if uuid not in self.uuids:
            return 6
        device._obj.value = 1 + self.uuids.index(uuid)
        return 0

    def nvmlDeviceGetP2PStatus(self, device: Any, other: Any, index: int, status: Any) -> int:
        assert {device.value, other.value} == {1, 2}
        status._obj.value = self.statuses[index]
        return 0


@pytest.mark.parametrize(
    ("library", "reaches"),
    [
        (FakeNvml(["GPU-a", "GPU-b"], {0: 0, 1: 0}), True),
        (FakeNvml(["GPU-a", "GPU-b"], {0: 0, 1: 5}), False),
        (FakeNvml(["GPU-a", "GPU-b"], {0: 3, 1: 0}), False),
        (FakeNvml(["GPU-a"], {0: 0, 1: 0}), False),
        (FakeNvml(["GPU-a", "GPU-b"], {0: 0, 1: 0}, starts=False), False),
    ],
    ids=["reads and writes", "cannot write", "cannot read", "not given to this container", "does not start"],
)
def test_devices_that_cuda_does_not_show_are_asked_about_elsewhere(library: FakeNvml, reaches: bool) -> None:
    assert nvml.can_access("GPU-a", "GPU-b", library) is reaches
    assert library.started == 0


@pytest.mark.parametrize(("status", "pairs"), [(0, [("GPU-a", "GPU-b")]), (2, [])])
def test_links_are_those_of_the_gpus_that_the_library_knows(status: int, pairs: list[tuple[str, str]]) -> None:
    library = FakeNvml(["GPU-a", "GPU-b"], {nvml.CAPS_INDEX_NVLINK: status})
    assert nvml.links(["GPU-a", "GPU-x", "GPU-b"], library) == pairs
    assert library.started == 0


def test_access_to_an_invisible_device_is_what_nvml_says(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = FakeMachine(2)
    shown = FakeCuda(machine, visible=[0]).platform().devices[0]
    hidden = FakeCuda(machine, visible=[1]).platform().devices[0]
    asked: list[tuple[str, str]] = []
    monkeypatch.setattr(nvml, "can_access", lambda *uuids: asked.append(uuids) or True)
    assert shown.can_access(hidden.uuid) and shown.can_access(hidden.uuid)
    assert asked == [(shown.uuid, hidden.uuid)]


# ------------------------------------------------------------------------------------------------- contexts
def test_calls_are_made_in_the_context_of_their_device_and_put_back_what_was_current(pair: Pair) -> None:
    other = pair.platform.devices[1]
    other.memory()
    pair.one.current = 2  # torch.cuda.set_device(1)
    address = pair.device.allocate(100)
    assert null_memory.resolve(address, 100).device == 0
    assert pair.one.current == 2
    pair.one.current = 1
    pair.one.calls.clear()
    assert pair.device.memory()[1]
    assert pair.one.calls == ["cuCtxGetCurrent", "cuMemGetInfo_v2"]
    pair.device.free(address)
    pair.one.current = 0


def test_the_context_is_retained_once_by_threads_that_need_it_at_once(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    both = threading.Barrier(2)
    retain = pair.one._functions["cuDevicePrimaryCtxRetain"]
    body = retain.body
    monkeypatch.setattr(retain, "body", lambda context, device: (both.wait(), body(context, device))[1])
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(pair.device.memory())) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 2
    assert pair.one.retained == {0: 1}


def test_a_context_is_put_back_also_after_an_error(pair: Pair) -> None:
    pair.platform.devices[1].memory()
    pair.one.current = 2
    with pytest.raises(CudaError):
        pair.device.free(0x1000)
    assert pair.one.current == 2
    pair.one.current = 0


FORKING = """
import os
from mray._device.timelines import mark
from tests.unit.fake_cuda import FakeCuda, FakeMachine

cuda = FakeCuda(FakeMachine())
platform = cuda.platform()
device = platform.devices[0]
stream, address, point = device.create_stream(), device.allocate(100), mark(device, 0)
child = os.fork()
if not child:
    calls = len(cuda.calls)
    for refused in (lambda: device.allocate(100), lambda: mark(device, 0)):
        try:
            refused()
        except RuntimeError as error:
            assert "forked" in str(error)
        else:
            os._exit(100)
    device.destroy_stream(stream)
    device.free(address)
    platform.close()
    os._exit(len(cuda.calls) - calls)
assert os.waitpid(child, 0)[1] == 0
platform.synchronize(device, 0)
assert point.reached()
device.destroy_stream(stream)
device.free(address)
platform.close()
assert cuda.left() == {}
"""


def test_a_forked_child_refuses_to_use_a_device_and_lets_go_of_nothing() -> None:
    done = subprocess.run([sys.executable, "-c", FORKING], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


# --------------------------------------------------------------------------------------------------- memory
def test_memory_opened_twice_stays_open_until_closed_twice(pair: Pair) -> None:
    address = pair.device.allocate(1000)
    handle = pair.device.export_memory(address)
    there = pair.other_device.open_memory(handle)
    assert pair.other_device.open_memory(handle) == there
    pair.other_device.close_memory(there)
    pair.other_device.close_memory(there)
    with pytest.raises(CudaError):
        pair.other_device.close_memory(there)
    pair.device.free(address)


def test_a_full_device_says_which_it_is_and_what_it_has(pair: Pair) -> None:
    free, total = pair.device.memory()
    text = rf"GPU 0 \(Fake GPU, GPU-0.*\) does not have {total + (2 << 20)} bytes left: {free} of {total} are"
    with pytest.raises(MemoryError, match=text):
        pair.device.allocate(total + 1)
    with pytest.raises(MemoryError, match=r"GPU 0 .* has no room for uint8 \(2147483648,\): CUDA out of memory"):
        pair.device.empty("uint8", (2 * total,))


def test_host_memory_is_pinned_for_all_contexts(pair: Pair) -> None:
    memory = ctypes.create_string_buffer(4096)
    pair.device.register_host(ctypes.addressof(memory), 4096)
    with pytest.raises(CudaError):
        pair.device.register_host(ctypes.addressof(memory), 4096)
    pair.device.unregister_host(ctypes.addressof(memory))
    with pytest.raises(CudaError):
        pair.device.unregister_host(ctypes.addressof(memory))


# ---------------------------------------------------------------------------------------------------- order
def test_a_wait_for_a_stream_hears_signals(pair: Pair) -> None:
    def stop(*_: object) -> None:
        raise TimeoutError

    stream, before = pair.device.create_stream(), signal.signal(signal.SIGALRM, stop)
    try:
        with pair.one.hold(0, stream), pytest.raises(TimeoutError):
            signal.setitimer(signal.ITIMER_REAL, 0.01)
            pair.platform.synchronize(pair.device, stream)
    finally:
        signal.signal(signal.SIGALRM, before)
    pair.platform.synchronize(pair.device, stream)
    pair.device.destroy_stream(stream)


def test_timelines_that_cannot_be_pinned_leave_nothing_behind(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(pair.one._functions["cuMemHostRegister_v2"], "body", lambda address, size, flags: 1)
        with pytest.raises(CudaError, match="Pinning host memory"):
            mark(pair.device, 0)
    assert pair.one.left() == {}
    point = mark(pair.device, 0)
    pair.platform.synchronize(pair.device, 0)
    assert point.reached()


@pytest.mark.parametrize("lacking", libcuda.ORDER_NEEDS)
def test_a_device_that_cannot_set_words_of_the_host_says_so_and_pins_nothing(lacking: int) -> None:
    machine = FakeMachine(2)
    machine.devices[1].attributes[lacking] = 0
    cuda = FakeCuda(machine)
    able, device = cuda.platform().devices
    assert able.why_unordered() == ""
    assert device.why_unordered() == "GPU 1 (Fake GPU) has no stream memory operations on 64 bits of the host's memory."
    assert "cuDevicePrimaryCtxRetain" not in cuda.calls
    memory = PinnedMemory(device)
    address, _handle = memory.allocate(4096)
    for call in (device.set_word, device.await_word):
        with pytest.raises(CudaError, match="NOT_SUPPORTED"):
            call(address, 1, 0)
    memory.free(address)
    with pytest.raises(RuntimeError, match="has no stream memory operations"):
        mark(device, 0)
    assert cuda.left() == {}


def test_nothing_that_mray_does_loses_a_capture_that_goes_on(pair: Pair) -> None:
    theirs, their_stream = pair.other_device.allocate(100), pair.other_device.create_stream()
    ready, peers = mark(pair.other_device, their_stream), Peers()
    memory = ctypes.create_string_buffer(4096)
    pair.one.begin_capture(0)
    address = pair.device.allocate(100)
    pair.device.export_memory(address)
    pair.device.free(address)
    pair.device.close_memory(pair.device.open_memory(pair.other_device.export_memory(theirs)))
    peers.open(pair.device, *ready.where[:2])
    pair.device.register_host(ctypes.addressof(memory), 4096)
    pair.device.unregister_host(ctypes.addressof(memory))
    pair.device.empty("float32", (4,))
    pair.device.check()
    stream = pair.device.create_stream()
    point = mark(pair.device, stream)
    point.wait(stream)
    pair.platform.synchronize(pair.device, stream)
    assert point.reached()
    unready = mark(pair.device, stream)
    for refused in (lambda: mark(pair.device, 0), lambda: unready.wait(0), lambda: peers.wait(pair.device, 0, *ready.where)):
        with pytest.raises(RuntimeError, match="CUDA graph is being captured"):
            refused()
    assert not peers.retire(), "it is not known when the captured stream is done"
    assert pair.one.end_capture(0)
    after = mark(pair.device, 0)
    assert not after.reached() and not peers.retire()
    pair.platform.synchronize(pair.device, 0)
    assert peers.retire()
    pair.platform.synchronize(pair.device, stream)
    pair.other_platform.synchronize(pair.other_device, their_stream)
    assert after.reached() and ready.reached()
    pair.device.destroy_stream(stream)
    pair.other_device.destroy_stream(their_stream)
    pair.other_device.free(theirs)
    # The driver would have refused each of them: the mode is put back.
    pair.one.begin_capture(0)
    assert pair.one.refuses_unsafe()
    pair.one.end_capture(0)


def test_communicators_are_made_in_the_context_of_the_device_that_is_meant(pair: Pair) -> None:
    before = pair.one.current
    with pair.platform.nccl_device(1):
        assert pair.one.device.index == 1
        with pair.platform.nccl_device(0):
            assert pair.one.device.index == 0
        assert pair.one.device.index == 1
    assert pair.one.current == before


def test_copying_nothing_is_nothing(pair: Pair) -> None:
    pair.device.copy(0, 0, 0, 0)
    assert "cuMemcpyAsync" not in pair.one.calls


def test_a_platform_is_the_cuda_one(pair: Pair) -> None:
    assert isinstance(pair.platform, CudaPlatform)
    assert pair.platform.name == "cuda"
    assert pair.platform.current_device() is pair.device


def test_the_platform_needs_no_torch_for_memory_and_order() -> None:
    program = (
        "import sys; sys.modules['torch'] = None\n"
        "from mray._device.timelines import mark\n"
        "from tests.unit.fake_cuda import FakeCuda, FakeMachine\n"
        "platform = FakeCuda(FakeMachine()).platform()\n"
        "device = platform.devices[0]\n"
        "stream = device.create_stream()\n"
        "with device.on_stream(stream): assert device.current_stream() == stream\n"
        "point = mark(device, stream)\n"
        "platform.synchronize(device, stream)\n"
        "assert point.reached()\n"
        "assert not platform.is_tensor(1) and platform.current_device() is device\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
