"""The bridge between threads and event loops: callbacks that come in any thread, and coroutines that wait for them.

    any thread: callback ──▶ `call_in` ──▶ the loop's thread ──▶ future of the coroutine that waits

Something that can be waited for is a `Waitable`, or one of many by its key (`then(key, callback)`). A coroutine awaits `called(then)`; a
closed loop is not called, because no coroutine waits in it.

`import mray` is to stay cheap: asyncio is imported where somebody awaits, and so has it loaded.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from mray._common.clock import is_pretended, monotonic

#: Takes a callback back, from any thread, any number of times. One that is on its way may still come.
Cancel = Callable[[], object]
#: The method `then` of a `Waitable`.
Then = Callable[[Callable[..., Any]], Cancel]


def nothing() -> None:
    """Take back a callback that has come."""


class Waitable(Protocol):
    """Something that threads, coroutines and callbacks can wait for."""

    def ready(self) -> bool:
        """Whether there is nothing to wait for. Any thread; quick."""

    def then(self, callback: Callable[..., Any]) -> Cancel:
        """Call back once, in any thread, when it is `ready`, immediately if it is; the callback must not wait."""


def running_loop() -> Any:
    """The event loop that runs in this thread; RuntimeError when there is none."""
    from asyncio import get_running_loop  # noqa: PLC0415

    return get_running_loop()


def own_loop() -> Any:
    """As `running_loop`; where none runs, the one that this thread has set."""
    from asyncio import get_event_loop  # noqa: PLC0415

    return get_event_loop()


def runs_here(loop: Any) -> bool:
    """Whether this thread runs the loop now. (One thread after the other may.)"""
    from asyncio import _get_running_loop  # noqa: PLC0415  (asyncio's; the public one raises an error for None)

    return _get_running_loop() is loop


def call_in(loop: Any, callback: Callable[..., object], *args: Any) -> bool:
    """Have the loop's thread call this soon, from any thread; False where the loop is closed."""
    try:
        loop.call_soon_threadsafe(callback, *args)
    except RuntimeError:
        return False
    return True


def call_in_loop(loop: Any, callback: Callable[[], object]) -> None:
    """Call a function in the thread of a loop that runs in another one, else here. After the loop's end it may not be called at all."""
    if loop is not None and loop.is_running() and not runs_here(loop):
        call_in(loop, callback)
    else:
        callback()


def tell(future: Any, value: Any, error: BaseException | None = None) -> None:
    """Settle a future, unless it has been or is cancelled, or its loop is closed. In the loop's thread."""
    if future.done():
        return
    try:
        if error is None:
            future.set_result(value)
        else:  # a future refuses StopIteration: it would end the generator that awaits it
            future.set_exception(RuntimeError(str(error)) if isinstance(error, StopIteration) else error)
    except RuntimeError:
        if not future.get_loop().is_closed():  # else nobody awaits it any more
            raise


def settle(future: Any, answer: Callable[[], Any]) -> None:
    """As `tell`: the answer, or the error that it raises, unless nobody needs it."""
    if future.done():
        return
    try:
        value = answer()
    except BaseException as error:
        tell(future, None, error)
    else:
        tell(future, value)


def call_of(loop: Any, then: Then) -> tuple[Any, Cancel]:
    """A future of the loop that runs in this thread, set to True by the call of `then`; and what takes the callback back."""
    future = loop.create_future()
    thread = threading.get_ident()

    def callback(*_facts: object) -> None:
        if threading.get_ident() == thread:
            tell(future, True)
        else:
            call_in(loop, tell, future, True)

    return future, then(callback)


async def called(then: Then, timeout: float | None = None) -> bool:
    """Await the call of `then`; False: it has not come within so many seconds. A coroutine that waits no more leaves nothing behind."""
    loop = running_loop()
    future, cancel = call_of(loop, then)
    timer = None if timeout is None or future.done() else call_later(loop, timeout, partial(tell, future, False))
    try:
        return bool(await future)
    finally:
        cancel()
        if timer is not None:
            timer.cancel()


async def in_thread(function: Callable[[], Any], name: str) -> Any:
    """Await a function that may wait: it runs in a thread of its own, to its end, even if nobody awaits it any more.

    Not in an executor: its threads are waited for at the interpreter's exit, and this one may wait for ever.
    """
    loop = running_loop()
    future = loop.create_future()

    def run() -> None:
        try:
            value = function()
        except BaseException as error:
            call_in(loop, tell, future, None, error)
        else:
            call_in(loop, tell, future, value)

    threading.Thread(target=run, name=name, daemon=True).start()
    return await future


# ------------------------------------------------------------------------------------------- loops and their time
def new_loop() -> Any:
    """An event loop of mray's own."""
    from asyncio import new_event_loop  # noqa: PLC0415

    return follow(new_event_loop())


def follow(loop: Any) -> Any:
    """An event loop that mray has made: from now on it goes by the machine's time, where it is one of asyncio's own; returns it."""
    if "_scheduled" in getattr(loop, "__dict__", ()):
        loop.time = monotonic
    return loop


def call_later(loop: Any, seconds: float, callback: Callable[[], object]) -> Any:
    """As `loop.call_later`, also where a test pretends another time to the user's loop; returns an object with `cancel`."""
    if not is_pretended() or "time" in getattr(loop, "__dict__", ()):
        return loop.call_later(seconds, callback)
    timer = threading.Timer(seconds, call_in, (loop, callback))
    timer.daemon = True
    timer.start()
    return timer
