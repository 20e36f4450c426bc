"""Memory in use and in all: from ``/proc`` and the limits of the control group, as the kernel's own OOM killer will judge.

In the node. Memory that the kernel can take back at once (the page cache) does not count as used; shared memory does.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

PAGE = os.sysconf("SC_PAGESIZE")

#: Version of the control groups -> (file of the bytes in use, file of the limit, names of the page cache in ``memory.stat``).
_FILES = {
    1: ("memory.usage_in_bytes", "memory.limit_in_bytes", ("total_inactive_file", "total_active_file")),
    2: ("memory.current", "memory.max", ("inactive_file", "active_file")),
}

#: (version, directory) of a control group.
Group = tuple[int, str]


class Usage:
    """Bytes in use, and bytes in all."""

    __slots__ = ("total", "used")

    def __init__(self, used: int, total: int) -> None:
        self.used = used
        self.total = total

    @property
    def share(self) -> float:
        return self.used / self.total if self.total else 0.0


def read_usage(meminfo: str, groups: Iterable[Group]) -> Usage:
    """Of the machine or of a control group, the one with the larger share in use. OSError, ValueError when the machine's cannot be read."""
    found = _of_machine(meminfo)
    for version, directory in groups:
        group = _of_group(version, directory, found.total)
        if group is not None and group.share >= found.share:
            found = group
    return found


def _of_machine(meminfo: str) -> Usage:
    total = available = -1
    with open(meminfo, "rb") as file:
        for line in file:
            name, _colon, rest = line.partition(b":")
            if name == b"MemTotal":
                total = int(rest.split()[0]) * 1024
            elif name == b"MemAvailable":
                available = int(rest.split()[0]) * 1024
                break
    if total < 0 or available < 0:
        raise ValueError(f"{meminfo} has no lines MemTotal and MemAvailable")
    return Usage(total - available, total)


def _of_group(version: int, directory: str, most: int) -> Usage | None:
    """Of a control group; None when it has no limit below `most`, or its figures cannot be read."""
    in_use, limit, cache = _FILES[version]
    try:
        with open(os.path.join(directory, limit), "rb") as file:
            total = int(file.read())
        if total >= most:
            return None
        with open(os.path.join(directory, in_use), "rb") as file:
            used = int(file.read())
        with open(os.path.join(directory, "memory.stat"), "rb") as file:
            stat = dict(line.split() for line in file.read().splitlines())
    except (OSError, ValueError):  # no limit: "max"
        return None
    return Usage(max(0, used - sum(int(stat.get(name.encode(), 0)) for name in cache)), total)


class Process:
    """A process of the machine, and the memory that its end would give back."""

    __slots__ = ("held", "pid", "session")

    def __init__(self, pid: int, session: int, held: int) -> None:
        self.pid = pid
        #: The kernel's session id: for a worker and all processes that it has started, the worker's pid.
        self.session = session
        self.held = held


def processes() -> list[Process]:
    """All processes of the machine. Pages that a process shares with others (objects, libraries) do not count."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    session = int(file.read().rpartition(b")")[2].split()[3])
                with open(f"/proc/{name}/statm", "rb") as file:
                    _size, resident, shared = map(int, file.read().split()[:3])
            except (OSError, ValueError):
                continue
            found.append(Process(int(name), session, (resident - shared) * PAGE))
    return found


def largest(found: Sequence[Process], count: int = 10) -> str:
    """A table of the processes with most memory."""
    lines = ["PID\tMEM(GB)\tCOMMAND"]
    for process in sorted(found, key=lambda process: -process.held)[:count]:
        try:
            with open(f"/proc/{process.pid}/cmdline", "rb") as file:
                command = file.read(200).replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:
            command = ""
        lines.append(f"{process.pid}\t{process.held / (1 << 30):.2f}\t{command[:100]}")
    return "\n".join(lines)
