"""The event loop of an async actor's main thread."""

from __future__ import annotations

import asyncio

import pytest

from mray._ipc.event_loop import MainLoop
from mray._ipc.reactor import Reactor


@pytest.fixture
def main():
    reactor = Reactor()
    main = MainLoop(reactor)
    yield main
    asyncio.set_event_loop(None)
    main.loop.close()
    assert not main.loop.is_running()
    reactor.close()


def test_it_runs_for_those_that_ask_between_its_turns_too(main):
    async def ask():
        return main.loop.is_running()

    assert main.loop.is_running()
    assert main.loop.run_until_complete(ask())
    assert main.loop.is_running()


def test_its_thread_may_run_it_between_its_turns_and_not_within_one(main):
    async def again():
        waiting = asyncio.sleep(0)
        try:
            main.loop.run_until_complete(waiting)
        finally:
            waiting.close()

    with pytest.raises(RuntimeError, match="already running"):
        main.loop.run_until_complete(again())
    other = asyncio.new_event_loop()
    try:
        with pytest.raises(RuntimeError, match="another loop is running"):
            other.run_until_complete(again())
    finally:
        other.close()
