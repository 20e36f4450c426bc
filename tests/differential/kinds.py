"""All kinds of programs, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from tests.differential import grammar, grammar_calls, grammar_tools

KINDS: dict[str, Callable[[], st.SearchStrategy[Any]]] = {**grammar.KINDS, **grammar_calls.KINDS, **grammar_tools.KINDS}
