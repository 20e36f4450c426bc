"""What every test of the repository runs under.

* A test that hangs prints the stacks of all threads, then fails.
* A test that leaves something behind fails: a process, a shared-memory name, a session directory, a file descriptor or
  a thread. Everything that descends from the test run carries a mark in its environment, so that a process is found even
  after its parents are dead; sessions live in a directory of this run alone.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import os
import re
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

#: Environment variable that marks every process that descends from this test run.
MARK = "MRAY_TEST_MARK"
#: Seconds a test may take before it counts as hanging, where nothing else says so. Generous: slow is no failure.
TIME_LIMIT = 120
#: Seconds that what a test ended may take to be gone.
PATIENCE = 20.0

SHARED_MEMORY = Path("/dev/shm")
NAME_PATTERN = re.compile(r"^(sem\.)?mray-")


# ------------------------------------------------------------------------------------------- time limit
def pytest_configure(config: pytest.Config) -> None:
    mark = f"{os.getpid()}-{time.time_ns():x}"
    os.environ[MARK] = mark
    if "MRAY_TMPDIR" not in os.environ:
        directory = tempfile.mkdtemp(prefix="mt", dir="/tmp")
        os.environ["MRAY_TMPDIR"] = directory
        config.add_cleanup(lambda: shutil.rmtree(directory, ignore_errors=True))
    config.add_cleanup(lambda: os.environ.pop(MARK, None))


def time_limit(item: pytest.Item) -> float:
    """Seconds this test may take: its marker's, the command line's, the configuration's."""
    marker = item.get_closest_marker("timeout")
    if marker is not None and marker.args:
        return float(marker.args[0])
    if not item.config.pluginmanager.hasplugin("timeout"):
        return float(TIME_LIMIT)
    return float(item.config.getoption("timeout") or item.config.getini("timeout") or TIME_LIMIT)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Print all stacks shortly before the limit: also if the thread that hangs cannot run a signal handler."""
    faulthandler.dump_traceback_later(max(time_limit(item) - 5, 1), file=sys.__stderr__ or sys.stderr)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


# ------------------------------------------------------------------------------------------------ waiting
def wait_until(condition: Callable[[], object], timeout: float = 60.0, what: str = "") -> None:
    """Return once `condition()` is true; fail after `timeout` seconds. The only way tests wait for the world."""
    deadline = time.monotonic() + timeout
    pause = 0.001
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"did not come about within {timeout:g} s: {what or getattr(condition, '__doc__', None) or condition}")
        time.sleep(pause)
        pause = min(pause * 1.5, 0.05)


@pytest.fixture
def eventually() -> Callable[..., None]:
    """`wait_until` for test files, which cannot import this one."""
    return wait_until


@pytest.fixture(autouse=True, scope="module")
def frozen_heap() -> None:
    """Collections of garbage, of which tests make many, look only at what a file makes: modules, tests and reports are a large heap."""
    gc.collect()
    gc.freeze()


# ------------------------------------------------------------------------------------------- leak checks
def marked_processes(mark: str) -> dict[int, str]:
    """Living processes whose environment holds the mark, except this one: pid to command line."""
    needle = f"{MARK}={mark}".encode()
    found = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            with open(f"/proc/{entry}/environ", "rb") as file:
                marked = needle in file.read()
            if marked:
                found[int(entry)] = Path(f"/proc/{entry}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
    return found


def child_processes() -> dict[int, str]:
    """Children of this process, zombies included: pid to name and state."""
    found = {}
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError), open(f"/proc/self/task/{thread}/children") as file:
            children = file.read().split()
        for child in children:
            with contextlib.suppress(OSError), open(f"/proc/{child}/stat") as file:
                head, _, tail = file.read().rpartition(")")
                found[int(child)] = f"{head.partition('(')[2]} [{tail.split()[0]}]"
    return found


def shared_names() -> set[str]:
    """Names of mray in shared memory, segments and semaphores."""
    return {name for name in os.listdir(SHARED_MEMORY) if NAME_PATTERN.match(name)}


def foreign(name: str) -> bool:
    """Whether a living process that is not of this test run has this name mapped or open."""
    target = str(SHARED_MEMORY / name)
    ours = {os.getpid(), *marked_processes(os.environ[MARK])}
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) in ours:
            continue
        try:
            if target in Path(f"/proc/{entry}/maps").read_text():
                return True
            if any(os.readlink(fd) == target for fd in Path(f"/proc/{entry}/fd").iterdir()):
                return True
        except OSError:
            continue
    return False


def session_directories() -> set[str]:
    # `os.walk` passes over what goes while it looks.
    walked = os.walk(os.environ["MRAY_TMPDIR"])
    return {os.path.join(folder, name) for folder, names, _files in walked for name in names if name.startswith("session_")}


def open_files() -> dict[int, str]:
    found = {}
    for entry in os.listdir("/proc/self/fd"):
        try:
            found[int(entry)] = os.readlink(f"/proc/self/fd/{entry}")
        except OSError:
            continue
    return found


@dataclass(frozen=True)
class Belongings:
    """What this test run holds of the machine at one moment."""

    processes: dict[int, str]
    names: set[str]
    directories: set[str]
    files: dict[int, str]
    threads: set[threading.Thread]

    @classmethod
    def now(cls) -> Belongings:
        return cls(
            {**marked_processes(os.environ[MARK]), **child_processes()},
            shared_names(),
            session_directories(),
            open_files(),
            set(threading.enumerate()),
        )

    def more_than(self, before: Belongings) -> list[str]:
        """What is there now that was not there before, in words."""
        left = [f"process {pid}: {command}" for pid, command in self.processes.items() if pid not in before.processes]
        left += [f"shared memory {name}" for name in sorted(self.names - before.names)]
        left += [f"session directory {path}" for path in sorted(self.directories - before.directories)]
        left += [f"file descriptor {fd} -> {to}" for fd, to in self.files.items() if before.files.get(fd) is None]
        left += [f"thread {thread.name}" for thread in self.threads - before.threads]
        return left


def assert_nothing_left(before: Belongings) -> None:
    """Fail if there is more than `before`, once what was ended had time to go."""
    if not Belongings.now().more_than(before):
        return
    deadline = time.monotonic() + PATIENCE
    gc.collect()
    pause = 0.001
    seen: dict[str, float] = {}
    while left := Belongings.now().more_than(before):
        now = time.monotonic()
        for item in left:
            seen.setdefault(item, now)
        if pause > 0.1:
            # Other test runs of this user come and go meanwhile.
            left = [item for item in left if not (item.startswith("shared memory ") and foreign(item.split()[-1]))]
            if not left:
                return
        if now > deadline:
            lasting = [item for item in left if now - seen[item] > 1]
            if not lasting:
                return
            pytest.fail("left behind:\n  " + "\n  ".join(lasting))
        time.sleep(pause)
        pause = min(pause * 2, 0.2)


class SharedSession:
    """Whether tests share a running session: then its processes and names may outlive each of them."""

    running = False


@pytest.fixture(scope="session")
def shared_session() -> type[SharedSession]:
    return SharedSession


@pytest.fixture
def belongings() -> tuple[Callable[[], Belongings], Callable[[Belongings], None]]:
    """``now()`` and ``assert_nothing_left(before)`` for tests that check in the middle."""
    return Belongings.now, assert_nothing_left


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """Every test gives back what it took."""
    if os.environ.get("MRAY_TEST_ENGINE", "mray") != "mray":
        yield
        return
    shared = SharedSession.running
    before = Belongings.now()
    yield
    if not shared and not SharedSession.running:
        assert_nothing_left(before)
