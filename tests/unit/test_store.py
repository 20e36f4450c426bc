"""The object store of one process, and entries with their guards."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import gc
import os
import types
import weakref

import numpy
import pytest

from mray._common import kept
from mray._common.messages import FAILED
from mray._ipc.connection import PeerState
from mray._ipc.mapped import claim
from mray._ipc.table import BYTES, POOLED, ROW_WORDS, SPILLED, SPILLED_EVER, SPILLED_OBJECTS, SessionTable
from mray._objects.ownership import Completion, Countdown, Entry, Guard
from mray._objects.serializer import serialize
from mray._objects.store import KEPT_BYTES, SegmentStore, discard, is_spilled, read, size_class
from mray._runtime.objects import owner
from mray.exceptions import ObjectStoreFullError, OutOfDiskError

MIB = 1 << 20
OWNER = "a" * 16


@pytest.fixture
def table():
    table = SessionTable.create(f"/mray-test-{os.getpid()}-store")
    table.segment.unlink()
    table.set_rows_in_use(3)
    yield table
    table.close()


@pytest.fixture
def directory(tmp_path):
    return str(tmp_path / "spilled")


@pytest.fixture
def store(table, directory):
    store = SegmentStore(f"/mray-test-{os.getpid()}-", "b" * 16, table, 1, table.rows_in_use, 8 * MIB, directory)
    written = []
    write = store.write

    def remember(value, owner=OWNER):
        written.append(write(value, owner))
        return written[-1]

    store.write = remember
    yield store
    store.close()
    for name, _length, _producer in written:
        discard(name)


def words(table, word):
    return table.words[ROW_WORDS + word]


def test_a_value_is_read_as_a_view_that_holds_its_entry(store):
    array = numpy.arange(100_000)
    entry = Entry()
    result = read(store.write(serialize([array])), entry)[0]
    assert numpy.array_equal(result, array)
    assert not result.flags.writeable
    alive = weakref.ref(entry)
    del entry
    gc.collect()
    assert alive() is not None
    del result
    gc.collect()
    assert alive() is None


def test_the_next_reading_finds_the_pages_of_the_one_before(store):
    payload = store.write(serialize(numpy.arange(100_000)))
    entry = Entry()
    address = read(payload, entry).ctypes.data
    assert entry.mapping() is None
    mapped = entry.kept
    again = read(payload, entry)
    assert entry.kept is mapped
    assert again.ctypes.data == address
    assert numpy.array_equal(again, numpy.arange(100_000))


def test_what_one_reading_wrote_the_next_does_not_see(store):
    payload = store.write(serialize(numpy.arange(100_000)))
    entry = Entry()
    first = read(payload, entry)
    ctypes.memset(first.ctypes.data, 1, 8 * 100)
    assert first[0] != 0
    del first
    assert numpy.array_equal(read(payload, entry), numpy.arange(100_000))


def test_a_kept_mapping_ends_with_the_entry(store):
    payload = store.write(serialize(numpy.arange(100_000)))
    entry = Entry()
    read(payload, entry)
    mapped = weakref.ref(entry.kept)
    del entry
    assert mapped() is None


def test_the_mapping_of_a_large_value_is_not_kept(store):
    payload = store.write(serialize(numpy.zeros(KEPT_BYTES // 8, dtype=numpy.int64)))
    entry = Entry()
    read(payload, entry)
    assert entry.kept is None


def test_a_claimed_reading_is_nobody_elses_afterwards(store):
    payload = store.write(serialize(numpy.arange(100_000)))
    entry = Entry()
    first = read(payload, entry)
    assert claim(first.base.base) is not None
    ctypes.memset(first.ctypes.data, 1, 8)
    assert read(payload, entry)[0] == 0
    assert first[0] != 0


def test_what_two_living_arrays_read_is_neithers(store):
    payload = store.write(serialize(numpy.arange(100_000)))
    entry = Entry()
    first, second = read(payload, entry), read(payload, entry)
    assert claim(first.base.base) is None
    assert claim(second.base.base) is None
    del first, second
    assert claim(read(payload, entry).base.base) is not None


def test_a_large_value_is_its_only_readers(store):
    payload = store.write(serialize(numpy.zeros(KEPT_BYTES // 8, dtype=numpy.int64)))
    entry = Entry()
    first = read(payload, entry)
    ctypes.memset(claim(first.base.base).region.address + first.nbytes // 2, 1, 8)
    assert first.any()
    assert not read(payload, entry).any()


def test_a_name_that_is_gone_is_missed_although_the_mapping_is_kept(store):
    payload = store.write(serialize(numpy.arange(100_000)))
    entry = Entry()
    read(payload, entry)
    discard(payload[0])
    with pytest.raises(FileNotFoundError):
        read(payload, entry)


def test_two_reads_of_an_entry_share_memory(store):
    payload = store.write(serialize(numpy.arange(100_000)))
    entry = Entry()
    first = read(payload, entry)
    assert numpy.shares_memory(first, read(payload, entry))


def test_a_large_value_without_buffers_comes_back(store):
    text = "x" * 300_000
    assert read(store.write(serialize(text)), Entry()) == text


def test_names_carry_the_owner_and_the_producer(store):
    name, _length, producer = store.write(serialize(numpy.zeros(10**5)))
    assert name.partition(f"-{OWNER}-")[2].startswith("b" * 16)
    assert producer == "b" * 16


def test_a_freed_segment_is_used_again(store, table):
    first = store.write(serialize(numpy.zeros(200_000)))
    held = words(table, BYTES)
    store.free(first[0])
    assert words(table, POOLED) == held
    second = store.write(serialize(numpy.ones(200_000)))
    assert second[0] == first[0]
    assert words(table, BYTES) == held
    assert words(table, POOLED) == 0


def test_a_segment_is_not_used_again_for_another_owner(store):
    first = store.write(serialize(numpy.zeros(200_000)))
    store.free(first[0])
    assert store.write(serialize(numpy.zeros(200_000)), "c" * 16)[0] != first[0]


def test_a_value_above_the_limit_is_refused_and_says_what_there_is(store):
    with pytest.raises(ObjectStoreFullError, match=f"{8 * MIB}"):
        store.write(serialize(numpy.zeros(9 * MIB, dtype="u1")))
    store.write(serialize(numpy.zeros(5 * MIB, dtype="u1")))
    with pytest.raises(ObjectStoreFullError):
        store.write(serialize(numpy.zeros(5 * MIB, dtype="u1")))


def test_what_is_kept_for_reuse_makes_room(store, table):
    kept = store.write(serialize(numpy.zeros(3 * MIB, dtype="u1")))
    store.free(kept[0])
    store.write(serialize(numpy.zeros(7 * MIB, dtype="u1")))
    assert words(table, POOLED) == 0


def test_the_longest_unused_makes_room_in_the_pool(store, table):
    sizes = [MIB, 2 * MIB - 4096, 3 * MIB - 4096]
    written = [store.write(serialize(numpy.zeros(size, dtype="u1"))) for size in sizes]
    for name, _length, _producer in written:
        store.free(name)
    assert words(table, POOLED) <= 4 * MIB
    assert store.write(serialize(numpy.zeros(sizes[2], dtype="u1")))[0] == written[2][0], "the last one freed is still there"


def test_the_limit_counts_what_other_processes_hold(store, table):
    table.words[2 * ROW_WORDS + BYTES] = 7 * MIB
    with pytest.raises(ObjectStoreFullError):
        store.write(serialize(numpy.zeros(2 * MIB, dtype="u1")))
    table.words[2 * ROW_WORDS + BYTES] = 0
    store.write(serialize(numpy.zeros(2 * MIB, dtype="u1")))


def test_the_pool_stays_when_it_could_not_make_room(store, table):
    kept = store.write(serialize(numpy.zeros(2 * MIB, dtype="u1")))
    store.write(serialize(numpy.zeros(5 * MIB, dtype="u1")))
    store.free(kept[0])
    with pytest.raises(ObjectStoreFullError):
        store.write(serialize(numpy.zeros(4 * MIB, dtype="u1")))
    assert words(table, POOLED) >= 2 * MIB


def test_others_could_make_room_only_with_what_they_keep_for_reuse(store, table):
    assert not store.others_could_make_room(MIB)
    table.words[2 * ROW_WORDS + BYTES] = 8 * MIB
    assert not store.others_could_make_room(MIB)
    table.words[2 * ROW_WORDS + POOLED] = 2 * MIB
    assert store.others_could_make_room(MIB)
    assert not store.others_could_make_room(3 * MIB)


def test_a_spilled_value_is_read_as_any_other_and_its_file_goes_with_it(store, table, directory):
    array = numpy.arange(MIB)
    payload = store.spill(serialize([array]), OWNER)
    assert is_spilled(payload)
    assert os.listdir(directory) == [os.path.basename(payload[0])]
    assert words(table, SPILLED) == words(table, SPILLED_EVER) >= array.nbytes
    result = read(payload, Entry())[0]
    assert numpy.array_equal(result, array)
    assert not result.flags.writeable
    store.free(payload[0])
    assert os.listdir(directory) == []
    assert words(table, SPILLED) == 0
    assert words(table, SPILLED_OBJECTS) == 1
    assert result[-1] == MIB - 1, "what is mapped stays"
    with pytest.raises(FileNotFoundError):
        read(payload, Entry())


def test_a_spilled_value_without_buffers_comes_back(store):
    text = "x" * 300_000
    assert read(store.spill(serialize(text), OWNER), Entry()) == text


def test_files_go_with_their_owner_and_with_the_store(store, directory):
    of_others = store.spill(serialize(numpy.zeros(10**5)), OWNER)
    theirs = store.spill(serialize(numpy.zeros(10**5)), "c" * 16)
    mine = store.spill(serialize(numpy.zeros(10**5)), "b" * 16)
    store.forget_owner("c" * 16)
    assert sorted(os.listdir(directory)) == sorted(os.path.basename(payload[0]) for payload in (of_others, mine))
    assert not os.path.exists(theirs[0])
    store.close()
    assert os.listdir(directory) == [os.path.basename(of_others[0])], "what it made for others stays theirs"


def test_what_was_given_away_outlives_the_store_and_is_not_counted(store, table):
    in_memory, on_disk = store.write(serialize(numpy.zeros(10**5)), OWNER), store.spill(serialize(numpy.zeros(10**5)), OWNER)
    for payload in (in_memory, on_disk):
        store.give_away(payload[0])
    assert words(table, BYTES) == words(table, SPILLED) == 0
    store.close()
    for payload in (in_memory, on_disk):
        assert read(payload, Entry()).shape == (10**5,)
        discard(payload[0])


def test_a_value_that_fails_on_its_way_to_disk_leaves_nothing(store, table, directory):
    class Failing:
        size, buffers = MIB, ()

        def write_to(self, _fd):
            raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        store.spill(Failing(), OWNER)
    assert os.listdir(directory) == []
    assert words(table, SPILLED) == 0


def test_a_disk_that_is_full_enough_takes_no_more(table, directory):
    careful = SegmentStore(f"/mray-test-{os.getpid()}-", "d" * 16, table, 1, table.rows_in_use, 8 * MIB, directory, 1e-9)
    with pytest.raises(OutOfDiskError, match=r"Nor is there room for it on disk: .* Name a larger place with init\(object_"):
        careful.spill(serialize(numpy.zeros(10**5)), OWNER)
    assert not os.path.exists(directory)


def test_a_disk_without_room_is_an_error_and_leaves_nothing(store, directory, monkeypatch):
    def full(*_arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(kept.os, "posix_fallocate", full)
    with pytest.raises(OutOfDiskError, match="No space left on device"):
        store.spill(serialize(numpy.zeros(10**5)), OWNER)
    assert os.listdir(directory) == []


def test_ctrl_c_while_memory_is_reserved_leaves_nothing(store, table, monkeypatch):
    def interrupted(*_arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(kept.os, "posix_fallocate", interrupted)
    before = set(os.listdir("/dev/shm"))
    for store_it in (store.write, store.spill):
        with pytest.raises(KeyboardInterrupt):
            store_it(serialize(numpy.zeros(10**5)), OWNER)
    assert {name for name in set(os.listdir("/dev/shm")) - before if f"mray-test-{os.getpid()}-" in name} == set()
    assert words(table, BYTES) == words(table, SPILLED) == 0


def test_reading_what_is_gone_is_a_file_not_found_error(store):
    payload = store.write(serialize(numpy.zeros(10**5)))
    store.free(payload[0])
    store.trim()
    with pytest.raises(FileNotFoundError):
        read(payload, Entry())


@pytest.mark.parametrize("size", [1, 4096, 4097, 100_000, MIB, MIB + 1, 256 * MIB, 3 * 10**9])
def test_a_size_class_wastes_at_most_a_sixteenth_and_a_page(size):
    assert size <= size_class(size) <= size * 17 / 16 + 4096


def test_an_entry_calls_every_waiter_once_and_the_first_value_stays():
    entry = Entry()
    calls = []
    for number in range(3):
        entry.then(lambda done, number=number: calls.append((number, done.payload)))
    entry.complete(0, b"first")
    entry.complete(0, b"second")
    assert calls == [(0, b"first"), (1, b"first"), (2, b"first")]
    entry.then(lambda done: calls.append(("late", done.payload)))
    assert calls.pop() == ("late", b"first")


@pytest.mark.parametrize("others", [0, 1, 2])
def test_a_callback_of_an_entry_that_is_taken_back_is_not_called(others):
    entry = Entry()
    calls = []
    for number in range(others):
        entry.then(lambda _entry, number=number: calls.append(number))
    cancel = entry.then(calls.append)
    assert cancel()
    assert not cancel()
    entry.complete(0, b"")
    assert calls == [*range(others)]


def test_a_get_can_answer_when_one_has_failed_or_all_have_come():
    entries = [Entry() for _ in range(3)]
    entries[0].complete(0, b"")
    completion = Completion(entries)
    assert not completion.is_reached()
    entries[2].complete(FAILED, b"error")
    assert completion.is_reached()
    assert completion.failed is entries[2]
    assert Completion(entries).is_reached(), "one that had failed before"
    others = [Entry() for _ in range(3)]
    completion = Completion(others)
    for place in (2, 0, 1):
        assert not completion.is_reached()
        others[place].complete(0, b"")
    assert completion.is_reached()
    assert completion.failed is None


def test_a_failure_between_two_looks_of_several_threads_is_seen():
    class Pending(Entry):
        """Fails while it is looked at, as another thread asks."""

        looked = False

        @property
        def form(self):
            if not Pending.looked:
                Pending.looked = True
                first.complete(FAILED, b"error")
                assert completion.is_reached(), "the other thread sees the failure"
            return None

    first = Entry()
    completion = Completion([first, Pending()])
    Entry().complete(FAILED, b"of another call")
    assert not first.ready()
    assert completion.is_reached() or completion.is_reached()
    assert completion.failed is first


def test_a_countdown_counts_those_that_are_pending():
    entries = [Entry() for _ in range(3)]
    entries[0].complete(0, b"")
    countdown = Countdown()
    for entry in entries:
        countdown.watch(entry)
    assert countdown.left == 2
    entries[2].complete(FAILED, b"error")
    assert countdown.left == 1
    countdown.end(entries)
    assert entries[1].waiters is None


def test_a_guard_hands_its_work_over_when_it_dies():
    handed, done = [], []
    guard = Guard(handed.append, done.append, "fact")
    assert not handed
    del guard
    gc.collect()
    assert not done, "a finalizer only hands over"
    handed.pop()()
    assert done == ["fact"]


def test_the_names_that_a_producer_was_told_to_free_are_remembered_up_to_a_number(monkeypatch):
    monkeypatch.setattr(owner, "MOST_FREED", 3)
    told = []
    connection = types.SimpleNamespace(closed=False, peer=PeerState(), post=told.append)
    client = types.SimpleNamespace(
        process="own", lock=contextlib.nullcontext(), peers={"other": connection}, reactor=types.SimpleNamespace(post_later=lambda _: None)
    )
    segments = owner.OwnSegments(types.SimpleNamespace(client=client))
    for number in range(5):
        segments.free(f"/mray-s-other-{number}", "other")
    assert len(told) == 5
    assert list(connection.peer.freed) == [f"/mray-s-other-{number}" for number in (2, 3, 4)]
