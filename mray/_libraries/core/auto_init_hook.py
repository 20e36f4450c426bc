"""Start a session for functions that need one."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from mray._api.current import current_backend

__all__ = ["auto_init_ray", "wrap_auto_init"]

_Function = TypeVar("_Function", bound=Callable[..., Any])


def auto_init_ray() -> None:
    current_backend()


def wrap_auto_init(fn: _Function) -> _Function:
    @functools.wraps(fn)
    def with_session(*args: Any, **kwargs: Any) -> Any:
        auto_init_ray()
        return fn(*args, **kwargs)

    return with_session  # type: ignore[return-value]
