"""Actors: classes, handles and the methods that are declared."""

from collections.abc import AsyncGenerator, Generator

import mray as ray
from mray.actor import ActorClass, ActorHandle, ActorProxy


class Counter:
    def __init__(self, start: int) -> None:
        self.n = start

    @ray.method
    def add(self, by: int) -> int:
        return self.read() + by  # fine; Ray: error

    @ray.method
    def read(self) -> int:
        return self.n

    @ray.method(num_returns=1, concurrency_group="io")
    def name(self, prefix: str, suffix: str = "") -> str:
        return prefix + suffix

    @ray.method
    async def later(self, by: int) -> str:
        return str(by)

    @ray.method
    def steps(self, n: int) -> Generator[int, None, None]:
        yield n

    @ray.method
    async def ticks(self) -> AsyncGenerator[str, None]:
        yield ""

    def undeclared(self, by: int) -> int:
        return by


RemoteCounter = ray.remote(Counter)
reveal_type(RemoteCounter)  # ActorClass[Counter]
reveal_type(ray.remote(num_cpus=1)(Counter))  # ActorClass[Counter]
counter = RemoteCounter.remote(1)
reveal_type(counter)  # ActorHandle[Counter] | type[Counter]
reveal_type(RemoteCounter.options(name="c").remote(1))  # ActorHandle[Counter] | type[Counter]
RemoteCounter.options(num_cpu=1)  # error; Ray: fine
configured: ActorClass[Counter] = RemoteCounter.options(num_cpus=1)
number = ray.put(1)

reveal_type(counter.add.remote(1))  # ObjectRef[int]
reveal_type(counter.add.remote(number))  # ObjectRef[int]
reveal_type(ray.get(counter.add.remote(1)))  # int
reveal_type(ray.get([counter.add.remote(1), counter.read.remote()]))  # list[int]
counter.add.remote("1")  # error
counter.add.remote()  # error
counter.add.remote(counter.name.remote("x"))  # error
counter.add(1)  # error
reveal_type(counter.add.options(concurrency_group="io").remote(1))  # ObjectRef[int]; Ray: error
counter.add.options(num_return=2)  # error
reveal_type(counter.add.remote(by=1))  # ObjectRef[int]; Ray: error
reveal_type(counter.read.remote())  # ObjectRef[int]
counter.read.remote(1)  # error
reveal_type(counter.name.remote("x"))  # ObjectRef[str]
reveal_type(counter.name.remote("x", "y"))  # ObjectRef[str]; Ray: error
reveal_type(counter.later.remote(1))  # ObjectRef[str]
reveal_type(counter.steps.remote(1))  # ObjectRefGenerator[int]; Ray: ObjectRef[Generator[int, None, None]]
reveal_type(counter.ticks.remote())  # ObjectRefGenerator[str]; Ray: ObjectRef[AsyncGenerator[str, None]]
reveal_type(counter.add.bind(1))  # BoundNode[int]; Ray: Any
counter.undeclared.remote(1)  # error
counter.missing.remote(1)  # error
ray.method(num_return=1)  # error


def use(handle: ActorHandle[Counter], proxy: ActorProxy[Counter], made: ActorClass[Counter]) -> None:
    reveal_type(proxy.add.remote(1))  # ObjectRef[int]
    reveal_type(made.remote(1))  # ActorHandle[Counter] | type[Counter]
    ray.kill(proxy)  # fine; Ray: error
    ray.kill(handle)
    reveal_type(handle.undeclared.remote(1))  # Any; Ray: Never


def use_any(handle: ActorHandle, made: ActorClass) -> None:
    reveal_type(ray.get_actor("c"))  # ActorHandle[Any]
    ray.kill(handle, no_restart=False)


use(counter, counter, RemoteCounter)  # error
ray.kill(number)  # error
RemoteCounter(1)  # error; Ray: fine
