"""Interpreters that workers wait for: virtual environments that are built in the background. On the node's one thread.

::

        worker needs an interpreter ── its folder is complete ───────────────────────────────▶ worker is started
      └─ no ──exec──▶ builder (`mray._runtime.environment.package_builder`), one per folder ── 0 ──▶ all waiting workers are started
                        └── another code, or out of time: all are refused with the end of the builder's log

A builder is a child of the node with the session's lifeline, and so exits with the node.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

from mray._common.clock import monotonic
from mray._common.kept import os
from mray._common.record import Record
from mray._decide.scheduler.policy import PRIVATE_VARIABLES
from mray._ipc import process as processes
from mray._ipc.frames import to_text
from mray._ipc.output import end_of_file
from mray._ipc.reactor import Reactor
from mray._runtime.processes.launch import RECIPE_VARIABLE, is_complete, launch
from mray.exceptions import describe_status

#: Lines of a builder's log that an error shows.
_TAIL_LINES = 40
_END_SECONDS = 5.0
#: Seconds before drivers are notified of the wait; between further lines.
_LONG, _AGAIN = 5.0, 30.0


class _Waiter(Record):
    ready: Callable[[], None]
    refuse: Callable[[str], None]


class _Build:
    def __init__(self, recipe: dict[str, Any], log: str) -> None:
        self.recipe = recipe
        self.log = log
        self.waiters: list[_Waiter] = []
        #: Why the node has ended it.
        self.ended_by = ""
        self.began = monotonic()
        self.is_told = False


class Interpreters:
    def __init__(self, reactor: Reactor, session_dir: str, lifeline: int, options: int, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._reactor = reactor
        self._session_dir = session_dir
        self._options = options
        self._lifeline = lifeline
        self._by_folder: dict[str, _Build] = {}
        self._by_pid: dict[int, _Build] = {}

    def knows(self, pid: int) -> bool:
        return pid in self._by_pid

    def when_ready(
        self, recipe: dict[str, Any] | None, environment: dict[str, str], ready: Callable[[], None], refuse: Callable[[str], None]
    ) -> None:
        """Call `ready` once the interpreter exists, or `refuse` with a text."""
        if recipe is None or is_complete(recipe["folder"]):
            ready()
            return
        build = self._by_folder.get(recipe["folder"])
        if build is None:
            try:
                build = self._start(recipe, environment)
            except (OSError, ValueError) as error:
                text = f"the packages cannot be installed: {error}"
                self._reactor.call_later(0, lambda: refuse(text))
                return
        build.waiters.append(_Waiter(ready, refuse))

    def _start(self, recipe: dict[str, Any], environment: dict[str, str]) -> _Build:
        log = os.path.join(self._session_dir, "logs", f"environment-{os.path.basename(recipe['folder'])}.log")
        own = {name: value for name, value in environment.items() if not name.startswith(PRIVATE_VARIABLES)}
        variables = {**os.environ, **processes.expand_all(own, os.environ), RECIPE_VARIABLE: to_text(recipe)}
        fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            descriptors = {0: 0, 1: fd, 2: fd, 3: self._lifeline}
            pid = launch("builder", self._session_dir, "-", variables, descriptors, recipe["python"][0], self._options)
        finally:
            os.close(fd)
        build = self._by_folder[recipe["folder"]] = self._by_pid[pid] = _Build(recipe, log)
        self._reactor.call_later(_LONG, lambda: self._long(pid, build))
        seconds = recipe["timeout"]
        if seconds > 0:
            self._reactor.call_later(seconds, lambda: self._overdue(pid, build))
        return build

    def _long(self, pid: int, build: _Build) -> None:
        if self._by_pid.get(pid) is build:
            build.is_told = True
            what = ", ".join(map(str, build.recipe["packages"]))
            self._tell(f"{build.recipe['tool']} is installing {what} since {monotonic() - build.began:.0f} s; see {build.log}\n")
            self._reactor.call_later(_AGAIN, lambda: self._long(pid, build))

    def _overdue(self, pid: int, build: _Build) -> None:
        if self._by_pid.get(pid) is build:
            build.ended_by = f"they were not installed after setup_timeout_seconds={build.recipe['timeout']}"
            processes.kill(pid, signal.SIGTERM)
            self._reactor.call_later(_END_SECONDS, lambda: processes.kill(pid) if self._by_pid.get(pid) is build else None)

    def child_ended(self, pid: int, status: int) -> bool:
        """Handle the exit of a child of the node. Returns whether it was a builder."""
        build = self._by_pid.pop(pid, None)
        if build is None:
            return False
        del self._by_folder[build.recipe["folder"]]
        if build.is_told:
            self._tell(f"{build.recipe['tool']} has ended after {monotonic() - build.began:.0f} s\n")
        if status == 0 and is_complete(build.recipe["folder"]):
            for waiter in build.waiters:
                waiter.ready()
        else:
            text = self._why(build, status)
            for waiter in build.waiters:
                waiter.refuse(text)
        return True

    def _why(self, build: _Build, status: int) -> str:
        how = build.ended_by or f"{build.recipe['tool']} failed (it {describe_status(status)})"
        said = end_of_file(build.log, _TAIL_LINES)
        return f"the packages {build.recipe['packages']} could not be installed: {how}. The installer's last output:\n{said}"
