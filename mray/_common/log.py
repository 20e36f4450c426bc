"""mray's logger. Programs set its level with `init(logging_level=...)` or through `logging`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import logging


class _Logger:
    """Stands for ``logging.getLogger("mray")``, and imports `logging` on first use, for a faster start of the node."""

    def __getattr__(self, name: str) -> Any:
        import logging  # noqa: PLC0415

        return getattr(logging.getLogger("mray"), name)


logger: logging.Logger = _Logger()  # type: ignore[assignment]
