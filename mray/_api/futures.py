"""Futures whose waiting thread reads for its process, so that no other thread has to wake it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mray._api.backend import Backend

_PENDING_STATES = ("PENDING", "RUNNING")


class ReadingFuture(Future):  # type: ignore[type-arg]
    """A future that the engine's reading thread resolves, which may be the waiting thread."""

    def __init__(self, backend: Backend) -> None:
        super().__init__()
        self._backend = backend
        self._waiters = _Waiters(backend)

    def _is_settled(self) -> bool:
        return self._state not in _PENDING_STATES

    def result(self, timeout: float | None = None) -> Any:
        if not self._is_settled():
            self._backend.wait_until(self._is_settled, timeout)
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        if not self._is_settled():
            self._backend.wait_until(self._is_settled, timeout)
        return super().exception(0)

    def add_done_callback(self, fn: Callable[[Future[Any]], object]) -> None:
        self._backend.read_along()
        super().add_done_callback(fn)

    def cancel(self) -> bool:
        cancelled = super().cancel()
        self._backend.wake()
        return cancelled


class _Waiters(list):  # type: ignore[type-arg]
    """Waiters by other means: `concurrent.futures.wait` and `as_completed`."""

    def __init__(self, backend: Backend) -> None:
        super().__init__()
        self._backend = backend

    def append(self, waiter: Any) -> None:
        self._backend.read_along()
        super().append(waiter)
