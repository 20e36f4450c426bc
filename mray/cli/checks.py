"""The checks of `mray doctor`, which change nothing."""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import os
import platform as system
import resource
import shutil
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from mray._common import clock, settings
from mray._common.amounts import readable_bytes
from mray._common.finding import BAD, NOTE, OK, WARNING, Finding
from mray._common.memory_options import monitor_options
from mray._common.version import __version__
from mray._device.gpu_checks import examine_gpus
from mray._inside.processes import all_pids, start_of
from mray._inside.sessions import EndedSession, can_be_seen, session_parents
from mray._inside.topology import discovery
from mray._ipc.reaper import events_by_pid, forget_kept, session_of, sweep
from mray._ipc.segment import SHM
from mray._ipc.sessions import all_sessions, is_private
from mray._runtime.node.memory_usage import Group, command_of, is_in, largest_other, processes, read_usage
from mray.cli import python_build
from mray.cli.columns import counted
from mray.cli.commands.stack import find_py_spy

#: A smaller file system has too little room for arrays, as docker's default for shared memory; and the fraction of memory that is too
#: little.
_SMALL = 512 << 20
_SHORT = 0.1
_FEW_FILES = 4096
#: bytes that GPUs may want to pin
_LITTLE_LOCKED = 64 << 20
#: package (its import name), extra, use
_EXTRAS = (
    ("torch", "torch", "torch", "tensors in calls and graphs"),
    ("cupy", "cupy", "cupy12", "arrays of cupy in collectives (with CUDA 13: cupy13)"),
    ("nvtx", "nvtx", "nvtx", "marks for Nsight"),
    ("rich", "rich", "top", "mray top"),
)
#: name, use, what installs it
_PROGRAMS = (
    ("dot", "pictures of graphs as png and pdf (svg is plainer without)", "apt install graphviz"),
    ("py-spy", "mray stack of processes that cannot answer", "pip install py-spy"),
)
#: seconds in which an ending session has usually removed its files
_MOMENT = 0.2
_OURS = "mray"


def examine() -> list[Finding]:
    """Run all checks."""
    parts = (versions, python, processors, memory, shared_memory, disk, limits, gpus, extras, leftovers)
    return [finding for part in parts for finding in part()]


def versions() -> Iterator[Finding]:
    """mray, Python and the kernel."""
    yield Finding("mray", OK, f"{__version__}, Python {system.python_version()} ({sys.executable}), Linux {system.release()}")


def python() -> Iterator[Finding]:
    """How Python was built."""
    if python_build.is_optimised(python_build.interpreter()) is False:
        advice = "use a distribution's, or build it with --enable-optimizations --with-lto"
        yield Finding("python", WARNING, "this Python is built without optimisation: calls take 1.3 to 1.5 times as long", advice)


def processors() -> Iterator[Finding]:
    """Usable cores and memory."""
    cores, count = len(os.sched_getaffinity(0)), discovery.cpu_count()
    limited = f", of which the control group grants {count}" if count < cores else ""
    text = f"{cores} usable cores{limited}; {readable_bytes(discovery.memory_bytes())} of memory; load {os.getloadavg()[0]:.2f}"
    if count < 2:
        yield Finding("cpu", WARNING, text, "with one core every hand-over between processes is a context switch, and graphs do not spin")
    else:
        yield Finding("cpu", OK, text)


def memory(groups: Sequence[Group] | None = None) -> Iterator[Finding]:
    """Memory in use, and its largest users if work is killed or soon would be."""
    options = monitor_options(None)
    try:
        usage = read_usage(options["meminfo"], discovery.memory_groups() if groups is None else groups)
    except (OSError, ValueError) as error:
        yield Finding("memory", NOTE, f"the kernel does not tell how much is in use: {error}")
        return
    whose = f" (the limit of the control group {usage.group[1]})" if usage.group else ""
    text = f"{readable_bytes(usage.used)} of {readable_bytes(usage.total)}{whose} in use, {usage.share:.0%}"
    if usage.share <= min(options["threshold"], 1 - _SHORT):
        yield Finding("memory", OK, text)
        return
    other = largest_other(processes(), (), lambda pid: is_in(usage.group, pid))
    if other is not None:
        text += f"; most has {command_of(other.pid) or 'a program'}, pid {other.pid}: {readable_bytes(other.held)}"
    advice = f"end a program: above {options['threshold']:.0%} workers are ended whose end helps, and the kernel may end any process"
    yield Finding("memory", WARNING, text, advice)


def shared_memory(path: str = SHM) -> Iterator[Finding]:
    """Room for objects."""
    small = "objects must fit: give it more (docker: --shm-size=8g)"
    return _room("shared memory", path, _SHORT, small, "see mray memory, and what else lies there")


def disk() -> Iterator[Finding]:
    """Room for logs, packages and spilled objects."""
    seen = set()
    for path in (*map(os.path.dirname, session_parents()), settings.OBJECT_SPILLING_DIRECTORY.get()):
        if path and os.path.isdir(path) and (device := os.stat(path).st_dev) not in seen:
            seen.add(device)
            advice = "logs and spilled objects must fit: MRAY_TMPDIR names another place"
            yield from _room("disk", path, 1 - settings.LOCAL_FS_CAPACITY_THRESHOLD.get(), advice, advice)


def _room(subject: str, path: str, least: float, if_small: str, if_full: str) -> Iterator[Finding]:
    try:
        info = os.statvfs(path)
    except OSError as error:
        yield Finding(subject, BAD, f"{path}: {error.strerror}", f"mray needs {path}")
        return
    total, free = info.f_blocks * info.f_frsize, info.f_bavail * info.f_frsize
    text = f"{path}: {readable_bytes(free)} of {readable_bytes(total)} free"
    if not os.access(path, os.W_OK):
        yield Finding(subject, BAD, text + ", and not writable", "let this user write there")
    elif total < _SMALL:
        yield Finding(subject, WARNING, text, if_small)
    elif free < max(total * least, _SMALL / 2):
        yield Finding(subject, WARNING, text, f"almost full: {if_full}")
    else:
        yield Finding(subject, OK, text)


def limits() -> Iterator[Finding]:
    """Limits of this user's processes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    text = f"{_limit(soft)} open files, at most {_limit(hard)}"
    few = hard != resource.RLIM_INFINITY and hard < _FEW_FILES
    yield Finding("open files", WARNING if few else OK, text, f"raise the hard limit (ulimit -Hn {_FEW_FILES * 16})" if few else "")
    soft, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    little = hard != resource.RLIM_INFINITY and hard < _LITTLE_LOCKED and bool(discovery.machine_gpus())
    text = f"{_limit(soft, True)}, at most {_limit(hard, True)}"
    advice = "pinned host memory may be refused: ulimit -l unlimited" if little else ""
    yield Finding("locked memory", WARNING if little else OK, text, advice)
    soft, _hard = resource.getrlimit(resource.RLIMIT_NPROC)
    few = soft != resource.RLIM_INFINITY and soft < 256
    yield Finding("processes", WARNING if few else OK, f"{_limit(soft)} of this user concurrently", "raise it: ulimit -u" if few else "")


def _limit(value: int, is_size: bool = False) -> str:
    return "unlimited" if value == resource.RLIM_INFINITY else readable_bytes(value) if is_size else str(value)


def gpus() -> Iterator[Finding]:
    """GPUs, their libraries, and the MPS daemons of live sessions."""
    return examine_gpus([directory for directory, alive in all_sessions() if alive])


def _names_in(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def imported() -> list[str]:
    """The names of the optional packages, as they are imported."""
    return [module for module, _package, _extra, _use in _EXTRAS]


def extras() -> Iterator[Finding]:
    """Packages: numpy, and the optional ones; and optional programs."""
    yield Finding("numpy", OK, importlib.metadata.version("numpy"))
    for module, package, extra, use in _EXTRAS:
        if importlib.util.find_spec(module) is None:
            yield Finding(package, NOTE, f"not installed; for {use}", f"pip install 'mray[{extra}]'")
            continue
        try:
            version = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:  # installed under another name, or from source
            version = "installed"
        yield Finding(package, OK, version)
    for program, use, install in _PROGRAMS:
        path = find_py_spy() if program == "py-spy" else shutil.which(program)
        if path is None:
            yield Finding(program, NOTE, f"not installed; for {use}", install)
        else:
            yield Finding(program, OK, path)


# ---------------------------------------------------------------------------------------------- left-overs
class LeftOver(NamedTuple):
    """Files and names that dead processes of this user have left."""

    sessions: list[str]
    #: Names in shared memory: of CUDA's events, whether mray started their process or not, and of memory without a known session.
    events: list[str]
    segments: list[str]


def leftovers() -> Iterator[Finding]:
    """Files and names that dead processes have left; a session's own are also removed by the next `init`."""
    found = left_over()
    texts = [f"{directory}: its processes are dead" for directory in found.sessions]
    if found.events:
        texts.append(f"{counted(len(found.events), 'name')} in {SHM} of events of GPUs, whose processes are dead")
    if found.segments:
        size = sum(_size(os.path.join(SHM, name)) for name in found.segments)
        texts.append(f"{counted(len(found.segments), 'name')} in {SHM}, {readable_bytes(size)}, of no session that is known")
    yield from (Finding("left over", WARNING, text, "mray doctor --fix") for text in texts)
    if not texts:
        yield Finding("left over", OK, f"nothing; {counted(sum(alive for _path, alive in all_sessions()), 'session')} running")
    kept = [each.directory for each in EndedSession.all()]
    if kept:
        size = sum(_size(os.path.join(folder, name)) for each in kept for folder, _folders, names in os.walk(each) for name in names)
        text = f"logs and records of {counted(len(kept), 'session')} that ended, {readable_bytes(size)} (mray logs --last)"
        yield Finding("kept", NOTE, text, "mray doctor --fix removes them")


def clean() -> list[str]:
    """Remove what dead processes have left, and what ended sessions have; returns the removed paths."""
    found = left_over()
    for parent in {os.path.dirname(directory) for directory in found.sessions}:
        sweep(parent)
    paths = [os.path.join(SHM, name) for name in (*found.segments, *found.events)]
    for path in paths:
        with contextlib.suppress(OSError):
            os.unlink(path)
    kept = [path for parent in filter(is_private, session_parents()) for path in forget_kept(parent)]
    return [path for path in (*found.sessions, *paths, *kept) if not os.path.exists(path)]


def left_over() -> LeftOver:
    """Left-overs that still exist a little later: an ending session may have released its lock, or be removing its names."""
    found = _look()
    if any(found):
        clock.sleep(_MOMENT)
        found = LeftOver(*([each for each in before if each in after] for before, after in zip(found, _look(), strict=True)))
    return found


def _look() -> LeftOver:
    """Without events that a process has mapped.

    A session with its own `_temp_dir` is recognized by its table, which each of its processes has mapped. Containers that share /dev/shm
    see each other's names, but not each other's processes: names of another container are ignored.
    """
    events = {name for pid, names in events_by_pid(SHM).items() if not start_of(pid) for name in names}
    names = _own_names()
    # After the names: otherwise a session that begins in between would have names and be unknown.
    sessions = all_sessions()
    mapped = list(_mappings()) if events or names else []
    start = f"{SHM}/{_OURS}-"
    known = {session_of(directory) for directory, _alive in sessions}
    known |= {line.partition(start)[2].partition("-")[0] for line in mapped if start in line}
    return LeftOver(
        [directory for directory, alive in sessions if not alive],
        sorted(event for event in events if not any(event in line for line in mapped)),
        sorted(name for name, session in names.items() if session not in known and can_be_seen(session)),
    )


def _own_names() -> dict[str, str]:
    found = {}
    for name in _names_in(SHM):
        mark, _dash, rest = name.partition("-")
        with contextlib.suppress(OSError):  # it was just removed
            if mark == _OURS and os.stat(os.path.join(SHM, name)).st_uid == os.getuid():
                found[name] = rest.partition("-")[0]
    return found


def _mappings() -> Iterator[str]:
    """The lines about shared memory in the readable maps of all processes."""
    for pid in all_pids():
        try:
            with open(f"/proc/{pid}/maps") as file:
                yield from [line for line in file if SHM in line]
        except OSError:
            continue


def _size(path: str) -> int:
    try:
        return os.stat(path).st_blocks * 512
    except OSError:
        return 0
