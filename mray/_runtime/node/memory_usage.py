"""Memory in use and in total: from ``/proc`` and the limits of the control group, as the kernel's OOM killer will judge.

Memory that the kernel can reclaim immediately (the page cache) does not count as used; shared memory does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from mray._common import settings
from mray._common.kept import io, os
from mray._common.record import Record
from mray._ipc.discovery import memory_groups, memory_limit
from mray._ipc.process import all_pids, command_line, stat_of
from mray._ipc.segment import SHM

PAGE = os.sysconf("SC_PAGESIZE")

#: Control group version -> (file of the bytes in use, names of the page cache in ``memory.stat``).
_FILES = {
    1: ("memory.usage_in_bytes", ("total_inactive_file", "total_active_file")),
    2: ("memory.current", ("inactive_file", "active_file")),
}

#: (version, directory) of a control group.
Group = tuple[int, str]


class Usage(Record):
    """Bytes in use, and in total, of a control group or of the machine."""

    used: int
    total: int
    group: Group | None = None

    @property
    def share(self) -> float:
        return self.used / self.total if self.total else 0.0


def usage_here() -> Usage:
    return read_usage(settings.MEMINFO.get(), memory_groups())


def read_usage(meminfo: str, groups: Iterable[Group]) -> Usage:
    """Of the machine or of a control group, the one with the larger share in use. Raises OSError, ValueError when the machine's cannot be
    read.

    Of nested groups the lowest limit counts, unless others fill a group above.
    """
    found = _of_machine(meminfo)
    most = found.total
    for group in groups:
        usage = _of_group(group, most)
        if usage is not None and usage.share >= found.share:
            found = usage
    return found


def _of_machine(meminfo: str) -> Usage:
    total = available = -1
    with io.open(meminfo, "rb") as file:
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


def _of_group(group: Group, most: int) -> Usage | None:
    """Of a control group; None when it has no limit below `most`, or its figures cannot be read."""
    version, directory = group
    in_use, cache = _FILES[version]
    try:
        total = memory_limit(version, directory)
        if total is None or total >= most:
            return None
        with io.open(os.path.join(directory, in_use), "rb") as file:
            used = int(file.read())
        with io.open(os.path.join(directory, "memory.stat"), "rb") as file:
            stat = dict(line.split() for line in file.read().splitlines())
    except (OSError, ValueError):
        return None
    return Usage(max(0, used - sum(int(stat.get(name.encode(), 0)) for name in cache)), total, group)


class ProcessMemory(Record):
    """A process of the machine, and the memory that its exit would free."""

    pid: int
    #: The kernel's session id: for a worker and all of its children, the worker's pid.
    session: int
    held: int


def processes() -> list[ProcessMemory]:
    """All processes of the machine. Shared pages (objects, libraries) do not count."""
    found = []
    for pid in all_pids():
        try:
            session = int(stat_of(pid)[3])
            with io.open(f"/proc/{pid}/statm", "rb") as file:
                _size, rss, shared = map(int, file.read().split()[:3])
        except (OSError, ValueError):
            continue
        found.append(ProcessMemory(pid, session, (rss - shared) * PAGE))
    return found


def alone(process: ProcessMemory) -> int:
    """Bytes that the process holds, and its part of those that it shares with the process that it was forked from: such a page is freed by
    the exit of all that share it. As in `processes` when the kernel does not say, or the process has exited.
    """
    try:
        with io.open(f"/proc/{process.pid}/smaps_rollup", "rb") as file:
            for line in file:
                if line.startswith(b"Pss_Anon:"):
                    return min(process.held, int(line.split()[1]) * 1024)
    except (OSError, ValueError):
        pass
    return process.held


def objects_of(prefix: str, directory: str = SHM) -> dict[str, int]:
    """Bytes of the objects that each process of a session owns, which are freed with it. `prefix` begins the names of the session's
    memory.
    """
    held: dict[str, int] = {}
    start = prefix.lstrip("/")
    try:
        with os.scandir(directory) as there:
            for entry in there:
                owner, dash, _producer = entry.name.removeprefix(start).partition("-")
                if dash and entry.name.startswith(start):
                    try:
                        held[owner] = held.get(owner, 0) + entry.stat().st_blocks * 512
                    except OSError:  # it has just exited
                        continue
    except OSError:
        pass
    return held


def largest_other(
    found: Iterable[ProcessMemory], ours: Collection[int], counts: Callable[[int], bool] = lambda _pid: True
) -> ProcessMemory | None:
    """The process with most memory outside of the kernel sessions `ours`, of those whose memory `counts`."""
    others = sorted((process for process in found if process.session not in ours), key=lambda process: -process.held)
    return next((process for process in others if counts(process.pid)), None)


def is_in(group: Group | None, pid: int) -> bool:
    """Whether the memory of a process counts towards a control group's; all processes count towards the machine's."""
    return group is None or group in memory_groups(f"/proc/{pid}/cgroup")


def command_of(pid: int) -> str:
    """The command line of a process, shortened; "" once it has exited."""
    return command_line(pid)[:100]


def largest(found: Sequence[ProcessMemory], count: int = 10) -> str:
    """A table of the processes with most memory."""
    most = sorted(found, key=lambda process: -process.held)[:count]
    lines = [f"{process.pid}\t{process.held / (1 << 30):.2f}\t{command_of(process.pid)}" for process in most]
    return "\n".join(["PID\tMEM(GB)\tCOMMAND", *lines])
