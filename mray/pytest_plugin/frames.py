"""Tracebacks of failed tests without mray's own frames, where they only stand between the test's line and the error.

In the process that runs tests. They stay with ``--full-trace``, and where the error may be a bug of mray: only its own errors, and calls
that the API itself refused, are about the user's line for certain.
"""

from __future__ import annotations

import os
from types import TracebackType

import pytest

from mray._common.own_frames import LIBRARY, OWN, USERS, kind_of
from mray.exceptions import RayError

#: The part of mray that checks calls.
_API = os.sep + os.path.join("mray", "_api") + os.sep


def hide(found: pytest.ExceptionInfo[BaseException]) -> None:
    """Take mray's frames, and what they call in Python's library, out of the traceback that pytest will show."""
    links: list[TracebackType] = []
    link: TracebackType | None = found.tb
    while link is not None:
        links.append(link)
        link = link.tb_next
    paths = [each.tb_frame.f_code.co_filename for each in links]
    kinds = [kind_of(path) for path in paths]
    users = [place for place, kind in enumerate(kinds) if kind == USERS]
    if not users or OWN not in kinds:
        return
    below = [path for path, kind in zip(paths[users[-1] + 1 :], kinds[users[-1] + 1 :], strict=True) if kind == OWN]
    refused = bool(below) and isinstance(found.value, (TypeError, ValueError)) and all(_API in path for path in below)
    first = kinds.index(OWN)
    shown = [link for place, link in enumerate(links) if kinds[place] == USERS or (kinds[place] == LIBRARY and place < first)]
    if shown[0] is not links[0] or not (isinstance(found.value, RayError) or refused):
        return
    # pytest makes its own traceback of these links, more than once.
    for place, each in enumerate(shown):
        each.tb_next = shown[place + 1] if place + 1 < len(shown) else None
    found.traceback = type(found.traceback)(found.tb)
