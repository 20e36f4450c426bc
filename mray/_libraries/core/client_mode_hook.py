"""Where Ray sends calls through its client; here every driver is on the machine, and functions stay as they are."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

__all__ = ["client_mode_hook", "client_mode_should_convert", "client_mode_wrap", "disable_client_hook", "is_client_mode_enabled"]

_Function = TypeVar("_Function", bound=Callable[..., Any])

is_client_mode_enabled = False


def client_mode_hook(func: _Function | None = None, *, local_only_kwargs: Sequence[str] = ()) -> Any:
    return (lambda function: function) if func is None else func


def client_mode_wrap(func: _Function) -> _Function:
    return func


def client_mode_should_convert() -> bool:
    return False


@contextlib.contextmanager
def disable_client_hook() -> Iterator[None]:
    """Bypass the client, as every call does."""
    yield
