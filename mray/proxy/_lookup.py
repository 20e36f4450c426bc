"""The origin of an attribute access: the user's own ``v.name``, or `hasattr`, `getattr` and other C code.

``v.name`` is answered without a round trip (the result is a `Var`, whose error shows when it is used), but `hasattr` needs the
`AttributeError` immediately. Python passes `__getattr__` nothing about its caller; the caller's current instruction shows it.

Rejected: asking the interpreter for the names of each new value: a round trip per link of a chain.
"""

from __future__ import annotations

import dis
import sys

#: ``v.name`` and ``v.name(...)`` compile to these, in all versions.
_LAZY = frozenset(dis.opmap[name] for name in ("LOAD_ATTR", "LOAD_METHOD") if name in dis.opmap)


def wants_answer(depth: int) -> bool:
    """Whether the frame `depth` above this one executes anything but ``v.name``."""
    frame = sys._getframe(depth + 1)
    # `co_code` shows instructions as compiled, even where the interpreter has specialised or instrumented them.
    return frame.f_lasti < 0 or frame.f_code.co_code[frame.f_lasti] not in _LAZY
