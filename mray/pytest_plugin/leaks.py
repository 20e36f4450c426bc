"""Resources of the machine that a test run holds, and those that a test has left behind.

Descendants of the process that runs tests carry a mark in their environment, so that they are found even after their parents are
dead; sessions live in a directory of this process, so that concurrent runs do not see each other's. A listing, two per test, reads
only names and numbers.
"""

from __future__ import annotations

import contextlib
import gc
import os
import re
import shutil
import sys
import tempfile
import threading
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mray._common import clock, settings
from mray._common.clock import monotonic, time_ns
from mray._inside.processes import all_pids, carrying, command_line, parent_of
from mray._inside.sessions import can_be_seen, local_process

#: Marks every descendant of this process.
MARK = "MRAY_TEST_MARK"
#: The delay of retries, by Ray's name, and the milliseconds that tests wait. A test's own setting, by either name, overrides it.
KEPT_SESSIONS = settings.KEPT_SESSIONS.name
RETRY_DELAY = settings.TASK_RETRY_DELAY_MS.ray
SHORT_DELAY = 10
#: Seconds for released resources to disappear.
PATIENCE = 20.0
#: Seconds that a leak must last, since this user's other processes come and go.
LASTING = 1.0
#: Bytes by which a test's use of device memory may grow, since libraries allocate work space at first use.
GPU_SLACK = 64 << 20
#: The plugin's thread during each test with a time limit.
WATCH = "mray-test-watch"

SHARED_MEMORY = Path("/dev/shm")
NAME_PATTERN = re.compile(r"^(sem\.)?mray-")
#: Created by mray's own tests outside of sessions, with the pid of the run.
_TEST = re.compile(r"mray-test-(?:[a-z]+-)*(\d+)-")
_NUMBERED = re.compile(r"\[\d+\]")
#: Files that NVIDIA's driver keeps open after the first use of a GPU.
_OF_DRIVER = re.compile(r"/dev/nvidia.*|/dev/zero|/dev/shm/cuda\..*")
#: Unnamed descriptors that it opens with a context and keeps open.
_OF_CONTEXT = frozenset({"anon_inode:[eventfd]", "anon_inode:[eventpoll]", "pipe:", "socket:"})
#: Per context, as observed; no more are excused.
_MOST_OF_CONTEXT = 16


class Territory:
    """Marks this process's descendants, and gives it a directory whose sessions leave nothing, and short retry delays."""

    def __init__(self) -> None:
        self._before = {name: os.environ.get(name) for name in (MARK, "MRAY_TMPDIR", RETRY_DELAY, KEPT_SESSIONS)}
        if not settings.TASK_RETRY_DELAY_MS.is_set():
            os.environ[RETRY_DELAY] = str(SHORT_DELAY)
        os.environ[KEPT_SESSIONS] = "0"
        os.environ[MARK] = f"{os.getpid()}-{time_ns():x}"
        # Not tempfile's own: names of sockets must be short.
        self.directory = tempfile.mkdtemp(prefix="mt", dir=self._before["MRAY_TMPDIR"] or "/tmp")
        os.environ["MRAY_TMPDIR"] = self.directory

    def leave(self) -> None:
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        shutil.rmtree(self.directory, ignore_errors=True)


def is_marked(pid: int) -> bool:
    """Whether a process descends from this one."""
    return bool(carrying(MARK, os.environ[MARK], [pid], patience=2.0))


def child_processes() -> dict[int, str]:
    """pid -> name and state; zombies included."""
    found = {}
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError), open(f"/proc/self/task/{thread}/children") as file:
            children = file.read().split()
            for child in children:
                with contextlib.suppress(OSError), open(f"/proc/{child}/stat") as stat:
                    head, _, tail = stat.read().rpartition(")")
                    found[int(child)] = f"{head.partition('(')[2]} [{tail.split()[0]}]"
    return found


def shared_names() -> set[str]:
    """Segments and semaphores of mray."""
    return {name for name in os.listdir(SHARED_MEMORY) if NAME_PATTERN.match(name)}


def is_foreign(name: str) -> bool:
    """Whether a living process outside of this run has this name, or another one of its session, mapped or open."""
    if (match := _TEST.match(name)) is not None:  # also of a killed one, which maps nothing
        return int(match[1]) != os.getpid() and not is_marked(int(match[1]))
    start, _dash, rest = name.removeprefix("sem.").partition("-")
    session = rest.partition("-")[0]
    if not can_be_seen(session):
        return True
    if (pid := local_process(session)) is not None:  # a session in one process
        return pid not in (0, os.getpid()) and not is_marked(pid)
    target = str(SHARED_MEMORY / f"{start}-{session}-")
    for pid in all_pids():
        if pid == os.getpid() or is_marked(pid):
            continue
        try:
            if target in Path(f"/proc/{pid}/maps").read_text():
                return True
            if any(os.readlink(fd).startswith(target) for fd in Path(f"/proc/{pid}/fd").iterdir()):
                return True
        except OSError:
            continue
    return False


def session_directories() -> set[str]:
    """Directories of sessions that this process or a descendant has started."""
    # `os.walk` ignores what is removed meanwhile.
    walked = os.walk(os.environ["MRAY_TMPDIR"])
    return {os.path.join(folder, name) for folder, names, _files in walked for name in names if name.startswith("session_")}


def open_files() -> dict[int, str]:
    """Descriptor number to its target."""
    found = {}
    for entry in os.listdir("/proc/self/fd"):
        try:
            found[int(entry)] = os.readlink(f"/proc/self/fd/{entry}")
        except OSError:
            continue
    return found


def gpu_memory() -> int:
    """Bytes of torch's tensors on all GPUs; 0 if no GPU was used."""
    torch: Any = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available() or not torch.cuda.is_initialized():
        return 0
    return sum(torch.cuda.memory_allocated(device) for device in range(torch.cuda.device_count()))


@dataclass(frozen=True)
class Belongings:
    """The resources that this run holds at one moment."""

    #: Every process of the machine; and this one's children.
    processes: set[int]
    children: dict[int, str]
    names: set[str]
    directories: set[str]
    files: dict[int, str]
    threads: set[threading.Thread]
    #: Bytes.
    device_memory: int

    @classmethod
    def now(cls) -> Belongings:
        threads = {thread for thread in threading.enumerate() if thread.name != WATCH}
        return cls(set(all_pids()), child_processes(), shared_names(), session_directories(), open_files(), threads, gpu_memory())

    def more_than(self, before: Belongings, node_pid: int = 0) -> list[str]:
        """Describe the resources that were not there before.

        Processes and threads of the session whose node is named may come and go, but not their other resources.
        """
        left = [f"process {pid}: {what}" for pid, what in self.children.items() if pid not in before.processes]
        new = self.processes - before.processes - self.children.keys()
        left += [
            f"process {pid}: {command_line(pid) or '(it has ended meanwhile)'}"
            for pid in sorted(new)
            if is_marked(pid) and not _is_of_session(pid, node_pid)
        ]
        left += [f"shared memory {name}" for name in sorted(self.names - before.names)]
        left += [f"session directory {path}" for path in sorted(self.directories - before.directories)]
        kinds = Counter(map(_kind, self.files.values())) - Counter(map(_kind, before.files.values()))
        _excuse_driver(kinds)
        for fd, to in sorted(self.files.items(), reverse=True):
            if kinds[_kind(to)] > 0 and (before.files.get(fd) != to):
                kinds[_kind(to)] -= 1
                left.append(f"file descriptor {fd} -> {to}")
        left += [f"thread {thread.name}" for thread in self.threads - before.threads if not (node_pid and thread.name.startswith("mray-"))]
        more = self.device_memory - before.device_memory
        if more > GPU_SLACK:
            left.append(f"GPU memory: {more >> 20} MiB of tensors")
        return left


def _is_of_session(pid: int, node_pid: int) -> bool:
    return bool(node_pid) and node_pid in (pid, parent_of(pid), parent_of(parent_of(pid)))


def _kind(target: str) -> str:
    """The target of a descriptor, without the numbers of sockets and pipes."""
    return _NUMBERED.sub("", target)


def _excuse_driver(kinds: Counter[str]) -> None:
    """Remove the GPU driver's descriptors, which cannot be closed, from the new ones; unnamed ones only in a test that has opened the
    device itself, which is when contexts are created.
    """
    ours = [kind for kind in kinds if _OF_DRIVER.fullmatch(kind)]
    if any(kind.startswith("/dev/nvidia") for kind in ours):
        rest = _MOST_OF_CONTEXT
        for kind in sorted(_OF_CONTEXT & kinds.keys()):
            excused = min(rest, kinds[kind])
            kinds[kind] -= excused
            rest -= excused
    for kind in ours:
        del kinds[kind]


def _is_excused(item: str, known: dict[str, bool]) -> bool:
    """Whether this name belongs to another run of this user. `known` caches which beginnings of names are foreign, since each answer
    checks all processes, and the run may end meanwhile.
    """
    kind, _space, name = item.rpartition(" ")
    if kind != "shared memory":
        return False
    session = "-".join(name.split("-")[:2])
    if session not in known or name.startswith("mray-test-"):
        known[session] = is_foreign(name)
    return known[session] or name not in shared_names()


def assert_nothing_left(before: Belongings, node_pid: int = 0) -> None:
    """Fail if there is more than `before`, after waiting for what was ended. `node_pid` as in `Belongings.more_than`."""
    if not Belongings.now().more_than(before, node_pid):
        return
    gc.collect()
    deadline = monotonic() + PATIENCE
    pause = 0.001
    seen: dict[str, float] = {}
    while left := Belongings.now().more_than(before, node_pid):
        now = monotonic()
        seen = {item: seen.get(item, now) for item in left}
        late = now > deadline and any(now - seen[item] > LASTING for item in left)
        if late or pause > 0.1:
            known: dict[str, bool] = {}
            left = [item for item in left if not _is_excused(item, known)]
            if not left:
                return
        lasting = [item for item in left if now - seen[item] > LASTING]
        if late and lasting:
            pytest.fail("left behind:\n  " + "\n  ".join(lasting), pytrace=False)
        clock.sleep(pause)
        pause = min(pause * 2, 0.2)
