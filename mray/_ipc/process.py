"""Processes as the kernel has them: names, parents, exits, and what they leave.

Note [lifeline]
---------------
Every worker must be killed when the node exits, whatever code it runs. PR_SET_PDEATHSIG would tie it to the zygote. So the node alone
holds the writing end of a pipe; each worker opens the reading end as a file of its own and asks the kernel for SIGKILL on any event of
it.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import re
import signal
import sys
from collections.abc import Iterable, Iterator, Mapping

from mray._common.clock import monotonic, sleep
from mray._common.kept import fcntl, io, os
from mray._ipc.limits import above_limit

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
_F_SETSIG = 10
#: The number that the kernel gives its first pid namespace.
_FIRST_NAMESPACE = 0xEFFFFFFC

#: Seconds without an environment during an exec.
_LONGEST_EXEC = 0.1

#: Bytes of argument that make room for a title.
TITLE_ROOM = 256
#: An idle worker that is no actor.
IDLE_TITLE = "IDLE"

_libc = ctypes.CDLL(None, use_errno=True)
#: Whether `make_room` has made `TITLE_ROOM`.
_has_more_room = False


class Title:
    """The title in `ps`: argv[0], and in 15 bytes the main thread's name.

    Create one per process, after the fork. Main thread only.
    """

    def __init__(self) -> None:
        self._shown = ""
        self._start = 0
        self._room = 0
        self._last = 0
        with contextlib.suppress(OSError, ValueError, IndexError):
            start, end, _variables, _end = _shown_memory()
            if end - start > 1:
                # The kernel shows the arguments up to the first zero byte if their last byte is not zero.
                ctypes.memset(start, 0, end - start)
                ctypes.memset(end - 1, 0x20, 1)
                self._start, self._last = start, end - start - 1
                self._room = TITLE_ROOM if _has_more_room else min(self._last, TITLE_ROOM)

    def set(self, text: str) -> None:
        if text == self._shown:
            return
        self._shown = text
        raw = ("ray::" + text).encode("utf-8", "replace")
        if self._room:
            shown = bytearray(raw[: self._room - 1].ljust(self._room, b"\0"))
            if self._last < self._room:
                shown[self._last] = shown[self._last] or 0x20
            ctypes.memmove(self._start, bytes(shown), self._room)
        _libc.prctl(_PR_SET_NAME, raw[:15], 0, 0, 0)


def shown_title(pid: int) -> str:
    """The text of another process's `Title`, as far as it has room; "" without one."""
    try:
        with io.open(f"/proc/{pid}/cmdline", "rb") as file:
            shown = file.read(TITLE_ROOM).partition(b"\0")[0].decode("utf-8", "replace").rstrip()
    except OSError:
        return ""
    return shown.removeprefix("ray::") if shown.startswith("ray::") else ""


def show_variable(name: str, value: str) -> None:
    """Change a variable of this process as others read it, if there is room: the kernel shows the environment of the program's start.
    Raises OSError.
    """
    _arguments, _end, start, end = _shown_memory()
    shown = b"\0" + ctypes.string_at(start, end - start)
    head = b"\0" + os.fsencode(name) + b"="
    place = shown.find(head)
    room = shown.find(b"\0", place + 1) - place - len(head)
    raw = os.fsencode(value)
    if place < 0 or len(raw) > room:
        raise OSError(f"there is no room for the variable {name}")
    ctypes.memmove(start + place - 1 + len(head), raw + b"\0" * (room - len(raw)), room)


def check_room(name: str, size: int) -> int:
    """Raise OSError where `make_room` cannot work. Returns the address of the variables, preceded by a zero byte."""
    start, end, variables, last = _shown_memory()
    place = max(end, start + TITLE_ROOM)
    if end != variables or place + len(_variable(name, "-" * size)) >= last:
        raise OSError(f"there is no room for a title and the variable {name}")
    return place


def make_room(name: str, size: int) -> None:
    """In a forked process: make room for its title and for a variable of this size in the memory that other processes read: arguments and
    environment of the program's start. Of the other variables those that fit stay, the shortest first.
    """
    global _has_more_room
    place = check_room(name, size)
    variables = {**os.environ, name: "-" * size}
    os.environ.clear()  # the C library's pointers lead into that memory until they are set again
    os.environ.update(variables)
    start, _end, _variables, last = _shown_memory()
    ctypes.memset(start, 0, last - start)
    at = place + 1
    for text in (_variable(name, variables.pop(name)), *sorted((_variable(*each) for each in variables.items()), key=len)):
        if at + len(text) > last:
            break
        ctypes.memmove(at, text, len(text))
        at += len(text)
    _has_more_room = True


def _variable(name: str, value: str) -> bytes:
    return os.fsencode(f"{name}={value}") + b"\0"


def _shown_memory() -> tuple[int, int, int, int]:
    """Begin and end addresses of the arguments, and of the environment."""
    start, end, variables, last = map(int, stat_of("self")[45:49])
    return start, end, variables, last


def has_terminal() -> bool:
    """Whether this process reads from a terminal and shows errors there."""
    try:
        return sys.stdin is not None and sys.stdin.isatty() and sys.stderr is not None and sys.stderr.isatty()
    except ValueError:  # closed
        return False


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """Context manager for imports for forks. The collector is off, since there is hardly any garbage; afterwards it leaves the objects out:
    a collection in a fork would write to, and so copy, every page.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if collects:
            gc.enable()


def adopt_orphans() -> None:
    """Make this process the parent of orphaned descendants."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with(lifeline: int) -> None:
    """Kill this process when the last writer of the pipe exits; `lifeline` is its reading end. See Note [lifeline]."""
    # An open file of its own: owner and signal belong to it, and siblings share the inherited one.
    fd = os.open(f"/proc/self/fd/{lifeline}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    fcntl.fcntl(fd, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(fd, _F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_ASYNC)
    # The writer may have exited before.
    try:
        if not os.read(fd, 1):
            os.kill(os.getpid(), signal.SIGKILL)
    except BlockingIOError:
        pass


def die_with_parent() -> None:
    """In a new child, before its exec: kill it when the thread that created it ends."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def exit_status(info: os.waitid_result) -> int:
    """Exit code, or minus the signal."""
    return info.si_status if info.si_code == os.CLD_EXITED else -info.si_status


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def prefer_as_victim(score: int) -> None:
    """Make the OOM killer prefer this process (and its children) to those with a lower score."""
    with contextlib.suppress(OSError), io.open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write(str(score))


@above_limit()
def children() -> list[int]:
    """This process's children, unreaped ones included. For processes with one thread."""
    pid = os.getpid()
    try:
        with io.open(f"/proc/{pid}/task/{pid}/children", "rb") as file:
            return [int(child) for child in file.read().split()]
    except FileNotFoundError:
        return [child for child in all_pids() if parent_of(child) == pid]


def all_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def stat_of(pid: int | str) -> list[bytes]:
    """Fields of ``/proc/PID/stat`` from the state on. OSError when the process does not exist."""
    with io.open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rsplit(b")", 1)[1].split()


def parent_of(pid: int) -> int:
    """The parent's pid; 0 when the process does not exist."""
    try:
        return int(stat_of(pid)[1])
    except OSError:
        return 0


def start_of(pid: int) -> int:
    """Start time in clock ticks since boot, which makes a pid unique; 0: it is dead."""
    try:
        info = stat_of(pid)
    except OSError:
        return 0
    return 0 if info[0] in b"ZX" else int(info[19])


def namespace() -> int:
    """This process's pid namespace; pids of another mean nothing here."""
    return os.stat("/proc/self/ns/pid").st_ino


def namespace_mark() -> int:
    """The last 16 bits, for short names."""
    try:
        return namespace() & 0xFFFF
    except OSError:  # without /proc
        return 0


def sees_all() -> bool:
    """Whether this is the machine's first namespace, whose processes see all others."""
    return namespace_mark() == _FIRST_NAMESPACE & 0xFFFF


def command_line(pid: int) -> str:
    """The command of a process, or its title; "" after its exit, reaped or not."""
    try:
        with io.open(f"/proc/{pid}/cmdline", "rb") as file:
            return " ".join(file.read().decode("utf-8", "replace").split("\0")).strip()
    except OSError:
        return ""


def has_mapped(pid: int, name: str) -> bool:
    """Whether a process has mapped shared memory of this name, which an exec drops. True if unknown."""
    try:
        with io.open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as file:
            return any(name in line for line in file)
    except OSError:
        return True


def with_variable(name: str, value: str) -> list[int]:
    """Pids of this user's processes that were started with this variable, except this process."""
    return carrying(name, value, filter(_is_anothers_of_ours, all_pids()))


def carrying(name: str, value: str, pids: Iterable[int], patience: float = _LONGEST_EXEC) -> list[int]:
    """Those that were started with this variable, as far as it may be read.

    A process in the middle of an exec shows no environment; it is read again for `patience` seconds.
    """
    wanted = f"{name}={value}".encode()
    found = []
    unclear = list(pids)
    deadline = monotonic() + patience
    while True:
        again = []
        for pid in unclear:
            try:
                environment = _environment_of(pid)
            except OSError:
                continue
            if environment is None:
                again.append(pid)
            elif wanted in environment.split(b"\0"):
                found.append(pid)
        if not again or monotonic() > deadline:
            return found
        unclear = again
        sleep(0.001)


def _is_anothers_of_ours(pid: int) -> bool:
    try:
        return pid != os.getpid() and os.stat(f"/proc/{pid}").st_uid == os.getuid()
    except OSError:
        return False


def _environment_of(pid: int) -> bytes | None:
    """The process's environment; None in the middle of an exec."""
    if shown := _read_environment(pid):
        return shown
    info = stat_of(pid)
    memory, last = int(info[20]), int(info[48])
    if not memory:  # dead, or a kernel thread
        return b""
    return _read_environment(pid) if last else None  # the exec may be over


def _read_environment(pid: int) -> bytes:
    with io.open(f"/proc/{pid}/environ", "rb") as file:
        return file.read()


_REFERENCE = re.compile(r"\$\{(\w+)\}")


def expand(value: str, variables: Mapping[str, str]) -> str:
    """Replace every ``${NAME}`` by its value, or by nothing. A name without a value that has lower-case letters stays."""
    return _REFERENCE.sub(lambda found: variables.get(found[1], found[0] if found[1] != found[1].upper() else ""), value)


def expand_all(environment: Mapping[str, str], variables: Mapping[str, str]) -> dict[str, str]:
    """Replace references: by each other's values, a variable's own by its previous value."""
    if not any("${" in value for value in environment.values()):
        return dict(environment)
    known, waiting = dict(variables), dict(environment)
    while waiting:
        ready = [name for name, value in waiting.items() if not any(f"${{{other}}}" in value for other in waiting if other != name)]
        for name in ready or list(waiting):  # in a cycle the first gets its previous value
            known[name] = expand(waiting.pop(name), known)
    return {name: known[name] for name in environment}


def status_of_dead(pid: int) -> int | None:
    """A dead process's exit status; None once it is reaped, or while it lives."""
    try:
        info = stat_of(pid)
    except OSError:
        return None
    return os.waitstatus_to_exitcode(int(info[49])) if info[0] in b"ZX" else None


def spawn(
    path: str, arguments: list[str], environment: Mapping[str, str], descriptors: Mapping[int, int], *, new_session: bool = False
) -> int:
    """`descriptors` maps the program's descriptor numbers to this process's; of all others only inheritable ones pass.

    SIGINT begins blocked, so that a Ctrl-C reaches the program only when it is ready; with `new_session` no Ctrl-C reaches it.
    """
    # Through high numbers first: a source may be another's target.
    high: dict[int, int] = {}
    try:
        for target, source in descriptors.items():
            high[target] = fcntl.fcntl(source, fcntl.F_DUPFD_CLOEXEC, 64)
        actions = [(os.POSIX_SPAWN_DUP2, source, target) for target, source in high.items()]
        return os.posix_spawn(
            path,
            arguments,
            environment,
            file_actions=actions,
            setsid=new_session,
            setsigmask=() if new_session else (signal.SIGINT,),
            setsigdef=[signal.SIGPIPE, signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP],
        )
    finally:
        for fd in high.values():
            os.close(fd)


def close_all_but(keep: Iterable[int]) -> None:
    """Close all descriptors above 2 but these."""
    low = 3
    for fd in sorted(set(keep)):
        if fd >= low:
            os.closerange(low, fd)
            low = fd + 1
    os.closerange(low, 1 << 20)
