"""A worker's program writes into memory of the session that is not its own, as native code with a wrong pointer does.

It is that worker's fault: it ends, its callers hear why, and nobody else is concerned.
"""

from __future__ import annotations

import ctypes
import gc
import os
import random
from collections.abc import Callable, Iterator

import pytest

import mray
from mray._ipc.mapped import address_of
from mray._ipc.table import LENT, ROW_WORDS, ROWS, SessionTable
from mray.dag import InputNode
from mray.exceptions import ActorDiedError, RayError

_WILD = (0, 1, 2, 3, 255, 1 << 31, (1 << 63) - 1, (1 << 64) - 1, 0x7F00_0000_1234, 0x3FF0_0000_0000_0000)


def table() -> SessionTable:
    (found,) = (each for each in gc.get_objects() if type(each) is SessionTable)
    return found


def own_row() -> int:
    """The only row that this process may write to."""
    start = address_of(table().segment.memory)
    with open("/proc/self/maps") as maps:
        writable = [int(line.split("-")[0], 16) for line in maps if " rw-s " in line]
    (first,) = (address for address in writable if start <= address < start + 8 * ROW_WORDS * ROWS)
    return (first - start) // (8 * ROW_WORDS)


@mray.remote(max_restarts=0)
class Worker:
    def add(self, number: int) -> int:
        return number + 1

    def pid(self) -> int:
        return os.getpid()

    def row(self) -> int:
        return own_row()

    def write(self, row: int, value: int) -> None:
        """Into all words of a row; of its own if `row` is negative."""
        row = own_row() if row < 0 else row
        words = (ctypes.c_uint64 * (LENT + 1)).from_address(address_of(table().segment.memory) + row * ROW_WORDS * 8)
        words[:] = [value] * (LENT + 1)

    def write_about(self, seed: int, count: int) -> None:
        """Into everything of the session that this process may write to."""
        randomness = random.Random(seed)
        with open("/proc/self/maps") as maps:
            places = [line.split()[0].split("-") for line in maps if " rw-s " in line and "mray" in line]
        for _ in range(count):
            start, end = (int(text, 16) for text in randomness.choice(places))
            address = start + 8 * randomness.randrange(min(end - start, 4096) // 8)
            ctypes.c_uint64.from_address(address).value = randomness.choice([*_WILD, randomness.getrandbits(64)])

    def leave(self) -> None:
        mray.actor.exit_actor()


@mray.remote
def add(number: int) -> int:
    return number + 1


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("MRAY_MEMORY_MONITOR_REFRESH_MS", "20")
    mray.init(num_cpus=2, logging_level="ERROR", log_to_driver=False)
    yield
    mray.shutdown()


def check_others(other: mray.actor.ActorHandle) -> None:
    assert mray.get([other.add.remote(1), add.remote(2)], timeout=60) == [2, 3]
    assert len(mray.get(mray.put(bytes(1 << 20)), timeout=60)) == 1 << 20


@pytest.mark.parametrize("whose", ["node", "driver", "actor"])
def test_a_write_into_the_row_of_another_process_ends_the_writer(session: None, whose: str) -> None:
    other, wild = Worker.remote(), Worker.remote()
    row = {"node": 0, "driver": 1, "actor": mray.get(other.row.remote())}[whose]  # actors join in either order
    assert mray.get(wild.row.remote()) != row
    with pytest.raises(ActorDiedError, match="SIGSEGV"):
        mray.get(wild.write.remote(row, (1 << 64) - 1), timeout=60)
    check_others(other)


@pytest.mark.parametrize("value", [(1 << 64) - 1, 0x7F00_0000_1234])
def test_impossible_words_in_its_own_row_end_a_worker_and_its_callers_hear_of_it(
    session: None, value: int, eventually: Callable[[Callable[[], object]], None]
) -> None:
    other, wild = Worker.remote(), Worker.remote()
    pid = mray.get(wild.pid.remote())
    mray.get(wild.write.remote(-1, value), timeout=60)
    eventually(lambda: not os.path.exists(f"/proc/{pid}"))
    with pytest.raises(ActorDiedError, match=r"wrote nonsense into the session's memory \(\w+ is 0x[0-9a-f]+ in its row of the table\)"):
        mray.get(wild.add.remote(1), timeout=60)
    check_others(other)


def test_a_worker_that_ends_with_impossible_words_in_its_row_leaves_the_node_alone(session: None) -> None:
    other = Worker.remote()
    for _ in range(5):
        wild = Worker.remote()
        calls = [wild.write.remote(-1, (1 << 64) - 1), wild.leave.remote()]
        with pytest.raises(ActorDiedError):
            mray.get(calls, timeout=60)
        check_others(other)


@pytest.mark.parametrize("seed", range(3))
def test_writes_everywhere_concern_nobody_else(session: None, seed: int) -> None:
    other, last, wild = Worker.remote(), Worker.remote(), Worker.remote()
    with InputNode() as node:
        graph = last.add.bind(other.add.bind(node)).experimental_compile()
    with InputNode() as node:
        graph_of_wild = wild.add.bind(node).experimental_compile()
    for number in range(50):  # until they talk in shared memory
        assert mray.get([wild.add.remote(number), other.add.remote(number)]) == [number + 1] * 2
        assert mray.get(graph_of_wild.execute(number)) == number + 1
    for attempt in range(5):
        try:
            mray.get(wild.write_about.remote(seed * 1000 + attempt, 40), timeout=60)
            mray.get(wild.add.remote(1), timeout=1)
        except RayError:  # it has ended, or its answers are lost
            pass
        assert mray.get(graph.execute(attempt), timeout=60) == attempt + 2
        check_others(other)
