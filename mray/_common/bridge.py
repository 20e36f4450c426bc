"""The bridge between threads and event loops: callbacks in any thread, and coroutines that wait for them.

    any thread: callback ──▶ `call_in` ──▶ the loop's thread ──▶ future of the coroutine that waits

asyncio is imported by callers that await: `import mray` must stay cheap.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from mray._common.clock import is_pretended, monotonic

#: Cancels a callback; any thread, idempotent. A running callback may continue.
Cancel = Callable[[], object]
#: `Waitable.then`.
Then = Callable[[Callable[..., Any]], Cancel]


def nothing() -> None:
    """Cancel a callback that has run."""


class Waitable(Protocol):
    def ready(self) -> bool:
        """Whether it is over. Any thread; quick."""

    def then(self, callback: Callable[..., Any]) -> Cancel:
        """Call back once, in any thread, when it is `ready`, immediately if it is. The callback must not wait."""


def running_loop() -> Any:
    from asyncio import get_running_loop  # noqa: PLC0415

    return get_running_loop()


def own_loop() -> Any:
    """Like `running_loop`; if none runs, the loop that this thread has set."""
    from asyncio import get_event_loop  # noqa: PLC0415

    return get_event_loop()


def runs_here(loop: Any) -> bool:
    from asyncio import _get_running_loop  # noqa: PLC0415  (asyncio's; the public one raises an error for None)

    return _get_running_loop() is loop


def call_in(loop: Any, callback: Callable[..., object], *args: Any) -> bool:
    """Call this soon in the loop's thread; any thread. False if the loop is closed."""
    try:
        loop.call_soon_threadsafe(callback, *args)
    except RuntimeError:
        return False
    return True


def call_in_loop(loop: Any, callback: Callable[[], object]) -> None:
    """Call a function in the thread of a loop that runs in another thread, else here; dropped if that loop ends."""
    if loop is not None and loop.is_running() and not runs_here(loop):
        call_in(loop, callback)
    else:
        callback()


def tell(future: Any, value: Any, error: BaseException | None = None) -> None:
    """Resolve a future, unless it is done, cancelled, or of a closed loop. In the loop's thread."""
    if future.done():
        return
    try:
        if error is None:
            future.set_result(value)
        else:  # a future refuses StopIteration, which would end the generator that awaits it
            future.set_exception(RuntimeError(str(error)) if isinstance(error, StopIteration) else error)
    except RuntimeError:
        if not future.get_loop().is_closed():
            raise


def settle(future: Any, answer: Callable[[], Any]) -> None:
    """Like `tell`, with the result or the error of `answer`, which is not called if the future is done."""
    if future.done():
        return
    try:
        value = answer()
    except BaseException as error:
        tell(future, None, error)
    else:
        tell(future, value)


def call_of(loop: Any, then: Then) -> tuple[Any, Cancel]:
    """A future of this thread's running loop that the callback of `then` sets to True; and the callback's cancel function."""
    future = loop.create_future()
    thread = threading.get_ident()

    def callback(*_arguments: object) -> None:
        if threading.get_ident() == thread:
            tell(future, True)
        else:
            call_in(loop, tell, future, True)

    return future, then(callback)


async def called(then: Then, timeout: float | None = None) -> bool:
    """Await the callback of `then`; False after `timeout` seconds. Cancelling the coroutine cancels the callback."""
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
    """Await a function that may block, in a new thread, which completes even if the coroutine is cancelled.

    Rejected: an executor, since the interpreter waits for its threads at exit.
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
    from asyncio import new_event_loop  # noqa: PLC0415

    return follow(new_event_loop())


def follow(loop: Any) -> Any:
    """Make an event loop of asyncio's own class use the machine's time; returns the loop."""
    if "_scheduled" in getattr(loop, "__dict__", ()):
        loop.time = monotonic
    return loop


def call_later(loop: Any, seconds: float, callback: Callable[[], object]) -> Any:
    """`loop.call_later` by the machine's time, even if a test has replaced the loop's clock; returns an object with `cancel`."""
    if not is_pretended() or "time" in getattr(loop, "__dict__", ()):
        return loop.call_later(seconds, callback)
    timer = threading.Timer(seconds, call_in, (loop, callback))
    timer.daemon = True
    timer.start()
    return timer
