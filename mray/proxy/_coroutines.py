"""The event loop of an interpreter, which awaits its objects' awaitables."""

from __future__ import annotations

import threading
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from mray._common.bridge import new_loop

if TYPE_CHECKING:
    import asyncio


def _run(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()


class Coroutines:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def result_of(self, awaitable: Awaitable[Any]) -> Any:
        import asyncio  # noqa: PLC0415  (only who awaits needs it)

        async def wait() -> Any:
            return await awaitable

        with self._lock:
            if self._loop is None:
                self._loop = new_loop()
                threading.Thread(target=_run, args=(self._loop,), name="proxy coroutines", daemon=True).start()
        return asyncio.run_coroutine_threadsafe(wait(), self._loop).result()

    def next_of(self, iterator: Any) -> tuple[Any, ...]:
        """A tuple with the next item of an async iterator, or an empty one."""

        async def step() -> tuple[Any, ...]:
            try:
                return (await anext(iterator),)
            except StopAsyncIteration:
                return ()

        return tuple(self.result_of(step()))

    def enter(self, context: Any) -> Any:
        return self.result_of(type(context).__aenter__(context))

    def exit(self, context: Any, error: BaseException | None) -> bool:
        return bool(self.result_of(type(context).__aexit__(context, type(error) if error is not None else None, error, None)))
