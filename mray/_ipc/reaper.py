"""Removing everything that carries a session's name.

Called by a survivor: the node at an orderly exit, the zygote after the node's death, the driver when both are dead, and the next `init`
for sessions without survivors (their lock is free). Idempotent, also from two processes concurrently.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator

from mray._common import clock
from mray._common.kept import fcntl, io, os
from mray._ipc import kept_sessions
from mray._ipc.limits import above_limit
from mray._ipc.process import kill, namespace, namespace_mark, sees_all, shown_title, start_of, with_variable
from mray._ipc.segment import SEMAPHORE, SHM, unlink

LOCK = "lock"
NODE_SOCKET = "node.sock"
#: Names the persistent session, beside the sessions.
ADDRESS = "address"
#: Prefix of the links beside the sessions from a port to a session; the link in a session's directory that names its own.
PORT = "port-"
PORT_LINK = "port"
#: The session's directory, for every process that descends from it.
SESSION_VARIABLE = "MRAY_SESSION_DIR"
#: Folder of spilled objects; a link if they lie elsewhere.
SPILLED = "spilled"
#: Such a folder elsewhere: its prefix, before the session's name; its link back to the session.
_SPILL_PREFIX = "mray_spilled_objects_"
_SESSION_LINK = ".session"
#: Polls for the exit of killed processes, and seconds between: some cannot exit while a disk hangs.
_KILL_LOOKS = 200
_KILL_LOOK = 0.005
#: Polls while the zygote may clean up: a survivor that kills it and then dies would leave everything behind.
_ZYGOTE_LOOKS = 100
#: Sessions of one process, which have no lock.
LOCAL = "session_local_"
#: Names of CUDA's interprocess events.
_EVENTS = "cuda.shm."
#: Digits at the end of a session directory's name: unguessable ones, and those of its pid namespace.
_SECRET_DIGITS, _MARK_DIGITS = 8, 4
#: Locks that this process holds.
_taken: set[int] = set()
#: Folders of ``logs`` that outlive the session.
KEPT_LOGS = ("nsight", "profiles")


def segment_prefix(session: str) -> str:
    """Prefix of shared memory names, with the slash."""
    return f"/mray-{session}-"


def session_of(directory: str) -> str:
    """The last part of a session directory's name, which names its shared memory."""
    return directory.rstrip("/").rpartition("_")[2]


def new_session_mark() -> str:
    return os.urandom(_SECRET_DIGITS // 2).hex() + f"{namespace_mark():0{_MARK_DIGITS}x}"


def is_of_this_namespace(directory: str) -> bool:
    """Whether pids of this session are valid here: containers may share its files but not its processes."""
    mark = session_of(directory)[_SECRET_DIGITS:]
    return len(mark) != _MARK_DIGITS or mark == f"{namespace_mark():04x}"


def can_be_seen(session: str) -> bool:
    """Whether the session's processes would be visible here. `session`: the last part of its directory's name."""
    if session.startswith(LOCAL):
        return local_process(session) is not None
    return sees_all() or is_of_this_namespace(session)


def _names_in(place: str, start: str) -> list[str]:
    with contextlib.suppress(OSError):
        return [name for name in os.listdir(place) if name.startswith(start)]
    return []


@above_limit()
def unlink_segments(session: str) -> None:
    prefix = segment_prefix(session)[1:]
    for name in (*_names_in(SHM, prefix), *_names_in(SHM, SEMAPHORE + prefix)):
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(SHM, name))


def events_by_pid(place: str = SHM) -> dict[int, list[str]]:
    """This user's CUDA interprocess events by pid: ``cuda.shm.<user>.<pid>.<number>``, in hex. The driver removes them only at an orderly
    exit.
    """
    return _events_among(_names_in(place, _EVENTS), place)


def _events_among(names: Iterable[str], place: str = SHM) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for name in names:
        parts = name.split(".")
        with contextlib.suppress(OSError, ValueError, IndexError):
            if os.lstat(os.path.join(place, name)).st_uid == os.getuid():
                found.setdefault(int(parts[3], 16), []).append(name)
    return found


def _unlink_events(pids: Collection[int], names: Iterable[str]) -> None:
    for pid, events in _events_among(names).items():
        if pid in pids:
            for name in events:
                with contextlib.suppress(OSError):
                    os.unlink(os.path.join(SHM, name))


@above_limit()
def remove_session(directory: str) -> str | None:
    """Remove names and directory of a dead session. Returns the new location of profiles, if any."""
    _reopen(directory)
    withdraw(directory)
    forget_port(directory)
    unlink_segments(session_of(directory))
    remove_spilled(directory)
    kept = _keep_profiles(directory)
    for old in kept_sessions.keep(directory):
        _remove_tree(old)
    _remove_tree(directory)
    return kept


def forget_kept(parent: str) -> list[str]:
    """Remove all that ended sessions beside each other have left; returns their directories."""
    place = os.path.join(parent, kept_sessions.LAST)
    found = [path for _end, path in kept_sessions.kept_in(place)]
    for directory in found:
        _remove_tree(directory)
    with contextlib.suppress(OSError):
        os.rmdir(place)
    return found


def has_objects(directory: str, owner: str) -> bool:
    start = f"{owner}-"
    in_memory = _names_in(SHM, segment_prefix(session_of(directory))[1:] + start)
    return bool(in_memory or _names_in(os.path.join(directory, SPILLED), start))


@above_limit()
def remove_leftovers(directory: str, process: str, pid: int = 0) -> dict[str, list[str]]:
    """Remove the objects of a dead process, and its CUDA events. Returns the objects that it created for others, by owner.

    An object's name contains its owner and its creator (see `mray._objects.store`).
    """
    prefix, spilled = segment_prefix(session_of(directory))[1:], os.path.join(directory, SPILLED)
    there = _names_in(SHM, "")
    places = [f"/{name}" for name in there if process in name and name.removeprefix(SEMAPHORE).startswith(prefix)]
    places += [os.path.join(spilled, name) for name in _names_in(spilled, "") if process in name]
    made: dict[str, list[str]] = {}
    for place in places:
        owner, _, maker = os.path.basename(place).removeprefix(SEMAPHORE).removeprefix(prefix).partition("-")
        if owner == process:
            with contextlib.suppress(OSError):
                unlink(place)
        elif maker.startswith(process):
            made.setdefault(owner, []).append(place)
    if pid:
        _unlink_events((pid,), [name for name in there if name.startswith(_EVENTS)])
    return made


def spill_elsewhere(directory: str, parent: str) -> None:
    """Create a session's directory of spilled objects below `parent`, and sweep those of dead sessions there. Raises OSError."""
    os.makedirs(parent, 0o700, exist_ok=True)
    for name in _names_in(parent, _SPILL_PREFIX):
        if _is_left_over(os.path.join(parent, name)):
            _remove_tree(os.path.join(parent, name))
    place = os.path.join(parent, _SPILL_PREFIX + session_of(directory))
    os.mkdir(place, 0o700)
    os.symlink(directory, os.path.join(place, _SESSION_LINK))
    os.symlink(place, os.path.join(directory, SPILLED))


def _is_left_over(place: str) -> bool:
    try:
        # In another user's directory, a link might replace the folder during its removal. The link of a session in another container may
        # dangle here; its node holds the directory.
        is_ours = os.lstat(place).st_uid == os.getuid()
        return is_ours and not os.path.exists(os.readlink(os.path.join(place, _SESSION_LINK))) and not is_held(place)
    except OSError:
        return False


def remove_spilled(directory: str) -> None:
    try:
        place = os.readlink(os.path.join(directory, SPILLED))
    except OSError:
        return  # in its own directory, or nowhere
    if os.path.basename(place) == _SPILL_PREFIX + session_of(directory):
        _remove_tree(place)


def is_published(directory: str) -> bool:
    """Whether this is the persistent session (see `mray._joining.address`)."""
    directory = directory.rstrip("/")
    try:
        with io.open(os.path.join(os.path.dirname(directory), ADDRESS), encoding="utf-8", errors="replace") as file:
            return os.path.basename(directory) in file.read()
    except OSError:
        return False


def withdraw(directory: str) -> None:
    if is_published(directory):
        parent = os.path.dirname(directory.rstrip("/"))
        with contextlib.suppress(OSError), address_lock(parent):
            if is_published(directory):  # the next one may have started meanwhile
                os.unlink(os.path.join(parent, ADDRESS))


def forget_port(directory: str) -> None:
    with contextlib.suppress(OSError):
        place = os.readlink(os.path.join(directory, PORT_LINK))
        with address_lock(os.path.dirname(place)):
            if os.readlink(place) == directory.rstrip("/"):  # the port may be another's by now
                os.unlink(place)


def _sweep_port(place: str) -> None:
    def is_left() -> bool:
        return not os.path.exists(place) or is_held(os.path.join(place, LOCK)) is False

    with contextlib.suppress(OSError):
        if is_left():
            with address_lock(os.path.dirname(place)):
                if is_left():
                    os.unlink(place)


def address_lock(parent: str) -> contextlib.AbstractContextManager[None]:
    return while_locked(parent, os.O_DIRECTORY)


@contextlib.contextmanager
def while_locked(path: str, flags: int) -> Iterator[None]:
    """Context manager: wait for and hold the lock of a file or directory. The process's exit releases it."""
    fd = _locked(path, flags, fcntl.LOCK_EX)
    try:
        yield
    finally:
        release(fd)


def _keep_profiles(directory: str) -> str | None:
    parent, name = os.path.split(directory.rstrip("/"))
    target = os.path.join(parent, "profiles", name.removeprefix("session_"))
    kept = None
    for folder in KEPT_LOGS:
        with contextlib.suppress(OSError):
            source = os.path.join(directory, "logs", folder)
            if os.listdir(source):
                os.makedirs(target, 0o700, exist_ok=True)
                os.rename(source, os.path.join(target, folder))
                kept = target
    return kept


def _remove_tree(directory: str) -> None:
    _reopen(directory)
    with contextlib.suppress(OSError):
        with os.scandir(directory) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    _remove_tree(entry.path)
                else:
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(entry.path)
        os.rmdir(directory)


def _reopen(directory: str) -> None:
    if not os.access(directory, os.R_OK | os.W_OK | os.X_OK):
        with contextlib.suppress(OSError):  # removed, or another user's
            os.chmod(directory, 0o700)


def kill_processes(directory: str) -> None:
    """Kill all processes of a session whose node is dead, and wait for their exit."""
    ended: set[int] = set()
    for look in range(_KILL_LOOKS):
        pids = with_variable(SESSION_VARIABLE, directory)
        if not pids:
            break
        ended.update(pids)
        for pid in pids:
            if look >= _ZYGOTE_LOOKS or shown_title(pid) != "zygote":
                kill(pid)
        clock.sleep(_KILL_LOOK)
    if ended:
        _unlink_events(ended.difference(pids), _names_in(SHM, _EVENTS))


@above_limit()
def clean_after_node(directory: str) -> None:
    """The node is dead: kill every other process of the session, then remove its names."""
    kill_processes(directory)
    # POINT session ended
    remove_session(directory)


def hold(directory: str) -> tuple[int, ...]:
    """For the node: descriptors that keep cleaners away from the directory (systemd-tmpfiles skips an flock) and show that the session
    lives even if its lock is removed; also of spilled objects elsewhere. Empty where such a lock is impossible.
    """
    held = []
    for place in (directory, os.path.join(directory, SPILLED)):
        with contextlib.suppress(OSError):
            held.append(_locked(place, os.O_DIRECTORY, fcntl.LOCK_EX | fcntl.LOCK_NB))
    return tuple(held)


def lives_unlocked(directory: str) -> bool:
    """Whether a session lives whose lock was removed, perhaps with its directory."""
    return is_held(directory) or bool(with_variable(SESSION_VARIABLE, directory))


def is_held(path: str) -> bool | None:
    """Whether a process holds the lock; None where it cannot be locked."""
    try:
        # Shared: two concurrent checks would take each other for the holder.
        release(_locked(path, os.O_RDONLY, fcntl.LOCK_SH | fcntl.LOCK_NB))
    except BlockingIOError:
        return True
    except OSError:
        return None
    return False


def _locked(path: str, flags: int, how: int) -> int:
    """A descriptor that holds the lock. Raises OSError; BlockingIOError when others hold it (LOCK_NB)."""
    fd = os.open(path, flags | os.O_CLOEXEC, 0o600)
    _taken.add(fd)
    try:
        fcntl.flock(fd, how)
    except BaseException:
        release(fd)
        raise
    return fd


def release(lock: int) -> None:
    """The lock is free when all processes with the same descriptor have released it."""
    _taken.discard(lock)
    os.close(lock)


def _after_fork() -> None:
    while _taken:
        os.close(_taken.pop())


os.register_at_fork(after_in_child=_after_fork)


def keep_young(directory: str) -> None:
    """Touch a session's files, for cleaners that go by age."""
    with contextlib.suppress(OSError):
        os.utime(os.path.dirname(directory))
    with contextlib.suppress(OSError):
        os.utime(os.readlink(os.path.join(directory, PORT_LINK)), follow_symlinks=False)
    for place in (directory, os.path.realpath(os.path.join(directory, SPILLED))):
        for folder, _folders, files in os.walk(place):
            for path in (folder, *(os.path.join(folder, name) for name in files)):
                with contextlib.suppress(OSError):
                    os.utime(path, follow_symlinks=False)


def take_lock(directory: str) -> int | None:
    """Lock the directory. Returns the descriptor, or None while the session lives."""
    if not os.path.exists(os.path.join(directory, LOCK)) and lives_unlocked(directory):
        return None
    try:
        return new_lock(directory)
    except OSError:
        return None


def new_lock(directory: str) -> int:
    """As `take_lock`, but raises the OSError."""
    return _locked(os.path.join(directory, LOCK), os.O_RDWR | os.O_CREAT, fcntl.LOCK_EX | fcntl.LOCK_NB)


def sweep(parent: str) -> None:
    """Clean every dead session under `parent`."""
    sweep_local()
    for name in _names_in(parent, "session_"):
        directory = os.path.join(parent, name)
        if name.startswith(LOCAL):
            if local_is_dead(name):
                _remove_tree(directory)
        else:
            lock = take_lock(directory)
            if lock is not None:
                clean_after_node(directory)
                release(lock)
    for name in _names_in(parent, PORT):
        _sweep_port(os.path.join(parent, name))


# ---------------------------------------------------------------------------------- sessions of one process
def local_name(number: int) -> str:
    """The session's name, with the pid namespace."""
    return f"{LOCAL}{namespace():x}_{os.getpid()}_{start_of(os.getpid()):x}_{number:x}"


def local_process(name: str) -> int | None:
    """Its pid; 0 if it is dead, None if it is not visible here or the session is another kind."""
    try:
        where, pid, start, _number = name.removeprefix(LOCAL).split("_")
        if int(where, 16) != namespace():
            return None
        return int(pid) if start_of(int(pid)) == int(start, 16) else 0
    except ValueError:
        return None


def local_is_dead(name: str) -> bool:
    """Whether its process is dead; False if it is not visible here."""
    return local_process(name) == 0


def remove_local(directory: str) -> None:
    unlink_segments(os.path.basename(directory))
    _remove_tree(directory)


def sweep_local() -> None:
    start = segment_prefix(LOCAL)[1:-1]
    before = len(start) - len(LOCAL)
    for session in {name[before:].partition("-")[0] for name in _names_in(SHM, start)}:
        if local_is_dead(session):
            unlink_segments(session)
