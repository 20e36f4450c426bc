"""Tensors and memory of the shared-memory channel: what is shared, what is passed on, what nobody else may see."""

from __future__ import annotations

import gc
import os
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mray._channel.base import NOTHING
from mray._channel.shm import LEAST_PASSED_ON
from mray._ipc import mapped

torch = pytest.importorskip("torch")

#: Float32 elements of a tensor that is worth passing on.
LARGE = LEAST_PASSED_ON
SIZES = [4, 3000, LARGE]
MIB = 1 << 20


@pytest.fixture(params=["as the kernel tells", "kernel tells nothing"])
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Kernels that do and do not tell who wrote to private pages."""
    if request.param == "kernel tells nothing":
        silent = mapped._Probe()
        silent.counts = silent.shows = False
        monkeypatch.setattr(mapped, "_probe", lambda: silent)
    return request.param


def dtypes() -> list[Any]:
    """Every dtype of this torch that a plain tensor can have."""
    every = {getattr(torch, name) for name in dir(torch) if isinstance(getattr(torch, name), torch.dtype)}
    return sorted((dtype for dtype in every if not str(dtype).startswith(("torch.q", "torch.bits"))), key=str)


def same(one: Any, other: Any) -> bool:
    """Whether two tensors have the same dtype, shape and bits."""
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return False
    flat, wanted = (each.resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8) for each in (one, other))
    return bool((flat == wanted).all())


def send(channel: Any, value: Any) -> list[Any]:
    """The value as each reader gets it."""
    writer, readers = channel
    assert writer.try_write(value)
    return [reader.try_read() for reader in readers]


# ------------------------------------------------------------------------------------------------ values
@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", dtypes(), ids=str)
def test_tensors_of_every_dtype_arrive(shm: Any, dtype: Any, size: int, nested: bool) -> None:
    bits = torch.arange(size * dtype.itemsize, dtype=torch.int32).to(torch.uint8)
    sent = (bits % 2 if dtype == torch.bool else bits).view(dtype)
    (back,) = send(shm.make(1), {"a": [sent]} if nested else sent)
    back = back["a"][0] if nested else back
    assert type(back) is torch.Tensor
    assert same(back, sent)


def shapes() -> dict[str, tuple[Any, Any]]:
    """Tensors, with the strides that they must arrive with."""
    base = torch.arange(2 * 4 * 6 * 5.0).reshape(2, 4, 6, 5)
    matrix = torch.arange(300.0 * 400).reshape(300, 400)
    complex_ = torch.complex(torch.arange(4.0), torch.ones(4))
    return {
        "no dimension": (torch.tensor(2.5), ()),
        "one element": (torch.tensor([[3]]), (1, 1)),
        "empty": (torch.zeros(0), (1,)),
        "empty matrix": (torch.zeros(3, 0, 2, dtype=torch.bfloat16), (2, 2, 1)),
        "four dimensions": (base, base.stride()),
        "transposed": (matrix.t(), (1, 400)),
        "channels last": (base.to(memory_format=torch.channels_last), (120, 1, 20, 4)),
        "slice": (matrix[100:], (400, 1)),
        "columns": (matrix[:, 10:20], (10, 1)),
        "every second": (torch.arange(1000)[::2], (1,)),
        "expanded": (torch.ones(3, 1).expand(3, 4), (4, 1)),
        "conjugate": (complex_.conj(), (1,)),
        "negative": (complex_.conj().imag, (1,)),
        "not aligned": (torch.arange(100, dtype=torch.uint8)[3:], (1,)),
    }


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize(("sent", "strides"), shapes().values(), ids=shapes())
def test_tensors_of_every_shape_arrive_and_dense_ones_keep_their_strides(shm: Any, sent: Any, strides: Any, nested: bool) -> None:
    (back,) = send(shm.make(1), [sent] if nested else sent)
    back = back[0] if nested else back
    assert same(back, sent)
    assert back.stride() == strides


def test_a_value_may_hold_many_tensors_and_arrays(shm: Any) -> None:
    channel = shm.make(1)
    value = {
        "small": torch.tensor(1.5, dtype=torch.bfloat16),
        "large": (torch.arange(LARGE), [torch.ones(2 * LARGE, dtype=torch.float16), None]),
        "array": np.arange(LARGE),
        "text": "x",
    }
    for _ in range(3):
        (back,) = send(channel, value)
        assert same(back["small"], value["small"])
        assert same(back["large"][0], value["large"][0])
        assert same(back["large"][1][0], value["large"][1][0])
        assert back["text"] == "x"
        np.testing.assert_array_equal(back["array"], value["array"])
        assert not back["array"].flags.writeable


@pytest.mark.parametrize("nested", [False, True])
def test_a_view_does_not_bring_its_whole_storage(shm: Any, nested: bool) -> None:
    writer, _readers = channel = shm.make(1)
    storage = torch.zeros(32 * MIB)
    for part in (storage[5:40_000], storage[5:80_000:2], storage[:0], storage.view(torch.complex64)[3:20_000].conj()):
        (back,) = send(channel, [part] if nested else part)
        back = back[0] if nested else back
        assert same(back, part)
    assert writer.statistics()["bytes"] < MIB


@pytest.mark.parametrize("size", SIZES)
def test_a_tensor_that_requires_grad_is_refused_with_advice(shm: Any, size: int) -> None:
    writer, (reader,) = shm.make(1)
    leaf = torch.ones(size, requires_grad=True)
    for value in (leaf, leaf * 2, [leaf], {"deep": (1, [leaf * 2])}):
        with pytest.raises(RuntimeError, match=r"requires grad .* Send tensor.detach\(\)"):
            writer.try_write(value)
        assert reader.try_read() is NOTHING
    (back,) = send((writer, [reader]), (leaf * 2).detach())
    assert same(back, torch.full((size,), 2.0))


def test_what_is_not_a_plain_tensor_arrives_as_torch_pickles_it(shm: Any) -> None:
    channel = shm.make(1)
    parameter = torch.nn.Parameter(torch.arange(5.0))
    (back,) = send(channel, parameter)
    assert type(back) is torch.nn.Parameter
    assert back.requires_grad
    assert same(back.detach(), parameter.detach())
    sparse = torch.eye(3).to_sparse()
    (back,) = send(channel, sparse)
    assert back.layout is torch.sparse_coo
    assert same(back.to_dense(), torch.eye(3))
    named = torch.ones(3)
    named.label = "mine"
    (back,) = send(channel, named)
    assert back.label == "mine"
    assert same(back, torch.ones(3))
    (back,) = send(channel, torch.ones(3, device="meta"))
    assert back.is_meta
    model = torch.nn.Linear(3, 2)
    (back,) = send(channel, model)
    assert same(back.weight.detach(), model.weight.detach())


# ---------------------------------------------------------------------------------------- to each his own
@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("size", SIZES)
def test_what_one_reader_writes_into_its_tensor_nobody_else_sees(shm: Any, size: int, nested: bool) -> None:
    channel = shm.make(2)
    sent = torch.arange(size, dtype=torch.float32)
    for _ in range(5):
        one, other = send(channel, [sent] if nested else sent)
        one, other = (one[0], other[0]) if nested else (one, other)
        one.add_(1)
        assert same(other, sent)
        other.numpy()[:] = -1
        assert same(one, sent + 1)
        assert same(sent, torch.arange(size, dtype=torch.float32))


@pytest.mark.usefixtures("kernel")
def test_what_was_written_into_a_slot_does_not_hide_later_messages(shm: Any) -> None:
    writer, _readers = channel = shm.make(1)
    for number in range(100):
        (back,) = send(channel, torch.full((LARGE,), float(number)))
        assert (back == number).all()
        back[number * 1000] = 99.5
        del back
    assert writer.statistics()["slots"] == 1


def test_writing_past_the_read_only_flag_of_an_array_harms_nobody_else(shm: Any) -> None:
    channel = shm.make(2)
    for number in range(3):
        one, other = send(channel, np.full(LARGE, number))
        writable = torch.frombuffer(mapped_bytes(one), dtype=torch.int64)
        writable.add_(1000)
        assert (one == number + 1000).all()
        assert (other == number).all()
        del one, other, writable


def mapped_bytes(array: Any) -> Any:
    """The memory of an array, writable whatever its flag says."""
    import ctypes

    memory = (ctypes.c_ubyte * array.nbytes).from_address(array.ctypes.data)
    memory.array = array
    return memory


def test_who_writes_gets_copies_for_a_while_and_is_tried_again(shm: Any) -> None:
    channel = shm.make(1)
    shared = []
    for number in range(80):
        (back,) = send(channel, torch.full((LARGE,), float(number)))
        assert (back == number).all()
        shared.append(mapped.find(back.data_ptr(), back.nbytes) is not None)
        back.add_(1)
        del back
    assert shared[0]
    assert 2 <= sum(shared) <= 5


def test_tensors_that_are_held_never_change(shm: Any) -> None:
    writer, _readers = channel = shm.make(1)
    held = [send(channel, torch.full((LARGE,), float(number)))[0] for number in range(30)]
    for number, tensor in enumerate(held):
        assert (tensor == number).all()
    assert writer.statistics()["given_away"] == 24


def test_tensors_outlive_their_channel(shm: Any) -> None:
    writer, (reader,) = shm.make(1)
    (back,) = send((writer, [reader]), torch.ones(LARGE))
    writer.close()
    reader.close()
    back.add_(1)
    assert back.sum() == 2 * LARGE


# -------------------------------------------------------------------------------------------- passing on
def values() -> dict[str, tuple[Any, Any]]:
    """The value that a process receives, and a view that it makes without touching the bytes."""
    return {
        "tensor": (torch.arange(LARGE), lambda value: value),
        "array": (np.arange(LARGE), lambda value: value),
        "slice of a tensor": (torch.arange(3 * LARGE), lambda value: value[LARGE : 2 * LARGE]),
        "slice of an array": (np.arange(3 * LARGE), lambda value: value[LARGE : 2 * LARGE]),
        "other shape": (torch.arange(LARGE), lambda value: value.view(2, -1)),
        "transposed tensor": (torch.arange(LARGE), lambda value: value.view(2, -1).t()),
        "transposed array": (np.arange(LARGE), lambda value: value.reshape(2, -1).T),
        "array of a tensor": (torch.arange(LARGE), lambda value: value.numpy()),
        "in a list": (torch.arange(LARGE), lambda value: [value, "text"]),
        "array in a list": (np.arange(LARGE), lambda value: [value, "text"]),
        "with something large": (torch.arange(LARGE), lambda value: {"old": value, "new": torch.ones(9000), "array": np.ones(9000)}),
        "out of a list": ([torch.arange(LARGE), 1], lambda value: value[0]),
        "both of a list": ([torch.arange(LARGE), np.ones(LARGE)], lambda value: value[::-1]),
    }


def equal(one: Any, other: Any) -> bool:
    if isinstance(other, torch.Tensor):
        return same(one, other)
    if isinstance(other, np.ndarray):
        return bool(np.array_equal(one, other))
    if isinstance(other, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in other)
    if isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(equal, one, other))
    return bool(one == other)


@pytest.mark.parametrize(("sent", "make"), values().values(), ids=values())
def test_what_was_received_is_passed_on_without_a_copy(shm: Any, sent: Any, make: Any) -> None:
    first, second = shm.make(1), shm.make(2)
    for number in range(5):
        (received,) = send(first, sent)
        one, other = send(second, make(received))
        wanted = make(sent)
        del received
        assert equal(one, wanted)
        assert equal(other, wanted)
        assert second[0].statistics()["passed_on"] == number + 1
        assert first[0].statistics()["in_use"] >= 1
        del one, other
        assert second[0].statistics()["on_loan"] == 0
        second[0].end_loans()
        assert first[0].statistics()["in_use"] == 0
    assert second[0].statistics()["bytes"] <= 2 * 128 * 1024
    assert first[0].statistics()["slots"] == 1


def test_a_value_is_passed_on_along_a_chain_and_its_slot_stays_pinned(shm: Any) -> None:
    channels = [shm.make(1) for _ in range(4)]
    for number in range(6):
        value = torch.full((LARGE,), float(number))
        for channel in channels:
            (value,) = send(channel, value)
        assert (value == number).all()
        # Each ring ends its loans when it sends the next value, so those behind it let go one value later.
        assert 1 <= channels[0][0].statistics()["in_use"] <= len(channels)
    assert channels[0][0].statistics()["slots"] <= len(channels)
    del value
    for writer, _readers in reversed(channels):
        writer.end_loans()
        statistics = writer.statistics()
        assert (statistics["in_use"], statistics["on_loan"]) == (0, 0)
    assert [writer.statistics()["passed_on"] for writer, _readers in channels] == [0, 6, 6, 6]
    assert [writer.statistics()["bytes"] for writer, _readers in channels[1:]] == [0, 0, 0]


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("nested", [False, True])
def test_a_tensor_that_was_written_to_is_sent_as_it_is_now(shm: Any, nested: bool) -> None:
    first, second = shm.make(1), shm.make(1)
    for number in range(3):
        (received,) = send(first, torch.zeros(LARGE))
        received[LARGE // 2] = number + 1
        (back,) = send(second, [received] if nested else received)
        back = back[0] if nested else back
        assert back.sum() == number + 1
        assert same(back, received)
        del received, back
    assert second[0].statistics()["passed_on"] == 0


def test_writing_elsewhere_in_a_value_does_not_make_the_rest_a_copy(shm: Any) -> None:
    first, second = shm.make(1), shm.make(1)
    (received,) = send(first, torch.zeros(4 * LARGE))
    received[0] = 1
    (back,) = send(second, received[2 * LARGE :])
    assert second[0].statistics()["passed_on"] == 1
    assert not back.any()


@pytest.mark.usefixtures("kernel")
def test_passing_on_shares_nothing_that_is_written_later(shm: Any) -> None:
    first, (writer, (reader,)) = shm.make(1), shm.make(1)
    for _ in range(3):
        (received,) = send(first, torch.zeros(LARGE))
        assert writer.try_write(received)
        received.add_(1)
        back = reader.try_read()
        assert not back.any()
        back.add_(5)
        assert (received == 1).all()
        assert (back == 5).all()
        del received, back


def test_a_value_passed_on_twice_is_two_values(shm: Any) -> None:
    first, second = shm.make(1), shm.make(1)
    (received,) = send(first, torch.zeros(LARGE))
    (one,) = send(second, received)
    (two,) = send(second, received)
    one.add_(1)
    (three,) = send(second, [received, received])
    two.add_(2)
    assert [float(value[0]) for value in (received, one, two, *three)] == [0, 1, 2, 0, 0]
    assert second[0].statistics()["passed_on"] == 3


def test_overlapping_parts_of_a_value_arrive_apart(shm: Any) -> None:
    first, second = shm.make(1), shm.make(1)
    (received,) = send(first, torch.arange(3 * LARGE))
    (back,) = send(second, [received[: 2 * LARGE], received[LARGE:]])
    back[0].zero_()
    assert same(back[1], torch.arange(LARGE, 3 * LARGE))


def test_a_value_with_parts_from_many_places_is_passed_on(shm: Any) -> None:
    first, second = shm.make(1), shm.make(1)
    received = [send(first, np.full(LARGE, number))[0] for number in range(12)]
    (back,) = send(second, received)
    assert [int(array[-1]) for array in back] == list(range(12))
    assert second[0].statistics()["passed_on"] == 1


def test_who_holds_what_was_passed_on_gets_copies_at_last_and_blocks_nobody(shm: Any) -> None:
    first, second = shm.make(1), shm.make(1)
    (received,) = send(first, torch.arange(LARGE))
    held = [send(second, received)[0] for _ in range(20)]
    statistics = second[0].statistics()
    assert (statistics["passed_on"], statistics["on_loan"]) == (3, 3)
    assert statistics["given_away"] > 0
    for value in held:
        assert same(value, received)
    value = None
    held.clear()
    send(second, received)
    assert second[0].statistics()["passed_on"] == 4


@pytest.mark.parametrize("reader_too", [False, True])
def test_what_was_passed_on_stays_when_the_ring_that_brought_it_closes(shm: Any, reader_too: bool) -> None:
    first, second = shm.make(1), shm.make(1)
    (received,) = send(first, torch.full((LARGE,), 1.0))
    (held,) = send(second, received)
    del received
    second[0].close()
    if reader_too:
        second[1][0].close()
    for number in range(20):
        (value,) = send(first, torch.full((LARGE,), 2.0 + number))
        del value
    assert (held == 1).all()
    assert first[0].statistics()["in_use"] == 1
    del held
    shm.make(1)
    assert first[0].statistics()["in_use"] == 0


def test_what_nobody_took_is_let_go_when_both_ends_have_closed(shm: Any) -> None:
    first, second = shm.make(1), shm.make(1)
    (received,) = send(first, torch.full((LARGE,), 1.0))
    second[0].try_write(received)
    del received
    second[0].close()
    assert first[0].statistics()["in_use"] == 1
    second[1][0].close()
    shm.make(1)
    assert first[0].statistics()["in_use"] == 0


def test_a_number_that_was_lent_becomes_a_slot_again(shm: Any) -> None:
    first, second = shm.make(1), shm.make(1)
    (received,) = send(first, torch.arange(LARGE))
    for _ in range(3):
        loans = [send(second, received)[0] for _ in range(3)]
        copies = [send(second, torch.full((LARGE,), number))[0] for number in range(6)]
        assert all(same(value, received) for value in loans)
        assert [int(value[7]) for value in copies] == list(range(6))
        del loans, copies


def test_a_value_whose_sender_is_gone_before_it_was_mapped_never_comes_nor_does_what_follows(shm: Any) -> None:
    writer, (reader,) = shm.make(1)
    writer.try_write(torch.ones(LARGE))
    writer.try_write("what follows")
    writer.close()
    assert reader.ready()
    assert reader.try_read() is NOTHING
    assert not reader.ready()
    assert reader.try_read() is NOTHING
    reader.close()


def test_a_value_that_was_passed_on_comes_though_its_sender_has_closed(shm: Any) -> None:
    first, (writer, (reader,)) = shm.make(1), shm.make(1)
    (received,) = send(first, torch.ones(LARGE))
    writer.try_write(received)
    writer.try_write("what follows")
    del received
    first[1][0].close()
    writer.close()
    assert same(reader.try_read(), torch.ones(LARGE))
    assert reader.try_read() == "what follows"


def test_a_forked_child_returns_no_loan(shm: Any) -> None:
    first, second = shm.make(1), shm.make(1)
    (received,) = send(first, torch.ones(LARGE))
    (back,) = send(second, received)
    del received
    pid = os.fork()
    if pid == 0:
        del back
        gc.collect()
        os._exit(0)
    os.waitpid(pid, 0)
    assert second[0].statistics()["on_loan"] == 1
    del back
    assert second[0].statistics()["on_loan"] == 0


# ----------------------------------------------------------------------------------------------- memory
def shared_bytes(prefix: str) -> int:
    """Shared memory that this process has mapped of these names, gone or not; each segment once."""
    found: dict[str, int] = {}
    for line in Path("/proc/self/maps").read_text().splitlines():
        matched = re.match(rf"(\w+)-(\w+) \S+ \S+ \S+ (\d+) +/dev/shm{re.escape(prefix)}s", line)
        if matched:
            first, last, inode = matched.groups()
            found[inode] = max(found.get(inode, 0), int(last, 16) - int(first, 16))
    return sum(found.values())


def test_shared_memory_stays_bounded_when_sizes_change_with_every_message(shm: Any) -> None:
    choose = random.Random(7)
    first, second = shm.make(1), shm.make(1)
    largest = 32 * MIB
    most = 0
    for number in range(200):
        size = int(2 ** choose.uniform(10, 25))
        sent = np.full(size, number % 251, np.uint8)
        (received,) = send(first, torch.from_numpy(sent) if number % 2 else sent)
        (back,) = send(second, received)
        assert len(back) == size
        assert back[0] == back[-1] == number % 251
        del received, back
        most = max(most, shared_bytes(shm.prefix))
    # The slot, and the one in whose place it is put; a ring that passes on has memory for small values only.
    assert most <= 2 * largest + 2 * MIB
    assert second[0].statistics()["passed_on"] > 50
    assert len([name for name in os.listdir("/dev/shm") if name.startswith(shm.prefix[1:] + "s")]) <= 2
