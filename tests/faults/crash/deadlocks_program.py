"""Waits of calls for each other: one case after the other, each in actors of its own.

Started as ``python deadlocks_program.py CASE... FOLDER``; the case "driver" gives the waits of the program a limit. Prints ``CASE waits:``
and the waiting calls of the chain for a case that raises DeadlockError, and ``CASE value`` for one that ends by itself.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import mray
from mray.dag import InputNode

graphs: list[Any] = []
#: Seconds, many times the patience of the tests.
LONG = 1.0


@mray.remote
def back(actor: Any) -> Any:
    return mray.get(actor.other.remote())


@mray.remote(num_cpus=0)
class Owner:
    def ask(self, actor: Any) -> list[Any]:
        """A call that this process owns."""
        return [actor.go.remote()]


@mray.remote
def same(value: Any) -> Any:
    return value


@mray.remote
def slow(seconds: float = LONG) -> str:
    time.sleep(seconds)
    return "slow"


class Plain:
    """Methods for an actor that runs one call at a time, or several."""

    def know(self, *others: Any) -> None:
        self.others = others

    def other(self) -> int:
        return 1

    def go(self) -> Any:
        return mray.get(self.others[0].other.remote())

    def step(self, _value: Any) -> Any:
        return mray.get(self.others[0].other.remote())

    def go_limited(self) -> Any:
        try:
            return mray.get(self.others[0].other.remote(), timeout=0.2)
        except mray.exceptions.GetTimeoutError as error:
            return error

    def go_deep(self) -> Any:
        return mray.get(self.others[0].deep.remote())

    def ring(self, left: int) -> Any:
        method = self.others[0].ring.remote(left - 1) if left else self.others[0].other.remote()
        return mray.get(method)

    def through_task(self) -> Any:
        return mray.get(back.remote(self.others[0]))

    def through_argument(self) -> Any:
        return mray.get(same.remote(self.others[0].other.remote()))

    def through_wait(self) -> Any:
        return mray.wait([self.others[0].other.remote(), self.others[0].other.remote()])

    def late(self, second: Any) -> Any:
        owner = Owner.remote()
        return mray.get(mray.get(owner.ask.remote(second))[0])

    def items(self) -> Iterator[Any]:
        yield 1
        yield mray.get(self.others[0].other.remote())

    def read(self) -> Any:
        return [mray.get(ref) for ref in self.others[0].items.options(num_returns="streaming").remote()]

    def either(self) -> Any:
        ready, _rest = mray.wait([self.others[0].other.remote(), slow.remote()])
        return mray.get(ready[0])

    def both(self) -> Any:
        try:
            return mray.get([self.others[0].other.remote(), fails.remote()])
        except ValueError:
            return "raised"

    def chain(self) -> Any:
        return mray.get(slow.remote())


@mray.remote
def fails() -> None:
    time.sleep(LONG)
    raise ValueError("late")


@mray.remote
class Alone(Plain):
    pass


@mray.remote(max_concurrency=2)
class Two(Plain):
    def __init__(self) -> None:
        self.both_run = threading.Barrier(2)

    def go_together(self) -> Any:
        self.both_run.wait()
        return mray.get(self.others[0].other.remote())


@mray.remote(num_cpus=4)
class Greedy(Plain):
    def through_task(self) -> Any:
        return mray.get(same.remote(1))


@mray.remote(concurrency_groups={"io": 1})
class Grouped(Plain):
    @mray.method(concurrency_group="io")
    def other(self) -> int:
        return 2


@mray.remote
class Awaiting:
    def know(self, *others: Any) -> None:
        self.others = others

    async def other(self) -> int:
        return 3

    async def go(self) -> Any:
        return await self.others[0].other.remote()

    async def deep(self) -> Any:
        async def inner() -> Any:
            return await self.others[0].other.remote()

        return await inner()

    async def timed(self) -> Any:
        return await asyncio.wait_for(self.others[0].go.remote(), 20 * LONG)

    async def among(self) -> Any:
        return await asyncio.gather(self.others[0].other.remote(), asyncio.sleep(LONG))

    async def block(self) -> Any:
        return mray.get(self.others[0].other.remote())

    async def in_thread(self) -> Any:
        return await asyncio.to_thread(mray.get, self.others[0].other.remote())


@mray.remote
class Eager:
    def __init__(self) -> None:
        mray.get(mray.get_runtime_context().current_actor.other.remote())

    def other(self) -> None:
        pass


def ring(kind: Any, count: int) -> list[Any]:
    actors = [kind.remote() for _ in range(count)]
    mray.get([actor.know.remote(actors[(place + 1) % count]) for place, actor in enumerate(actors)])
    return actors


# ------------------------------------------------------------------------------------------------ cases
def itself() -> Any:
    return ring(Alone, 1)[0].go.remote()


def two() -> Any:
    return ring(Alone, 2)[0].ring.remote(1)


def five() -> Any:
    return ring(Alone, 5)[0].ring.remote(4)


def task() -> Any:
    return ring(Alone, 1)[0].through_task.remote()


def argument() -> Any:
    return ring(Alone, 1)[0].through_argument.remote()


def wait() -> Any:
    return ring(Alone, 1)[0].through_wait.remote()


def borrowed() -> Any:
    """The first waits for a call of the driver that the second runs, and that waits for the first."""
    first, second = ring(Alone, 2)
    return first.late.remote(second)


def generator() -> Any:
    return ring(Alone, 2)[0].read.remote()


def threads() -> Any:
    actor = ring(Two, 1)[0]
    return [actor.go_together.remote(), actor.go_together.remote()]


def loop() -> Any:
    return ring(Awaiting, 1)[0].block.remote()


def step() -> Any:
    """A step of a graph."""
    actor = ring(Alone, 1)[0]
    with InputNode() as value:
        graph = actor.step.bind(value).experimental_compile()
    graphs.append(graph)
    return graph.execute(1)


def limited() -> Any:
    return ring(Alone, 1)[0].go_limited.remote()


def coroutine() -> Any:
    """A method that waits for a coroutine, which awaits a call behind the method."""
    plain, awaiting = Alone.remote(), Awaiting.remote()
    mray.get([plain.know.remote(awaiting), awaiting.know.remote(plain)])
    return plain.go_deep.remote()


def constructor() -> Any:
    return Eager.remote().other.remote()


def resources() -> Any:
    return Greedy.remote().through_task.remote()


def resources_returned() -> Any:
    first, second = Greedy.options(num_cpus=2).remote(), Greedy.options(num_cpus=2).remote()
    mray.get(second.other.remote())
    ref = first.through_task.remote()
    time.sleep(LONG)
    del second
    return ref


def thread_left() -> Any:
    return ring(Two, 1)[0].go.remote()


def group_left() -> Any:
    return ring(Grouped, 1)[0].go.remote()


def coroutines() -> Any:
    actors = ring(Awaiting, 2)
    mray.get([actors[0].go.remote(), actors[1].go.remote(), actors[0].in_thread.remote()])
    plain = Alone.remote()
    mray.get([plain.know.remote(actors[0]), actors[0].know.remote(plain)])
    return [actors[1].timed.remote(), actors[1].among.remote(), plain.chain.remote()]


def either() -> Any:
    return ring(Alone, 1)[0].either.remote()


def both() -> Any:
    return ring(Alone, 1)[0].both.remote()


def merely_slow() -> Any:
    first, second = ring(Alone, 2)
    mray.get(first.know.remote(second))
    del second
    return first.chain.remote()


def queued_behind_slow() -> Any:
    first, second = ring(Alone, 2)
    second.chain.remote()
    return first.go.remote()


def main(cases: list[str]) -> None:
    mray.init(num_cpus=4, logging_level="ERROR")
    has_limit = "driver" in cases
    for case in cases:
        if case == "driver":
            continue
        try:
            awaited = globals()[case]()
            value = mray.get(awaited, timeout=LONG if has_limit else None)
        except (mray.exceptions.DeadlockError, mray.exceptions.ActorDiedError) as error:
            chain = error.chain if isinstance(error, mray.exceptions.DeadlockError) else error.cause.cause.chain
            value = "waits: " + " ".join(link.waiter for link in chain)
            assert all(link.source and link.pid and link.line for link in chain), chain
        except mray.exceptions.GetTimeoutError as error:
            value = str(error).replace("\n", "|")
        print(case, value, flush=True)
    mray.shutdown()


if __name__ == "__main__":
    main(sys.argv[1:-1])
