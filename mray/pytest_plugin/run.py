"""One run of pytest: its sessions, and the session of each test.

On the main thread of each process that runs tests.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import os
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

import mray
from mray._api.current import backend_if_started, keep
from mray._common import settings
from mray._common.own_frames import hide as hide_frames
from mray._inside.startup import line_coverage, template
from mray.pytest_plugin.leaks import Belongings, Territory, assert_nothing_left
from mray.pytest_plugin.stacks import Watch
from mray.util.testing import reset


class Run:
    """The plugin's fixtures and hooks."""

    def __init__(self, options: dict[str, Any], stderr: int) -> None:
        #: By name; None: not given.
        self._given = options
        self._watch = Watch(stderr)
        #: The directory of the shared session.
        self._shared: str | None = None
        #: The process that nodes of sessions for one test are forked from, and the last test that it was prepared for.
        self._template: template.Template | None = None
        self._prepared_for = ""

    def end(self) -> None:
        self.end_shared()
        if self._template is not None:
            self._template.close()
        self._watch.settle()
        if "_territory" in self.__dict__:
            self._territory.leave()

    def hide(self, found: pytest.ExceptionInfo[BaseException]) -> None:
        """Remove mray's frames, and those of Python's library below them, from the traceback; ``--full-trace`` shows them."""
        first = found.tb
        if hide_frames(found.value, first) is first:
            found.traceback = type(found.traceback)(first)

    @functools.cached_property
    def _territory(self) -> Territory:
        return Territory()

    # ------------------------------------------------------------------------------------ sessions
    def shared(self, item: pytest.Item) -> Iterator[ModuleType]:
        """`mray` with the shared session, which is reset afterwards."""
        _ = self._territory
        if next(item.iter_markers("mray"), None) is not None:
            pytest.fail(f"{item.nodeid}: the marker `mray` is for `mray_fresh`; all tests with `mray_session` share one", pytrace=False)
        if self._is_shared():
            keep(False)
        else:
            self._init({})  # raises if a test has started one
            self._shared = _current()
        with self._leaving_nothing(shared=True):
            with _collected():
                yield mray
                self._watch.settle()
            if self._is_shared() and self._begins_anew():
                reset()
                self._shared = _current()
                keep(True)  # the next test may start its own session
            else:  # ended by the test, or replaced: none runs while pytest waits, as with xdist
                mray.shutdown()
                self._shared = None

    def fresh(self, item: pytest.Item) -> Iterator[ModuleType]:
        _ = self._territory
        self.end_shared()
        options: dict[str, Any] = {}
        for marker in item.iter_markers("mray"):  # the closest first
            if marker.args:
                pytest.fail(f"{item.nodeid}: the marker `mray` takes options of init() by name, not {marker.args!r}", pytrace=False)
            options = {**marker.kwargs, **options}
        self._prepare(item)
        with self._leaving_nothing(shared=False):
            before, template.current = template.current, self._template or template.current
            try:
                self._init(options)
            finally:
                template.current = before
            try:
                with _collected():
                    yield mray
                    self._watch.settle()
            finally:
                mray.shutdown()

    def _prepare(self, item: pytest.Item) -> None:
        """Called before the resources are listed, since the template stays."""
        if self._prepared_for == item.nodeid or "mray_fresh" not in item.fixturenames:  # type: ignore[attr-defined]
            return
        self._prepared_for = item.nodeid
        if self._template is None:
            engine = self._given["engine"]
            several = sum("mray_fresh" in getattr(each, "fixturenames", ()) for each in item.session.items) > 1
            ours = engine == "native" or (not engine and not settings.ADDRESS.get() and settings.BACKEND.get() == "native")
            if not several or not ours or settings.POINTS.get() or line_coverage.request({}) is not None:
                return
            self._template = template.Template()
        folder = os.path.join(self._territory.directory, "template")
        with contextlib.suppress(OSError):
            os.makedirs(folder, exist_ok=True)
            self._template.prepare(folder)

    def _is_shared(self) -> bool:
        return self._shared is not None and self._shared == _current()

    @staticmethod
    def _begins_anew() -> bool:
        """Whether a reset keeps the session: one in one process is cheap to restart."""
        return bool(_node_pid())

    def _init(self, options: dict[str, Any]) -> None:
        with settings.proposed(settings.RAISE_DEADLOCKS, "1"):
            mray.init(**{**self._options(options.pop("engine", self._given["engine"])), **options})

    def _options(self, engine: str | None) -> dict[str, Any]:
        found: dict[str, Any] = {"logging_level": "ERROR"}
        if engine == "local":
            found["local_mode"] = True
        elif engine == "native":
            found["address"] = "local"
        elif engine:
            found["address"] = engine
        for option, keyword in (("cpus", "num_cpus"), ("gpus", "num_gpus"), ("resources", "resources"), ("preload", "preload")):
            if (value := self._given[option]) is not None:
                found[keyword] = value
        return found

    def end_shared(self) -> None:
        if self._is_shared():
            mray.shutdown()
        self._shared = None

    # ------------------------------------------------------------------------------------ leaks
    @contextlib.contextmanager
    def _leaving_nothing(self, *, shared: bool) -> Iterator[None]:
        if self._given["leaks"] == "off":
            yield
            return
        node_pid = _node_pid() if shared else 0
        before = Belongings.now()
        yield
        assert_nothing_left(before, node_pid)

    def leaving_nothing(self, item: pytest.Item) -> Iterator[None]:
        if "mray_session" in item.fixturenames:  # type: ignore[attr-defined]
            yield  # which checks by itself
            return
        _ = self._territory
        self._prepare(item)
        before = Belongings.now()
        yield
        if self._shared is None or self._is_shared():
            assert_nothing_left(before)

    # ------------------------------------------------------------------------------------ time
    def watching(self, item: pytest.Item) -> contextlib.AbstractContextManager[None]:
        return self._watch.over(item)


@contextlib.contextmanager
def _collected() -> Iterator[None]:
    """Collect a test's garbage cycles, after its frames have released their objects; older objects are left out, since collecting
    them takes longer than starting a session.
    """
    frozen = gc.get_freeze_count() > 0  # by the program itself: stays so
    if not frozen:
        gc.freeze()
    try:
        yield
    finally:
        gc.collect()
        if not frozen:
            gc.unfreeze()


def _node_pid() -> int:
    backend = backend_if_started()
    pid = 0 if backend is None else int(backend.info().get("node_pid") or 0)
    return 0 if pid == os.getpid() else pid


def _current() -> str | None:
    backend = backend_if_started()
    return None if backend is None else str(backend.info().get("session_dir"))
