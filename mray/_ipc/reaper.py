"""Removing everything that carries a session's name.

Called by a survivor: the node at an orderly exit, the zygote after the node's death, the driver when both are dead, and the next `init`
for sessions without survivors (their lock is free). Idempotent, also from two processes concurrently.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator

from mray._common import clock
from mray._common.kept import fcntl, io, os
from mray._ipc.limits import above_limit
from mray._ipc.process import kill, namespace, namespace_mark, sees_all, shown_title, start_of, with_variable
from mray._ipc.segment import SEMAPHORE, SHM, unlink

LOCK = "lock"
#: File beside the sessions that names the persistent one.
ADDRESS = "address"
#: The prefix of the links beside the sessions that map a port to a session; and the link in its directory that names its own.
PORT = "port-"
PORT_LINK = "port"
#: Names the session's directory for every process that descends from the session.
SESSION_VARIABLE = "MRAY_SESSION_DIR"
#: Folder of spilled objects in a session's directory; a link if the user wants them elsewhere.
SPILLED = "spilled"
#: The prefix of such a folder elsewhere, followed by the session's name; the link in it that leads back to the session.
_SPILL_PREFIX = "mray_spilled_objects_"
_SESSION_LINK = ".session"
#: The number of polls for the exit of killed processes, and the seconds between: some cannot exit while a disk hangs.
_KILL_LOOKS = 200
_KILL_LOOK = 0.005
#: Polls for which the zygote is left to clean up by itself: a survivor that kills it and then dies would leave everything behind.
_ZYGOTE_LOOKS = 100
#: The prefix of the names of sessions of one process, which have no lock.
LOCAL = "session_local_"
#: The prefix of names of CUDA's interprocess events.
_EVENTS = "cuda.shm."
#: Digits of the last part of a session directory's name: unguessable ones, and those of its pid namespace.
_SECRET_DIGITS, _MARK_DIGITS = 8, 4
#: Descriptors of the locks that this process holds.
_taken: set[int] = set()
#: Folders of a session's ``logs`` that outlive it.
KEPT_LOGS = ("nsight", "profiles")


def segment_prefix(session: str) -> str:
    """The prefix of the names of a session's shared memory, with the slash."""
    return f"/mray-{session}-"


def session_of(directory: str) -> str:
    """The random part of a session directory's name, which names the session's shared memory."""
    return directory.rstrip("/").rpartition("_")[2]


def new_session_mark() -> str:
    """The last part of a new session directory's name: unguessable, with four digits for its pid namespace."""
    return os.urandom(_SECRET_DIGITS // 2).hex() + f"{namespace_mark():0{_MARK_DIGITS}x}"


def is_of_this_namespace(directory: str) -> bool:
    """Whether pids of this session are valid here: containers may share its files and names, but not its processes."""
    mark = session_of(directory)[_SECRET_DIGITS:]
    return len(mark) != _MARK_DIGITS or mark == f"{namespace_mark():04x}"


def can_be_seen(session: str) -> bool:
    """Whether the processes of a session would be visible here. `session`: the last part of its directory's name."""
    if session.startswith(LOCAL):
        return local_process(session) is not None
    return sees_all() or is_of_this_namespace(session)


def _names_in(place: str, start: str) -> list[str]:
    with contextlib.suppress(OSError):
        return [name for name in os.listdir(place) if name.startswith(start)]
    return []


@above_limit()
def unlink_segments(session: str) -> None:
    """Unlink every shared-memory name of the session."""
    prefix = segment_prefix(session)[1:]
    for name in (*_names_in(SHM, prefix), *_names_in(SHM, SEMAPHORE + prefix)):
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(SHM, name))


def events_by_pid(place: str = SHM) -> dict[int, list[str]]:
    """Names of this user's CUDA interprocess events by pid: ``cuda.shm.<user>.<pid>.<number>``, in hex. The driver removes them only at an
    orderly exit.
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
    """Unlink the event names of these dead processes. Events that are open elsewhere stay open."""
    for pid, events in _events_among(names).items():
        if pid in pids:
            for name in events:
                with contextlib.suppress(OSError):
                    os.unlink(os.path.join(SHM, name))


@above_limit()
def remove_session(directory: str) -> str | None:
    """Remove names and directory of a session whose processes are dead. Returns the new location of profiles, if there are any."""
    _reopen(directory)
    withdraw(directory)
    forget_port(directory)
    unlink_segments(session_of(directory))
    remove_spilled(directory)
    kept = _keep_profiles(directory)
    _remove_tree(directory)
    return kept


def has_objects(directory: str, owner: str) -> bool:
    """Whether a process owns objects, in memory or on disk."""
    start = f"{owner}-"
    in_memory = _names_in(SHM, segment_prefix(session_of(directory))[1:] + start)
    return bool(in_memory or _names_in(os.path.join(directory, SPILLED), start))


@above_limit()
def remove_leftovers(directory: str, process: str, pid: int = 0) -> dict[str, list[str]]:
    """Remove the objects that a dead process owned, and its CUDA events. Returns the objects that it created for others, by owner.

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
    """Create a directory for a session's spilled objects below `parent`, and sweep those of dead sessions there. Raises OSError."""
    os.makedirs(parent, 0o700, exist_ok=True)
    for name in _names_in(parent, _SPILL_PREFIX):
        if _is_left_over(os.path.join(parent, name)):
            _remove_tree(os.path.join(parent, name))
    place = os.path.join(parent, _SPILL_PREFIX + session_of(directory))
    os.mkdir(place, 0o700)
    os.symlink(directory, os.path.join(place, _SESSION_LINK))
    os.symlink(place, os.path.join(directory, SPILLED))


def _is_left_over(place: str) -> bool:
    """Whether this is a directory of this user with objects of a dead session."""
    try:
        # In another user's directory, a link might replace the folder during its removal. The link of a session in another container may
        # dangle here: its node holds the directory.
        is_ours = os.lstat(place).st_uid == os.getuid()
        return is_ours and not os.path.exists(os.readlink(os.path.join(place, _SESSION_LINK))) and not is_held(place)
    except OSError:
        return False


def remove_spilled(directory: str) -> None:
    """Remove the objects on disk of a dead session, wherever they lie."""
    try:
        place = os.readlink(os.path.join(directory, SPILLED))
    except OSError:
        return  # in its own directory, which is removed as a whole, or nowhere
    if os.path.basename(place) == _SPILL_PREFIX + session_of(directory):
        _remove_tree(place)


def is_published(directory: str) -> bool:
    """Whether this is the persistent session that others find (see `mray._joining.address`)."""
    directory = directory.rstrip("/")
    try:
        with io.open(os.path.join(os.path.dirname(directory), ADDRESS), encoding="utf-8", errors="replace") as file:
            return os.path.basename(directory) in file.read()
    except OSError:
        return False


def withdraw(directory: str) -> None:
    """Withdraw the address of the persistent session, if it is this one."""
    if is_published(directory):
        parent = os.path.dirname(directory.rstrip("/"))
        with contextlib.suppress(OSError), address_lock(parent):
            if is_published(directory):  # still: the next one may have started meanwhile
                os.unlink(os.path.join(parent, ADDRESS))


def forget_port(directory: str) -> None:
    """Remove the link of a session's port."""
    with contextlib.suppress(OSError):
        place = os.readlink(os.path.join(directory, PORT_LINK))
        with address_lock(os.path.dirname(place)):
            if os.readlink(place) == directory.rstrip("/"):  # still: the port may be another's by now
                os.unlink(place)


def _sweep_port(place: str) -> None:
    """Remove the port link of a dead session."""

    def is_left() -> bool:
        return not os.path.exists(place) or is_held(os.path.join(place, LOCK)) is False

    with contextlib.suppress(OSError):
        if is_left():
            with address_lock(os.path.dirname(place)):
                if is_left():
                    os.unlink(place)


def address_lock(parent: str) -> contextlib.AbstractContextManager[None]:
    """Context manager: hold the lock on the address file."""
    return while_locked(parent, os.O_DIRECTORY)


@contextlib.contextmanager
def while_locked(path: str, flags: int) -> Iterator[None]:
    """Context manager: wait for and hold the lock of a file or directory, opened with these flags. The process's exit releases it."""
    fd = _locked(path, flags, fcntl.LOCK_EX)
    try:
        yield
    finally:
        release(fd)


def _keep_profiles(directory: str) -> str | None:
    """Move profiles beside the sessions, since they outlive their session."""
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
    """Remove a directory of this user with its contents; others may do the same concurrently."""
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
    """Restore the rights to a directory of this user."""
    if not os.access(directory, os.R_OK | os.W_OK | os.X_OK):
        with contextlib.suppress(OSError):  # removed, or another user's
            os.chmod(directory, 0o700)


def kill_processes(directory: str) -> None:
    """Kill all processes of a session whose node is dead, and wait for their exit: one might be creating a file, or forking."""
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
    """The node is dead: kill every process of the session but this one, then remove its names."""
    kill_processes(directory)
    # POINT session ended
    remove_session(directory)


def hold(directory: str) -> tuple[int, ...]:
    """For the node: descriptors that keep cleaners away from the directory and show that the session lives even if its lock is removed;
    also of the directory of spilled objects elsewhere.

    systemd-tmpfiles skips directories with an flock. Returns none where such a lock is impossible.
    """
    held = []
    for place in (directory, os.path.join(directory, SPILLED)):
        with contextlib.suppress(OSError):
            held.append(_locked(place, os.O_DIRECTORY, fcntl.LOCK_EX | fcntl.LOCK_NB))
    return tuple(held)


def lives_unlocked(directory: str) -> bool:
    """Whether a session lives whose lock was removed, perhaps with its directory, which may have been recreated."""
    return is_held(directory) or bool(with_variable(SESSION_VARIABLE, directory))


def is_held(path: str) -> bool | None:
    """Whether a process holds the lock of this directory or file; None where it does not exist, or cannot be locked."""
    try:
        # Shared: two concurrent checks would take each other for the holder.
        release(_locked(path, os.O_RDONLY, fcntl.LOCK_SH | fcntl.LOCK_NB))
    except BlockingIOError:
        return True
    except OSError:
        return None
    return False


def _locked(path: str, flags: int, how: int) -> int:
    """A descriptor that holds the lock. Raises OSError when it does not exist or cannot be locked, BlockingIOError when others hold it
    (LOCK_NB).
    """
    fd = os.open(path, flags | os.O_CLOEXEC, 0o600)
    _taken.add(fd)
    try:
        fcntl.flock(fd, how)
    except BaseException:
        release(fd)
        raise
    return fd


def release(lock: int) -> None:
    """Release a lock, which is free when all processes with the same descriptor have released it."""
    _taken.discard(lock)
    os.close(lock)


def _after_fork() -> None:
    """Close the parent's locks in the child of a fork."""
    while _taken:
        os.close(_taken.pop())


os.register_at_fork(after_in_child=_after_fork)


def keep_young(directory: str) -> None:
    """Touch a session's directory, its parent and its contents, for cleaners that go by age."""
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
    """Lock a session directory. Returns the descriptor, or None while the session lives."""
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
    """Clean every session under `parent` whose lock is free, and those of one process whose process is dead."""
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
    """The name of this process's session of one process, with its pid namespace."""
    return f"{LOCAL}{namespace():x}_{os.getpid()}_{start_of(os.getpid()):x}_{number:x}"


def local_process(name: str) -> int | None:
    """The pid of such a session's process; 0 if it is dead, None if it is not visible here or the session is another kind."""
    try:
        where, pid, start, _number = name.removeprefix(LOCAL).split("_")
        if int(where, 16) != namespace():
            return None
        return int(pid) if start_of(int(pid)) == int(start, 16) else 0
    except ValueError:
        return None


def local_is_dead(name: str) -> bool:
    """Whether the process of such a session is dead; False if it is not visible here."""
    return local_process(name) == 0


def remove_local(directory: str) -> None:
    """Remove the names of such a session, and the folder in which its groups meet."""
    unlink_segments(os.path.basename(directory))
    _remove_tree(directory)


def sweep_local() -> None:
    """Unlink the names in shared memory of such sessions whose process is dead."""
    start = segment_prefix(LOCAL)[1:-1]
    before = len(start) - len(LOCAL)
    for session in {name[before:].partition("-")[0] for name in _names_in(SHM, start)}:
        if local_is_dead(session):
            unlink_segments(session)
