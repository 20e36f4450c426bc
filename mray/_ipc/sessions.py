"""The sessions of this user on this machine, as their directories tell.

Any process: a driver that joins one, commands, observers. Nothing is asked; a session is alive as long as a process of it holds its lock.
"""

from __future__ import annotations

import contextlib
import stat

from mray._common import kept, settings
from mray._common.kept import os
from mray._ipc.reaper import LOCAL, LOCK, is_held, lives_unlocked, local_is_dead


def parent_of(temp_dir: str | None) -> str:
    """The folder of this user's sessions under a temporary directory."""
    if not temp_dir:
        import tempfile  # noqa: PLC0415  (3 ms)

        temp_dir = tempfile.tempdir or kept.tempfile.gettempdir()
    return os.path.join(temp_dir, f"mray-{os.getuid()}")


def session_parents() -> list[str]:
    """The directories that may have session directories of this user: that of `MRAY_TMPDIR` alone where it is set."""
    base = settings.TMPDIR.get()
    return list(dict.fromkeys(map(parent_of, (base,) if base else (None, "/tmp"))))


def is_private(path: str) -> bool:
    """Whether this is a directory of our user that no other user may enter. Any other may be a trap: nothing in it is opened."""
    try:
        facts = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.getuid() and not facts.st_mode & 0o077


def sessions() -> list[str]:
    """Directories of the sessions of this user that are alive, the oldest first.

    Sessions with a `_temp_dir` of their own are not among them; their directory has to be named. Nor are sessions of one process, which
    answer no other process.
    """
    return [directory for directory, alive in all_sessions() if alive and not os.path.basename(directory).startswith(LOCAL)]


def all_sessions() -> list[tuple[str, bool]]:
    """Every session directory of this user, the oldest first, and whether the session is alive."""
    found: list[str] = []
    for parent in session_parents():
        if not is_private(parent):
            continue
        with contextlib.suppress(OSError), os.scandir(parent) as entries:
            found += [entry.path for entry in entries if entry.name.startswith("session_")]
    return [(path, is_alive(path)) for path in sorted(found, key=os.path.basename)]


def is_alive(directory: str) -> bool:
    """Whether a process of the session holds its lock; of a session of one process, whether that process lives."""
    if (name := os.path.basename(directory)).startswith(LOCAL):
        return not local_is_dead(name)
    held = is_held(os.path.join(directory, LOCK))
    return lives_unlocked(directory) if held is None else held
