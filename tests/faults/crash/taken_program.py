"""A row of the table in `taken.py`: a driver from whose session something is taken away at some moment.

Prints ``VALUE`` when all was as it would have been anyway, else ``ERROR`` with its class and text, and how many seconds passed since.
"""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import mray
import mray.dag
from mray._runtime.session import launching
from mray.util import collective, state
from mray.util.testing import reset
from tests.faults.crash.taken import INTERPRETER, TAKERS, interpreter_of, sessions_of_this_program

#: Nothing waits so long, on however busy a machine.
PATIENCE = 45.0
#: Elements of arrays: of a message that fits an entry of a ring, and of those for which slots must grow.
SIZES = (10, 20_000, 100_000, 400_000, 100_000, 1_000_000)
LARGE = 200_000
SPILLED_SIZE = 1 << 20

Take = Callable[[], AbstractContextManager[None]]


@mray.remote(num_cpus=0)
class Worker:
    def double(self, value: Any) -> Any:
        return value * 2

    def same(self, value: Any) -> Any:
        return value

    def make(self, size: int) -> Any:
        return np.arange(float(size))

    def work(self, folder: str) -> tuple[Any, Any]:
        """Something new, once it is taken."""
        Path(folder, "working").touch()
        while not Path(folder, "taken").exists():
            time.sleep(0.01)
        other = Worker.remote()
        return mray.get(other.double.remote(np.arange(float(LARGE)))), mray.get(plus.remote(1, 2))

    def join(self, rank: int, size: int) -> None:
        collective.init_collective_group(size, rank, "gloo", "g")

    def reduce(self, size: int) -> float:
        array = np.arange(float(size))
        collective.allreduce(array, group_name="g")
        return float(array.sum())

    def pass_on(self, rank: int, size: int) -> float:
        array = np.arange(float(size)) if rank == 0 else np.zeros(size)
        if rank == 0:
            collective.send(array, 1, group_name="g")
        else:
            collective.recv(array, 0, group_name="g")
        return float(array.sum())

    def total(self, refs: list[Any]) -> float:
        return float(mray.get(refs[0]).sum())


@mray.remote
def plus(left: Any, right: Any) -> Any:
    return left + right


@mray.remote
def large(*values: float) -> Any:
    made = [np.full(LARGE, value) for value in values]
    return made if len(made) > 1 else made[0]


def expect(found: Any, wanted: Any) -> None:
    assert np.array_equal(found, wanted), f"{found} instead of {wanted}"


def _new_things() -> None:
    """All requests of a driver."""
    actor = Worker.remote()
    expect(mray.get(actor.double.remote(21)), 42)
    expect(mray.get(actor.make.remote(LARGE)), np.arange(float(LARGE)))
    expect(mray.get(actor.double.remote(mray.put(np.ones(LARGE)))), np.full(LARGE, 2.0))
    expect(mray.get([plus.remote(number, 1) for number in range(8)]), list(range(1, 9)))


# ---------------------------------------------------------------------------------------------- moments
def before_init(take: Take, _folder: str) -> None:
    with take():
        mray.init(num_cpus=2, logging_level="ERROR")
        _new_things()


def before_joining(take: Take, _folder: str) -> None:
    """The node has been started, and the driver has not come to it."""
    launch = launching.launch_node

    def launch_and_take(*arguments: Any) -> Any:
        launched = launch(*arguments)
        with take():
            return launched

    launching.launch_node = launch_and_take
    mray.init(num_cpus=2, logging_level="ERROR")


def at_shutdown(take: Take, _folder: str) -> None:
    _new_things()
    with take():
        mray.shutdown()


def idle(take: Take, _folder: str) -> None:
    with take():
        _new_things()


def in_a_call(take: Take, folder: str) -> None:
    actor = Worker.remote()
    answer = actor.work.remote(folder)
    while not Path(folder, "working").exists():
        time.sleep(0.01)
    with take():
        Path(folder, "taken").touch()
        array, number = mray.get(answer)
        expect(array, np.arange(float(LARGE)) * 2)
        expect(number, 3)


def _graph(actors: list[Any]) -> Any:
    """Two actors that make something of the input and one that passes on what it gets, to both of the readers of a ring."""
    first, second, third = actors
    with mray.dag.InputNode() as value:
        made = first.make.bind(value)
        passed = second.same.bind(made)
        return mray.dag.MultiOutputNode([third.double.bind(made), first.double.bind(passed), passed]).experimental_compile()


def _use(graph: Any) -> None:
    for size in SIZES:
        doubled, again, same = mray.get(graph.execute(size))
        made = np.arange(float(size))
        expect(doubled, made * 2)
        expect(again, made * 2)
        expect(same, made)


def in_a_graph(take: Take, _folder: str) -> None:
    graph = _graph([Worker.remote() for _ in range(3)])
    try:
        expect(mray.get(graph.execute(2))[2], np.arange(2.0))
        with take():
            _use(graph)
    finally:
        graph.teardown()


def while_compiled(take: Take, _folder: str) -> None:
    actors = [Worker.remote() for _ in range(3)]
    mray.get([actor.double.remote(1) for actor in actors])
    with take():
        graph = _graph(actors)
        try:
            _use(graph)
        finally:
            graph.teardown()


def while_joining(take: Take, _folder: str) -> None:
    first, second = Worker.remote(), Worker.remote()
    mray.get([first.double.remote(1), second.double.remote(1)])
    joined = [first.join.remote(0, 2)]
    time.sleep(0.2)  # it waits for the other: nothing says so
    with take():
        joined.append(second.join.remote(1, 2))
        mray.get(joined)
        for size in SIZES:
            expect(mray.get([each.reduce.remote(size) for each in (first, second)]), [2 * np.arange(float(size)).sum()] * 2)
            expect(mray.get([first.pass_on.remote(0, size), second.pass_on.remote(1, size)]), [np.arange(float(size)).sum()] * 2)


def with_an_object(take: Take, _folder: str) -> None:
    ref = mray.put(np.ones(LARGE))
    with take():
        mray.get(ref)


def with_a_returned_object(take: Take, _folder: str) -> None:
    ref = large.remote(1.0)
    mray.wait([ref])
    with take():
        expect(mray.get(ref), np.ones(LARGE))


def with_an_unrepeatable_object(take: Take, _folder: str) -> None:
    ref = large.options(max_retries=0).remote(1.0)
    mray.wait([ref])
    with take():
        mray.get(ref)


def with_an_awaited_object(take: Take, _folder: str) -> None:
    ref = large.remote(1.0)
    mray.wait([ref])

    async def wait() -> Any:
        return await ref

    with take():
        expect(asyncio.run(wait()), np.ones(LARGE))
    mray.wait([ref := large.remote(2.0)])
    with take():
        expect(ref.future().result(PATIENCE), np.full(LARGE, 2.0))


def with_several_objects(take: Take, _folder: str) -> None:
    """One of them is used already."""
    first, second = large.options(num_returns=2).remote(1.0, 2.0)
    array = mray.get(first)
    with take():
        expect(mray.get(second), np.full(LARGE, 2.0))
        expect(mray.get([first, second]), [np.ones(LARGE), np.full(LARGE, 2.0)])
        expect(array, np.ones(LARGE))


def with_an_argument(take: Take, _folder: str) -> None:
    """... of calls and of a task, and of what is made again from it."""
    ref = large.remote(1.0)
    more = plus.remote(ref, 1.0)
    actor = Worker.remote()
    expect(mray.get(actor.double.remote(more)), np.full(LARGE, 4.0))
    with take():
        expect(mray.get(actor.double.remote(ref)), np.full(LARGE, 2.0))
        expect(mray.get(plus.remote(ref, more)), np.full(LARGE, 3.0))
    with take():
        expect(mray.get(more), np.full(LARGE, 2.0))


def with_an_argument_that_nobody_holds(take: Take, _folder: str) -> None:
    ref = plus.remote(plus.remote(large.remote(1.0), 1.0), 1.0)
    mray.wait([ref])
    with take():
        expect(mray.get(ref), np.full(LARGE, 3.0))


def with_a_borrowed_object(take: Take, _folder: str) -> None:
    """A task's, of which an actor has a ref; the actor gets it before and after."""
    ref = large.remote(1.0)
    actor = Worker.remote()
    expect(mray.get(actor.total.remote([ref])), LARGE)
    with take():
        expect(mray.get(actor.total.remote([ref])), LARGE)


def with_a_lost_argument(take: Take, _folder: str) -> None:
    ref = mray.put(np.ones(LARGE))
    with take():
        mray.get(plus.remote(ref, 1))


def with_an_object_in_use(take: Take, _folder: str) -> None:
    array = mray.get(mray.put(np.ones(LARGE)))
    with take():
        expect(array, np.ones(LARGE))


def before_reuse(take: Take, _folder: str) -> None:
    actor = Worker.remote()
    for _ in range(3):
        mray.get([mray.put(np.ones(LARGE)), actor.make.remote(LARGE)])
    gc.collect()
    with take():
        for _ in range(3):
            expect(mray.get(mray.put(np.ones(LARGE))), np.ones(LARGE))
            expect(mray.get(actor.make.remote(LARGE)), np.arange(float(LARGE)))
            expect(mray.get(actor.double.remote(np.ones(LARGE))), np.full(LARGE, 2.0))


def another_interpreter(take: Take, _folder: str) -> None:
    with take():
        environment = {"env_vars": {"PYTHONHASHSEED": "7"}}
        expect(mray.get(plus.options(runtime_env=environment).remote(1, 2)), 3)
        expect(mray.get(Worker.options(runtime_env=environment).remote().double.remote(2)), 4)


def before_a_reset(take: Take, _folder: str) -> None:
    with take():
        reset()
        _new_things()


def before_looking(take: Take, _folder: str) -> None:
    actor = Worker.remote()
    mray.get(actor.double.remote(1))
    with take():
        assert [row.state for row in state.list_actors()] == ["ALIVE"]
        assert "double" in " ".join(str(row.name) for row in state.list_tasks())
        assert state.list_workers(detail=True)


def before_another_session(take: Take, _folder: str) -> None:
    with take():
        words = "import mray; mray.init(num_cpus=1, logging_level='ERROR'); mray.shutdown()"
        subprocess.run([sys.executable, "-c", words], check=True)
        _new_things()


def _fill() -> list[Any]:
    """More than memory is for: some of it goes to disk."""
    return [mray.put(np.full(SPILLED_SIZE, float(number))) for number in range(12)]


def before_a_spill(take: Take, _folder: str) -> None:
    with take():
        for number, ref in enumerate(_fill()):
            expect(mray.get(ref), np.full(SPILLED_SIZE, float(number)))


def with_an_object_on_disk(take: Take, _folder: str) -> None:
    refs = _fill()
    with take():
        for number, ref in enumerate(refs):
            expect(mray.get(ref), np.full(SPILLED_SIZE, float(number)))


MOMENTS: dict[str, Callable[[Take, str], None]] = {
    "with an object of a task": with_a_returned_object,
    "with an object of a task that is not to be repeated": with_an_unrepeatable_object,
    "with an object that is awaited": with_an_awaited_object,
    "with one of several objects": with_several_objects,
    "with an argument": with_an_argument,
    "with an argument that nobody holds": with_an_argument_that_nobody_holds,
    "with a borrowed object": with_a_borrowed_object,
    "with an argument that was put": with_a_lost_argument,
    "before init's end": before_init,
    "before the driver has joined": before_joining,
    "at shutdown": at_shutdown,
    "idle": idle,
    "in a call": in_a_call,
    "in a graph": in_a_graph,
    "while a graph is compiled": while_compiled,
    "while a group joins": while_joining,
    "with an object that was put": with_an_object,
    "with an object in use": with_an_object_in_use,
    "before objects that reuse memory": before_reuse,
    "before another interpreter": another_interpreter,
    "before a reset": before_a_reset,
    "before it is looked at": before_looking,
    "before another session begins": before_another_session,
    "before a spill": before_a_spill,
    "with an object on disk": with_an_object_on_disk,
}
#: Those that begin a session themselves.
OWN = ("before init's end", "before the driver has joined")
#: Of sessions that are started otherwise.
OPTIONS: dict[str, dict[str, Any]] = {moment: {"object_store_memory": 80 << 20} for moment in ("before a spill", "with an object on disk")}


def main(what: str, moment: str, folder: str) -> None:
    faulthandler.dump_traceback_later(PATIENCE, exit=True)
    taken = [time.monotonic()]

    @contextmanager
    def take() -> Iterator[None]:
        with TAKERS[what](sessions_of_this_program()):
            taken.append(time.monotonic())
            yield

    if what == INTERPRETER:
        link = interpreter_of(sessions_of_this_program())
        link.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        link.chmod(0o700)
        sys.executable = str(link)
    if moment not in OWN:
        mray.init(num_cpus=2, logging_level="ERROR", **OPTIONS.get(moment, {}))
    try:
        MOMENTS[moment](take, folder)
        print("VALUE", flush=True)
    except Exception as error:
        print("ERROR", type(error).__name__, str(error).replace("\n", " | "), flush=True)
    print("SECONDS", time.monotonic() - taken[-1], flush=True)
    mray.shutdown()
    print("ENDED", os.getpid(), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
