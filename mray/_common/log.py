"""mray's logger."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import logging

_pending: list[Callable[[], None]] = []


def configure_first(configure: Callable[[], None]) -> None:
    """Call `configure` at the next use of the logger."""
    _pending.append(configure)


def _configure() -> None:
    while _pending:
        _pending.pop(0)()


class _Logger:
    """``logging.getLogger("mray")``; imports `logging` on first use, so that node and driver start faster."""

    def __getattr__(self, name: str) -> Any:
        import logging  # noqa: PLC0415

        _configure()
        return getattr(logging.getLogger("mray"), name)


logger: logging.Logger = _Logger()  # type: ignore[assignment]
