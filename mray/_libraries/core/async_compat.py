"""``ray._private.async_compat``."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

__all__ = ["get_new_event_loop", "has_async_methods", "is_async_func", "sync_to_async", "try_install_uvloop"]

get_new_event_loop = asyncio.new_event_loop


def try_install_uvloop() -> None:
    """Do nothing: mray's actors run on asyncio's own loops."""


def is_async_func(func: object) -> bool:
    """Whether a call creates a coroutine or an asynchronous generator."""
    return inspect.iscoroutinefunction(func) or inspect.isasyncgenfunction(func)


def has_async_methods(cls: object) -> bool:
    return any(inspect.getmembers(cls, predicate=is_async_func))


def sync_to_async(func: Callable[..., Any]) -> Callable[..., Any]:
    """A coroutine function that runs the whole function."""
    if is_async_func(func):
        return func

    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        return func(*args, **kwargs)

    return wrapper
