"""Remote functions: what their calls take and return."""

from collections.abc import Callable, Generator, Iterator
from typing import Any

import mray as ray


@ray.remote
def add(a: int, b: int) -> int:
    return a + b


@ray.remote(num_cpus=1, max_retries=0, timeout_s=30, retry_delay_s=[0.5, 1])
def text(n: int) -> str:
    return str(n)


@ray.remote
def nothing() -> None: ...


@ray.remote
def scaled(value: float, by: float = 2.0, *, label: str = "") -> float:
    return value * by


@ray.remote
def total(*numbers: int) -> int:
    return sum(numbers)


@ray.remote
def found(names: list[str], key: str | None = None) -> dict[str, int | None]:
    return {}


@ray.remote
def anything(value: Any) -> Any:
    return value


@ray.remote
def count(n: int) -> Generator[int, None, None]:
    yield from range(n)


@ray.remote
def steps(n: int) -> Iterator[int]:
    return iter(range(n))


@ray.remote  # fine; Ray: error
def eleven(a: int, b: int, c: int, d: int, e: int, f: int, g: int, h: int, i: int, j: int, k: str) -> str:
    return k


def plain(n: int) -> bytes:
    return bytes(n)


@ray.remote(num_returns=2, num_cpus=1)
def halves(text: str) -> tuple[str, str]:
    return text, text


number = ray.put(1)
word = ray.put("")

reveal_type(add.remote(1, 2))  # ObjectRef[int]
reveal_type(add.remote(number, add.remote(1, number)))  # ObjectRef[int]
add.remote("1", 2)  # error
add.remote(1)  # error
add.remote(1, 2, 3)  # error
add.remote(word, 2)  # error
add.remote(1, c=2)  # error
add(1, 2)  # error
add.remotely(1, 2)  # error
reveal_type(add.remote(1, b=2))  # ObjectRef[int]; Ray: error
reveal_type(add.remote(b=1, a=2))  # ObjectRef[int]; Ray: error
reveal_type(add.options(num_cpus=2).remote(1, 2))  # ObjectRef[int]
add.options(num_cpus=2).remote("1", 2)  # error

add.options(num_cpu=2)  # error; Ray: fine
add.options(max_calls=2)  # error; Ray: fine
reveal_type(text.remote(1))  # ObjectRef[str]
reveal_type(text.options(name="x").remote(number))  # ObjectRef[str]
text.remote(text.remote(1))  # error
reveal_type(add.remote(1, text.remote(1)))  # error
reveal_type(nothing.remote())  # ObjectRef[None]
nothing.remote(1)  # error

reveal_type(scaled.remote(1.0))  # ObjectRef[float]
reveal_type(scaled.remote(1, 2))  # ObjectRef[float]; Ray: error
reveal_type(scaled.remote(1, ray.put(2.0)))  # ObjectRef[float]; Ray: error
reveal_type(scaled.remote(1, by=3, label="x"))  # ObjectRef[float]; Ray: error
scaled.remote(1, by="3")  # error
reveal_type(total.remote(1, 2, number))  # ObjectRef[int]; Ray: error
reveal_type(found.remote(["a"]))  # ObjectRef[dict[str, int | None]]
found.remote([1])  # error
reveal_type(anything.remote(number))  # ObjectRef[Any]
reveal_type(anything.remote(1))  # ObjectRef[Any]
anything.remote()  # error
reveal_type(eleven.remote(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, ""))  # ObjectRef[str]; Ray: error
reveal_type(count.remote(3))  # ObjectRefGenerator[int]; Ray: ObjectRef[Generator[int, None, None]]
for item in count.remote(number):  # fine; Ray: error
    reveal_type(item)  # ObjectRef[int]; Ray: Any
count.remote("3")  # error
reveal_type(steps.remote(3))  # ObjectRefGenerator[int]; Ray: ObjectRef[Iterator[int]]

reveal_type(ray.remote(plain).remote(1))  # ObjectRef[bytes]
reveal_type(ray.remote(num_cpus=1)(plain).remote(1))  # ObjectRef[bytes]
made: Callable[[int], bytes] = plain
reveal_type(ray.remote(made).remote(number))  # ObjectRef[bytes]
ray.remote(3)  # error
ray.remote(num_cpu=1)  # error
ray.remote(num_cpus="1")  # error
reveal_type(halves.remote("ab"))  # list[ObjectRef[Any]]; Ray: ObjectRef[tuple[str, str]]
halves.remote(1)  # error
left, right = halves.remote("ab")  # fine; Ray: error
reveal_type(add.options(num_returns=2).remote(1, 2))  # list[ObjectRef[Any]]; Ray: ObjectRef[int]
ray.init(num_cpu=1)  # error
ray.init(include_dashboard=False)
ray.remote(max_concurrency=2)  # fine; Ray: error
