"""``ray._private.async_compat``: recognizing and creating coroutine functions."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

__all__ = ["get_new_event_loop", "has_async_methods", "is_async_func", "sync_to_async", "try_install_uvloop"]

get_new_event_loop = asyncio.new_event_loop


def try_install_uvloop() -> None:
    """Use uvloop for new event loops: not here, since mray's actors run on asyncio's own."""


def is_async_func(func: object) -> bool:
    """Whether a call creates a coroutine or an asynchronous generator."""
    return inspect.iscoroutinefunction(func) or inspect.isasyncgenfunction(func)


def has_async_methods(cls: object) -> bool:
    """Whether a class has such a method."""
    return any(inspect.getmembers(cls, predicate=is_async_func))


def sync_to_async(func: Callable[..., Any]) -> Callable[..., Any]:
    """The function as a coroutine function that runs it whole."""
    if is_async_func(func):
        return func

    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        return func(*args, **kwargs)

    return wrapper
