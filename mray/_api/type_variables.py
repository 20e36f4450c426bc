"""Variables for the types of values: Any, as type checkers see it, where nothing is known of them."""

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
