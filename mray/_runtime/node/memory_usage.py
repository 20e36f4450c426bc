"""Memory in use and in all: from ``/proc`` and the limits of the control group, as the kernel's own OOM killer will judge.

In the node. Memory that the kernel can take back at once (the page cache) does not count as used; shared memory does.
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterable, Sequence

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

    __slots__ = ("group", "held", "parent", "pid")

    def __init__(self, pid: int, parent: int, group: int, held: int) -> None:
        self.pid = pid
        self.parent = parent
        #: The process group: for a worker, and what it has started unless that has made another one, the worker's pid.
        self.group = group
        self.held = held


def processes() -> list[Process]:
    """All processes of the machine. Pages that a process shares with others (objects, libraries) do not count."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    parent, group = map(int, file.read().rpartition(b")")[2].split()[1:3])
                with open(f"/proc/{name}/statm", "rb") as file:
                    _size, resident, shared = map(int, file.read().split()[:3])
            except (OSError, ValueError):
                continue
            found.append(Process(int(name), parent, group, (resident - shared) * PAGE))
    return found


def held_below(found: Sequence[Process], pids: Container[int]) -> dict[int, int]:
    """Bytes held by each of these pids and all that it has started, as far as that is in its process group or its parents are alive."""
    by_pid = {process.pid: process for process in found}
    held: dict[int, int] = {}
    for process in found:
        owner, above = process.group, by_pid.get(process.pid)
        while owner not in pids and above is not None:
            owner = above.pid
            above = by_pid.get(above.parent)
        if owner in pids:
            held[owner] = held.get(owner, 0) + process.held
    return held


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
