"""Suggestions in errors about unknown names."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str:
    """A sentence, with a blank before it; "" where no known name is similar."""
    from difflib import get_close_matches  # noqa: PLC0415  (only where something is refused)

    return "".join(f" Did you mean {each!r}?" for each in get_close_matches(name, known, 1, 0.7))
