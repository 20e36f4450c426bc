"""A driver that has each message of a session said: one scene for each group of them.

    faults_program.py <scene>[@worker | @actor] <folder>

A scene is played by the driver, by a task or by an actor. It ends in a line ``value``, ``error <text, as JSON>`` or, where there was no
session to play in, ``init <text>``; the program ends in ``END``. `test_handler_faults` runs it with a handler of some process that raises.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import mray
from mray.dag import InputNode
from mray.testing import null
from mray.util import placement_group, remove_placement_group, state
from mray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
from mray.util.testing import reset

#: Bytes of a value that lies in shared memory.
LARGE = 300_000
#: Bytes that objects may take.
STORE = 80 << 20
#: Seconds that what was used may take to be free again.
PATIENCE = 10.0


@mray.remote
def plus(number: int, more: int = 1) -> int:
    return number + more


@mray.remote(max_calls=1)
def once(number: int) -> int:
    return number


@mray.remote(num_returns=2)
def two(number: int) -> tuple[int, int]:
    return number, number + 1


@mray.remote
def large(size: int = LARGE) -> Any:
    return np.ones(size, np.uint8)


@mray.remote(retry_exceptions=True, max_retries=2)
def fails_first(path: str) -> str:
    if not os.path.exists(path):
        with open(path, "w"):
            raise ValueError("the first attempt")
    return "done"


@mray.remote
def nested(number: int) -> int:
    return sum(mray.get([plus.remote(number), plus.remote(number)]))


@mray.remote
def sleep(seconds: float, value: Any = None) -> Any:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.01)
    return value


@mray.remote
def read_late(refs: list[Any]) -> int:
    return len(mray.get(refs[0]))


@mray.remote
def make_ref() -> list[Any]:
    return [mray.put(np.ones(LARGE, np.uint8))]


@mray.remote
def dies() -> None:
    os._exit(3)


@mray.remote
def count(most: int) -> Any:
    yield from range(most)


@mray.remote
class Actor:
    def __init__(self) -> None:
        self.kept: list[Any] = []

    def plus(self, number: int) -> int:
        return number + 1

    def fail_first(self, path: str) -> str:
        if not os.path.exists(path):
            with open(path, "w"):
                raise ValueError("the first attempt")
        return "done"

    def keep(self, refs: list[Any]) -> int:
        self.kept = refs
        return len(refs)

    def read(self) -> int:
        return sum(len(mray.get(ref)) for ref in self.kept)

    def hire(self) -> Any:
        return Actor.remote()

    def forget(self) -> None:
        self.kept = []

    def cancel_kept(self) -> None:
        mray.cancel(self.kept[0])

    def both(self, value: Any) -> tuple[Any, Any]:
        return value, [mray.put(value)]

    def count(self, most: int) -> Any:
        yield from range(most)

    def of(self, other: Any) -> int:
        return mray.get(other.plus.remote(1))

    def execute(self, graph: Any) -> int:
        return [mray.get(graph.execute(4)) for _ in range(24)][-1]  # by way of its compiler, then by channels of its own

    @mray.method(tensor_transport="gloo")
    def tensors(self) -> Any:
        import torch

        return torch.ones(LARGE)

    def total(self, tensor: Any) -> float:
        return float(tensor.sum())


@mray.remote
class Broken:
    def __init__(self) -> None:
        raise ValueError("no actor")


@mray.remote
class Threaded:
    def plus(self, number: int) -> int:
        return number + 1


@mray.remote
class Async:
    async def plus(self, number: int) -> int:
        return number + 1


class Missed(Exception):
    """A value is not what it must be."""


def same(value: Any, expected: Any) -> None:
    if value != expected:
        raise Missed(f"{value!r} instead of {expected!r}")


# ------------------------------------------------------------------------------------------------- scenes
def tasks(folder: str) -> None:
    same(mray.get([plus.remote(number) for number in range(20)]), list(range(1, 21)))
    same(mray.get(two.remote(1)), [1, 2])
    same(mray.get(once.remote(1)), 1)
    same(mray.get(fails_first.remote(f"{folder}/attempt")), "done")
    same(mray.get(nested.remote(1)), 4)
    same(mray.get([nested.remote(number) for number in range(6)]), [2 * number + 2 for number in range(6)])
    for number in range(3):  # functions that go
        same(mray.get(mray.remote(lambda number=number: number).remote()), number)


def queues(folder: str) -> None:
    """Tasks that wait behind others, are taken back and go elsewhere; several owners want the same CPUs."""
    same(mray.get([sleep.remote(0, number) for number in range(300)]), list(range(300)))
    slow = [sleep.remote(0.5 if number % 50 == 49 else 0, number) for number in range(200)]
    inner = [nested.remote(number) for number in range(4)]
    same(mray.get(slow), list(range(200)))
    same(mray.get(inner), [2 * number + 2 for number in range(4)])
    # More wanted than there is: those that wait are cancelled.
    busy = [sleep.remote(0.3) for _ in range(2)]
    waiting = [sleep.options(num_cpus=2).remote(30) for _ in range(3)]
    time.sleep(0.1)
    for ref in waiting:
        mray.cancel(ref)
    mray.get(busy)
    for ref in waiting:
        try:
            mray.get(ref)
        except mray.exceptions.TaskCancelledError:
            pass


def objects(folder: str) -> None:
    same(len(mray.get(large.remote())), LARGE)
    gc.collect()
    (ref,) = mray.get(make_ref.remote())
    same(len(mray.get(ref)), LARGE)
    holder, reader = Actor.remote(), Actor.remote()
    # An actor of another process's, which comes to this one for what it was given.
    other = mray.get(holder.hire.remote())
    same(mray.get(other.keep.remote([mray.put(np.ones(LARGE, np.uint8))])), 1)
    same(mray.get(other.read.remote()), LARGE)
    late = sleep.remote(0.2, np.ones(10, np.uint8))
    same(mray.get(holder.keep.remote([mray.put(np.ones(LARGE, np.uint8)), late])), 2)
    same(mray.get(holder.read.remote()), LARGE + 10)
    same(mray.get(read_late.remote([sleep.remote(0.2, np.ones(10, np.uint8))])), 10)
    value, (inner,) = mray.get(holder.both.remote(b"x" * LARGE))
    same(mray.get(reader.keep.remote([inner])), 1)
    same(mray.get(reader.read.remote()), LARGE)
    mray.get([holder.forget.remote(), reader.forget.remote()])
    del value, inner, ref
    gc.collect()
    same(mray.get(reader.plus.remote(1)), 2)


def cancels(folder: str) -> None:
    ref = sleep.remote(600)
    time.sleep(0.2)
    mray.cancel(ref)
    expect_cancelled(ref)
    holder = Actor.remote()
    ref = sleep.remote(600)
    mray.get(holder.keep.remote([ref]))
    mray.get(holder.cancel_kept.remote())
    expect_cancelled(ref)


def expect_cancelled(ref: Any) -> None:
    try:
        mray.get(ref)
    except mray.exceptions.TaskCancelledError:
        return
    raise Missed("it was not cancelled")


def generators(folder: str) -> None:
    same([mray.get(ref) for ref in count.remote(300)], list(range(300)))
    actor = Actor.remote()
    slow = actor.count.options(num_returns="streaming", _generator_backpressure_num_objects=2).remote(20)
    same([mray.get(ref) for ref in slow], list(range(20)))
    dropped = actor.count.options(num_returns="streaming", _generator_backpressure_num_objects=2).remote(1 << 40)
    same(mray.get(next(dropped)), 0)
    del dropped
    gc.collect()
    same(mray.get(actor.plus.remote(1)), 2)


def actors(folder: str) -> None:
    first = Actor.options(name="known", max_restarts=1, max_task_retries=1).remote()
    second, threaded, coroutines = Actor.remote(), Threaded.options(max_concurrency=2).remote(), Async.remote()
    same(mray.get([each.plus.remote(1) for each in (first, second, threaded, coroutines)]), [2] * 4)
    same(mray.get(second.of.remote(first)), 2)
    same(mray.get(mray.get_actor("known").plus.remote(1)), 2)
    same(mray.get(first.fail_first.options(retry_exceptions=True).remote(f"{folder}/method")), "done")
    mray.kill(first, no_restart=False)
    same(mray.get(first.plus.remote(1)), 2)
    mray.kill(second)
    try:
        while True:
            mray.get(second.plus.remote(1))
    except mray.exceptions.ActorDiedError:
        pass
    try:
        mray.get(Broken.remote().__ray_ready__.remote())
    except mray.exceptions.ActorDiedError as error:
        if "no actor" not in str(error):
            raise
    try:
        mray.get(dies.options(max_retries=0).remote())
    except mray.exceptions.WorkerCrashedError as error:
        if "exit code 3" not in str(error):
            raise
    del threaded, coroutines
    gc.collect()
    same(mray.get(plus.remote(1)), 2)


def groups(folder: str) -> None:
    group = placement_group([{"CPU": 1}, {"CPU": 1}])
    mray.get(group.ready())
    strategy = PlacementGroupSchedulingStrategy(group)
    same(mray.get(plus.options(scheduling_strategy=strategy).remote(1)), 2)
    busy = [sleep.options(scheduling_strategy=strategy).remote(600) for _ in range(2)]
    waiting = plus.options(scheduling_strategy=strategy).remote(1)
    time.sleep(0.2)
    remove_placement_group(group)
    for ref in (*busy, waiting):
        try:
            mray.get(ref)
        except (mray.exceptions.TaskPlacementGroupRemoved, mray.exceptions.TaskUnschedulableError):
            pass
        else:
            raise Missed("its group was removed")


def store(folder: str) -> None:
    """More than memory has room for, which others keep for use again."""
    kept = [large.remote(20 << 20) for _ in range(3)]
    mray.wait(kept, num_returns=3)
    del kept
    gc.collect()
    mray.get(plus.remote(1))
    made = [mray.put(np.ones(20 << 20, np.uint8)) for _ in range(3)]
    own = [mray.put(np.ones(20 << 20, np.uint8)) for _ in range(3)]
    same([len(mray.get(ref)) for ref in (*made, *own)], [20 << 20] * 6)


def graphs(folder: str) -> None:
    one, other, third = Actor.remote(), Actor.remote(), Actor.remote()
    with InputNode() as value:
        graph = other.plus.bind(one.plus.bind(value)).experimental_compile()
    same(mray.get(graph.execute(1)), 3)
    same(mray.get(third.execute.remote(graph)), 6)
    same(mray.get(graph.execute(2)), 4)
    graph.teardown()
    same(mray.get(one.plus.remote(1)), 2)


def tensors(folder: str) -> None:
    holder, receiver = Actor.remote(), Actor.remote()
    ref = holder.tensors.remote()
    same(mray.get(receiver.total.remote(ref)), float(LARGE))
    del ref
    gc.collect()
    same(mray.get(holder.plus.remote(1)), 2)


@mray.remote(num_gpus=1)
class OfDevice:
    @mray.method(tensor_transport="cuda_ipc")
    def lend(self) -> Any:
        return null.full(1000, 1.0)

    def total(self, array: Any) -> float:
        return float(array.numpy().sum())


def devices(folder: str) -> None:
    """Tensors of pretended devices."""
    holder, receiver = OfDevice.remote(), OfDevice.remote()
    ref = holder.lend.remote()
    same(mray.get(receiver.total.remote(ref)), 1000.0)
    del ref
    gc.collect()
    same(mray.get(receiver.total.remote(holder.lend.remote())), 1000.0)


def joined(folder: str) -> None:
    """A session that is not this driver's, and that ends under it."""
    same(mray.get(plus.remote(1)), 2)
    mray.shutdown()
    mray.init(address="auto", logging_level="CRITICAL")
    same(mray.get(plus.remote(1)), 2)
    command("stop")
    try:
        mray.get(plus.remote(1))
    except mray.exceptions.NodeDiedError as error:
        if "it was stopped" not in str(error):
            raise


def hooked(folder: str) -> None:
    """Workers run something of the user's before they serve."""
    same(mray.get(plus.remote(1)), 2)


def hook() -> None:
    """The setup hook that they run."""


def command(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "mray", *words], check=True, capture_output=True)


def looks(folder: str) -> None:
    same(mray.cluster_resources()["CPU"], 2.0)
    same(len(mray.nodes()), 1)
    actor = Actor.remote()
    mray.get(actor.plus.remote(1))
    if not state.list_actors(raise_on_missing_output=True):
        raise Missed("no actor is listed")
    mray.get(look_on.remote())
    if not state.list_workers(raise_on_missing_output=True):
        raise Missed("no worker is listed")
    mray.get(plus.remote(1))
    state.list_tasks(raise_on_missing_output=True)
    actor.__ray_terminate__.remote()
    print_from = print_line.remote()
    mray.get(print_from)


@mray.remote
def look_on() -> None:
    state.list_tasks(raise_on_missing_output=True)


@mray.remote
def print_line() -> None:
    print("a line of a worker")


def after_reset(folder: str) -> None:
    mray.get(Actor.remote().plus.remote(1))
    reset()
    same(mray.get(plus.remote(1)), 2)


SCENES: dict[str, Callable[[str], None]] = {
    each.__name__: each
    for each in (
        tasks, queues, objects, cancels, generators, actors, groups, store, graphs, tensors, devices, looks, hooked, after_reset, joined,
    )
}  # fmt: skip


@mray.remote(num_cpus=0, max_retries=0)
def played(scene: str, folder: str) -> None:
    SCENES[scene](folder)


@mray.remote(num_cpus=0)
class Player:
    def play(self, scene: str, folder: str) -> None:
        SCENES[scene](folder)


def resources_are_back() -> bool:
    """Whether everything is free again, soon; of a session that a fault has ended nobody asks."""
    deadline = time.monotonic() + PATIENCE
    try:
        while mray.available_resources().get("CPU") != mray.cluster_resources().get("CPU"):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
    except mray.exceptions.RayError:
        pass
    return True


def main() -> None:
    wanted, folder = sys.argv[1:]
    if wanted == "devices":
        os.environ["MRAY_NULL_DEVICES"] = f"2,scope=test-faults-{os.getpid()}"
    scene, _, where = wanted.partition("@")
    started = False
    try:
        if scene == "joined":
            command("start", "--num-cpus=2")
            mray.init(address="auto", logging_level="CRITICAL")
        else:
            gpus = 2 if scene == "devices" else 0
            runtime_env = {"worker_process_setup_hook": hook} if scene == "hooked" else None
            mray.init(num_cpus=2, num_gpus=gpus, object_store_memory=STORE, logging_level="CRITICAL", runtime_env=runtime_env)
        started = True
        Path(folder, "begun").touch()
        if not where:
            SCENES[scene](folder)
        elif where == "worker":
            mray.get(played.remote(scene, folder))
        else:
            player = Player.remote()
            mray.get(player.play.remote(scene, folder))
    except Exception as error:
        parts = []
        seen: BaseException | None = error
        while seen is not None:
            parts.append(f"{type(seen).__name__}: {seen}")
            seen = seen.__cause__
        print("error" if started else "init", json.dumps("\n".join(parts)), flush=True)
    else:
        print("value", flush=True)
    try:
        # A task whose cancellation was lost sleeps on.
        if started and scene != "cancels" and not resources_are_back():
            print("leaked", mray.available_resources(), mray.cluster_resources(), flush=True)
    finally:
        Path(folder, "begun").touch()  # else no session has begun
        mray.shutdown()
        if scene == "joined":
            command("stop", "--force")
    print("END", flush=True)


if __name__ == "__main__":
    main()
