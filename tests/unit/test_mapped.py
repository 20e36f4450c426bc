"""Private mappings: found by address, seen through when they were written to."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from mray._ipc import mapped
from mray._ipc.mapped import Mapped, address_of, find, has_own_pages, open_origin, origin_of
from mray._ipc.segment import PAGE, Descriptor, offered

PAGES = 40


@pytest.fixture
def file() -> Iterator[int]:
    fd = os.memfd_create("mray-test")
    os.pwrite(fd, b"x" * (PAGES * PAGE), 0)
    yield fd
    os.close(fd)


def test_bytes_are_found_in_the_mapping_that_has_all_of_them(file: int) -> None:
    memory = Mapped.of(file, PAGES * PAGE, "one")
    start = memory.region.address
    assert start == address_of(memory)
    assert find(start, 1) is memory.region
    assert find(start + 5, PAGES * PAGE - 5) is memory.region
    assert find(start + 5, PAGES * PAGE) is None
    assert find(start - 1, 1) is None
    assert find(start + PAGES * PAGE, 1) is None


def test_mappings_that_are_gone_are_not_found(file: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("_starts", []), ("_regions", {}), ("_sweep_at", mapped._LEAST_GONE)):  # of this test alone
        monkeypatch.setattr(mapped, name, value)
    kept = Mapped.of(file, PAGES * PAGE, "kept")
    for number in range(300):
        memory = Mapped.of(file, PAGE, str(number))
        address = memory.region.address
        assert find(address, PAGE) is memory.region
        if number % 2:
            memory.let_go()
        del memory
        found = find(address, PAGE)
        assert found is None or found is kept.region
    assert find(kept.region.address + PAGE, PAGE) is kept.region
    assert len(mapped._starts) < 250


def test_views_outlive_a_mapping_that_is_let_go_but_cannot_be_passed_on(file: int) -> None:
    memory = Mapped.of(file, PAGE, "one", Descriptor(os.dup(file)))
    view = memoryview(memory)
    address = memory.region.address
    memory.let_go()
    assert bytes(view[:3]) == b"xxx"
    assert find(address, 1) is None
    assert memory.region.described() is None


def test_a_page_of_ones_own_is_seen_and_no_other(file: int) -> None:
    memory = Mapped.of(file, PAGES * PAGE, "one")
    address = memory.region.address
    bytes(memory)
    assert has_own_pages(address, PAGES * PAGE) is False
    memory[7 * PAGE + 3] = 1
    assert has_own_pages(address, PAGES * PAGE) is True
    assert has_own_pages(address + 7 * PAGE, 1) is True
    assert has_own_pages(address + 6 * PAGE + 1, PAGE) is True
    assert has_own_pages(address, 7 * PAGE) is False
    assert has_own_pages(address + 8 * PAGE, 32 * PAGE) is False


def test_a_region_is_clean_until_it_is_written_to_and_after_it_was_refreshed(file: int) -> None:
    memory = Mapped.of(file, PAGES * PAGE, "one")
    region = memory.region
    assert region.refresh(memory, PAGES * PAGE) is False
    assert region.is_clean(region.address, PAGES * PAGE)
    memory[PAGE] = 1
    assert not region.is_clean(region.address, PAGES * PAGE)
    assert region.is_clean(region.address + 2 * PAGE, PAGE)
    assert os.pread(file, 1, PAGE) == b"x"
    assert region.refresh(memory, 10) is True
    assert memory[PAGE] == ord("x")
    assert region.refresh(memory, 10) is False
    assert region.is_clean(region.address, PAGES * PAGE)


def test_a_mapping_of_which_nothing_was_handed_out_is_not_looked_at(file: int, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = Mapped.of(file, PAGES * PAGE, "one")
    region, faults = memory.region, [mapped.fault_count() + 1_000_000]
    monkeypatch.setattr(mapped, "fault_count", lambda: faults[0])
    monkeypatch.setattr(mapped, "has_own_pages", lambda *where: pytest.fail(f"looked at {where}"))
    assert [region.refresh(memory, 0) for _ in range(3)] == [False] * 3
    assert region.refresh(memory, PAGE) is False
    assert region.is_clean(region.address, PAGE)


def test_what_was_clean_is_not_looked_at_again_before_the_next_page_fault(file: int, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = Mapped.of(file, PAGES * PAGE, "one")
    region = memory.region
    mapped._probe()  # once for a process, by the true count
    faults, looks = [mapped.fault_count() + 1_000_000], []
    monkeypatch.setattr(mapped, "fault_count", lambda: faults[0])
    monkeypatch.setattr(mapped, "has_own_pages", lambda *where: looks.append(where) or has_own_pages(*where))
    whole, part = (region.address, PAGES * PAGE), (region.address, PAGE)
    assert [region.is_clean(*whole) for _ in range(3)] == [True] * 3
    assert looks == [whole]
    assert region.is_clean(*part)  # of which nothing was seen
    assert looks == [whole, part]
    memory[0] = 1
    faults[0] += 1
    assert [region.is_clean(*part) for _ in range(2)] == [False] * 2
    assert looks == [whole, part, part, part]


def test_a_kernel_that_tells_nothing_makes_every_mapping_suspect(file: int, monkeypatch: pytest.MonkeyPatch) -> None:
    silent = mapped._Probe()
    silent.counts = silent.shows = False
    monkeypatch.setattr(mapped, "_probe", lambda: silent)
    memory = Mapped.of(file, PAGES * PAGE, "one")
    region = memory.region
    region.refresh(memory, PAGE)
    assert not region.is_clean(region.address, PAGE)
    memory[0] = 1
    assert region.refresh(memory, PAGE) is False
    assert memory[0] == ord("x")


def test_memory_of_a_process_that_may_not_be_looked_into_is_asked_for(file: int, monkeypatch: pytest.MonkeyPatch) -> None:
    mapping = Mapped.of(file, PAGE, "some", Descriptor(os.dup(file)))
    described = origin_of(mapping.region)
    assert described is not None
    (_key, pid, fd, inode), _descriptor = described

    def refuse(_path: str, _flags: int) -> int:
        raise PermissionError

    def ask(name: str) -> int:
        return os.dup(offered(name).fd)

    assert open_origin(pid, fd, inode, None).inode == inode
    with monkeypatch.context() as patch:
        patch.setattr(mapped.os, "open", refuse)
        assert open_origin(pid, fd, inode, ask).inode == inode
        with pytest.raises(PermissionError):
            open_origin(pid, fd, inode, None)
    del described, _descriptor
    mapping.let_go()
    with pytest.raises(FileNotFoundError):
        ask(f"inode {inode}")


def test_this_kernel_tells() -> None:
    probe = mapped._Probe()
    assert probe.counts
    assert probe.shows
