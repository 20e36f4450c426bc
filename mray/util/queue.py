"""`Queue`: a first-in, first-out queue that any process of the session may put into and get from.

The queue is an async actor: a waiting call blocks no thread there. Handles pickle; calls raise ActorDiedError as soon as the actor
has died.
"""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Iterable
from typing import Any, TypeVar

from mray._api.decorator import remote
from mray._api.verbs import get, kill, wait
from mray._common.concurrency import AT_ONCE

__all__ = ["Empty", "Full", "Queue"]


T = TypeVar("T")

#: Calls that may wait in a queue's actor: with the default, 1000 getters would block every putter.
_MOST_WAITING = 1_000_000


class Empty(queue.Empty):
    """The queue was empty, immediately or until the timeout."""


class Full(queue.Full):
    """The queue was full, immediately or until the timeout."""


class Queue:
    """Holds at most `maxsize` items, 0 for any number. `actor_options` are those of `mray.remote`.

    Methods that block take a `timeout` in seconds (None waits forever); ValueError for a negative one. Thread-safe.
    """

    def __init__(self, maxsize: int = 0, actor_options: dict[str, Any] | None = None) -> None:
        self.maxsize = maxsize
        options = {"max_concurrency": _MOST_WAITING, **(actor_options or {})}
        self.actor: Any = remote(_QueueActor).options(**options).remote(maxsize)

    # ------------------------------------------------------------------------------------ looking
    def __len__(self) -> int:
        return self.size()

    def size(self) -> int:
        """The number of items."""
        return int(get(self.actor.qsize.remote()))

    def qsize(self) -> int:
        """As `size`."""
        return self.size()

    def empty(self) -> bool:
        """Whether the queue has no items."""
        return bool(get(self.actor.empty.remote()))

    def full(self) -> bool:
        """Whether the queue has no room."""
        return bool(get(self.actor.full.remote()))

    # ------------------------------------------------------------------------------------ putting
    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        """Add an item; waits for room if `block`. Full when there is none (in time)."""
        _check(block, timeout)
        try:
            if not block:
                get(self.actor.put_nowait.remote(item))
            elif not get(self.actor.try_put.remote(item)):
                get(self.actor.put.remote(item, timeout))
        except asyncio.QueueFull:
            raise Full from None

    async def put_async(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        """As `put`, to be awaited."""
        _check(block, timeout)
        try:
            await (self.actor.put.remote(item, timeout) if block else self.actor.put_nowait.remote(item))
        except asyncio.QueueFull:
            raise Full from None

    def put_nowait(self, item: Any) -> None:
        """As ``put(item, block=False)``."""
        self.put(item, block=False)

    def put_nowait_batch(self, items: Iterable[Any]) -> None:
        """Add all items in one call; Full, and none is added, without room for all."""
        if not isinstance(items, Iterable):
            raise TypeError("Argument 'items' must be an Iterable")
        get(self.actor.put_nowait_batch.remote(list(items)))

    # ------------------------------------------------------------------------------------ getting
    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """Take the first item; waits for one if `block`. Empty when there is none (in time)."""
        _check(block, timeout)
        try:
            if not block:
                return get(self.actor.get_nowait.remote())
            item = get(self.actor.try_get.remote())
            return get(self.actor.get.remote(timeout)) if item is _Nothing else item
        except asyncio.QueueEmpty:
            raise Empty from None

    async def get_async(self, block: bool = True, timeout: float | None = None) -> Any:
        """As `get`, to be awaited."""
        _check(block, timeout)
        try:
            return await (self.actor.get.remote(timeout) if block else self.actor.get_nowait.remote())
        except asyncio.QueueEmpty:
            raise Empty from None

    def get_nowait(self) -> Any:
        """As ``get(block=False)``."""
        return self.get(block=False)

    def get_nowait_batch(self, num_items: int) -> list[Any]:
        """The first `num_items` items in one call; Empty, and none is taken, when there are fewer."""
        if not isinstance(num_items, int):
            raise TypeError("Argument 'num_items' must be an int")
        if num_items < 0:
            raise ValueError("'num_items' must be nonnegative")
        items: list[Any] = get(self.actor.get_nowait_batch.remote(num_items))
        return items

    # ------------------------------------------------------------------------------------- ending
    def shutdown(self, force: bool = False, grace_period_s: float = 5) -> None:
        """End the actor: immediately with `force`, else after its calls or `grace_period_s` seconds. Calls that wait there fail."""
        actor, self.actor = self.actor, None
        if actor is None:
            return
        if not force:
            ended = actor.__ray_terminate__.remote()
            if not wait([ended], timeout=grace_period_s)[1]:
                return
        kill(actor)


def _check(block: bool, timeout: float | None) -> None:
    if block and timeout is not None and timeout < 0:
        raise ValueError("'timeout' must be a non-negative number")


class _Nothing:
    """Returned when the queue is empty."""


def _at_once(method: T) -> T:
    setattr(method, AT_ONCE, True)
    return method


class _QueueActor:
    def __init__(self, maxsize: int) -> None:
        self.maxsize = maxsize
        self.queue: asyncio.Queue[Any] = asyncio.Queue(maxsize)

    def qsize(self) -> int:
        return self.queue.qsize()

    def empty(self) -> bool:
        return self.queue.empty()

    def full(self) -> bool:
        return self.queue.full()

    @_at_once
    def try_put(self, item: Any) -> bool:
        if self.queue.full():
            return False
        self.queue.put_nowait(item)
        return True

    @_at_once
    def try_get(self) -> Any:
        return _Nothing if self.queue.empty() else self.queue.get_nowait()

    async def put(self, item: Any, timeout: float | None = None) -> None:
        # Avoids the task that `wait_for` would create.
        if not self.queue.full():
            self.queue.put_nowait(item)
            return
        try:
            await asyncio.wait_for(self.queue.put(item), timeout)
        except asyncio.TimeoutError:
            raise Full from None

    async def get(self, timeout: float | None = None) -> Any:
        if not self.queue.empty():
            return self.queue.get_nowait()
        try:
            return await asyncio.wait_for(self.queue.get(), timeout)
        except asyncio.TimeoutError:
            raise Empty from None

    def put_nowait(self, item: Any) -> None:
        self.queue.put_nowait(item)

    def get_nowait(self) -> Any:
        return self.queue.get_nowait()

    def put_nowait_batch(self, items: list[Any]) -> None:
        if self.maxsize > 0 and len(items) + self.qsize() > self.maxsize:
            raise Full(f"Cannot add {len(items)} items to queue of size {self.qsize()} and maxsize {self.maxsize}.")
        for item in items:
            self.queue.put_nowait(item)

    def get_nowait_batch(self, num_items: int) -> list[Any]:
        if num_items > self.qsize():
            raise Empty(f"Cannot get {num_items} items from queue of size {self.qsize()}.")
        return [self.queue.get_nowait() for _ in range(num_items)]
