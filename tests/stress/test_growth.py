"""Nothing is kept of what is over: as many actors, tasks, deaths again leave every process with as many objects as before.

Objects are counted, and what lies in their tables, not bytes. Listings remember the last of the dead on purpose; that is bounded by itself
(`tests/unit/test_history.py`) and invisible to the garbage collector.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import mray
from mray._api.current import backend_if_started
from mray._decide.scheduler import records
from mray._observe.observer import ask_node, ask_processes
from mray._runtime.processes.object_counts import ITEMS, count_objects
from mray.dag import InputNode
from mray.util import placement_group, remove_placement_group
from mray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

pytestmark = pytest.mark.timeout(900)
#: Of what happens so often less than one object in two may stay: idle workers come and go, and each has a few of some classes.
SHARE = 0.5
#: ... and some dozens of the builtin ones, and of places in tables.
COMMON = 200
#: For each process of the session, idle workers included, the node has a record with three sets. The sets are taken for a part of the
#: record, or else four idle workers more (which were about to begin when it was first counted) are a dozen objects of one class.
RECORD, SET, SETS = f"{records.__name__}.Member", f"{records.__name__}.Ordered", 3


@mray.remote(num_cpus=2)
def with_all_cpus() -> None:
    """A request for another number of them waits."""
    time.sleep(0.3)


@mray.remote(num_cpus=0)
class Service:
    """Lives throughout: nothing may stay with it either."""

    def __init__(self) -> None:
        self.kept: Any = None

    def echo(self, value: Any) -> Any:
        return value

    def keep(self, refs: Any) -> None:
        self.kept = refs

    def own(self) -> Any:
        return mray.put(b"x")

    def count(self, most: int) -> Any:
        yield from range(most)

    def ask(self, number: int) -> Any:
        return mray.get([echo.remote(number), Member.remote().add.remote(number)])

    def fail(self) -> None:
        raise ValueError("it fails")


@mray.remote(num_cpus=0)
class Member:
    def add(self, value: int) -> int:
        return value + 1

    def end(self) -> None:
        os._exit(3)


@mray.remote
def echo(value: Any) -> Any:
    return value


@mray.remote(max_retries=0)
def end() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@mray.remote
def count(most: int) -> Any:
    yield from range(most)


@mray.remote(num_cpus=0)
def sleep() -> None:
    threading.Event().wait()


#: Waits in vain leave nothing behind also while what they wait for is still to come.
kept: list[Any] = []


@mray.remote
def call(actor: Any, value: int) -> Any:
    return mray.get(actor.add.remote(value))


def outcome(ref: Any) -> str:
    """The class of the error of a call."""
    try:
        mray.get(ref)
    except Exception as error:
        return type(error).__name__
    return ""


def tasks(service: Any, times: int) -> None:
    assert mray.get([echo.remote(number) for number in range(10 * times)]) == list(range(10 * times))
    for number in range(times):
        refs = [echo.remote(number) for _ in range(3)]
        mray.wait(refs, num_returns=2)


def actors_that_nobody_needs(service: Any, times: int) -> None:
    for start in range(0, times, 8):
        assert mray.get([Member.remote().add.remote(start) for _ in range(8)]) == [start + 1] * 8


def actors_that_die(service: Any, times: int) -> None:
    for _ in range(0, times, 8):
        actors = [Member.remote() for _ in range(8)]
        for actor in actors[:4]:
            mray.kill(actor)
        assert {outcome(actor.end.remote()) for actor in actors} == {"ActorDiedError"}


def workers_that_die(service: Any, times: int) -> None:
    for _ in range(0, times, 4):
        assert {outcome(ref) for ref in [end.remote() for _ in range(4)]} == {"WorkerCrashedError"}


def handles_and_names(service: Any, times: int) -> None:
    for number in range(times):
        actor = Member.options(name=f"member {number}").remote()
        assert mray.get([call.remote(actor, 1), mray.get_actor(f"member {number}").add.remote(2)]) == [2, 3]
        assert mray.get(service.ask.remote(number)) == [number, number + 1]
        mray.kill(actor)


def objects(service: Any, times: int) -> None:
    large = b"x" * 200_000
    for number in range(times):
        assert mray.get(service.echo.remote(mray.put(large))) == large
        mray.get(service.keep.remote([mray.put(large), echo.remote(number)]))
        assert mray.get(mray.get(service.own.remote())) == b"x"
    mray.get(service.keep.remote(None))


def errors(service: Any, times: int) -> None:
    refs = [service.fail.remote() for _ in range(times)]
    assert all("ValueError" in outcome(ref) for ref in refs)


def placement_groups(service: Any, times: int) -> None:
    for number in range(times):
        group = placement_group([{"CPU": 1}])
        place = PlacementGroupSchedulingStrategy(placement_group=group)
        assert mray.get(echo.options(scheduling_strategy=place).remote(number)) == number
        remove_placement_group(group)


def generators(service: Any, times: int) -> None:
    for _ in range(times):
        assert [mray.get(ref) for ref in count.remote(3)] == [0, 1, 2]
        stream = service.count.options(num_returns="streaming").remote(5)
        assert mray.get(next(stream)) == 0
    never = sleep.remote()
    stream = count.remote(never)

    async def wait_in_vain() -> None:
        for _ in range(10 * times):
            assert (await stream._next_async(0)).is_nil()
            never.as_future().cancel()

    asyncio.run(wait_in_vain())
    kept.append((never, stream))


def graphs(service: Any, times: int) -> None:
    for number in range(times):
        member = Member.remote()
        with InputNode() as value:
            dag = service.echo.bind(member.add.bind(value))
        compiled = dag.experimental_compile()
        assert mray.get(compiled.execute(number)) == number + 1
        compiled.teardown()


#: Loads and their repetitions (by default half as many, or a dozen): after as many for a start they are run once more.
ROWS: dict[Callable[[Any, int], None], int] = {
    tasks: 500,
    actors_that_nobody_needs: 40,
    actors_that_die: 40,
    workers_that_die: 32,
    handles_and_names: 12,
    objects: 100,
    errors: 200,
    placement_groups: 60,
    generators: 60,
    graphs: 40,
}


@pytest.fixture
def session() -> Any:
    mray.init(num_cpus=2, logging_level="ERROR", log_to_driver=False)
    # The node imports what it needs for requests that wait when the first one does.
    mray.get([with_all_cpus.remote(), with_all_cpus.options(num_cpus=1).remote()])
    yield Service.remote()
    kept.clear()
    mray.shutdown()


@pytest.mark.parametrize("act", ROWS, ids=lambda act: act.__name__)
def test_as_much_again_leaves_as_many_objects_as_before(session, act, eventually, full):
    backend: Any = backend_if_started()
    client = backend.client
    assert mray.get(session.echo.remote(1)) == 1
    service = next(caller.actor.process for caller in client.actors.values() if caller.class_name == "Service")
    times = ROWS[act] if full else max(ROWS[act] // 2, 12)

    def count_all() -> dict[str, dict[str, int]]:
        own = ask_processes(client.session_dir, [service], ["object counts"], 60.0)[service]
        assert isinstance(own, dict), own
        well, counts = own["object counts"]
        assert well, counts
        counts.pop(ITEMS)  # its last calls have their places in a table (`Worker.recent`), some thousand of them
        node = ask_node(client.session_dir, "object counts", 60.0)
        node[SET] -= SETS * node[RECORD]
        assert node[SET] >= 0, node
        return {"driver": count_objects(), "node": node, "actor": counts}

    def grown() -> dict[str, int]:
        return {
            f"{process}: {name}": number - before[process].get(name, 0)
            for process, counts in count_all().items()
            for name, number in counts.items()
            if number - before[process].get(name, 0) > SHARE * times + (0 if name.startswith("mray.") else COMMON)
        }

    act(session, times)
    before = count_all()
    act(session, times)
    eventually(lambda: not grown(), what=f"{act.__name__} leave things behind, at first {grown()}")
