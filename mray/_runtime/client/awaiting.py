"""Refs that coroutines await, in any event loop of a driver or worker.

  value arrives ─▶ the reading thread: queues (future, ref), wakes the loop once ─▶ loop: sets all queued futures

While coroutines wait, the loop watches the reactor's epoll, so that the loop's thread reads; where another thread always reads (the main
thread of an actor with concurrency groups), that thread wakes the loop. Before it sleeps the loop polls for some microseconds
(`mray._ipc.spin`), so that peers may use ring pairs.

Imports asyncio, so only processes that await import it.
"""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from collections.abc import Callable, Generator
from functools import partial
from types import CoroutineType, FrameType, GeneratorType
from typing import TYPE_CHECKING, Any

from mray._common import messages as m
from mray._common.bridge import call_in, call_in_loop, call_later, own_loop, runs_here, settle
from mray._common.places import counts_as
from mray._common.whose_code import USERS
from mray._ipc.spin import LoopSpin
from mray._objects.ownership import Entry

if TYPE_CHECKING:
    from mray._api.object_ref import ObjectRef
    from mray._runtime.client.client import Client

#: Polls in vain, because another thread reads, after which a loop stops watching for `VAIN_SECONDS`.
MOST_VAIN = 20
VAIN_SECONDS = 1e-3


class _Waiter:
    __slots__ = ("_arrived", "entry", "future", "ref")

    def __init__(self, arrived: Callable[[_Waiter], None], future: asyncio.Future[Any], ref: ObjectRef) -> None:
        self._arrived = arrived
        self.future = future
        self.ref = ref
        self.entry = ref._entry

    def __call__(self, _entry: Entry) -> None:
        self._arrived(self)


class AwaitedRefs:
    """Futures of one event loop. For the loop's thread, except `_arrived`."""

    def __init__(self, client: Client, loop: asyncio.AbstractEventLoop) -> None:
        self._client = client
        self._entry = client.entry
        self._reactor = client.reactor
        self._loop = weakref.ref(loop)
        #: Unset futures whose values have arrived; and whether the loop has been woken for them.
        self._arrivals: deque[_Waiter] = deque()
        self._told = False
        self._count = 0
        #: Whether the loop's selector watches the reactor; how often it was woken in vain since.
        self._watches = False
        self._vain = 0
        #: The reactor was notified that the loop may sleep there.
        self._outside = False
        #: This thread is reading, and will set the futures.
        self._looks = False
        self._flushes = False
        self._spin = LoopSpin(lambda: self._count, self._look_awake, lambda: self._may_sleep(True))

    def future(self, ref: ObjectRef) -> asyncio.Future[Any]:
        """Cancelling the future does not cancel the task."""
        loop = self._loop()
        assert loop is not None
        future = loop.create_future()
        waiter = _Waiter(self._arrived, future, ref)
        self._settle_or_wait(waiter, loop)
        if not future.done():
            future.add_done_callback(partial(self._over, waiter))
        return future

    def _over(self, waiter: _Waiter, future: asyncio.Future[Any]) -> None:
        if future.cancelled():
            self._forget(waiter)

    def wait(self, ref: ObjectRef) -> Generator[Any, None, Any]:
        entry = ref._entry
        if type(entry) is self._entry and entry.form is not None and entry.form != m.SEGMENT:
            return self._value(ref)
        loop = self._loop()
        assert loop is not None
        future = loop.create_future()
        waiter = _Waiter(self._arrived, future, ref)
        if not self._wait(waiter, loop):
            return self._value(ref)
        try:
            return (yield from future)
        finally:
            self._forget(waiter)

    def _forget(self, waiter: _Waiter) -> None:
        entry = waiter.entry
        if entry.form is None:
            with self._client.lock:
                self._count -= entry.forget(waiter)

    def _wait(self, waiter: _Waiter, loop: asyncio.AbstractEventLoop) -> bool:
        """Let the arriving value call `waiter`; False if it exists."""
        client, ref, entry = self._client, waiter.ref, waiter.entry
        client.borrowing.check(ref)
        with client.lock:
            client.borrowing.revive(entry)
            if entry.form is None and entry.owner is not None:
                client.borrowing.fetch(entry)
            if entry.form is not None:
                return False
            entry.then(waiter)
        self._count += 1
        self._reactor.waits += 1
        if not self._flushes and self._reactor.unflushed:
            # After the other coroutines of this iteration have sent their requests.
            self._flushes = True
            loop.call_soon(self._flush)
        if not client.objects.reads_always:
            if not self._watches:
                self._watch(loop)
            self._spin.start(loop, self._reactor.spinner)
        return True

    def _flush(self) -> None:
        self._flushes = False
        self._reactor.flush()

    # ------------------------------------------------------------------------------------ arriving
    def _arrived(self, waiter: _Waiter) -> None:
        """Queue a waiter. In the reading thread, with the client's lock."""
        self._arrivals.append(waiter)
        loop = self._loop()
        if self._told or loop is None:
            return
        if not runs_here(loop):
            self._told = True
            call_in(loop, self._settle)
        elif not self._looks:
            self._told = True
            loop.call_soon(self._settle)

    def _settle(self) -> None:
        self._told = False
        arrivals, loop = self._arrivals, self._loop()
        assert loop is not None
        while arrivals:
            waiter = arrivals.popleft()
            self._count -= 1
            if not waiter.future.done():
                self._settle_or_wait(waiter, loop)

    def _settle_or_wait(self, waiter: _Waiter, loop: asyncio.AbstractEventLoop) -> None:
        """The value may have been lost again, and be recomputed."""
        ref, entry = waiter.ref, waiter.entry
        if (type(entry) is not self._entry or entry.form in (None, m.SEGMENT)) and self._wait(waiter, loop):
            return
        settle(waiter.future, partial(self._value, ref))

    def _value(self, ref: ObjectRef) -> Any:
        client = self._client
        entry = ref._entry
        return client.objects.get([ref], 0)[0] if entry.form in (m.TENSORS, m.SEGMENT) else client.objects.value_of(entry)

    # ------------------------------------------------------------------------------------ reading
    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        self._watches = True
        try:
            loop.add_reader(self._reactor.fileno(), self._look)
        except (NotImplementedError, ValueError):
            self._reactor.wake_background_reader()

    def _unwatch(self, loop: asyncio.AbstractEventLoop, fd: int) -> None:
        loop.remove_reader(fd)
        self._may_sleep(False)

    def _may_sleep(self, outside: bool) -> None:
        """Notify the reactor whether the loop may sleep in its selector without polling first."""
        if outside is not self._outside and (self._watches or not outside):
            self._outside = outside
            self._reactor.sleep_outside(outside)

    def _look_awake(self) -> None:
        if self._outside:
            self._may_sleep(False)
        self._read()

    def _read(self) -> bool:
        """False if another thread reads."""
        self._looks = True
        try:
            read = self._reactor.look()
        finally:
            self._looks = False
        if self._arrivals:
            self._settle()
        return read

    def _look(self) -> None:
        """Read: the reactor's epoll is readable."""
        read = self._read()
        self._vain = 0 if read else self._vain + 1
        loop = self._loop()
        if loop is None or (self._count and self._vain < MOST_VAIN):
            return
        # The message is for other threads; or another thread reads, slowly, and will wake the loop.
        self._unwatch(loop, self._reactor.fileno())
        self._watches = False
        if self._count:
            self._vain = 0
            call_later(loop, VAIN_SECONDS, self._watch_again)

    def _watch_again(self) -> None:
        loop = self._loop()
        if loop is not None and self._count and not self._watches:
            self._watch(loop)
            self._may_sleep(not self._spin.active)

    def close(self) -> None:
        """Set all futures: the session ends. Any thread."""
        loop = self._loop()
        if not self._watches or loop is None or loop.is_closed():
            return
        self._watches = False
        fd = self._reactor.fileno()  # the reactor may be closed when the loop runs this
        call_in_loop(loop, lambda: self._unwatch(loop, fd))


def awaited_by(task: asyncio.Task[Any]) -> tuple[asyncio.Future[Any], Entry, FrameType | None] | None:
    """The future and the entry of the ref that a suspended task awaits itself, and the innermost user frame; None if it does not. Any
    thread.
    """
    step: Any = task.get_coro()
    frame = None
    while True:
        if isinstance(step, CoroutineType):
            inner, step = step.cr_frame, step.cr_await
        elif isinstance(step, GeneratorType):
            inner = step.gi_frame
            if step.gi_code is AwaitedRefs.wait.__code__:
                waiter = None if inner is None else inner.f_locals.get("waiter")
                return None if waiter is None or waiter.future.done() else (waiter.future, waiter.entry, frame)
            step = step.gi_yieldfrom
        else:
            return None
        if inner is not None and counts_as(inner) == USERS:
            frame = inner


def awaited_refs(client: Client) -> AwaitedRefs:
    """This thread's `AwaitedRefs`; RuntimeError if no event loop runs."""
    loop = own_loop()
    found: AwaitedRefs | None = client.objects.awaited.get(loop)
    if found is None:
        found = client.objects.awaited[loop] = AwaitedRefs(client, loop)
    return found
