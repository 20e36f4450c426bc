"""Large numbers: sessions one after the other, actors at once, tasks in a queue, threads that call. Costs, and memory that stays.

    python bench/endurance.py sessions [--count 10000]    started and stopped, with a task in each
    python bench/endurance.py actors [--count 1000]       alive at once
    python bench/endurance.py tasks [--count 1000000]     queued before the first result is asked for
    python bench/endurance.py threads [--count 64]        of one driver, each with tasks, an actor and objects

Exit status 1 if an answer is wrong or something is left: a process, shared memory, an open file, a thread; or, for sessions, if the
driver's memory grows in the last third by more than 2 MB.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ.setdefault("MRAY_BENCH_MARK", f"{os.getpid()}-endurance")

from measure import cpu_seconds, proportional_set_size

import mray

GROWTH = 2.0


@mray.remote
def echo(value: Any) -> Any:
    return value


class Member:
    def __init__(self, number: int = 0) -> None:
        self.number = number
        self.calls = 0

    def who(self) -> tuple[int, int]:
        self.calls += 1
        return self.number, self.calls


def megabytes() -> float:
    """Private memory of this process, in MB (10^6 bytes)."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss_Anon:")) / 1e6


def belongings() -> tuple[int, int]:
    gc.collect()
    return len(os.listdir("/proc/self/fd")), threading.active_count()


def sessions(count: int) -> list[str]:
    wrong: list[str] = []
    samples = []
    times = []
    before: tuple[int, int] | None = None
    begun = time.perf_counter()
    for number in range(count):
        start = time.perf_counter()
        mray.init(num_cpus=1, logging_level="ERROR")
        if mray.get(echo.remote(number)) != number:
            wrong.append(f"session {number} has a wrong answer")
        mray.shutdown()
        times.append(time.perf_counter() - start)
        if number == 20:
            before = belongings()
        if number % max(1, count // 100) == 0:
            samples.append(megabytes())
        if (number + 1) % max(1, count // 10) == 0:
            part = sorted(times[-max(1, count // 10) :])
            median = statistics.median(part) * 1e3
            print(f"{number + 1:>7} sessions  {median:7.1f} ms each  {samples[-1]:7.1f} MB  {belongings()}", flush=True)
    if before is not None and belongings() != before:
        wrong.append(f"files and threads: {before} became {belongings()}")
    third = len(samples) // 3
    thirds = [statistics.median(part) for part in (samples[:third], samples[third : 2 * third], samples[2 * third :]) if part]
    print(f"{count} sessions in {time.perf_counter() - begun:.0f} s; MB by thirds: {' '.join(f'{each:.1f}' for each in thirds)}")
    if len(thirds) == 3 and thirds[2] - thirds[1] > GROWTH:
        wrong.append(f"memory grows: {thirds}")
    return wrong


def actors(count: int) -> list[str]:
    mray.init(num_cpus=2, logging_level="ERROR")
    try:
        actor = mray.remote(num_cpus=0)(Member)
        begun = time.perf_counter()
        alive = [actor.remote(number) for number in range(count)]
        first = mray.get([each.who.remote() for each in alive])
        started = time.perf_counter() - begun
        begun = time.perf_counter()
        second = mray.get([each.who.remote() for each in alive])
        called = time.perf_counter() - begun
        everyone = cpu_seconds()
        members = [pid for pid in everyone if "Member" in Path(f"/proc/{pid}/cmdline").read_text()]
        each = [proportional_set_size(pid) for pid in members]
        node = next(pid for pid in everyone if Path(f"/proc/{pid}/cmdline").read_text().startswith("ray::node"))
        print(f"{count} actors alive after {started:.1f} s ({count / started:.0f} per second); called in turn in {called:.2f} s")
        own = proportional_set_size(node)
        print(f"memory of each (PSS): {statistics.median(each):.2f} MB, together {sum(each):.0f} MB; node {own:.1f} MB")
        print(f"open files: driver {len(os.listdir('/proc/self/fd'))}, node {len(os.listdir(f'/proc/{node}/fd'))}")
        begun = time.perf_counter()
        del alive
        gc.collect()
        while any(Path(f"/proc/{pid}").exists() for pid in members):
            time.sleep(0.05)
        print(f"all gone {time.perf_counter() - begun:.1f} s after their handles")
        expected = [[(number, calls) for number in range(count)] for calls in (1, 2)]
        return [] if [first, second] == expected and len(members) == count else ["a wrong answer"]
    finally:
        mray.shutdown()


def tasks(count: int) -> list[str]:
    mray.init(num_cpus=2, logging_level="ERROR")
    try:
        mray.get([echo.remote(number) for number in range(1000)])
        before = megabytes()
        begun = time.perf_counter()
        refs = [echo.remote(number) for number in range(count)]
        queued = time.perf_counter() - begun
        held = megabytes() - before
        begun = time.perf_counter()
        wrong = 0
        for start in range(0, count, 10_000):
            wrong += mray.get(refs[start : start + 10_000]) != list(range(start, min(count, start + 10_000)))
        drained = time.perf_counter() - begun
        each = held * 1e6 / count
        print(f"{count} tasks queued in {queued:.1f} s ({count / queued:.0f} per second), {held:.0f} MB ({each:.0f} bytes each)")
        print(f"the rest of their results in {drained:.1f} s; {count / (queued + drained):.0f} tasks per second in all")
        begun = time.perf_counter()
        del refs
        gc.collect()
        print(f"let go in {time.perf_counter() - begun:.1f} s; {megabytes() - before:.0f} MB more than before")
        return [f"{wrong} wrong answers"] if wrong else []
    finally:
        mray.shutdown()


def threads(count: int, rounds: int = 200) -> list[str]:
    wrong: list[str] = []
    mray.init(num_cpus=2, logging_level="ERROR")
    try:
        shared = mray.remote(num_cpus=0)(Member).remote()

        def work(number: int) -> None:
            try:
                own = mray.remote(num_cpus=0)(Member).remote(number)
                last = 0
                for each in range(rounds):
                    value = b"x" * (200_000 if each % 20 == 0 else 10)
                    ref = mray.put(value)
                    if mray.get([echo.remote((number, each)), echo.remote(ref)]) != [(number, each), value]:
                        wrong.append(f"thread {number}: a task")
                    if mray.get(own.who.remote()) != (number, each + 1):
                        wrong.append(f"thread {number}: its actor")
                    _zero, calls = mray.get(shared.who.remote())
                    if calls <= last:
                        wrong.append(f"thread {number}: the count went from {last} to {calls}")
                    last = calls
            except BaseException as error:
                wrong.append(f"thread {number}: {error!r}")

        begun = time.perf_counter()
        everyone = [threading.Thread(target=work, args=(number,)) for number in range(count)]
        for thread in everyone:
            thread.start()
        for thread in everyone:
            thread.join()
        seconds = time.perf_counter() - begun
        if mray.get(shared.who.remote()) != (0, count * rounds + 1):
            wrong.append("calls of the shared actor were lost or doubled")
        print(
            f"{count} threads, {rounds} rounds each of 2 tasks, 2 calls of actors and a put: {seconds:.1f} s, "
            f"{count * rounds * 4 / seconds:.0f} calls per second"
        )
    finally:
        mray.shutdown()
    return wrong


SOAKS: dict[str, tuple[Callable[[int], list[str]], int]] = {
    "sessions": (sessions, 10_000),
    "actors": (actors, 1000),
    "tasks": (tasks, 1_000_000),
    "threads": (threads, 64),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("soak", choices=[*SOAKS])
    parser.add_argument("--count", type=int, default=None)
    options = parser.parse_args()
    act, count = SOAKS[options.soak]
    wrong = act(count if options.count is None else options.count)
    mine = [pid for pid in cpu_seconds() if pid != os.getpid()]
    if mine:
        wrong.append(f"processes are left: {mine}")
    print("\n".join(wrong[:20]) if wrong else "no wrong answer, nothing left")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
