"""The bridge to event loops: callbacks of other threads, and time limits that hold."""

from __future__ import annotations

import asyncio
import threading
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mray._common import bridge
from mray._common.messages import PICKLED
from mray._objects.ownership import Entry
from mray._runtime.client.awaiting import AwaitedRefs, _Waiter


def test_a_loop_that_mray_has_made_goes_by_the_machine(monkeypatch):
    loop = bridge.follow(asyncio.new_event_loop())
    monkeypatch.setattr(time, "monotonic", lambda: 7.0)
    try:
        loop.run_until_complete(asyncio.wait_for(asyncio.sleep(0.001), 60))
        with pytest.raises(asyncio.TimeoutError):
            loop.run_until_complete(asyncio.wait_for(loop.create_future(), 0.001))
    finally:
        loop.close()


@pytest.mark.parametrize("is_pretended", [False, True])
def test_a_time_limit_in_a_loop_of_the_user_holds(monkeypatch, is_pretended):
    async def main() -> str:
        future = asyncio.get_running_loop().create_future()
        if is_pretended:
            monkeypatch.setattr(time, "monotonic", lambda: 7.0)
        bridge.call_later(asyncio.get_running_loop(), 0.001, lambda: future.set_result("over"))
        bridge.call_later(asyncio.get_running_loop(), 0.0005, lambda: future.set_result("never")).cancel()
        return await future

    assert asyncio.run(main()) == "over"


@pytest.mark.parametrize("error", [None, ValueError("failed")])
def test_a_future_that_somebody_awaits_in_a_closed_loop_is_told_in_vain(error):
    loop = asyncio.new_event_loop()
    future = loop.create_future()
    future.add_done_callback(lambda future: future.exception())
    loop.close()
    bridge.tell(future, None, error)
    assert future.done()


def test_a_callback_of_another_thread_is_awaited_and_so_is_one_that_comes_at_once_or_never():
    taken_back = []

    def then(callback):
        """In the way of the row whose turn it is."""
        if ways[0] == "later":
            threading.Thread(target=callback).start()
        elif ways[0] == "at once":
            callback()
        return lambda: taken_back.append(ways.pop(0))

    async def main() -> list[bool]:
        return [await bridge.called(then, timeout) for timeout in (None, 60, 0.001)]

    expected = ["later", "at once", "never"]
    ways = list(expected)
    assert asyncio.run(main()) == [True, True, False]
    assert taken_back == expected


def test_a_callback_that_comes_when_the_loop_is_closed_reaches_nobody():
    kept = []

    def then(callback):
        kept.append(callback)
        return bridge.nothing

    assert not asyncio.run(bridge.called(then, 0.001))
    thread = threading.Thread(target=kept[0])
    thread.start()
    thread.join()
    kept[0]()


def test_a_function_in_a_thread_of_its_own_gives_its_value_or_its_error():
    def fail() -> None:
        raise StopIteration("no more")

    async def main() -> None:
        assert await bridge.in_thread(threading.current_thread, "of its own") is not threading.current_thread()
        with pytest.raises(RuntimeError, match="no more"):
            await bridge.in_thread(fail, "of its own")

    asyncio.run(main())


def test_a_coroutine_that_is_cancelled_when_its_value_has_come_and_gone_again_waits_no_more() -> None:
    loop = asyncio.new_event_loop()
    client: Any = SimpleNamespace(entry=Entry, reactor=None, lock=threading.RLock())
    awaited = AwaitedRefs(client, loop)
    entry, future = Entry(), loop.create_future()
    waiter = _Waiter(awaited._arrived, future, cast("Any", SimpleNamespace(_entry=entry)))
    entry.then(waiter)
    awaited._count += 1
    entry.complete(PICKLED, b"")
    entry.form = None  # its memory was removed, and it is being made again
    future.cancel()
    awaited._forget(waiter)
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    assert awaited._count == 0
