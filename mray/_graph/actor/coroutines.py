"""``async def`` methods in programs: each call runs to its end before the program goes on.

On the actor's main thread, all of them in one event loop, so that a method's locks and connections are valid for the next call. Tasks
that a method leaves behind run on while the next one runs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine
from typing import Any

from mray._common.bridge import new_loop

_of_thread = threading.local()


def to_the_end(method: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Any]:
    """A plain function that returns what the coroutine returns."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return event_loop().run_until_complete(method(*args, **kwargs))

    return call


def event_loop() -> Any:
    """The event loop of the actor's main thread: that of its ordinary calls, which run on meanwhile. Called in that thread."""
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
    """The event loop of this thread, if it has one already."""
    return getattr(_of_thread, "loop", None)


def use_loop(loop: Any) -> None:
    """Use this event loop for programs in this thread."""
    _of_thread.loop = loop
