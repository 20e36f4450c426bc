"""Memory in pieces: that of torch's expandable segments, on a pretended driver, with real descriptors."""

from __future__ import annotations

import ctypes
import gc
import os
from collections.abc import Iterator
from typing import Any

import pytest

from mray._device.cuda import CudaDevice
from mray._device.descriptors import HANDLE_SIZE
from mray._device.libcuda import CudaError
from tests.unit.fake_cuda import GRAIN, FakeMachine
from tests.unit.fake_torch import ExpandableSegment, FakeTensors, Pair, late_pair

pytest.importorskip("torch")

PIECE = ExpandableSegment.PIECE


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Two processes with torch's expandable segments. No descriptor and no byte is left at the end."""
    before = len(os.listdir("/proc/self/fd"))
    with late_pair() as made:
        expand(made)
        yield made
        made.platform.close()
        made.other_platform.close()
        gc.collect()
        assert [each.free for each in made.machine.devices] == [each.total for each in made.machine.devices]
    assert len(os.listdir("/proc/self/fd")) == before


def expand(pair: Pair) -> None:
    for platform in (pair.platform, pair.other_platform):
        tensors = platform.devices[0]._tensors
        assert isinstance(tensors, FakeTensors)
        tensors.expandable = True


def output(device: CudaDevice, size: int) -> Any:
    with device.outputs():
        return device.empty("uint8", (size,))


def place(device: CudaDevice, tensor: Any) -> Any:
    return device.allocation_of(tensor.data_ptr(), tensor.nbytes)


def test_an_output_lies_in_whole_pieces(pair: Pair) -> None:
    first, large, last = (output(pair.device, size) for size in (512, 2 * PIECE, 1024))
    found = [place(pair.device, each) for each in (first, large, last)]
    assert [each.size for each in found] == [PIECE, 3 * PIECE, PIECE], "of the first it is known since the pool was tried"
    assert all(each.in_pieces and pair.device.is_output(each) for each in found)
    assert found[0].base == found[1].base == found[2].base - 2 * PIECE
    assert len({each.number for each in found}) == 3
    again = place(pair.device, large)
    assert again is found[1], "known"
    assert place(pair.device, large[1:-1]).number == again.number
    calls = len(pair.one.calls)
    place(pair.device, large)
    assert pair.one.calls[calls:].count("cuMemRetainAllocationHandle") == 0, "the pieces are not felt for each message"


def test_tensors_of_many_sizes_lie_in_few_allocations(pair: Pair) -> None:
    tensors = [output(pair.device, 1 + (number * 2654435761) % (3 * PIECE)) for number in range(30)]
    found = [place(pair.device, each) for each in tensors]
    for tensor, allocation in zip(tensors, found, strict=True):
        assert allocation.base <= tensor.data_ptr()
        assert tensor.data_ptr() + tensor.nbytes <= allocation.base + allocation.size
        assert allocation.size <= 4 * (tensor.nbytes + 2 * PIECE)
    starts_and_ends = {(each.data_ptr() // PIECE, (each.data_ptr() + each.nbytes - 1) // PIECE) for each in tensors}
    assert len({each.number for each in found}) <= 0.8 * len(starts_and_ends)
    for allocation in set(found):
        pair.other_device.close_memory(pair.other_device.open_memory(pair.device.export(allocation)))


def test_pieces_of_another_process_that_lie_beside_are_not_exported(pair: Pair) -> None:
    first, beside = output(pair.device, PIECE), output(pair.device, 2 * PIECE)
    pair.device._pieces._opened[first.data_ptr() // PIECE * PIECE + 2 * PIECE] = [PIECE]
    found = place(pair.device, first)
    assert found.base + found.size == first.data_ptr() // PIECE * PIECE + 2 * PIECE
    pair.device._pieces._opened.clear()
    assert place(pair.device, beside).size > 2 * PIECE


def test_another_process_has_the_pieces_one_after_another(pair: Pair) -> None:
    output(pair.device, 512)
    tensor = output(pair.device, 5 * PIECE // 2)
    tensor[:] = 3
    tensor[-1] = 4
    allocation = place(pair.device, tensor)
    handle = pair.device.export(allocation)
    assert len(handle) == HANDLE_SIZE
    there = pair.other_device.open_memory(handle) + tensor.data_ptr() - allocation.base
    assert ctypes.string_at(there, tensor.nbytes) == bytes([3] * (tensor.nbytes - 1) + [4])
    ctypes.memset(there, 5, 1)
    assert tensor[0] == 5
    assert pair.other_device.allocation_of(there, tensor.nbytes) is None, "it is not passed on as it lies"
    assert pair.other.left()["mapped"] == 3
    pair.other_device.close_memory(there - tensor.data_ptr() + allocation.base)
    assert pair.other_device.allocation_of(there, tensor.nbytes) is None
    assert pair.other.left() == {}


def test_what_is_opened_stays_when_its_owner_lets_go(pair: Pair) -> None:
    tensor = output(pair.device, 2 * PIECE)
    tensor[:] = 7
    allocation = place(pair.device, tensor)
    there, offset = pair.other_device.open_memory(pair.device.export(allocation)), tensor.data_ptr() - allocation.base
    free = pair.machine.devices[0].free
    del tensor
    pair.platform.close()
    gc.collect()
    assert pair.machine.devices[0].free == free
    assert ctypes.string_at(there + offset, 10) == b"\7" * 10
    pair.other_device.close_memory(there)
    assert pair.machine.devices[0].free > free


def test_opening_twice_is_closed_twice(pair: Pair) -> None:
    handle = pair.device.export(place(pair.device, output(pair.device, 512)))
    one, other = (pair.other_device.open_memory(handle) for _ in range(2))
    assert one != other
    pair.other_device.close_memory(one)
    assert ctypes.string_at(other, 1)
    pair.other_device.close_memory(other)
    with pytest.raises(CudaError):
        pair.other_device.close_memory(other)


def test_dropped_outputs_cannot_be_opened_any_more(pair: Pair) -> None:
    handle = pair.device.export(place(pair.device, output(pair.device, 512)))
    assert pair.device.drop_outputs()
    with pytest.raises(RuntimeError, match="does not give its descriptors"):
        pair.other_device.open_memory(handle)
    again = place(pair.device, output(pair.device, 512))
    pair.other_device.close_memory(pair.other_device.open_memory(pair.device.export(again)))


def test_ordinary_tensors_are_no_outputs(pair: Pair) -> None:
    segment = ExpandableSegment(pair.one, 0, for_descriptors=True)
    pair.device.memory()
    found = pair.device.allocation_of(segment.take(512), 512)
    output(pair.device, 512)
    assert found is not None and not pair.device.is_output(found)


@pytest.mark.parametrize("gap", ["before", "after"])
def test_what_is_not_all_mapped_is_no_allocation(pair: Pair, gap: str) -> None:
    tensor = output(pair.device, 512)
    start = tensor.data_ptr() - GRAIN if gap == "before" else tensor.data_ptr()
    assert pair.device.allocation_of(start, 2 * PIECE) is None


@pytest.mark.parametrize("function", ["cuMemImportFromShareableHandle", "cuMemAddressReserve", "cuMemMap", "cuMemSetAccess"])
def test_what_cannot_be_opened_leaves_nothing(pair: Pair, function: str, monkeypatch: pytest.MonkeyPatch) -> None:
    handle = pair.device.export(place(pair.device, output(pair.device, 3 * PIECE)))
    answers = iter([function == "cuMemMap" or function.startswith("cuMemImport")])
    body = pair.other._functions[function].body
    monkeypatch.setattr(pair.other._functions[function], "body", lambda *given: body(*given) if next(answers, False) else 1)
    with pytest.raises(CudaError):
        pair.other_device.open_memory(handle)
    assert pair.other.left() == {}


def test_pieces_that_were_not_made_for_descriptors_are_no_outputs(pair: Pair) -> None:
    tensors = pair.device._tensors
    assert isinstance(tensors, FakeTensors)
    tensors.for_descriptors = False
    for _ in range(2):
        found = place(pair.device, output(pair.device, 512))
        assert found is None or not pair.device.is_output(found)


def test_the_device_of_another_process_reaches_them_if_it_can() -> None:
    for peers in (True, False):
        pair = Pair(FakeMachine(2, peers=peers))
        expand(pair)
        handle = pair.device.export(place(pair.device, output(pair.device, 512)))
        reader = pair.other_platform.devices[1]
        if peers:
            reader.close_memory(reader.open_memory(handle))
        else:
            with pytest.raises(CudaError):
                reader.open_memory(handle)
        assert pair.other.left() == {}
        pair.platform.close()


def test_a_capture_goes_on_while_pieces_are_exported_and_opened(pair: Pair) -> None:
    tensor = output(pair.device, 512)
    theirs = pair.other_device.export(place(pair.other_device, output(pair.other_device, 512)))
    pair.one.begin_capture(0)
    pair.device.export(place(pair.device, tensor))
    pair.device.close_memory(pair.device.open_memory(theirs))
    assert pair.one.end_capture(0)
