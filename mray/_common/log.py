"""mray's logger."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import logging


class _Logger:
    """``logging.getLogger("mray")``; imports `logging` on first use, so that the node starts faster."""

    def __getattr__(self, name: str) -> Any:
        import logging  # noqa: PLC0415

        return getattr(logging.getLogger("mray"), name)


logger: logging.Logger = _Logger()  # type: ignore[assignment]
