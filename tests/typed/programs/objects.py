"""Refs and what is done with them."""

import asyncio

import mray as ray
from mray.exceptions import GetTimeoutError


@ray.remote
def text(n: int) -> str:
    return str(n)


number = ray.put(1)
word = text.remote(1)

ray.init(num_cpus=1)
reveal_type(number)  # ObjectRef[int]
reveal_type(ray.get(number))  # int
reveal_type(ray.get(number, timeout=1))  # int
reveal_type(ray.get([number, number]))  # list[int]
reveal_type(ray.get((word, word)))  # list[str]
reveal_type(ray.get([text.remote(n) for n in range(3)]))  # list[str]
reveal_type(ray.get([number, word]))  # list[Any]
first, second = ray.get([number, word])
reveal_type(first)  # Any
ray.get(1)  # error
ray.get([1, 2])  # error
ray.get(number, 1)  # error
ray.get(number, timeout="1")  # error

refs = [text.remote(n) for n in range(3)]
ready, rest = ray.wait(refs, num_returns=2, timeout=1.0)
reveal_type(ready)  # list[ObjectRef[str]]; Ray: list[ObjectRef[Any] | Any]
reveal_type(ray.get(ready))  # list[str]; Ray: list[Any]
while refs:
    done, refs = ray.wait(refs)
    reveal_type(ray.get(done[0]))  # str; Ray: Any
ray.wait([number, word])
ray.wait(number)  # error
ray.wait([1])  # error; Ray: fine
ray.wait(refs, num_returns="1")  # error

reveal_type(number.future().result())  # int
reveal_type(number.hex())  # str
reveal_type(number.task_id())  # TaskID
reveal_type(number == word)  # bool
wrong: ray.ObjectRef[str] = number  # error
bare: ray.ObjectRef = number
either: "ray.ObjectRef[int] | ray.ObjectRef[str]" = word


async def gather() -> None:
    reveal_type(await word)  # str
    reveal_type(await asyncio.wait_for(number, 1))  # int
    reveal_type(await asyncio.gather(number, word))  # tuple[int, str]
    reveal_type(asyncio.wrap_future(number.future()))  # Future[int]


def taken(generator: "ray.ObjectRefGenerator") -> None:
    for ref in generator:
        ray.get(ref)
    ray.cancel(next(generator))


def typed(generator: "ray.ObjectRefGenerator[int]") -> None:
    reveal_type(next(generator))  # ObjectRef[int]; Ray: Any


async def typed_too(generator: "ray.ObjectRefGenerator[int]") -> None:
    async for ref in generator:
        reveal_type(await ref)  # int; Ray: Any


ray.cancel(number, force=True)
ray.cancel(1)  # error; Ray: fine
try:
    ray.get(number, timeout=0)
except GetTimeoutError:
    ray.shutdown()
