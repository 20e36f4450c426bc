"""Pretended GPUs: how many there are, how they count memory, how they run late, and what they do not forgive."""

from __future__ import annotations

import ctypes
import functools
import gc
import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mray
from mray._api.communicator import ReduceOp
from mray._channel import collective_ops
from mray._common import settings
from mray._common.device_tensors import carriers
from mray._device.pinned_memory import PinnedMemory
from mray._device.platform import forget_platform, platform
from mray._device.timelines import mark
from mray.testing import null, null_memory
from mray.testing.null import NullArray, NullPlatform

MIB = 1 << 20
SCOPE = f"unit{os.getpid()}"

Machine = Callable[..., NullPlatform]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """``machine(gpus, visible=None, **options)``: the platform of a process of such a machine, which is this one."""

    def make(gpus: int = 2, visible: str | None = None, **options: object) -> NullPlatform:
        text = "".join(f",{name}={value}" for name, value in {"scope": SCOPE, **options}.items())
        monkeypatch.setenv("MRAY_NULL_DEVICES", f"{gpus}{text}")
        if visible is None:
            monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        else:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        forget_platform()
        found = platform()
        assert isinstance(found, NullPlatform)
        return found

    before = len(sys._current_frames())
    yield make
    null.set_late(None)
    gc.collect()
    forget_platform()
    gc.collect()
    # Threads of streams are none of `threading`, so that finalizers can start them: the leak check of all tests does not see them.
    wait_for_threads(before)


def wait_for_threads(count: int) -> None:
    deadline = threading.Event()
    for _ in range(2000):
        if len(sys._current_frames()) <= count:
            return
        deadline.wait(0.01)
    pytest.fail("threads of streams are left")


class Program:
    """A process of the same machine that runs a program; `go` reads a line of its output, or sends one first."""

    def __init__(self, text: str) -> None:
        command = [sys.executable, "-c", PRELUDE + text]
        root = Path(__file__).resolve().parents[2]
        self.process = subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def go(self, line: str | None = None) -> str:
        assert self.process.stdin is not None and self.process.stdout is not None
        if line is not None:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def end(self, *, kill: bool = False) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        if kill:
            self.process.kill()
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


PRELUDE = """
import sys
from mray.testing import null
from mray._device.platform import platform
devices = platform().devices
def say(*what): print(*what, flush=True)
"""


@pytest.fixture
def program() -> Iterator[Callable[[str], Program]]:
    made: list[Program] = []

    def make(text: str) -> Program:
        made.append(Program(text))
        return made[-1]

    yield make
    for each in made:
        each.end(kill=True)


# ----------------------------------------------------------------------------------------------- setting
def test_the_setting_says_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MRAY_NULL_DEVICES", "4, memory=1000, peer=0, island=2, garbled=1, late=0.5, scope=a-b_1, words=0, waits=1")
    assert settings.NULL_DEVICES.get() == (4, 1000, False, 2, True, 0.5, "a-b_1", True, False, True, True)
    monkeypatch.setenv("MRAY_NULL_DEVICES", "1")
    assert settings.NULL_DEVICES.get() == (1, 1 << 30, True, 0, False, 0.0, "", True, True, True, False)


@pytest.mark.parametrize("text", ["", "0"])
def test_no_devices_are_none(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("MRAY_NULL_DEVICES", text)
    assert settings.NULL_DEVICES.get() is None


@pytest.mark.parametrize(
    "text",
    [
        "many",
        "-1",
        "2,",
        "2,memory",
        "2,memory=0",
        "2,peer=2",
        "2,garbled=2",
        "2,waits=2",
        "2,island=-1",
        "2,late=-1",
        "2,late=nan",
        "2,scope=",
        "2,scope=a/b",
        "2,x=1",
    ],
)
def test_the_error_of_a_wrong_value_names_the_variable(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("MRAY_NULL_DEVICES", text)
    forget_platform()
    with pytest.raises(ValueError, match="MRAY_NULL_DEVICES"):
        platform()


@pytest.mark.parametrize(
    ("visible", "numbers"),
    [
        (None, [0, 1, 2, 3]),
        ("", []),
        ("2", [2]),
        ("3,1", [3, 1]),
        ("0,7,1", [0]),
        ("-1", []),
        ("1,1", [1]),
        ("GPU-null-2,0", [2, 0]),
        ("GPU-unknown", []),
    ],
)
def test_a_process_sees_the_visible_devices_in_their_order(machine: Machine, visible: str | None, numbers: list[int]) -> None:
    found = machine(4, visible)
    assert [device.uuid for device in found.devices] == [f"GPU-null-{number}" for number in numbers]
    assert [device.index for device in found.devices] == list(range(len(numbers)))


def test_peer_access_can_be_switched_off(machine: Machine, program: Callable[[str], Program]) -> None:
    found = machine(2, peer=0)
    assert found.devices[0].can_access("GPU-null-0")
    assert not found.devices[0].can_access("GPU-null-1")
    other = program("a = devices[1].allocate(10); say(devices[1].export_memory(a).hex()); input()")
    handle = bytes.fromhex(other.go())
    with pytest.raises(RuntimeError, match="peer access"):
        found.devices[0].open_memory(handle)
    address = found.devices[1].open_memory(handle)
    tensor = null.zeros(4, device=0)
    found.devices[0].copy(tensor.address, address, 10, 0)
    with pytest.raises(RuntimeError, match="peer access"):
        found.synchronize(found.devices[0], 0)


def test_devices_that_a_process_does_not_see_are_accessible_all_the_same(machine: Machine, program: Callable[[str], Program]) -> None:
    machine(3)
    other = program(
        "a = devices[2].allocate(16); t = null.full(4, 7); devices[0].copy(a, t.address, 16, 0)\n"
        "platform().synchronize(devices[0], 0); say(devices[2].export_memory(a).hex()); input()"
    )
    handle = bytes.fromhex(other.go())
    device = machine(3, "1").devices[0]
    assert device.can_access("GPU-null-2")
    address = device.open_memory(handle)
    assert device.tensor(address, 16, "float32", (4,), None, None).tolist() == [7] * 4
    device.close_memory(address)


@pytest.mark.parametrize(("variable", "value"), [("MRAY_PEER_ACCESS", "0"), ("NCCL_P2P_DISABLE", "1")])
def test_the_user_may_forbid_devices_to_reach_each_other(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    device = machine(2).devices[0]
    assert device.can_access("GPU-null-1")
    monkeypatch.setenv(variable, value)
    assert not device.can_access("GPU-null-1")
    assert device.can_access("GPU-null-0")


def test_a_fork_looks_for_itself(machine: Machine) -> None:
    machine(2)
    null.zeros(4).numpy()
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        status = 1
        try:
            found = platform()
            assert found is not None and found.synchronizations == 0 and null.ones(3).tolist() == [1] * 3
            os.write(writing, b"fine")
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    assert os.waitpid(pid, 0)[1] == 0
    assert os.read(reading, 10) == b"fine"
    os.close(reading)


# ------------------------------------------------------------------------------------------------ memory
def test_memory_is_counted_across_processes_and_after_kill(machine: Machine, program: Callable[[str], Program]) -> None:
    device = machine(2, memory=32 * MIB).devices[0]
    other = program("a = devices[0].allocate(8 << 20); b = devices[1].allocate(1 << 20); say(devices[0].export_memory(a).hex()); input()")
    handle = bytes.fromhex(other.go())
    assert device.memory() == (24 * MIB, 32 * MIB)
    address = device.open_memory(handle)
    assert device.memory() == (24 * MIB, 32 * MIB), "the same memory in two processes is there once"
    own = device.allocate(4 * MIB)
    assert device.memory() == (20 * MIB, 32 * MIB)
    with pytest.raises(MemoryError):
        device.allocate(21 * MIB)
    other.end(kill=True)
    assert device.memory() == (20 * MIB, 32 * MIB), "it is open here"
    device.close_memory(address)
    assert device.memory() == (28 * MIB, 32 * MIB)
    device.free(own)
    assert device.memory() == (32 * MIB, 32 * MIB)


def test_memory_is_flat_over_many_killed_processes(machine: Machine, program: Callable[[str], Program]) -> None:
    device = machine(1, memory=32 * MIB).devices[0]
    for _ in range(5):
        other = program("t = null.zeros((1 << 20,)); devices[0].allocate(16 << 20); say(t.sum().item()); input()")
        assert other.go() == "0.0"
        assert device.memory()[0] <= 12 * MIB
        other.end(kill=True)
        assert device.memory() == (32 * MIB, 32 * MIB)


def test_scopes_do_not_see_each_other(machine: Machine, program: Callable[[str], Program], monkeypatch: pytest.MonkeyPatch) -> None:
    device = machine(1, memory=8 * MIB).devices[0]
    monkeypatch.setenv("MRAY_NULL_DEVICES", f"1,memory={8 * MIB},scope={SCOPE}other")
    other = program("devices[0].allocate(8 << 20); say('full'); input()")
    assert other.go() == "full"
    assert device.memory() == (8 * MIB, 8 * MIB)


def test_arrays_take_and_give_back_memory(machine: Machine) -> None:
    found = machine(1, memory=16 * MIB)
    device = found.devices[0]
    array = null.empty((8 * MIB,), "uint8")
    assert device.memory()[0] == 8 * MIB
    with pytest.raises(MemoryError):
        null.empty((9 * MIB,), "uint8")
    view = array[5:]
    del array
    found.synchronize(device, 0)
    assert device.memory()[0] == 8 * MIB
    del view
    found.synchronize(device, 0)
    assert device.memory()[0] == 16 * MIB


def test_many_small_arrays_take_little(machine: Machine) -> None:
    found = machine(1, memory=16 * MIB)
    array = null.zeros(10)
    for _ in range(2000):
        array = array + 1
    assert array.tolist() == [2000] * 10
    del array
    found.synchronize(found.devices[0], 0)
    assert found.devices[0].memory()[0] == 16 * MIB


def test_memory_is_given_back_in_the_order_of_the_stream(machine: Machine) -> None:
    machine(1)
    array = null.ones(1000)
    address = array.address
    with null.hold():
        copy = array + 1
        del array
        others = [null.empty(1000) for _ in range(20)]
        assert all(other.address != address for other in others), "the copy has not been made yet"
    assert copy.tolist() == [2] * 1000
    assert null.empty(1000).address == address
    assert copy.sum().item() == 2000


def test_an_array_that_another_stream_uses_says_so(machine: Machine) -> None:
    found = machine(1)
    device = found.devices[0]
    stream = device.create_stream()
    for is_recorded in (True, False):
        array, copy = null.ones(1000), null.zeros(1000)
        found.synchronize(device, 0)
        with null.hold(stream), device.on_stream(stream):
            copy.copy_(array)
            if is_recorded:
                array.record_stream(stream)
            del array
            if not is_recorded:
                found.synchronize(device, 0)
        with device.on_stream(stream):
            if is_recorded:
                assert copy.tolist() == [1] * 1000
            else:
                # It was freed before the stream came to it.
                with pytest.raises(RuntimeError, match="illegal address"):
                    copy.numpy()


# ------------------------------------------------------------------------------------------------- order
def test_a_missing_wait_is_caught_as_a_wrong_result(machine: Machine) -> None:
    found = machine(1, late=0.01)
    device = found.devices[0]
    producer, consumer = device.create_stream(), device.create_stream()
    array, copy = null.zeros(4), null.zeros(4)
    found.synchronize(device, 0)
    results = []
    for waits in (False, True):
        with device.on_stream(producer):
            for _ in range(5):
                array += 1
        done = mark(device, producer)
        if waits:
            done.wait(consumer)
        with device.on_stream(consumer):
            copy.copy_(array)
            results.append(copy.tolist()[0])
        found.synchronize(device, producer)
    assert results[0] < 5, "the consumer did not wait, and was too early"
    assert results[1] == 10
    device.destroy_stream(producer)
    device.destroy_stream(consumer)


def test_a_process_can_be_told_how_late_work_is(machine: Machine) -> None:
    machine(1, late=3600.0 - 1)
    null.set_late(0.0)
    assert null.arange(3).tolist() == [0, 1, 2]


def test_no_wait_on_the_host_while_a_stream_is_held(machine: Machine) -> None:
    found = machine(2)
    with null.hold(), null.hold(device=1):
        array = null.full((10, 10), 2.0) * 3
        array[1:3] += array[1] / 2
        total = (array @ array.T).sum()
        point = mark(found.devices[0], 0)
        point.wait(0)
        moved = null.empty((), device=1).copy_(total)
        assert found.synchronizations == 0
        assert not point.reached()
    expected = np.full((10, 10), 2.0) * 3
    expected[1:3] += expected[1] / 2
    assert moved.item() == (expected @ expected.T).sum()
    assert found.synchronizations == 1


def test_the_end_of_the_devices_lets_held_streams_go_on(machine: Machine) -> None:
    """A test that has failed keeps its hold: its traceback does."""
    device = machine(1).devices[0]
    hold, done = null.hold(), threading.Event()
    device.streams.get(0).submit(done.set)
    forget_platform()
    assert done.wait(60)
    del hold


def test_marks_on_several_streams_are_reached_each_for_itself(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32")
    found = machine(1)
    device = found.devices[0]
    # Each in a queue of its own.
    streams = [device.create_stream() for _ in range(15)]
    waiting = [device.create_stream() for _ in range(15)]
    holds, reached = [], []
    for stream, waiter in zip(streams, waiting, strict=True):
        holds.append(null.hold(stream))
        mark(device, stream).wait(waiter)
        reached.append(mark(device, waiter))
    for number in (14, 3, 10):
        holds[number].release()
        # Never too early.
        found.synchronize(device, streams[number])
    assert not any(point.reached() for number, point in enumerate(reached) if number not in (14, 3, 10))
    for each in holds:
        each.release()
    for waiter, point in zip(waiting, reached, strict=True):
        found.synchronize(device, waiter)
        assert point.reached()
    for stream in streams + waiting:
        device.destroy_stream(stream)


def test_streams_that_set_no_words_say_so(machine: Machine) -> None:
    device = machine(1, words=0).devices[0]
    assert device.why_unordered()
    with pytest.raises(RuntimeError, match="no stream memory operations"):
        mark(device, 0)


def test_many_marks_cost_no_descriptors(machine: Machine) -> None:
    found = machine(1)
    device = found.devices[0]
    mark(device, 0)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3000):
        point = mark(device, 0)
    found.synchronize(device, 0)
    assert point.reached()
    assert len(os.listdir("/proc/self/fd")) == before


def test_memory_whose_pid_was_given_anew_or_whose_descriptor_is_another_files_is_gone(machine: Machine) -> None:
    memory, other = PinnedMemory(machine(1).devices[0]), PinnedMemory(machine(1).devices[0])
    address, handle = memory.allocate(4096)
    same = other.open(handle)
    with memory.words(address) as words, other.words(same) as theirs:
        words[7] = 5
        assert theirs[7] == 5
    forged = bytearray(handle)
    forged[24] ^= 1  # the inode
    with pytest.raises(RuntimeError, match="has exited"):
        other.open(bytes(forged))
    other.free(same)
    memory.free(address)


def test_work_that_finalizers_queue_never_blocks(machine: Machine) -> None:
    found = machine(1)
    device = found.devices[0]
    failed: list[BaseException] = []

    class Node:
        def __init__(self) -> None:
            self.cycle = self
            self.array = null.full(10, 1)

    def work() -> None:
        try:
            for _ in range(300):
                Node()
                (null.ones(10) + 1).sum()
        except BaseException as error:
            failed.append(error)

    thresholds = gc.get_threshold()
    gc.set_threshold(5, 2, 2)
    try:
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        gc.set_threshold(*thresholds)
    assert not failed
    found.synchronize(device, 0)
    assert null.ones(3).sum().item() == 3


# ------------------------------------------------------------------------------------------------ errors
def test_use_after_free_is_told_at_every_call_and_stops_the_devices(machine: Machine) -> None:
    found = machine(2)
    device = found.devices[0]
    address = device.allocate(4096)
    array = device.tensor(address, 400, "float32", (100,), None, None)
    other = null.zeros(3)
    found.synchronize(device, 0)
    device.free(address)
    memory = PinnedMemory(device)
    word, _handle = memory.allocate(4096)
    with null.hold():
        array += 1
        other += 1
        device.set_word(word, 1, 0)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="illegal address"):
            found.synchronize(device, 0)
    with pytest.raises(RuntimeError, match="illegal address"):
        other.numpy()
    with pytest.raises(RuntimeError, match="illegal address"):
        null.ones(2, device=1)
    with memory.words(word) as words:
        assert words[0] == 0
    memory.free(word)


def test_closed_memory_and_the_end_of_memory_are_respected(machine: Machine, program: Callable[[str], Program]) -> None:
    device = machine(1).devices[0]
    other = program("a = devices[0].allocate(4096); say(devices[0].export_memory(a).hex()); input()")
    address = device.open_memory(bytes.fromhex(other.go()))
    device.tensor(address, 4096, "uint8", (4096,), None, None).fill_(1)
    beyond = device.tensor(address + 1, 4096, "uint8", (4096,), None, None)
    device.streams.get(0).synchronize()
    null_memory.resolve(address, 4096)
    with pytest.raises(RuntimeError, match="past the end"):
        null_memory.resolve(address + 1, 4096)
    device.close_memory(address)
    with pytest.raises(RuntimeError):
        device.close_memory(address)
    beyond.fill_(2)
    with pytest.raises(RuntimeError, match="illegal address"):
        device.streams.get(0).synchronize()


def test_copies_to_host_memory_that_is_not_registered_are_refused(machine: Machine) -> None:
    device = machine(1).devices[0]
    array = null.ones(4)
    host = (ctypes.c_float * 8)()
    address = ctypes.addressof(host)
    with pytest.raises(RuntimeError, match="registered"):
        device.copy(address, array.address, 16, 0)
    device.register_host(address, 16)
    with pytest.raises(RuntimeError, match="is registered already"):
        device.register_host(address, 16)
    with pytest.raises(RuntimeError, match="registered"):
        device.copy(address + 4, array.address, 16, 0)
    device.copy(address, array.address, 16, 0)
    device.streams.get(0).synchronize()
    assert list(host) == [1] * 4 + [0] * 4
    device.unregister_host(address)
    with pytest.raises(RuntimeError, match="is not registered"):
        device.unregister_host(address)


def test_a_stream_is_idle_when_all_that_was_queued_is_done(machine: Machine, eventually: Callable[..., None]) -> None:
    stream = machine(1).devices[0].streams.get(0)
    assert stream.is_idle()
    with null.hold():
        array = null.ones(3)
        assert not stream.is_idle()
    assert array.tolist() == [1] * 3
    eventually(stream.is_idle)


def test_a_stream_is_idle_once_the_objects_of_its_work_are_released(machine: Machine) -> None:
    class Slow:
        def __del__(self) -> None:
            time.sleep(0.05)
            released.append(self)

    def work(_object: object = None) -> None:
        pass

    released: list[object] = []
    stream = machine(1).devices[0].streams.get(0)
    stream.launch(functools.partial(work, Slow()))
    while not stream.is_idle():
        time.sleep(0.001)
    assert released


def test_streams_that_do_not_exist_are_refused(machine: Machine) -> None:
    device = machine(1).devices[0]
    stream = device.create_stream()
    device.destroy_stream(stream)
    with pytest.raises(ValueError, match=f"no stream {stream} on this device"):
        device.destroy_stream(stream)
    with pytest.raises(ValueError, match="stream 0 cannot be destroyed"):
        device.destroy_stream(0)


def test_work_of_user_code_that_raises_is_told_too(machine: Machine) -> None:
    found = machine(1)
    found.devices[0].launch(0, lambda: 1 // 0)
    with pytest.raises(RuntimeError, match="division") as caught:
        found.synchronize(found.devices[0], 0)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


# ------------------------------------------------------------------------------------------------ arrays
OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b + 1,
    "subtract": lambda a, b: 5 - a - b,
    "multiply": lambda a, b: 2 * a * b,
    "divide": lambda a, b: 1 / (a + 1) / (b + 2),
    "negate": lambda a, b: -a,
    "broadcast": lambda a, b: a + b[0],
    "slice": lambda a, b: a[1:, ::2] * b[:-1, ::-2],
    "one": lambda a, b: a[1] - b[-1, 2],
    "new axis": lambda a, b: a[None, ..., 0] + 1,
    "transpose": lambda a, b: a.T + b.transpose(1, 0),
    "reshape": lambda a, b: a.reshape(4, 3) + b.T.reshape((4, -1)),
    "matmul": lambda a, b: a @ b.T,
    "sum": lambda a, b: a.sum(),
    "sum over an axis": lambda a, b: a.sum(axis=-1) + b.sum(axis=1),
    "mean": lambda a, b: a.mean(axis=0),
    "max and min": lambda a, b: a.max() - b.min(axis=0),
    "astype": lambda a, b: (a / 3).astype("int32") + b,
}


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "int32"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_arithmetic_is_numpys(machine: Machine, name: str, dtype: str) -> None:
    machine(1)
    one, other = np.arange(12, dtype=dtype).reshape(3, 4), np.arange(12, dtype=dtype).reshape(3, 4) * 3 + 1
    expected = OPERATIONS[name](one, other)
    got = OPERATIONS[name](null.from_numpy(one), null.from_numpy(other))
    assert isinstance(got, NullArray)
    assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-6)


def test_work_in_place_changes_what_others_see(machine: Machine) -> None:
    machine(1)
    array = null.zeros((2, 3))
    view = array[1]
    same = array
    array += 2
    array *= view
    array -= 1
    array /= 2
    assert same is array
    assert view.tolist() == [1.5] * 3
    array[0, 1:] = 9
    array[1] = np.array([1, 2, 3], "float32")
    assert array.tolist() == [[1.5, 9, 9], [1, 2, 3]]
    assert view.fill_(0).tolist() == [0] * 3
    assert [row.sum().item() for row in array] == [19.5, 0]


def test_what_does_not_fit_is_told_at_once(machine: Machine) -> None:
    machine(2)
    whole = null.arange(3)
    with pytest.raises(TypeError, match="elements of dtype float64 do not fit"):
        whole += 1.5
    with pytest.raises(ValueError, match=r"elements of shape \(2, 3\) do not fit"):
        whole += null.arange(6).reshape(2, 3)
    with pytest.raises(ValueError, match="elements of shape"):
        whole[...] = np.zeros((2, 3), "int64")
    with pytest.raises(ValueError, match="broadcast"):
        whole + null.arange(4)
    with pytest.raises(ValueError, match="cannot be multiplied"):
        whole @ whole
    with pytest.raises(TypeError):
        whole + "x"
    with pytest.raises(TypeError, match="indexed"):
        whole[[0, 1]]
    with pytest.raises(RuntimeError, match="same device"):
        whole + null.arange(3, device=1)
    with pytest.raises(TypeError, match=r"numpy\(\)"):
        np.asarray(whole)
    with pytest.raises(RuntimeError, match="index 5"):
        null.zeros(3, device=5)
    with pytest.raises(TypeError, match="bfloat16"):
        null.empty(3, "bfloat16")


def test_the_caller_may_change_what_it_copied_from(machine: Machine) -> None:
    machine(1)
    data = np.ones(5)
    with null.hold():
        array = null.from_numpy(data)
        data[:] = 2
    assert array.tolist() == [1] * 5


def test_numpys_scalars_leave_arithmetic_to_arrays(machine: Machine) -> None:
    machine(1)
    assert (np.float32(2) * null.ones(3)).tolist() == [2] * 3
    assert repr(null.ones(1)) == "NullArray(array([1.], dtype=float32), device=0)"
    assert float(null.full((), 2.5)) == 2.5
    assert len(null.ones((4, 2))) == 4
    assert null.zeros((0, 3)).sum().item() == 0


# ----------------------------------------------------------------------------------------------- pickled
def test_a_pickled_array_comes_back_on_the_device_of_its_index(machine: Machine) -> None:
    machine(2)
    array = null.arange(6, device=1).reshape(2, 3).T
    back = pickle.loads(pickle.dumps(array))
    assert back.device == 1
    assert back.tolist() == [[0, 3], [1, 4], [2, 5]]
    data = pickle.dumps(array)
    machine(2, "0")
    assert pickle.loads(data).device == 0


def test_threads_that_look_for_devices_at_the_same_time_find_the_same_ones(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine()
    forget_platform()
    both = threading.Barrier(2)
    find = null.find_platform

    def find_late() -> NullPlatform | None:
        both.wait(10)
        return find()

    monkeypatch.setattr(null, "find_platform", find_late)
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(platform())) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 2 and found[0] is found[1] is platform()


def test_a_process_without_devices_is_told_what_to_write(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine(1)
    data = pickle.dumps(null.ones(3))
    forget_platform()
    monkeypatch.delenv("MRAY_NULL_DEVICES")
    with pytest.raises(RuntimeError, match=r'\.numpy\(\).*device="cpu"'):
        pickle.loads(data)


def test_an_edge_may_carry_the_array_itself(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    found = machine(1)
    taken: list[Any] = []

    def take(array: Any) -> tuple[int]:
        taken.append(array)
        return (len(taken) - 1,)

    monkeypatch.setattr(carriers, "take", take)
    monkeypatch.setattr(carriers, "bring", lambda number: taken[number])
    array = null.ones(3)
    assert pickle.loads(pickle.dumps([array]))[0] is array
    assert found.synchronizations == 0


# ---------------------------------------------------------------------------------------------- a session
def test_actors_of_a_session_have_their_own_devices_and_send_arrays(machine: Machine) -> None:
    found = machine(2, memory=64 * MIB)

    @mray.remote(num_gpus=1, num_cpus=0)
    class Worker:
        def uuids(self) -> list[str]:
            here = platform()
            assert here is not None
            return [device.uuid for device in here.devices]

        def fill(self, value: float) -> Any:
            self.kept = null.full((1 << 20,), value)
            return self.kept

        def total(self, array: Any) -> float:
            return float(array.sum()) + array.device

    mray.init(num_cpus=1, num_gpus=2)
    try:
        workers = [Worker.remote() for _ in range(2)]
        assert sorted(mray.get([worker.uuids.remote() for worker in workers])) == [["GPU-null-0"], ["GPU-null-1"]]
        array = workers[0].fill.remote(0.5)
        assert mray.get(workers[1].total.remote(array)) == 1 << 19
        assert mray.get(array).device == 0
        assert mray.get(workers[1].total.remote(null.ones(4, device=1))) == 4
        used = sum(64 * MIB - device.memory()[0] for device in found.devices)
        assert used >= 4 * MIB
        for worker in workers:
            mray.kill(worker)
    finally:
        mray.shutdown()
    assert [device.memory()[0] for device in found.devices] == [64 * MIB, 64 * MIB]


@pytest.mark.parametrize("op", ReduceOp, ids=lambda op: op.name)
@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_collectives_compute_with_arrays_as_with_those_of_numpy(machine: Machine, op: ReduceOp, dtype: str) -> None:
    machine()
    shares = [np.array([[3, -7], [5, rank]], dtype) for rank in range(3)]
    expected = collective_ops.reduce(shares, op)
    found = collective_ops.reduce([null.from_numpy(share) for share in shares], op)
    assert (found.dtype, found.tolist()) == (expected.dtype, expected.tolist())
