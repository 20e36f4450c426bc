"""Programs for the pages of Ray Core's documentation on tasks and actors: each uses the names and options that its page presents.

Runs on mray and on real Ray. `test_the_pages` looks whether they do use them.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import os
import time

import pytest

#: The programs of a page, by the page's path in the documentation.
PAGES = {
    "walkthrough": "remote get put",
    "tasks": "remote options num_cpus num_gpus resources num_returns wait timeout cancel force recursive TaskCancelledError name",
    "tasks/nested-tasks": "remote get num_cpus num_gpus",
    "tasks/dynamic_generators": "num_returns dynamic DynamicObjectRefGenerator options",
    "ray-generator": "ObjectRefGenerator completed next wait num_returns timeout fetch_local cancel max_concurrency is_finished __anext__",
    "actors": "ActorClass ActorProxy method remote num_cpus num_gpus cancel get_runtime_context is_canceled enable_task_events",
    "actors/named-actors": "options name namespace lifetime get_if_exists get_actor list_named_actors all_namespaces kill",
    "actors/terminating-actors": "kill no_restart exit_actor __ray_terminate__ __ray_shutdown__ RayActorError",
    "actors/async_api": "max_concurrency future wrap_future as_completed gather asyncio",
    "actors/concurrency_group_api": "concurrency_groups concurrency_group max_concurrency method options",
    "actors/actor-utils": "ActorPool map map_unordered submit get_next get_next_unordered has_next has_free push pop_idle Queue maxsize",
    "actors/out-of-band-communication": "get remote",
    "actors/task-orders": "allow_out_of_order_execution",
    "fault_tolerance/tasks": "max_retries retry_exceptions WorkerCrashedError RayTaskError cause",
    "fault_tolerance/actors": "max_restarts max_task_retries retry_exceptions ActorDiedError RayActorError lifetime",
    "fault_tolerance/objects": "OwnerDiedError ObjectLostError",
    "patterns/limit-pending-tasks": "wait num_returns",
    "patterns/actor-sync": "num_cpus",
    "patterns/tree-of-actors": "num_cpus",
    "patterns/out-of-band-object-ref-serialization": "cloudpickle",
    "patterns/fork-new-processes": "set_start_method ProcessPoolExecutor max_workers",
    "type-hint": "ObjectRef ActorClass ActorProxy method",
}


def test_page_walkthrough(ray_session):
    ray = ray_session

    @ray.remote
    def total(rows, scale=1):
        return scale * sum(map(sum, rows))

    rows = ray.put([[1, 2], [3, 4]])
    assert ray.get([total.remote(rows), total.remote(rows, scale=10)]) == [10, 100]
    assert ray.get(total.remote([[ray.get(total.remote(rows))]])) == 10


def test_page_tasks(ray_session, signal):
    ray = ray_session

    @ray.remote(num_returns=3)
    def parts(word):
        return word[0], word[1:-1], word[-1]

    assert ray.get(list(parts.remote("seven"))) == ["s", "eve", "n"]
    for one in parts.options(num_returns=2, name="two parts", num_cpus=0.5).remote("abc"):
        with pytest.raises(ValueError, match="3"):
            ray.get(one)

    @ray.remote(num_gpus=0.5, resources={"custom": 1})
    def place():
        return ray.get_runtime_context().get_assigned_resources()

    assert ray.get(place.remote())["GPU"] == 0.5
    assert ray.get(place.remote())["custom"] == 1

    gate = signal()

    @ray.remote(num_cpus=0, max_retries=0)
    def hold(number):
        ray.get(gate.arrive.remote())
        while not ray.get(gate.is_set.remote()):
            time.sleep(0.001)
        return number

    @ray.remote(num_cpus=0)
    def at_once():
        return "now"

    held, quick = hold.remote(1), at_once.remote()
    ready, rest = ray.wait([held, quick], num_returns=1, timeout=30)
    assert (ready, rest) == ([quick], [held])
    assert ray.wait([held], timeout=0) == ([], [held])
    while not ray.get(gate.count.remote()):
        pass
    ray.cancel(held, force=False, recursive=True)
    with pytest.raises(ray.exceptions.TaskCancelledError):
        ray.get(held)


def test_page_tasks_nested_tasks(ray_session):
    ray = ray_session

    @ray.remote(num_cpus=1)
    def leaf(number):
        return number * number

    @ray.remote(num_cpus=4, num_gpus=1)
    def values():
        # All processors are this task's; they are lent while it waits.
        return ray.get([leaf.remote(number) for number in range(4)])

    @ray.remote
    def refs():
        return [leaf.remote(number) for number in range(3)]

    assert ray.get(values.remote()) == [0, 1, 4, 9]
    assert ray.get(ray.get(refs.remote())) == [0, 1, 4]


@pytest.mark.filterwarnings("ignore:num_returns='dynamic'")
def test_page_tasks_dynamic_generators(ray_session):
    ray = ray_session

    @ray.remote(num_returns="dynamic")
    def pieces(word, size, fails=False):
        for start in range(0, len(word), size):
            yield word[start : start + size]
        if fails:
            raise RuntimeError("no more of it")

    @ray.remote
    def joined(found):
        assert isinstance(found, ray.DynamicObjectRefGenerator)
        return "-".join(ray.get(list(found)))

    ref = pieces.remote("abcdefg", 3)
    assert isinstance(ref, ray.ObjectRef)
    assert [ray.get(piece) for piece in ray.get(ref)] == ["abc", "def", "g"]
    assert ray.get(joined.remote(ref)) == "abc-def-g"
    *good, bad = ray.get(pieces.remote("ab", 1, fails=True))
    assert ray.get(good) == ["a", "b"]
    with pytest.raises(RuntimeError, match="no more"):
        ray.get(bad)
    one, two = pieces.options(num_returns=2).remote("xy", 1)
    assert ray.get([one, two]) == ["x", "y"]


def test_page_ray_generator(ray_session, signal):
    ray = ray_session
    gate = signal()

    @ray.remote(num_cpus=0)
    def held():
        yield "first"
        while not ray.get(gate.is_set.remote()):
            time.sleep(0.001)
        yield "second"

    stream = held.remote()
    assert isinstance(stream, ray.ObjectRefGenerator)
    assert ray.wait([stream], num_returns=1, timeout=30, fetch_local=True) == ([stream], [])
    assert ray.get(next(stream)) == "first"
    assert ray.wait([stream], timeout=0) == ([], [stream])
    assert not stream.is_finished()
    gate.send.remote()
    ray.get(stream.completed())
    assert ray.get(next(stream)) == "second"
    with pytest.raises(StopIteration):
        next(stream)
    assert stream.is_finished()

    @ray.remote
    class Plain:
        def count(self, end):
            yield from (number for number in range(end))  # Ray: of generators alone

        def fail(self):
            yield 0
            raise KeyError("lost")

    @ray.remote
    class Coroutines:
        async def count(self, end):
            for number in range(end):
                yield number

    async def gathered(actor):
        found = actor.count.remote(4)
        first = await (await found.__anext__())
        return [first, *[await ref async for ref in found]]

    for actor in (Plain.options(num_cpus=0).remote(), Plain.options(num_cpus=0, max_concurrency=3).remote(), Coroutines.remote()):
        assert [ray.get(ref) for ref in actor.count.remote(3)] == [0, 1, 2]
        assert asyncio.run(gathered(actor)) == [0, 1, 2, 3]
    failing = Plain.options(num_cpus=0).remote().fail.remote()
    assert ray.get(next(failing)) == 0
    with pytest.raises(KeyError, match="lost"):
        ray.get(next(failing))

    gate.send.remote(False)
    stopped = held.remote()
    ray.get(next(stopped))
    ray.cancel(stopped)
    with pytest.raises(ray.exceptions.TaskCancelledError):
        ray.get(stopped.completed())


def test_page_actors(ray_session, signal):
    ray = ray_session
    gate = signal()

    class Plain:
        def __init__(self, start: int) -> None:
            self.value = start
            self.cancelled = False

        @ray.method
        def add(self, amount: int) -> int:
            self.value += amount
            return self.value

        @ray.method(enable_task_events=False)
        def until_cancelled(self):
            ray.get(gate.arrive.remote())
            while not ray.get_runtime_context().is_canceled():
                time.sleep(0.001)
            self.cancelled = True

        def was_cancelled(self):
            return self.cancelled

    made: ray.actor.ActorClass[Plain] = ray.remote(Plain)
    actor: ray.actor.ActorProxy[Plain] = made.options(num_cpus=0, num_gpus=0.5, enable_task_events=True).remote(5)
    assert ray.get([actor.add.remote(1), actor.add.remote(2)]) == [6, 8]

    @ray.remote(num_cpus=0)
    def use(handle):
        return ray.get(handle.add.remote(10))

    assert ray.get(use.remote(actor)) == 18

    running = actor.until_cancelled.remote()
    while not ray.get(gate.count.remote()):
        pass
    ray.cancel(running)
    with pytest.raises(ray.exceptions.TaskCancelledError):
        ray.get(running)
    assert ray.get(actor.was_cancelled.remote())

    @ray.remote
    class Coroutines:
        def __init__(self):
            self.ended = []

        async def sleep(self):
            try:
                await gate.arrive.remote()
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.ended.append("sleep")
                raise

        async def read(self):
            return self.ended

    sleeper = Coroutines.remote()
    asleep = sleeper.sleep.remote()
    while ray.get(gate.count.remote()) < 2:
        pass
    ray.cancel(asleep)
    with pytest.raises((ray.exceptions.RayTaskError, ray.exceptions.TaskCancelledError)):
        ray.get(asleep)
    assert ray.get(sleeper.read.remote()) == ["sleep"]


def test_page_actors_named_actors(ray_session):
    ray = ray_session

    @ray.remote(num_cpus=0)
    class Named:
        def __init__(self, word):
            self.word = word

        def read(self):
            return self.word

    here = Named.options(name="the-page").remote("here")
    there = Named.options(name="the-page", namespace="elsewhere", lifetime="detached").remote("there")
    assert ray.get(ray.get_actor("the-page").read.remote()) == "here"
    assert ray.get(ray.get_actor("the-page", namespace="elsewhere").read.remote()) == "there"
    same = Named.options(name="the-page", get_if_exists=True).remote("not made")
    assert ray.get(same.read.remote()) == "here"
    assert "the-page" in ray.util.list_named_actors()
    assert {"namespace": "elsewhere", "name": "the-page"} in ray.util.list_named_actors(all_namespaces=True)
    with pytest.raises(ValueError, match="no-such-name"):
        ray.get_actor("no-such-name")
    with pytest.raises(ValueError, match="the-page"):
        Named.options(name="the-page").remote("twice")
    ray.kill(there)
    assert ray.get(here.read.remote()) == "here"


@pytest.mark.processes("an actor's end is its process's")
def test_page_actors_terminating_actors(ray_session, tmp_path):
    ray = ray_session

    @ray.remote(num_cpus=0, max_restarts=1, max_task_retries=5)
    class Ending:
        def __init__(self, told):
            self.told = told

        def pid(self):
            return os.getpid()

        def leave(self):
            ray.actor.exit_actor()

        def __ray_shutdown__(self):
            with open(self.told, "a") as file:
                file.write("end\n")

    told = tmp_path / "told"
    killed = Ending.remote(str(told))
    before = ray.get(killed.pid.remote())
    ray.kill(killed, no_restart=False)
    assert ray.get(killed.pid.remote()) != before
    ray.kill(killed)
    with pytest.raises(ray.exceptions.RayActorError):
        ray.get(killed.pid.remote())
    assert not told.exists()

    left = Ending.remote(str(told))
    ray.get(left.pid.remote())
    with pytest.raises(ray.exceptions.RayActorError):
        ray.get(left.leave.remote())

    asked = Ending.options(max_restarts=0).remote(str(tmp_path / "asked"))
    ray.get(asked.pid.remote())
    asked.__ray_terminate__.remote()
    dropped = Ending.options(max_restarts=0).remote(str(tmp_path / "dropped"))
    ray.get(dropped.pid.remote())
    del dropped
    while not all((tmp_path / name).exists() for name in ("asked", "dropped")):
        time.sleep(0.005)


def test_page_actors_async_api(ray_session):
    ray = ray_session

    @ray.remote
    class Meeting:
        def __init__(self, expected):
            self.expected = expected
            self.all_here = asyncio.Event()
            self.here = self.most = 0

        async def come(self):
            self.here += 1
            self.most = max(self.most, self.here)
            if self.here == self.expected:
                self.all_here.set()
            await self.all_here.wait()
            self.here -= 1
            return self.most

    meeting = Meeting.options(max_concurrency=3).remote(3)
    refs = [meeting.come.remote() for _ in range(3)]
    assert ray.get(refs) == [3, 3, 3]

    @ray.remote(num_cpus=0)
    def square(number):
        return number * number

    async def all_ways():
        return [
            await square.remote(2),
            *await asyncio.gather(*[square.remote(number) for number in (3, 4)]),
            await asyncio.wrap_future(square.remote(5).future()),
        ]

    assert asyncio.run(all_ways()) == [4, 9, 16, 25]
    futures = [square.remote(number).future() for number in range(4)]
    assert sorted(future.result() for future in concurrent.futures.as_completed(futures)) == [0, 1, 4, 9]
    with pytest.raises(ValueError, match="async"):

        @ray.remote
        async def not_a_task():
            pass


def test_page_actors_concurrency_group_api(ray_session):
    ray = ray_session

    @ray.remote(num_cpus=0, concurrency_groups={"reading": 2, "writing": 1})
    class Grouped:
        def __init__(self):
            self.opened = False

        @ray.method(concurrency_group="writing")
        async def hold(self):
            # Groups have event loops of their own, and an `asyncio.Event` belongs to one.
            while not self.opened:
                await asyncio.sleep(0.001)
            return "written"

        @ray.method(concurrency_group="reading")
        async def read(self):
            return "read"

        async def open(self):
            self.opened = True

    actor = Grouped.options(max_concurrency=10).remote()
    held = actor.hold.remote()
    behind = actor.read.options(concurrency_group="writing").remote()
    assert ray.get([actor.read.remote(), actor.read.options().remote()]) == ["read", "read"]
    ray.get(actor.open.remote())
    assert ray.get([held, behind]) == ["written", "read"]


def test_page_actors_actor_utils(ray_session):
    ray = ray_session

    @ray.remote(num_cpus=0)
    class Doubler:
        def double(self, value):
            return 2 * value

    def double(actor, value):
        return actor.double.remote(value)

    pool = ray.util.ActorPool([Doubler.remote(), Doubler.remote()])
    assert list(pool.map(double, [1, 2, 3])) == [2, 4, 6]
    assert sorted(pool.map_unordered(double, [1, 2, 3])) == [2, 4, 6]
    for value in (10, 20, 30):
        pool.submit(double, value)
    assert pool.get_next() == 20
    assert {pool.get_next_unordered(), pool.get_next_unordered()} == {40, 60}
    assert not pool.has_next()
    assert pool.has_free()
    idle = pool.pop_idle()
    pool.push(idle)

    import importlib

    queues = importlib.import_module(f"{ray.__name__}.util.queue")
    queue = queues.Queue(maxsize=2, actor_options={"num_cpus": 0})

    @ray.remote(num_cpus=0)
    def consume(queue):
        return [queue.get(block=True) for _ in range(3)]

    taken = consume.remote(queue)
    for word in "abc":
        queue.put(word)
    assert ray.get(taken) == ["a", "b", "c"]
    with pytest.raises(queues.Empty):
        queue.get_nowait()
    queue.shutdown()


@pytest.mark.processes("a server answers while its actor has no call")
def test_page_actors_out_of_band_communication(ray_session):
    ray = ray_session

    @ray.remote(num_cpus=0)
    class Server:
        def __init__(self):
            self.asked = 0

        async def start(self):
            async def answer(reader, writer):
                await reader.readline()
                self.asked += 1
                writer.write(b"number %d\n" % self.asked)
                await writer.drain()
                writer.close()

            self.server = await asyncio.start_server(answer, "127.0.0.1", 0)
            return self.server.sockets[0].getsockname()[1]

        async def count(self):
            return self.asked

    server = Server.remote()
    port = ray.get(server.start.remote())

    @ray.remote(num_cpus=0)
    def ask(port):
        import socket

        with socket.create_connection(("127.0.0.1", port)) as line:
            line.sendall(b"?\n")
            return line.makefile().read()

    assert ray.get(ask.remote(port)) == "number 1\n"
    assert ray.get(server.count.remote()) == 1


def test_page_actors_task_orders(ray_session, signal):
    ray = ray_session
    gate = signal()

    @ray.remote(num_cpus=0)
    def when_open(value):
        while not ray.get(gate.is_set.remote()):
            time.sleep(0.001)
        return value

    @ray.remote(num_cpus=0)
    class Log:
        def __init__(self):
            self.seen = []

        def add(self, value):
            self.seen.append(value)
            return list(self.seen)

    free = Log.options(allow_out_of_order_execution=True).remote()
    late, early = free.add.remote(when_open.remote("late")), free.add.remote("early")
    assert ray.get(early) == ["early"]
    strict = Log.remote()
    first, second = strict.add.remote(when_open.remote("first")), strict.add.remote("second")
    gate.send.remote()
    assert ray.get(late) == ["early", "late"]
    assert ray.get([first, second]) == [["first"], ["first", "second"]]


@pytest.mark.processes("a task's process dies")
def test_page_fault_tolerance_tasks(ray_session, tmp_path):
    ray = ray_session

    class PassingError(Exception):
        pass

    @ray.remote(num_cpus=0, max_retries=1, retry_exceptions=[PassingError])
    def second_time(path, how):
        if not os.path.exists(path):
            open(path, "w").close()
            if how == "exit":
                os._exit(1)
            raise {"passing": PassingError, "other": KeyError}[how](how)
        return "done"

    assert ray.get(second_time.remote(str(tmp_path / "a"), "exit")) == "done"
    assert ray.get(second_time.remote(str(tmp_path / "b"), "passing")) == "done"
    with pytest.raises(KeyError):
        ray.get(second_time.remote(str(tmp_path / "c"), "other"))
    assert ray.get(second_time.options(retry_exceptions=True).remote(str(tmp_path / "d"), "other")) == "done"
    with pytest.raises(ray.exceptions.WorkerCrashedError):
        ray.get(second_time.options(max_retries=0).remote(str(tmp_path / "e"), "exit"))

    class FinalError(Exception):
        def __init_subclass__(cls, /, *_arguments, **_options):
            raise TypeError("no subclasses")

    @ray.remote(num_cpus=0)
    def fail():
        raise FinalError("as it is")

    @ray.remote(num_cpus=0)
    def use(value):
        return value

    with pytest.raises(ray.exceptions.RayTaskError) as caught:
        ray.get(fail.remote())
    assert type(caught.value.cause).__name__ == "FinalError"
    with pytest.raises(ray.exceptions.RayTaskError):
        ray.get(use.remote(fail.remote()))


@pytest.mark.processes("an actor's process dies")
def test_page_fault_tolerance_actors(ray_session, tmp_path):
    ray = ray_session

    @ray.remote(num_cpus=0, max_restarts=2, max_task_retries=-1)
    class Falling:
        def __init__(self, path=None):
            self.calls = 0
            self.path = path

        def third_kills(self):
            if self.calls == 2:
                os._exit(0)
            self.calls += 1
            return self.calls

        @ray.method(max_task_retries=1, retry_exceptions=[OSError])
        def second_time(self, how):
            if not os.path.exists(self.path):
                open(self.path, "w").close()
                raise how("once")
            return "done"

        def pid(self):
            return os.getpid()

    actor = Falling.remote()
    assert [ray.get(actor.third_kills.remote()) for _ in range(6)] == [1, 2, 1, 2, 1, 2]
    with pytest.raises(ray.exceptions.ActorDiedError) as died:
        ray.get(actor.third_kills.remote())
    assert isinstance(died.value, ray.exceptions.RayActorError)

    def falling(name):
        return Falling.remote(str(tmp_path / name))

    assert ray.get(falling("a").second_time.remote(OSError)) == "done"
    with pytest.raises(KeyError):
        ray.get(falling("b").second_time.remote(KeyError))
    assert ray.get(falling("c").second_time.options(retry_exceptions=True, max_task_retries=2).remote(KeyError)) == "done"

    @ray.remote(num_cpus=0)
    class Parent:
        def make(self):
            self.child = Falling.remote()
            self.kept = Falling.options(name="kept", lifetime="detached").remote()
            return self.child, self.kept, ray.get([self.child.pid.remote(), self.kept.pid.remote()])

    parent = Parent.remote()
    child, kept, (_, pid) = ray.get(parent.make.remote())
    ray.kill(parent)
    with pytest.raises(ray.exceptions.RayActorError):
        while True:
            ray.get(child.pid.remote())
    assert ray.get(kept.pid.remote()) == pid
    ray.kill(kept)


@pytest.mark.processes("the owner is a process that dies")
def test_page_fault_tolerance_objects(ray_session):
    ray = ray_session

    class Owner:
        def keep(self):
            return [ray.put(b"x" * 200_000)]

    @ray.remote(num_cpus=0)
    def copied(value):
        return value

    owner = ray.remote(num_cpus=0)(Owner).remote()
    (theirs,) = ray.get(owner.keep.remote())
    ours = copied.remote(theirs)
    ray.wait([ours])
    ray.kill(owner)
    with pytest.raises(ray.exceptions.RayActorError):
        while True:
            ray.get(owner.keep.remote())
    assert len(ray.get(ours)) == 200_000
    with contextlib.suppress(ray.exceptions.OwnerDiedError):
        assert len(ray.get(theirs)) == 200_000  # Ray reads what still lies in the store
    assert issubclass(ray.exceptions.OwnerDiedError, ray.exceptions.ObjectLostError)


def test_page_patterns_limit_pending_tasks(ray_session):
    ray = ray_session

    @ray.remote(num_cpus=0)
    class Worker:
        async def work(self, number):
            return number

    worker, pending, found, most = Worker.remote(), [], [], 0
    for number in range(60):
        if len(pending) > 8:
            ready, pending = ray.wait(pending, num_returns=1)
            found += ray.get(ready)
        pending.append(worker.work.remote(number))
        most = max(most, len(pending))
    assert sorted(found + ray.get(pending)) == list(range(60))
    assert most == 9


def test_page_patterns_actor_sync(ray_session):
    ray = ray_session

    @ray.remote(num_cpus=0)
    class Event:
        def __init__(self):
            self.event = asyncio.Event()

        def set(self):
            self.event.set()

        async def wait(self):
            await self.event.wait()

    @ray.remote(num_cpus=0)
    def after(event):
        ray.get(event.wait.remote())
        return "gone on"

    event = Event.remote()
    waiting = [after.remote(event) for _ in range(3)]
    assert ray.wait(waiting, timeout=0)[0] == []
    ray.get(event.set.remote())
    assert ray.get(waiting) == ["gone on"] * 3


def test_page_patterns_tree_of_actors(ray_session):
    ray = ray_session

    @ray.remote(num_cpus=0)
    class Leaf:
        def __init__(self, factor, value):
            self.product = factor * value

        def read(self):
            return self.product

    @ray.remote(num_cpus=0)
    class Root:
        def __init__(self, factor, values):
            self.leaves = [Leaf.remote(factor, value) for value in values]

        def read(self):
            return ray.get([leaf.read.remote() for leaf in self.leaves])

    roots = [Root.remote(factor, [1, 2]) for factor in (1, 10)]
    assert ray.get([root.read.remote() for root in roots]) == [[1, 2], [10, 20]]


def test_page_patterns_out_of_band_object_ref_serialization(ray_session):
    ray = ray_session
    ref = ray.put({"kept": "by its bytes"})
    data = ray.cloudpickle.dumps(ref)
    del ref
    assert ray.get(ray.cloudpickle.loads(data)) == {"kept": "by its bytes"}


SPAWNING = """
import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import ray

@ray.remote
def make(number):
    return [number] * 3

def total(values):
    return sum(values), ray.is_initialized()

if __name__ == "__main__":
    ray.init(num_cpus=1, logging_level="ERROR", include_dashboard=False)
    lists = ray.get([make.remote(number) for number in range(2)])
    multiprocessing.set_start_method("spawn", force=True)
    with ProcessPoolExecutor(max_workers=1) as pool:
        print("totals", list(pool.map(total, lists)))
"""


@pytest.mark.only("mray", "ray")
def test_page_patterns_fork_new_processes(run_program, tmp_path, ray):
    """The children of a program that says ``import ray`` run its file again, and have it too."""
    (tmp_path / "theirs.py").write_text(SPAWNING)
    launcher = ["-m", "mray", "run"] if ray.__name__ == "mray" else []
    done = run_program(
        f"""
        import subprocess, sys
        sys.exit(subprocess.run([sys.executable, *{launcher!r}, "theirs.py"]).returncode)
        """
    )
    assert done.stdout.splitlines()[-1] == "totals [(0, False), (3, False)]"


def test_page_type_hint(ray_session):
    ray = ray_session

    class Adder:
        def __init__(self, start: int) -> None:
            self.start = start

        @ray.method
        def add(self, one: int, two: int) -> int:
            return self.start + one + two

    made: ray.actor.ActorClass[Adder] = ray.remote(num_cpus=0)(Adder)
    actor: ray.actor.ActorProxy[Adder] = made.remote(1)

    @ray.remote(num_cpus=0)
    def use(actor: ray.actor.ActorProxy[Adder]) -> int:
        ref: ray.ObjectRef[int] = actor.add.remote(2, 3)
        return ray.get(ref)

    assert ray.get(use.remote(actor)) == 6
    # They are types where annotations are evaluated.
    assert all(hint[Adder] for hint in (ray.actor.ActorClass, ray.actor.ActorProxy, ray.ObjectRef))
