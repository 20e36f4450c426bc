"""Kinds of work: a round of each, which is cut, and what must hold after it."""

from __future__ import annotations

import asyncio
import gc
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import mray
from mray.dag import InputNode
from mray.proxy import RemoteInterpreterFactory
from mray.util.actor_pool import ActorPool
from mray.util.multiprocessing import Pool
from mray.util.queue import Queue


@mray.remote
class Echo:
    """An actor that gives back what it gets, and counts."""

    def __init__(self) -> None:
        self.count = 0

    def echo(self, value: Any) -> Any:
        return value

    def next(self) -> int:
        self.count += 1
        return self.count

    def items(self, count: int) -> Any:
        yield from range(count)


@mray.remote
def twice(value: Any) -> Any:
    """A task."""
    return value * 2


@mray.remote(num_cpus=0)
def forever() -> None:
    """A task that somebody cancels."""
    import time

    time.sleep(3600)


class Work:
    """A kind of work; `round(k)` is cut, `check(k)` is not."""

    #: Byte codes between two that are tried in a slice.
    stride = 41
    #: Whether a finalizer may do a round in the middle of one.
    may_nest = False

    def __init__(self) -> None:
        self.setup()

    def setup(self) -> None:
        """Before all rounds."""

    def round(self, k: int) -> None:
        raise NotImplementedError

    def check(self, k: int) -> None:
        """The next calls give right values."""
        assert mray.get(twice.remote(k), timeout=30) == 2 * k
        assert (mray.get(mray.put(np.full(50_000, k)), timeout=30) == k).all()

    def end(self) -> None:
        """After all rounds."""


class Graph(Work):
    """execute and get, of a value inline."""

    may_nest = True

    def value(self, k: int) -> Any:
        return k

    def same(self, got: Any, k: int) -> bool:
        return bool(got == k)

    def setup(self) -> None:
        self.actor = Echo.remote()
        with InputNode() as given:
            self.graph = self.actor.echo.bind(given).experimental_compile()

    def round(self, k: int) -> None:
        got = self.graph.execute(self.value(k)).get(timeout=30)
        assert self.same(got, k), f"asked {k}, got {got}"

    def check(self, k: int) -> None:
        for more in range(3):
            self.round(k + more)
        refs = [self.graph.execute(self.value(k + more)) for more in range(3)]
        for more in (2, 0, 1):
            got = refs[more].get(timeout=30)
            assert self.same(got, k + more), f"asked {k + more}, got {got}"
        state = self.graph.statistics()
        assert state["submitted"] == state["finished"] and not state["kept"], state

    def end(self) -> None:
        self.graph.teardown()


class GraphOfArrays(Graph):
    """The same of an array, which lies in a slot."""

    def value(self, k: int) -> Any:
        return np.full(20_000, k)

    def same(self, got: Any, k: int) -> bool:
        return bool((got == k).all())


class GraphThatGrows(GraphOfArrays):
    """The same of arrays whose slots are too small at first."""

    def value(self, k: int) -> Any:
        return np.full(1_000 + k % 100 * 1_000, k)


class GraphInSeveral(Graph):
    """Two input channels and two outputs."""

    def setup(self) -> None:
        from mray.dag import MultiOutputNode

        self.actors = [Echo.remote(), Echo.remote()]
        with InputNode() as given:
            self.graph = MultiOutputNode([actor.echo.bind(given) for actor in self.actors]).experimental_compile()

    def round(self, k: int) -> None:
        got = mray.get(self.graph.execute(k), timeout=30)
        assert got == [k, k], f"asked {k}, got {got}"

    def check(self, k: int) -> None:
        for more in range(3):
            self.round(k + more)
        state = self.graph.statistics()
        assert state["submitted"] == state["finished"] and not state["kept"], state


class GraphInLoop(Graph):
    """execute_async, in an event loop."""

    may_nest = False

    def setup(self) -> None:
        self.actor = Echo.remote()
        with InputNode() as given:
            self.graph = self.actor.echo.bind(given).experimental_compile(enable_asyncio=True)

    async def ask(self, k: int) -> Any:
        return await (await self.graph.execute_async(k))

    def round(self, k: int) -> None:
        got = asyncio.run(self.ask(k))
        assert got == k, f"asked {k}, got {got}"

    def check(self, k: int) -> None:
        for more in range(3):
            self.round(k + more)


class GraphInOwnLoop(GraphInLoop):
    """The same where asyncio swallows an error: one that comes in its own part of a callback, whose task then waits for ever."""

    def round(self, k: int) -> None:
        def swallowed(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
            errors.append(context.get("exception") or RuntimeError(context["message"]))
            loop.stop()

        errors: list[BaseException] = []
        loop = asyncio.new_event_loop()
        loop.set_exception_handler(swallowed)
        try:
            got = loop.run_until_complete(self.ask(k))
            assert got == k, f"asked {k}, got {got}"
        except RuntimeError:
            if not errors:
                raise
        finally:
            loop.close()
        if errors:
            raise errors[0]


class Task(Work):
    """A task, and its value."""

    def round(self, k: int) -> None:
        assert mray.get(twice.remote(k), timeout=30) == 2 * k


class ActorCall(Work):
    """An actor call, and its value."""

    def setup(self) -> None:
        self.actor = Echo.remote()
        for _ in range(60):
            mray.get(self.actor.echo.remote(0))

    def round(self, k: int) -> None:
        assert mray.get(self.actor.echo.remote(k), timeout=30) == k

    def check(self, k: int) -> None:
        refs = [self.actor.next.remote() for _ in range(3)]
        first = mray.get(refs[0], timeout=30)
        assert mray.get(refs, timeout=30) == [first, first + 1, first + 2]
        super().check(k)


class Put(Work):
    """put and get of an array, and its end."""

    def round(self, k: int) -> None:
        assert int(mray.get(mray.put(np.full(50_000, k)), timeout=30)[-1]) == k


class Wait(Work):
    """wait for several."""

    def round(self, k: int) -> None:
        refs = [twice.remote(k + more) for more in range(3)]
        done, rest = mray.wait(refs, num_returns=3, timeout=30)
        assert done == refs and rest == []


class Stream(Work):
    """next of a remote generator: no item is lost, and none comes twice."""

    def setup(self) -> None:
        self.actor = Echo.remote()
        self.items: Any = iter(())
        self.ref: Any = None
        self.came = self.count = 0

    def round(self, k: int) -> None:
        if self.came == self.count:
            self.came, self.count = 0, 4
            self.items = None
            self.items = self.actor.items.options(num_returns="streaming").remote(self.count)
        got = mray.get(self.take(), timeout=30)
        assert got == self.came, f"item {self.came} is {got}"
        self.ref = None
        self.came += 1

    def take(self) -> Any:
        try:
            self.ref = next(self.items)
        except BaseException as error:
            frames = error.__traceback__
            if frames is not None and frames.tb_next is None:
                self.items = None  # it came here, when `next` had returned perhaps: the item went with it, as one of any generator does
            raise
        return self.ref

    def check(self, k: int) -> None:
        if self.items is None:
            self.came = self.count
        elif self.ref is not None:  # the cut came when it was had
            assert mray.get(self.ref, timeout=30) == self.came
            self.ref = None
            self.came += 1
        while self.came < self.count:
            self.round(k)


class OfQueue(Work):
    """put and get of a queue: what comes out comes in order, and once."""

    def setup(self) -> None:
        self.queue: Any = Queue()
        self.sent = 0
        self.last = -1

    def round(self, k: int) -> None:
        self.sent += 1
        self.queue.put(self.sent)
        got = self.queue.get(timeout=30)
        assert got > self.last, f"{got} after {self.last}"
        self.last = got

    def check(self, k: int) -> None:
        while not self.queue.empty():
            got = self.queue.get(timeout=30)
            assert got > self.last, f"{got} after {self.last}"
            self.last = got
        self.round(k)
        assert self.last == self.sent


class OfActorPool(Work):
    """The next result of an actor pool: none is lost, and none comes twice."""

    def setup(self) -> None:
        self.pool = ActorPool([Echo.remote()])
        self.sent = self.expected = 0
        #: Results that no line of Python stands between them and their function's return.
        self.got: list[Any] = []
        self.fill()

    def fill(self) -> None:
        """There are results to take."""
        while self.sent < self.expected + 3:
            self.pool.submit(lambda actor, value: actor.echo.remote(value), self.sent)
            self.sent += 1

    def results(self) -> Iterator[Any]:
        """An iterator of C's over one result."""
        return map(self.pool.get_next, (30,))

    def round(self, k: int) -> None:
        self.got.extend(self.results())

    def check(self, k: int) -> None:
        self.round(k)
        assert self.got == [*range(self.expected, self.expected + len(self.got))], f"{self.got} from {self.expected} on"
        self.expected += len(self.got)
        self.got.clear()
        self.fill()


class OfUnorderedPool(OfActorPool):
    """The same in the order in which they come."""

    def results(self) -> Iterator[Any]:
        return map(self.pool.get_next_unordered, (30,))


class OfIdleActors(OfActorPool):
    """The actors of a pool that are idle."""

    def setup(self) -> None:
        self.pool = ActorPool([Echo.remote(), Echo.remote()])
        self.got = []

    def results(self) -> Iterator[Any]:
        return map(type(self.pool).pop_idle, (self.pool,))

    def check(self, k: int) -> None:
        for actor in self.got:
            self.pool.push(actor)
        self.got.clear()
        assert len({self.pool.pop_idle(), self.pool.pop_idle()} - {None}) == 2
        self.setup()


class OfIterator(OfActorPool):
    """The next value of a pool of processes."""

    def setup(self) -> None:
        self.processes = Pool(1)
        self.sent = self.expected = 0
        self.got = []
        self.fill()

    def fill(self) -> None:
        if self.sent < self.expected + 9:
            self.values, self.sent, self.expected = self.processes.imap(abs, range(300), chunksize=3), 300, 0

    def results(self) -> Iterator[Any]:
        return itertools.islice(self.values, 1)

    def end(self) -> None:
        self.processes.terminate()


class Proxy(Work):
    """A remote variable."""

    def setup(self) -> None:
        self.remote = RemoteInterpreterFactory(mray).create()
        self.number = self.remote.put(3)

    def round(self, k: int) -> None:
        value = self.number + k
        assert value.fetch() == 3 + k

    def check(self, k: int) -> None:
        self.round(k)


class Kill(Work):
    """An actor that is made and killed."""

    stride = 97

    def round(self, k: int) -> None:
        actor = Echo.options(num_cpus=0).remote()
        assert mray.get(actor.echo.remote(k), timeout=30) == k
        mray.kill(actor)


class Cancel(Work):
    """A task that is cancelled."""

    stride = 61

    def round(self, k: int) -> None:
        ref = forever.remote()
        mray.cancel(ref)
        try:
            mray.get(ref, timeout=30)
        except mray.exceptions.TaskCancelledError:
            pass


class Compile(Work):
    """A graph that is compiled, executed and torn down."""

    stride = 401

    def setup(self) -> None:
        self.actor = Echo.remote()

    def round(self, k: int) -> None:
        with InputNode() as given:
            graph = self.actor.echo.bind(given).experimental_compile()
        assert graph.execute(k).get(timeout=30) == k
        graph.teardown()

    def check(self, k: int) -> None:
        gc.collect()
        self.round(k)
        assert mray.get(self.actor.echo.remote(k), timeout=30) == k


class Finalize(Work):
    """Refs, handles and generators that end."""

    def setup(self) -> None:
        self.actor = Echo.remote()

    def round(self, k: int) -> None:
        ref = mray.put(np.full(50_000, k))
        copy = [ref, self.actor.echo.remote(ref)]
        del ref
        del copy[0]
        mray.get(copy.pop(), timeout=30)
        handle = Echo.options(num_cpus=0).remote()
        del handle
        items = self.actor.items.options(num_returns="streaming").remote(2)
        del items


class Session(Work):
    """init, a task, shutdown."""

    stride = 2003

    def setup(self) -> None:
        mray.shutdown()

    def round(self, k: int) -> None:
        mray.init(num_cpus=1, logging_level="ERROR")
        assert mray.get(twice.remote(k), timeout=30) == 2 * k
        mray.shutdown()

    def check(self, k: int) -> None:
        mray.shutdown()
        self.round(k)

    def end(self) -> None:
        mray.shutdown()


KINDS: dict[str, Callable[[], Work]] = {
    kind.__name__: kind
    for kind in (
        Graph, GraphOfArrays, GraphThatGrows, GraphInSeveral, GraphInLoop, GraphInOwnLoop, Task, ActorCall, Put, Wait, Stream, OfQueue,
        OfActorPool, OfUnorderedPool, OfIdleActors, OfIterator, Proxy, Kill, Cancel, Compile, Finalize, Session,
    )
}  # fmt: skip
