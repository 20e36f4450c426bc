"""Tracebacks of failed tests without mray's own frames, where they only stand between the test's line and the error.

In the process that runs tests. They stay with ``--full-trace``.
"""

from __future__ import annotations

import pytest

from mray._common.own_frames import hide as hide_frames


def hide(found: pytest.ExceptionInfo[BaseException]) -> None:
    """Take mray's frames, and what they call in Python's library, out of the traceback that pytest will show."""
    first = found.tb
    if hide_frames(found.value, first) is first:
        found.traceback = type(found.traceback)(first)
