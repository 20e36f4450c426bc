"""Hanging tests: the stacks of every process of the session, shortly before a test's time limit.

A thread runs ``mray stack`` in a separate process, since this one may be what hangs; its text goes to the run's own stderr.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from mray._api.current import backend_if_started
from mray.pytest_plugin.leaks import WATCH

#: The fraction of a test's time, and the most seconds, that remain when the stacks are printed.
_SHARE, _MOST = 0.2, 5.0
_PATIENCE = 30.0


class Watch:
    """The clock of a run."""

    def __init__(self, stderr: int) -> None:
        self._stderr = stderr
        self._printing = threading.Lock()

    @contextlib.contextmanager
    def over(self, item: pytest.Item) -> Iterator[None]:
        limit = limit_of(item)
        if not limit:
            yield
            return
        timer = threading.Timer(limit - min(limit * _SHARE, _MOST), self._print, (item.nodeid,))
        timer.name, timer.daemon = WATCH, True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()  # tests count threads

    def settle(self) -> None:
        with self._printing:
            pass

    def _print(self, test: str) -> None:
        backend = backend_if_started()
        directory = str(backend.info().get("session_dir") or "") if backend is not None else ""
        if not os.path.isdir(directory):
            return
        command = [sys.executable, "-m", "mray", "stack", "--session", directory]
        head = f"\n~~~ {test} has nearly used up its time. The processes of its mray session, and their stacks:\n"
        with self._printing:
            try:
                done = subprocess.run(command, capture_output=True, timeout=_PATIENCE, check=False)
                text = done.stdout + done.stderr
            except (OSError, subprocess.TimeoutExpired) as error:
                text = str(error).encode()
            with contextlib.suppress(OSError):
                os.write(self._stderr, head.encode() + text + b"~~~\n")


def limit_of(item: pytest.Item) -> float:
    """The time limit in seconds, from pytest-timeout or pytest's own faulthandler; 0: none."""
    limits = []
    if item.config.pluginmanager.hasplugin("timeout"):
        marker = item.get_closest_marker("timeout")
        given = marker.args[0] if marker is not None and marker.args else (marker.kwargs.get("timeout") if marker is not None else None)
        if given is None:
            given = item.config.getoption("timeout", None) or os.environ.get("PYTEST_TIMEOUT") or item.config.getini("timeout")
        limits.append(float(given or 0))
    if item.config.pluginmanager.hasplugin("faulthandler"):
        limits.append(float(item.config.getini("faulthandler_timeout") or 0))
    return min((limit for limit in limits if limit > 0), default=0.0)
