"""Type variables for values: Any, as type checkers see it, where the type is unknown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = ["T", "T_co"]

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # type checkers have it, programs need not

    T = TypeVar("T", default=Any)
    T_co = TypeVar("T_co", covariant=True, default=Any)
else:
    from typing import TypeVar

    T, T_co = TypeVar("T"), TypeVar("T_co", covariant=True)
