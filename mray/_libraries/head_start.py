"""The libraries that a program imports are in its workers as soon as they are in the program: a second process imports them meanwhile.

In the driver, in the thread that imports. Of Ray's packages those count that the program names: ``import ray.train.torch`` is
``ray.train`` and ``ray.train.torch``, and not what these import. They are the `preload` of sessions from then on; the process that a
session's node is forked from (`mray._runtime.processes.template`) has them when the driver has them, where a zygote would begin with them
when the session starts: two imports of some seconds, one after the other.

No such process is started where it would serve nobody: in workers and in children of `multiprocessing`, for another engine or a session
that runs elsewhere, and within a single test, which is to leave nothing.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator

from mray._api.current import backend_if_started
from mray._common import settings
from mray._runtime.processes import line_coverage, template

_start: template.HeadStart | None = None
_thread = threading.local()


@contextlib.contextmanager
def beside(package: str) -> Iterator[None]:
    """Import a package of Ray's libraries within it."""
    if getattr(_thread, "imports", False) or backend_if_started() is not None:
        yield
        return
    _thread.imports = True
    try:
        _load(package)
        yield
    finally:
        _thread.imports = False
    settings.preload_everywhere(package)
    if _start is not None:
        _start.settle()


def _load(package: str) -> None:
    global _start
    if _start is None:
        if not _is_wanted():
            return
        _start = template.current = template.HeadStart()
        _start.load("mray.libraries")
    _start.load(package)


def _is_wanted() -> bool:
    multiprocessing = sys.modules.get("multiprocessing.process")
    return (
        settings.HEAD_START.get()
        and template.current is None
        and template.HeadStart.has_a_driver()
        and settings.BACKEND.get() == "native"
        and not settings.ADDRESS.is_set()
        and not settings.POINTS.get()
        and line_coverage.request({}) is None
        and (multiprocessing is None or multiprocessing.parent_process() is None)
    )
