"""The sessions of this user on this machine, found by their directories.

No session is asked; it is alive while one of its processes holds its lock. A session is also found by ``host:port``: its port is a
number that no other live session of the user has, and a link beside the sessions, ``port-<port>-<host>``, leads to its directory. No
socket listens there. Rejected: a bound socket to reserve the number, which would be a network socket in every session.
"""

from __future__ import annotations

import contextlib
import stat
import sys

from mray._common import kept, settings
from mray._common.kept import os
from mray._ipc.discovery import is_of_this_machine
from mray._ipc.reaper import LOCAL, LOCK, PORT, PORT_LINK, address_lock, is_held, lives_unlocked, local_is_dead

_PORTS = range(10_000, 60_000)


def parent_of(temp_dir: str | None) -> str:
    """Where this user's sessions lie under a temporary directory."""
    return os.path.join(temp_dir or _temporary_directory(), f"mray-{os.getuid()}")


def _temporary_directory() -> str:
    """As `tempfile.gettempdir`, which is imported (3 ms) only where the first place that it would try may not do."""
    loaded = sys.modules.get("tempfile")
    if loaded is None:
        first = next(filter(None, map(os.environ.get, ("TMPDIR", "TEMP", "TMP"))), "/tmp")
        if os.path.isabs(first) and os.path.isdir(first) and os.access(first, os.W_OK | os.X_OK) and os.statvfs(first).f_bavail:
            return os.path.abspath(first)
    return getattr(loaded, "tempdir", None) or kept.tempfile.gettempdir()


def session_parents() -> list[str]:
    """Directories that may have session directories: that of `MRAY_TMPDIR` alone where it is set."""
    base = settings.TMPDIR.get()
    return list(dict.fromkeys(map(parent_of, (base,) if base else (None, "/tmp"))))


def is_private(path: str) -> bool:
    """Whether no other user may enter this directory. Others may be traps, and are not read."""
    try:
        info = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(info.st_mode) and info.st_uid == os.getuid() and not info.st_mode & 0o077


def private_directory(path: str) -> str:
    """Create a private directory, or check that it is one. Raises PermissionError when another user could replace it."""
    parent = os.path.dirname(path)
    os.makedirs(parent, 0o755, exist_ok=True)
    _check_way(parent)
    try:
        os.mkdir(path, 0o700)
        os.chmod(path, 0o700)
    except FileExistsError:
        if not is_private(path):
            raise PermissionError(
                f"{path} must be a directory of this user that no other user may enter; set MRAY_TMPDIR to use another place"
            ) from None
    return path


def _check_way(path: str) -> None:
    """Raise PermissionError when other users may rename a directory above `path`."""
    path = os.path.realpath(path)
    while True:
        mode = os.stat(path).st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise PermissionError(
                f"every user may rename the entries of {path}, so sessions are not safe there: make it sticky (chmod +t), as /tmp is, or "
                "set MRAY_TMPDIR to use another place"
            )
        if path == os.path.dirname(path):
            return
        path = os.path.dirname(path)


def sessions() -> list[str]:
    """Directories of live sessions, the oldest first; without sessions that have a `_temp_dir` (their directory must be named) or are of
    one process (which answers no other).
    """
    return [directory for directory, alive in all_sessions() if alive and not os.path.basename(directory).startswith(LOCAL)]


def all_sessions() -> list[tuple[str, bool]]:
    """Every session directory, the oldest first, and whether the session is alive."""
    found: list[str] = []
    for parent in session_parents():
        if not is_private(parent):
            continue
        with contextlib.suppress(OSError), os.scandir(parent) as entries:
            found += [entry.path for entry in entries if entry.name.startswith("session_")]
    return [(path, is_alive(path)) for path in sorted(found, key=os.path.basename)]


def is_alive(directory: str) -> bool:
    """Whether a process of the session holds its lock; for a session of one process, whether it lives."""
    if (name := os.path.basename(directory)).startswith(LOCAL):
        return not local_is_dead(name)
    held = is_held(os.path.join(directory, LOCK))
    return lives_unlocked(directory) if held is None else held


# --------------------------------------------------------------------------------------------------- host:port
def take_port(parent: str, directory: str, host: str, port: int = 0) -> bool:
    """Make ``host:port`` name a session; False if another live one has this port. 0: any free one.

    `parent` is the private directory for the link, one of `session_parents` if others are to find it.
    """
    with address_lock(parent):
        taken = _taken(parent)
        while not port:
            chosen = _PORTS[int.from_bytes(os.urandom(4), "little") % len(_PORTS)]
            port = 0 if chosen in taken else chosen
        if port in taken:
            if is_alive(os.readlink(taken[port])):
                return False
            os.unlink(taken[port])
        place = os.path.join(parent, f"{PORT}{port}-{host}")
        os.symlink(directory, place)
    os.symlink(place, os.path.join(directory, PORT_LINK))
    return True


def _taken(parent: str) -> dict[int, str]:
    found = {}
    with os.scandir(parent) as entries:
        for entry in entries:
            port, dash, _host = entry.name.removeprefix(PORT).partition("-")
            if entry.name.startswith(PORT) and dash and port.isdecimal():
                found[int(port)] = entry.path
    return found


def join_host(host: str, port: int | str) -> str:
    """``host:port``, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def split_host(address: str) -> tuple[str, int] | None:
    host, colon, port = address.rpartition(":")
    if not colon or not host or "/" in host or not port.isdecimal():
        return None
    return host.removeprefix("[").removesuffix("]"), int(port)


def address_of(directory: str) -> str:
    """The address of a session: ``host:port``, or its directory if it has no port."""
    try:
        name = os.path.basename(os.readlink(os.path.join(directory, PORT_LINK)))
    except OSError:
        return directory
    port, _dash, host = name.removeprefix(PORT).partition("-")
    return join_host(host, port)


def directory_at(address: str, temp_dir: str | None = None) -> str | None:
    """The directory of the live session at ``host:port`` on this machine, or None."""
    split = split_host(address)
    if split is None:
        return None
    host, port = split
    parents = session_parents() if temp_dir is None else [parent_of(temp_dir), *session_parents()]
    for parent in filter(is_private, dict.fromkeys(parents)):
        with contextlib.suppress(OSError):
            place = _taken(parent).get(port)
            if place is not None and is_alive(directory := os.readlink(place)):
                own = os.path.basename(place).removeprefix(f"{PORT}{port}-")
                if host == own or is_of_this_machine(host):
                    return directory
    return None


def parents_elsewhere() -> list[str]:
    """Folders of this user's sessions below other temporary directories."""
    found = []
    for parent in filter(is_private, session_parents()):
        with contextlib.suppress(OSError):
            found += [os.path.dirname(os.readlink(place)) for place in _taken(parent).values()]
    return [each for each in dict.fromkeys(found) if each not in session_parents()]
