"""The parts of Ray's test utilities that programs use."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import mray
from mray._common import clock
from mray._common.clock import monotonic
from mray._common.places import sleeps

__all__ = ["Semaphore", "SignalActor", "async_wait_for_condition", "wait_for_condition"]


@sleeps
def wait_for_condition(
    condition_predictor: Callable[..., bool],
    timeout: float = 10,
    retry_interval_ms: float = 100,
    raise_exceptions: bool = False,
    **kwargs: Any,
) -> None:
    """Poll until the condition is true. Raises RuntimeError after `timeout` seconds, with the last exception, unless that is to be raised
    immediately.
    """
    end = monotonic() + timeout
    problem: Exception | None = None
    while True:
        try:
            if condition_predictor(**kwargs):
                return
            problem = None
        except Exception as error:
            if raise_exceptions:
                raise
            problem = error
        if monotonic() >= end:
            raise RuntimeError(_unmet(problem)) from problem
        clock.sleep(retry_interval_ms / 1000)


async def async_wait_for_condition(
    condition_predictor: Callable[..., Awaitable[bool]], timeout: float = 10, retry_interval_ms: float = 100, **kwargs: Any
) -> None:
    """As `wait_for_condition`, for a coroutine function or a plain one."""
    end = monotonic() + timeout
    problem: Exception | None = None
    while True:
        try:
            answer: Any = condition_predictor(**kwargs)
            if await answer if asyncio.iscoroutine(answer) else answer:
                return
            problem = None
        except Exception as error:
            problem = error
        if monotonic() >= end:
            raise RuntimeError(_unmet(problem)) from problem
        await asyncio.sleep(retry_interval_ms / 1000)


def _unmet(problem: Exception | None) -> str:
    return f"The condition wasn't met before the timeout expired.{'' if problem is None else f' Last exception: {problem!r}'}"


@mray.remote(num_cpus=0)
class SignalActor:
    """One caller sends, others wait for it."""

    def __init__(self) -> None:
        self._sent = asyncio.Event()
        self._waiting = 0

    async def send(self, clear: bool = False) -> None:
        self._sent.set()
        if clear:
            self._sent.clear()

    async def wait(self, should_wait: bool = True) -> None:
        if should_wait:
            self._waiting += 1
            try:
                await self._sent.wait()
            finally:
                self._waiting -= 1

    async def cur_num_waiters(self) -> int:
        return self._waiting


@mray.remote(num_cpus=0)
class Semaphore:
    def __init__(self, value: int = 1) -> None:
        self._semaphore = asyncio.Semaphore(value)

    async def acquire(self) -> bool:
        return await self._semaphore.acquire()

    async def release(self) -> None:
        self._semaphore.release()

    async def locked(self) -> bool:
        return self._semaphore.locked()
