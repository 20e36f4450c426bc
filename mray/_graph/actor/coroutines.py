"""``async def`` methods in programs: each call runs to its end before the program goes on.

All run in one event loop of the actor's main thread, so that a method's locks and connections are valid for the next call.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine
from typing import Any

from mray._common.bridge import new_loop

_of_thread = threading.local()


def to_the_end(method: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        return event_loop().run_until_complete(method(*args, **kwargs))

    return call


def event_loop() -> Any:
    """The event loop of the actor's main thread; called there."""
    loop = own_loop()
    if loop is None:
        import asyncio  # noqa: PLC0415  (slow to import, and rarely needed)

        from mray._ipc.event_loop import main_loop  # noqa: PLC0415  (it imports asyncio)

        loop = main_loop()
        if loop is None:
            loop = new_loop()
            asyncio.set_event_loop(loop)
        use_loop(loop)
    return loop


def own_loop() -> Any:
    return getattr(_of_thread, "loop", None)


def use_loop(loop: Any) -> None:
    _of_thread.loop = loop
