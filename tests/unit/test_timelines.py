"""Timelines: how far streams have come, in words of the host that other processes wait for."""

from __future__ import annotations

import gc
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mray._common.settings import NullDevices
from mray._device import death_watch, mappings, timelines
from mray._device.device import CaptureError, Device, NotOpenedError
from mray._device.lending import lend_stream
from mray._device.mappings import FORSAKEN, leave, open_timelines
from mray._device.timelines import Peers, Point, Where, mark, sweep_retired
from mray._ipc.segment import PAGE
from mray.testing import null
from mray.testing.null import NullDevice, NullPlatform

Eventually = Callable[..., None]


#: Timelines in one region.
PLACES = PAGE // 8


class Recorder:
    """A device whose streams do what they are told (`run`), and which may be told to do something in the midst of a call."""

    index = 0
    uuid = "recorder"
    reason = ""

    def __init__(self) -> None:
        self.belongings: dict[str, Any] = {}
        self.registered: dict[int, int] = {}
        #: The queued words, by stream: address and number.
        self.queued: dict[int, list[tuple[int, int]]] = {}
        #: The number of the stream that has a handle now, if that is not its first.
        self.stream_ids: dict[int, int] = {}
        self.awaited: list[tuple[int, int, int]] = []
        #: Called at the beginning of each `set_word`, and at its end.
        self.before: Callable[[int], None] = lambda number: None
        self.after: Callable[[int], None] = lambda number: None

    def why_unordered(self) -> str:
        return self.reason

    def register_host(self, address: int, size: int) -> None:
        self.registered[address] = size

    def unregister_host(self, address: int) -> None:
        del self.registered[address]

    def stream_id(self, stream: int) -> int:
        return self.stream_ids.get(stream, stream)

    def set_word(self, address: int, number: int, stream: int) -> None:
        self.before(number)
        assert any(base <= address < base + size for base, size in self.registered.items())
        self.queued.setdefault(stream, []).append((address, number))
        self.after(number)

    def await_word(self, address: int, number: int, stream: int) -> None:
        self.awaited.append((address, number, stream))

    def numbers(self, stream: int) -> list[int]:
        return [number for _address, number in self.queued.get(stream, [])]

    def run(self, stream: int, count: int | None = None) -> None:
        """Do the first so many things that are queued, or all."""
        queued = self.queued.get(stream, [])
        for address, number in queued[:count]:
            (words,) = [region.words for region in self.regions() if region.address <= address < region.address + 8 * PLACES]
            words[(address % (8 * PLACES)) // 8] = number
        del queued[:count]

    def regions(self) -> list[Any]:
        found = self.belongings.get("timelines")
        return [] if found is None else found._regions

    def run_all(self) -> None:
        for stream in list(self.queued):
            self.run(stream)


@pytest.fixture
def device() -> Iterator[Any]:
    made = Recorder()
    yield made
    found = made.belongings.pop("timelines", None)
    if found is not None:
        found.close()
        found.close()
    assert not made.registered


@pytest.fixture
def machine(eventually: Eventually) -> Iterator[NullPlatform]:
    made = NullPlatform(NullDevices(2, scope=f"timelines{os.getpid()}"))
    yield made
    for each in made.devices:
        made.synchronize(each, 0)
    gc.collect()
    eventually(lambda: sweep_retired() and not mappings._known)
    made.close()


# ------------------------------------------------------------------------------------------------------- one stream
def test_marks_of_a_stream_are_numbered_in_order_on_a_word_of_its_own(device: Any) -> None:
    points = [mark(device, stream) for stream in (1, 2, 1, 1, 2)]
    assert device.numbers(1) == [1, 2, 3] and device.numbers(2) == [1, 2]
    assert [point.where.number for point in points] == [1, 1, 2, 3, 2]
    offsets = {point.where.offset for point in points}
    assert len(offsets) == 2 and points[0].where[:3] == points[2].where[:3] != points[1].where[:3]
    assert len(device.registered) == 1, "all are in one piece of memory"


def test_a_point_is_reached_when_its_stream_has_come_there_and_not_before(device: Any) -> None:
    first, second, other = mark(device, 1), mark(device, 1), mark(device, 2)
    assert [first.reached(), second.reached(), other.reached()] == [False, False, False]
    device.run(1, 1)
    assert [first.reached(), second.reached(), other.reached()] == [True, False, False]
    device.run(1, 1)
    assert [first.reached(), second.reached(), other.reached()] == [True, True, False]
    first.wait(5)
    assert not device.awaited, "a point that is reached is not waited for"
    other.wait(5)
    assert [each[1:] for each in device.awaited] == [(1, 5)]


def test_a_held_stream_keeps_others_that_wait_for_its_point_and_nobody_else(machine: NullPlatform) -> None:
    device = machine.devices[0]
    one, two = device.create_stream(), device.create_stream()
    with null.StreamHold(device.streams.get(one)):
        begun = mark(device, one)
        begun.wait(two)
        after = mark(device, two)
        free = mark(device, 0)
        machine.synchronize(device, 0)
        assert free.reached() and not begun.reached() and not after.reached()
    machine.synchronize(device, two)
    assert begun.reached() and after.reached()
    for stream in (one, two):
        device.destroy_stream(stream)


def test_threads_that_mark_one_stream_at_once_get_numbers_of_their_own_in_the_order_of_the_stream(device: Any) -> None:
    points: list[Point] = []
    begin = threading.Barrier(4)

    def work() -> None:
        begin.wait()
        points.extend([mark(device, 1) for _ in range(200)])

    threads = [threading.Thread(target=work) for _ in range(4)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert device.numbers(1) == list(range(1, 801))
    assert sorted(point.where.number for point in points) == list(range(1, 801))


def test_a_thread_that_marks_while_another_one_queues_comes_after_it(device: Any) -> None:
    inside, go = threading.Event(), threading.Event()

    def pause(number: int) -> None:
        if number == 1:
            inside.set()
            go.wait()

    device.before = pause
    first = threading.Thread(target=mark, args=(device, 1))
    second = threading.Thread(target=mark, args=(device, 1))
    first.start()
    inside.wait()
    second.start()
    go.set()
    first.join()
    second.join()
    assert device.numbers(1) == [1, 2]


def test_a_stream_with_the_handle_of_one_that_was_destroyed_does_not_overtake_it(device: Any) -> None:
    points = [mark(device, 5), mark(device, 5)]
    assert not device.awaited, "it is the same stream"
    address = device.queued[5][0][0]
    device.stream_ids[5] = 1 << 40
    points += [mark(device, 5), mark(device, 5)]
    assert device.awaited == [(address, 2, 5)]
    device.run(5)
    assert all(point.reached() for point in points)
    device.stream_ids[5] += 1
    mark(device, 5)
    assert len(device.awaited) == 1, "there is nobody to overtake"


def test_streams_of_several_threads_that_have_one_handle_do_not_overtake_each_other(device: Any) -> None:
    for number, stream_id in enumerate((7, 8, 7, 7)):
        device.stream_ids[2] = stream_id
        mark(device, 2)
        assert len(device.awaited) == min(number, 2)


@pytest.mark.parametrize("stream", ["default", "lent"])
def test_a_stream_that_nobody_destroys_is_not_asked_who_it_is(device: Any, stream: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "stream_id", lambda stream: pytest.fail(f"asked for stream {stream}"))
    monkeypatch.setattr(device, "create_stream", lambda: 77, raising=False)
    number = 0 if stream == "default" else lend_stream(device)
    for _ in range(3):
        mark(device, number)
    assert not device.awaited


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("count", [1, 3])
def test_a_finalizer_that_marks_within_a_mark_does_not_lower_the_word_for_good(device: Any, moment: str, count: int) -> None:
    within: list[Point] = []

    def finalize(_number: int) -> None:
        setattr(device, moment, lambda number: None)
        within.extend([mark(device, 1) for _ in range(count)])

    setattr(device, moment, finalize)
    point = mark(device, 1)
    numbers = device.numbers(1)
    assert numbers[-1] == max(numbers) == count + 1
    points = [point, *within]
    device.run(1)
    assert all(each.reached() for each in points)
    after = mark(device, 1)
    assert not after.reached()


def test_a_finalizer_that_marks_within_the_first_mark_of_a_stream_gets_its_timeline(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    within: list[Point] = []
    made = timelines.Timeline.__init__

    def finalize(*arguments: Any, **options: Any) -> None:
        monkeypatch.undo()
        made(*arguments, **options)
        within.append(mark(device, 1))

    monkeypatch.setattr(timelines.Timeline, "__init__", finalize)
    point = mark(device, 1)
    assert point.where[:3] == within[0].where[:3]
    assert device.numbers(1) == [1, 2]


def test_after_a_mark_that_was_refused_the_next_one_works(device: Any) -> None:
    def refuse(number: int) -> None:
        raise CaptureError

    before = mark(device, 1)
    device.before = refuse
    with pytest.raises(CaptureError):
        mark(device, 1)
    device.before = lambda number: None
    device.run(1)
    after = mark(device, 1)
    assert before.reached() and not after.reached()
    assert not device.awaited, "nobody waits for a number that was never queued"
    device.run(1)
    assert after.reached()


def test_a_mark_that_a_signal_ends_after_it_was_queued_has_its_number_for_ever(device: Any) -> None:
    def interrupt(number: int) -> None:
        raise KeyboardInterrupt

    device.after = interrupt
    with pytest.raises(KeyboardInterrupt):
        mark(device, 1)
    device.after = lambda number: None
    later = mark(device, 1)
    device.run(1, 1)
    assert not later.reached()
    device.run(1)
    assert later.reached()


def test_there_are_as_many_timelines_as_streams(device: Any) -> None:
    points = [mark(device, stream) for stream in range(3, 2 * PLACES)]
    assert len({point.where[:3] for point in points}) == len(points)
    assert len(device.registered) == len(device.regions()) == 2
    assert not any(point.reached() for point in points)
    device.run_all()
    assert all(point.reached() for point in points)


def test_a_device_that_has_broken_down_is_waited_for_no_more(device: Any) -> None:
    points = [mark(device, stream) for stream in (0, 7)]
    device.belongings["timelines"].forsake()
    assert all(point.reached() for point in points)
    points[0].wait(3)
    assert not device.awaited


# ------------------------------------------------------------------------------------------------- other processes
ROOT = Path(__file__).resolve().parents[2]
OWNER = """
import sys
from mray._common.settings import NullDevices
from mray._device.timelines import mark
from mray.testing import null
platform = null.NullPlatform(NullDevices(2, scope=sys.argv[1]))
device = platform.devices[0]
hold = null.StreamHold(device.streams.get(0))
for line in sys.stdin:
    if line == "mark\\n":
        key, handle, offset, number = mark(device, 0).where
        print(key.hex(), handle.hex(), offset, number, flush=True)
    else:
        hold.release()
        platform.synchronize(device, 0)
        print(flush=True)
"""


class Owner:
    """Another process, whose stream 0 is held."""

    def __init__(self) -> None:
        command = [sys.executable, "-c", OWNER, f"timelines{os.getpid()}"]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.pid = self._process.pid

    def _ask(self, line: str) -> str:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline()

    def mark(self) -> Where:
        key, handle, offset, number = self._ask("mark").split()
        return Where(bytes.fromhex(key), bytes.fromhex(handle), int(offset), int(number))

    def release(self) -> None:
        """Its stream does what is queued."""
        self._ask("release")

    def kill(self) -> None:
        """Dead when this returns; nobody has asked for its end."""
        pidfd = os.pidfd_open(self.pid)
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        select.select([pidfd], [], [])
        os.close(pidfd)

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()


@pytest.fixture
def start_owner() -> Iterator[Callable[[], Owner]]:
    started: list[Owner] = []

    def start() -> Owner:
        started.append(Owner())
        return started[-1]

    yield start
    for owner in started:
        owner.close()


@pytest.fixture
def owner(start_owner: Callable[[], Owner]) -> Owner:
    return start_owner()


def retire(machine: NullPlatform, peers: Peers) -> None:
    """Give back what an end has open, when its streams are done."""
    while not peers.retire():
        for device in machine.devices:
            machine.synchronize(device, 0)


def test_a_stream_goes_on_when_the_other_processes_has_come_to_the_point(machine: NullPlatform, owner: Owner) -> None:
    device, peers = machine.devices[0], Peers()
    first, second = owner.mark(), owner.mark()
    assert (second.number, second[:3]) == (first.number + 1, first[:3])
    peers.wait(device, 0, *second)
    after = mark(device, 0)
    assert not after.reached()
    owner.release()
    machine.synchronize(device, 0)
    assert after.reached()
    peers.wait(device, 0, *first)
    assert machine.synchronizations == 1
    retire(machine, peers)


def test_a_region_is_opened_once_for_all_ends_and_closed_when_its_process_is_dead(
    machine: NullPlatform, owner: Owner, eventually: Eventually
) -> None:
    where, one, other = owner.mark(), Peers(), Peers()
    device = machine.devices[0]
    mapping = one.open(device, *where[:2])
    assert other.open(device, *where[:2]) is mapping is one.open(device, *where[:2])
    assert one.open(machine.devices[1], *where[:2]) is not mapping, "each device has its own"
    assert one.retire() and one.retire()
    assert mapping.words[where.offset // 8] == 0
    assert other.retire()
    assert sweep_retired()
    assert mapping.words[where.offset // 8] == 0, "its process lives, and a stream may have to look at it yet"
    owner.kill()
    eventually(lambda: sweep_retired() and not mappings._known)
    with pytest.raises(ValueError):
        mapping.words[0]


def test_an_end_keeps_what_it_has_open_until_its_streams_are_done(machine: NullPlatform, owner: Owner) -> None:
    device, peers = machine.devices[0], Peers()
    peers.wait(device, 0, *owner.mark())
    assert not peers.retire()
    assert not peers.retire()
    owner.release()
    machine.synchronize(device, 0)
    assert peers.retire()


def test_an_end_that_cannot_mark_a_stream_just_now_forgets_none(machine: NullPlatform, monkeypatch: pytest.MonkeyPatch) -> None:
    device, peers, errors = machine.devices[0], Peers(), [CaptureError(), MemoryError(), OSError(), KeyboardInterrupt()]
    peers.used_on(device, 0)

    def refuse(*_arguments: object) -> Point:
        raise errors.pop()

    with monkeypatch.context() as patched:
        patched.setattr(timelines, "mark", refuse)
        for expected in (KeyboardInterrupt, OSError, MemoryError):
            with pytest.raises(expected):
                peers.retire()
        assert not peers.retire()
    with null.StreamHold(device.streams.get(0)):
        assert not peers.retire()
    machine.synchronize(device, 0)
    assert peers.retire()


def test_an_end_that_has_read_what_was_lent_waits_for_the_streams_that_use_it(machine: NullPlatform) -> None:
    device, peers = machine.devices[0], Peers()
    peers.used_on(device, 0)
    with null.StreamHold(device.streams.get(0)):
        assert not peers.retire()
    machine.synchronize(device, 0)
    assert peers.retire()


def test_streams_that_cannot_wait_open_nothing(owner: Owner) -> None:
    unable, peers, where = Recorder(), Peers(), owner.mark()
    unable.reason = "It has no words."
    device: Any = unable
    with pytest.raises(NotOpenedError, match=r"It has no words\."):
        peers.open(device, *where[:2])
    with pytest.raises(NotOpenedError, match=r"It has no words\."):
        peers.wait(device, 0, *where)
    assert not unable.registered and not unable.awaited
    assert peers.retire()


def test_timelines_of_the_dead_are_not_opened(machine: NullPlatform, owner: Owner) -> None:
    where, peers = owner.mark(), Peers()
    owner.kill()
    with pytest.raises(NotOpenedError, match=f"process {owner.pid}, which owns this memory, has exited"):
        peers.wait(machine.devices[0], 0, *where)
    assert peers.retire()


# ------------------------------------------------------------------------------------------------------------ death
@pytest.mark.parametrize("number", [1, 2, (1 << 32) + 1, FORSAKEN - 1])
def test_a_forsaken_word_counts_as_reached_for_every_number(machine: NullPlatform, number: int) -> None:
    device = machine.devices[0]
    point = mark(device, 0)
    machine.synchronize(device, 0)
    timeline = point._timeline
    timeline._region.words[timeline._index] = FORSAKEN
    assert timeline.reached(number)
    device.await_word(timeline._address, number, 0)  # as CUDA compares
    machine.synchronize(device, 0)
    assert point.reached()


def test_streams_that_wait_for_the_dead_go_on_though_no_thread_of_the_reader_does_anything(machine: NullPlatform, owner: Owner) -> None:
    device, peers, where = machine.devices[0], Peers(), owner.mark()
    peers.wait(device, 0, *where)
    after = mark(device, 0)
    assert not after.reached()
    owner.kill()
    machine.synchronize(device, 0)  # reads no messages
    assert after.reached()
    assert set(peers.open(device, *where[:2]).words) == {FORSAKEN}
    retire(machine, peers)


def test_every_region_of_the_dead_is_forsaken_for_every_device_and_those_of_the_living_are_not(
    machine: NullPlatform, start_owner: Callable[[], Owner], eventually: Eventually
) -> None:
    dead, living, peers = start_owner(), start_owner(), Peers()
    theirs, others = dead.mark(), living.mark()
    opened = [peers.open(device, *theirs[:2]) for device in machine.devices]
    alive = peers.open(machine.devices[0], *others[:2])
    dead.kill()
    eventually(lambda: all(set(each.words) == {FORSAKEN} for each in opened))
    assert set(alive.words) == {0}
    assert peers.retire()


def test_a_process_that_died_before_its_death_was_watched_is_forsaken_too(
    machine: NullPlatform, owner: Owner, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    where, peers = owner.mark(), Peers()
    watch = death_watch.then

    def die_before(process: tuple[int, int], callback: Callable[[], None]) -> Callable[[], None]:
        owner.kill()
        return watch(process, callback)

    monkeypatch.setattr(death_watch, "then", die_before)
    opened = peers.open(machine.devices[0], *where[:2])
    eventually(lambda: set(opened.words) == {FORSAKEN})
    assert peers.retire()


def test_a_process_whose_number_was_given_anew_is_forsaken_at_once(
    machine: NullPlatform, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    where, peers = owner.mark(), Peers()
    watch = death_watch.then
    monkeypatch.setattr(death_watch, "then", lambda process, callback: watch((process[0], process[1] + 1), callback))
    assert set(peers.open(machine.devices[0], *where[:2]).words) == {FORSAKEN}
    assert peers.retire()


def test_a_region_of_ones_own_process_is_not_watched(machine: NullPlatform) -> None:
    device: Device = machine.devices[0]
    point = mark(device, 0)
    machine.synchronize(device, 0)
    opened = open_timelines(device, *point.where[:2])
    try:
        assert isinstance(device, NullDevice)
        assert opened.words[point.where.offset // 8] == point.where.number
    finally:
        leave(device, point.where.key)
