"""Print how many Python functions one warm call of each kind enters in the caller's thread, as a line of JSON.

    python -m tests.house.function_counts awake       its process spins, and has answered when the caller looks; as a rule the least
    python -m tests.house.function_counts parked      it sleeps before the call, and answers when the caller sleeps; the usual of some calls

A program of its own: the handlers and hooks of a test's process would be among what is counted.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, NamedTuple

import numpy as np

#: Seconds that a parked process takes for an answer: the caller sleeps before.
_LATE = 0.003
#: Functions in one version of Python, and none in another.
_COMPREHENSIONS = {"<listcomp>", "<dictcomp>", "<setcomp>"}


class Walk(NamedTuple):
    """A call in two halves: it is made, with the seconds that its answer takes, and its result is taken."""

    make: Callable[[float], Any]
    take: Callable[[Any], object]


class Counter:
    """Counts the functions that this thread enters within."""

    def __init__(self) -> None:
        self.entered = 0

    def __enter__(self) -> Counter:
        sys.setprofile(self._entered)
        return self

    def __exit__(self, *_error: object) -> None:
        sys.setprofile(None)

    def _entered(self, frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        self.entered += event == "call" and code.co_filename != __file__ and code.co_name not in _COMPREHENSIONS


def answer_after(seconds: float) -> float:
    """The work of every call."""
    if seconds:
        time.sleep(seconds)
    return seconds


class Counting:
    """An actor of a graph that counts what its main thread enters from one execution to the next."""

    counter: Counter

    def step(self, begins: bool) -> int:
        """The number since the execution before, which began the count."""
        if begins:
            self.counter = Counter()
            self.counter.__enter__()
            return 0
        self.counter.__exit__()
        return self.counter.entered


def walks() -> dict[str, Walk]:
    """The calls, each of which has run so often that it is warm."""
    import mray
    from mray.dag import InputNode

    echo = mray.remote(type("Echo", (), {"answer": lambda _self, seconds: answer_after(seconds)}))
    task = mray.remote(answer_after)
    with InputNode() as given:
        graph = echo.remote().answer.bind(given).experimental_compile()
    actor = echo.remote()
    value = np.zeros(16 << 20, np.uint8)
    kept = mray.put(value)
    found = {
        "graph": Walk(graph.execute, mray.get),
        "task": Walk(task.remote, mray.get),
        "actor": Walk(actor.answer.remote, mray.get),
        "put": Walk(lambda _seconds: mray.put(value), lambda _ref: None),
        "get": Walk(lambda _seconds: kept, mray.get),
    }
    for walk in found.values():
        for _ in range(100):
            walk.take(walk.make(0.0))
    return found


def count(walk: Walk, seconds: float, pause: float) -> int:
    """The functions of one call, answered after so many seconds; its result is taken after `pause`, during which this thread is awake."""
    counter = Counter()
    with counter:
        made = walk.make(seconds)
    until = time.perf_counter() + pause
    while time.perf_counter() < until:
        pass
    with counter:
        walk.take(made)
        del made
    return counter.entered


def main() -> None:
    import mray
    from mray._api.current import current_backend
    from mray._ipc import copying
    from mray._ipc.table import AWAKE, STATE
    from mray.dag import InputNode

    copying.LEAST = 1 << 62  # how many threads share a copy depends on which cores are free
    parked = sys.argv[1:] == ["parked"]
    os.environ["MRAY_SPIN"] = "0" if parked else "1"
    mray.init(num_cpus=2, logging_level="ERROR")
    client: Any = current_backend().client  # type: ignore[attr-defined]
    reactor, own = client.reactor, client.info["row"]

    def someone_is_awake() -> bool:
        return any(reactor.table.word(row, STATE) == AWAKE for row in range(reactor.table.rows_in_use()) if row != own)

    def one(walk: Walk, number: int) -> int:
        reactor.run_deferred()  # of the call before
        if not parked:
            return count(walk, 0.0, number % 20 * 20e-6)
        while someone_is_awake():
            time.sleep(0.0005)
        return count(walk, _LATE, 0.0)

    # Now and then a call is shorter, where its answer or another thread has come at an odd moment.
    pick: Callable[[list[int]], int] = statistics.mode if parked else lambda several: sorted(several)[len(several) // 20]
    counts = {name: pick([one(walk, number) for number in range(25 if parked else 400)]) for name, walk in walks().items()}
    if parked:
        with InputNode() as given:
            graph = mray.remote(Counting).remote().step.bind(given).experimental_compile()
        found = []
        for _ in range(25):
            mray.get(graph.execute(True))
            while someone_is_awake():
                time.sleep(0.0005)
            found.append(mray.get(graph.execute(False)))
        counts["actor of a graph"] = pick(found)
    print(json.dumps(counts))


if __name__ == "__main__":
    main()
