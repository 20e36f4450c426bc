"""Actors whose methods are not declared, and refs by keyword: what `mray.mypy_plugin` knows. pyright takes the methods for anything."""

from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator

import mray as ray
from mray.actor import ActorClass, ActorHandle, ActorProxy
from mray.dag import InputNode, MultiOutputNode


@ray.remote
class Counter:
    size = 3

    def __init__(self, start: int, *, name: str = "") -> None:
        self.n = start

    def add(self, by: int = 1) -> int:
        return self.n + by

    async def later(self, by: int) -> str:
        return str(by)

    def items(self) -> Iterator[bytes]:
        yield b""

    def steps(self) -> Generator[bytes, None, None]:
        yield b""

    async def ticks(self) -> AsyncIterator[float]:
        yield 1.0

    async def tocks(self) -> AsyncGenerator[float, None]:
        yield 1.0

    def untyped(self, x):
        return x

    @ray.method(num_returns=2)
    def pair(self, by: int) -> tuple[int, str]:
        return by, ""

    @staticmethod
    def fixed(x: int) -> str:
        return str(x)

    @ray.method(concurrency_group="io")
    def declared(self, by: int) -> int:
        return self.add(by)


@ray.remote(num_cpus=1)
class Empty:
    def get(self) -> None: ...


class Plain:
    def __init__(self, start: int) -> None: ...

    def go(self, x: float, y: str = "") -> list[int]:
        return []


@ray.remote
def add(a: int, b: int = 2, *, label: str = "") -> int:
    return a + b


number = ray.put(1)
word = ray.put("")

counter = Counter.remote(1)
reveal_type(counter)  # ActorHandle[Counter]; pyright: ActorHandle[Counter] | type[Counter]
Counter.remote(number, name=word)
Counter.remote("1")  # error; pyright: fine
Counter.remote()  # error; pyright: fine
Counter.remote(1, nam="")  # error; pyright: fine
Counter(1)  # error
reveal_type(Counter.options(name="x", lifetime="detached").remote(1))  # ActorHandle[Counter]; pyright: ActorHandle[Counter] | type[Counter]
Counter.options(nam="x")  # error
Counter.options(lifetime="forever")  # error

reveal_type(counter.add.remote(2))  # ObjectRef[int]; pyright: Any
reveal_type(ray.get(counter.add.remote(number)))  # int; pyright: Any
reveal_type(counter.add.remote(by=number))  # ObjectRef[int]; pyright: Any
counter.add.remote("2")  # error; pyright: fine
counter.add.remote(by=word)  # error; pyright: fine
counter.add.remote(1, 2)  # error; pyright: fine
counter.add.options(num_return=1)  # error; pyright: fine
counter.add(1)  # error
counter.ad.remote()  # error
counter.size.remote()  # error
reveal_type(counter.later.remote(1))  # ObjectRef[str]; pyright: Any
reveal_type(counter.items.remote())  # ObjectRefGenerator[bytes]; pyright: Any
reveal_type(counter.steps.remote())  # ObjectRefGenerator[bytes]; pyright: Any
reveal_type(counter.ticks.remote())  # ObjectRefGenerator[float]; pyright: Any
reveal_type(counter.tocks.remote())  # ObjectRefGenerator[float]; pyright: Any
for item in counter.items.remote():
    reveal_type(ray.get(item))  # bytes; pyright: Any
reveal_type(counter.untyped.remote(1))  # ObjectRef[Any]; pyright: Any
reveal_type(counter.pair.remote(1))  # list[ObjectRef[Any]]
counter.pair.remote("1")  # error
one, two = counter.pair.remote(number)
reveal_type(counter.add.options(num_returns=3).remote(1))  # list[ObjectRef[Any]]; pyright: Any
reveal_type(counter.fixed.remote(1))  # ObjectRef[str]; pyright: Any
reveal_type(counter.declared.remote(by=number))  # ObjectRef[int]; pyright: error
reveal_type(Empty.remote().get.remote())  # ObjectRef[None]; pyright: Any

Made = ray.remote(Plain)
made = Made.remote(number)
Made.remote("")  # error; pyright: fine
reveal_type(Made)  # ActorClass[Plain]
reveal_type(made.go.remote(1, y=word))  # ObjectRef[list[int]]; pyright: Any
made.go.remote("")  # error; pyright: fine

reveal_type(add.remote(1, b=number))  # ObjectRef[int]; pyright: error
reveal_type(add.remote(number, number, label=word))  # ObjectRef[int]; pyright: error
add.remote(1, b=word)  # error
add.remote(number, c=number)  # error


def use(handle: ActorHandle[Plain], proxy: ActorProxy[Plain], kind: ActorClass[Plain]) -> None:
    reveal_type(handle.go.remote(1))  # ObjectRef[list[int]]; pyright: Any
    reveal_type(proxy.go.remote(1))  # ObjectRef[list[int]]; pyright: Any
    reveal_type(kind.remote(1).go.remote(1))  # ObjectRef[list[int]]; pyright: Any
    proxy.gone.remote(1)  # error


def use_any(handle: ActorHandle) -> None:
    reveal_type(handle.anything.remote(1))  # Any
    reveal_type(ray.get_actor("x").anything.remote())  # Any


use(made, made, Made)  # fine; pyright: error
ray.kill(counter)


with InputNode() as given:
    node = counter.add.bind(given)
    reveal_type(node)  # BoundNode[int]; pyright: Any
    counter.add.bind("")  # error; pyright: fine
    counter.later.bind(node)
    both = MultiOutputNode([node, counter.later.bind(node)])
graph = node.experimental_compile()
reveal_type(graph.execute(1))  # GraphRef[int]; pyright: Any
reveal_type(ray.get(graph.execute(1)))  # int; pyright: Any
reveal_type(graph.execute(1).get(timeout=1))  # int; pyright: Any
first, second = both.experimental_compile().execute(1)
reveal_type(ray.get([first, second]))  # list[Any]
reveal_type(graph.report())  # Any
graph.teardown()
