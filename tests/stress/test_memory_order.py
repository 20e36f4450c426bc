"""The patterns of `mray._ipc.memory_order` on this processor, between two processes that do nothing else.

The explorer of `tests/interleavings` works on a model; here the machine is asked: a wrong answer is a wrong model. On x86-64 only the
doorbell's pattern depends on a fence; the others test that words are whole and that nobody reorders what the processor does not.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable

from mray._ipc.memory_order import fence, publish_fence, trust_fence

WORDS = 512
#: Each word has lines of its own.
FLAG, SEEN, TURN = 0, 32, (64, 96)
SHARED = (128, 160)
PAYLOAD = range(256, 264)


def in_two_processes(first: Callable[[memoryview], None], second: Callable[[memoryview], None]) -> list[int]:
    """Run both at once over the same words; what the words are at the end."""
    shared = mmap.mmap(-1, WORDS * 8)
    words = memoryview(shared).cast("Q")
    child = os.fork()
    if not child:
        status = 1
        try:
            second(words)
            status = 0
        finally:
            os._exit(status)
    try:
        first(words)
    finally:
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status == 0, "the other process found a value that must not be"
    found = words.tolist()
    words.release()
    shared.close()
    return found


def test_what_is_published_is_whole_when_it_is_seen(count: Callable[[int, int], int]) -> None:
    messages = count(20_000, 2_000_000)

    def write(words: memoryview) -> None:
        for number in range(1, messages + 1):
            for place in PAYLOAD:
                words[place] = number
            publish_fence()
            words[FLAG] = number
            if number % 64 == 0:
                os.sched_yield()

    def read(words: memoryview) -> None:
        looks = 0
        while (number := words[FLAG]) < messages:
            trust_fence()
            assert all(words[place] >= number for place in PAYLOAD)
            looks += 1
            if looks % 64 == 0:
                os.sched_yield()

    in_two_processes(write, read)


def test_a_word_is_never_seen_half_written(count: Callable[[int, int], int]) -> None:
    changes = count(20_000, 2_000_000)
    values = 0x0123_4567_89AB_CDEF, 0xFEDC_BA98_7654_3210

    def write(words: memoryview) -> None:
        for number in range(changes):
            words[SEEN] = values[number & 1]
            if number % 64 == 0:
                os.sched_yield()
        words[FLAG] = 1

    def read(words: memoryview) -> None:
        looks = 0
        while not words[FLAG]:
            assert words[SEEN] in (0, *values)
            looks += 1
            if looks % 64 == 0:
                os.sched_yield()

    in_two_processes(write, read)


def test_of_a_sleeper_and_a_ringer_one_sees_the_other(count: Callable[[int, int], int]) -> None:
    rounds = count(3_000, 300_000)

    def play(own: int, other: int) -> Callable[[memoryview], None]:
        def play(words: memoryview) -> None:
            own_turn, other_turn = TURN[own], TURN[other]
            mine, theirs = SHARED[own], SHARED[other]
            for number in range(1, rounds + 1):
                words[own_turn] = number
                while words[other_turn] < number:  # begin together
                    os.sched_yield()
                words[mine] = number
                fence()
                missed = words[theirs] < number
                words[256 + own * 64] = missed and number
                # Compare, before either goes on.
                fence()
                words[own_turn + 1] = number
                while words[other_turn + 1] < number:
                    os.sched_yield()
                assert not (missed and words[256 + other * 64] == number), f"in round {number} neither saw the other"

        return play

    in_two_processes(play(0, 1), play(1, 0))
