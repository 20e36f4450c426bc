"""What a session in one process leaves on the machine: names of shared memory (of graphs and groups) and the folder where groups meet.

Both carry the process's id. An orderly end removes them; what a killed program has left, the next such session does.
"""

from __future__ import annotations

import contextlib
import os
import shutil

from mray._ipc.reaper import SHM, segment_prefix, unlink_segments

#: How the names of such sessions begin.
_LOCAL = "session_local_"


def session_name(number: int) -> str:
    """The name of a session of this process."""
    return f"{_LOCAL}{os.getpid()}_{number:x}"


def remove(directory: str) -> None:
    """The session is over."""
    unlink_segments(os.path.basename(directory))
    shutil.rmtree(directory, ignore_errors=True)


def remove_dead(parent: str) -> None:
    """Remove what sessions have left whose processes are gone; `parent` has the folders of sessions."""
    prefix = segment_prefix(_LOCAL)[1:-1]
    with contextlib.suppress(OSError):
        for session in {name[len(prefix) - len(_LOCAL) :].partition("-")[0] for name in os.listdir(SHM) if name.startswith(prefix)}:
            if _is_dead(session):
                unlink_segments(session)
    with contextlib.suppress(OSError):
        for session in os.listdir(parent):
            if session.startswith(_LOCAL) and _is_dead(session):
                shutil.rmtree(os.path.join(parent, session), ignore_errors=True)


def _is_dead(session: str) -> bool:
    pid = session.removeprefix(_LOCAL).partition("_")[0]
    return pid.isdecimal() and not os.path.exists(f"/proc/{pid}")
