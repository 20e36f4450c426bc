"""Print how many files of mray, with how many lines of code, seven walks through it enter, as a line of JSON.

    python -m tests.house.walks             the figures
    python -m tests.house.walks --list      the files of each walk

The walks, each in the thread that makes it: a graph's execution, a task, an actor's call and a large object, all of them warm; the death of
an actor as its caller sees it; Ctrl-C in `get`; a worker from its fork to its first task. A warm walk is the shortest of many, another one
of a few: what else happens at the same time makes a walk longer. A program of its own, since others' hooks would be counted.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from tests.house import code
from tests.house.source import ROOT

#: Calls before a walk is warm, and walks of which the shortest counts.
_WARM = 200
_MANY = 60
_FEW = 3
#: Seconds in which a driver is notified of a death.
_DEATH = 0.5
#: Walks that are warm.
WARM = ("graph", "task", "actor", "put", "get")
_PACKAGE = f"{ROOT}/mray/"


class Recorder:
    """Records the functions of mray that this thread enters within."""

    def __init__(self) -> None:
        self.calls = 0
        self.files: set[str] = set()

    def __enter__(self) -> Recorder:
        sys.setprofile(self._entered)
        return self

    def __exit__(self, *_error: object) -> None:
        sys.setprofile(None)

    def _entered(self, frame: FrameType, event: str, _argument: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(_PACKAGE):
            self.calls += 1
            self.files.add(frame.f_code.co_filename)


def shortest(walk: Callable[[], object], times: int) -> set[str]:
    """The files of the shortest of some walks."""
    recorders = []
    for _ in range(times):
        recorder = Recorder()
        with recorder:
            walk()
        recorders.append(recorder)
    return min(recorders, key=lambda each: each.calls).files


class Actor:
    """The actor of the walks."""

    def echo(self, value: Any) -> Any:
        return value

    def pid(self) -> int:
        return os.getpid()

    def put(self) -> list[Any]:
        import mray

        return [mray.put(np.ones(16 << 20, np.uint8))]


def warm_walks() -> dict[str, set[str]]:
    """The walks of calls that have been made often."""
    import mray
    from mray.dag import InputNode

    kind, task = mray.remote(Actor), mray.remote(lambda value: value)
    actor = kind.remote()
    with InputNode() as given:
        graph = kind.remote().echo.bind(given).experimental_compile()
    value = np.zeros(16 << 20, np.uint8)
    own = mray.put(value)
    refs: list[Any] = []

    def foreign() -> None:
        refs[:] = mray.get(actor.put.remote())

    walks: dict[str, Callable[[], object]] = {
        "graph": lambda: mray.get(graph.execute(1)),
        "task": lambda: mray.get(task.remote(1)),
        "actor": lambda: mray.get(actor.echo.remote(1)),
        "put": lambda: mray.put(value),
        "get": lambda: mray.get(own),
    }
    found = {}
    for name, walk in walks.items():
        large = name in ("put", "get")
        for _ in range(3 if large else _WARM):
            walk()
        found[name] = shortest(walk, 6 if large else _MANY)
    runs = []
    for _ in range(_FEW):
        foreign()
        runs.append(shortest(lambda: mray.get(refs[0]), 1))
    found["get of another process's"] = min(runs, key=len)
    graph.teardown()
    return found


def deaths() -> set[str]:
    """An idle actor is killed, while this thread reads."""
    import mray
    from mray._api.current import current_backend

    client: Any = current_backend().client  # type: ignore[attr-defined]
    runs = []
    for _ in range(_FEW):
        actor = mray.remote(Actor).remote()
        pid = mray.get(actor.pid.remote())
        time.sleep(0.1)
        until = time.monotonic() + _DEATH
        recorder = Recorder()
        with recorder:
            os.kill(pid, signal.SIGKILL)
            client.reactor.wait_until(lambda until=until: time.monotonic() > until, _DEATH)
        runs.append(recorder.files)
    return min(runs, key=len)


def interrupts() -> set[str]:
    """Ctrl-C comes while this thread waits."""
    import mray

    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job of a shell ignores it
    slow = mray.remote(lambda: time.sleep(60))
    runs = []
    for _ in range(_FEW):
        ref = slow.remote()
        recorder = Recorder()
        # Begun before: how a thread starts is no part of it.
        sender = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
        sender.start()
        try:
            with recorder:
                mray.get(ref)
        except KeyboardInterrupt:
            runs.append(recorder.files)
        sender.join()
    return min(runs, key=len)


def starts() -> set[str]:
    """A worker begins, and runs its first task."""
    import mray

    def first() -> set[str]:
        sys.setprofile(None)
        from tests.house import walk_preload

        return walk_preload.entered

    runs = []
    for _ in range(2):
        mray.init(num_cpus=1, preload=["tests.house.walk_preload"], logging_level="ERROR", log_to_driver=False)
        runs.append({file for file in mray.get(mray.remote(first).remote()) if file.startswith(_PACKAGE)})
        mray.shutdown()
    return min(runs, key=len)


def lines(files: Iterable[str]) -> int:
    """The lines of code of files."""
    sources = (Path(file).read_text() for file in files)
    return sum(code.size(ast.parse(source), source).lines for source in sources)


def main() -> None:
    import mray

    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--list", action="store_true", help="print the files of each walk")
    options = parser.parse_args()
    mray.init(num_cpus=2, logging_level="ERROR", log_to_driver=False)
    walks = {**warm_walks(), "death": deaths(), "Ctrl-C": interrupts()}
    mray.shutdown()
    walks["start of a worker"] = starts()
    if options.list:
        for name, files in walks.items():
            print(f"{name}: {len(files)} files, {lines(files):,} lines:", *sorted(file.removeprefix(_PACKAGE) for file in files))
    everything = set().union(*walks.values())
    warm = set().union(*(walks[name] for name in WARM))
    figures = {"files of all walks": len(everything), "lines of all walks": lines(everything)}
    print(json.dumps({**figures, "files of warm walks": len(warm), "lines of warm walks": lines(warm)}))


if __name__ == "__main__":
    main()
